"""The command ``surefoot audit``: can the reward of a task be fooled, and does it know what is right?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot.cli import output
from surefoot.cli.commands import Json, NoProgress, Set, read_config

if TYPE_CHECKING:
    from rich.console import Console

    from surefoot.rewards.audit_findings import AuditReport, Example, Finding

COLOURS = {"fail": "bold red", "warn": "yellow", "info": "cyan", "ok": "green"}
BAR = 24


def audit(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TASK|CONFIG",
            help="A task, a data file, or TOML files that are merged left to right.",
            show_default=False,
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option(metavar="TASK", help="Task, or a data file. [the configuration's]")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Model that is sampled, to see how rewards spread. [none]")
    ] = None,
    samples: Annotated[int, typer.Option(metavar="K", help="Samples of each prompt, with a model.")] = 8,
    prompts: Annotated[int, typer.Option(metavar="N", help="Prompts that are looked at.")] = 64,
    quick: Annotated[bool, typer.Option("--quick", help="Only what a run looks at before its first step.")] = False,
    quiet: NoProgress = False,
    as_json: Json = False,
    pairs: Set = None,
) -> None:
    """Find out whether a reward can be fooled, before a run does."""
    from surefoot import api
    from surefoot.cli.show import show_json
    from surefoot.errors import ConfigError
    from surefoot.training.config import RunConfig

    files = [Path(word) for word in words or () if word.endswith(".toml")]
    names = [*(word for word in words or () if not word.endswith(".toml")), *([] if task is None else [task])]
    if len(names) > 1:
        raise ConfigError(f"an audit looks at one task, and {len(names)} are named: {', '.join(names)}")
    if not (files or names or pairs):
        raise ConfigError(
            "nothing to audit: name a task, a data file or a configuration, for instance `surefoot audit addition`"
        )
    config = read_config(RunConfig, files, pairs, context)
    report = api.audit(names[0] if names else None, config, model=model, samples=samples, prompts=prompts, quick=quick)
    if as_json:
        show_json(report.record())
    else:
        show_audit(output.console(), report)
    if report.failed:
        raise typer.Exit(1)


def show_audit(console: Console, report: AuditReport) -> None:
    """One row for each finding, then the worst cases of what is wrong, then the verdict."""
    from rich.markup import escape
    from rich.table import Table

    print(f"task {report.task}, reward {report.reward}, {report.prompts} prompts\n")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in report.findings:
        table.add_row(f"[{COLOURS[finding.severity]}]{finding.severity}[/]", finding.check, escape(finding.text))
        for line in bars(finding):
            table.add_row("", "", line)
    console.print(table)
    for finding in [
        *report.of("fail"),
        *report.of("warn"),
        *(f for f in report.findings if f.check == "gold in doubt"),
    ]:
        if finding.examples:
            console.print(f"\n[{COLOURS[finding.severity]}]{finding.check}[/]", highlight=False)
            for example in finding.examples:
                console.print(f"  {_line(example)}", highlight=False, markup=False, overflow="fold")
    console.print(f"\n{report.verdict}", highlight=False, soft_wrap=True)


def bars(finding: Finding) -> list[str]:
    """The histogram of a finding, a line for each number of right samples; nothing where it has none."""
    counts: Sequence[int] = finding.numbers.get("histogram", ())
    size = max([1, *counts])
    return [
        f"{number:>3} of {len(counts) - 1} right {'█' * round(BAR * count / size)} {count}"
        for number, count in enumerate(counts)
    ]


def _line(example: Example) -> str:
    found = f", read as {_short(example.found)}" if example.found else ""
    total = "" if example.total is None else f", reward {example.total:g}"
    status = f", {example.status}" if example.status else ""
    gold = f"gold {_short(example.gold)}: " if example.gold else ""
    return f"{example.prompt_id} {gold}{_short(example.completion, 48)}{found}{total}{status}"


def _short(text: Any, most: int = 24) -> str:
    shown = repr(str(text))
    return shown if len(shown) <= most else f"{shown[: most // 2]} ... {shown[-most // 2 :]}"
