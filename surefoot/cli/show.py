"""What the commands print when they are done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from surefoot.cli.output import say
from surefoot.report.summary import from_result
from surefoot.report.terminal import result_table
from surefoot.report.wording import interval, percent


def show_run(console: Console, folder: Path, result: Mapping[str, Any], confidence: float) -> None:
    """Held-out accuracy before and after, speed, where the time went, and where everything lies.

    Args:
        console: where to print.
        folder: the run folder.
        result: the content of its ``result.json``.
        confidence: level of the intervals.
    """
    page = folder / "report.html"
    console.print(result_table(result, page if page.exists() else None, confidence))
    verdict = from_result(result).verdict
    say(f"{verdict} The trained model: {folder / 'model'}", console.file)


def show_evaluation(console: Console, record: Mapping[str, Any], confidence: float) -> None:
    """avg@k and pass@k with their interval, avg@k of each part of a mixture, and what became of the completions."""
    level = f"{100 * confidence:g} % interval"
    table = Table(box=None, pad_edge=False)
    for column in ("measure", "value", level):
        table.add_column(column)
    low, high = record.get("low"), record.get("high")
    table.add_row(f"avg@{record['samples']}", percent(record["accuracy"]), interval(low, high))
    for k, value in record.get("pass", {}).items():
        if k == "1" and record["samples"] == 1:
            continue
        bounds = value if isinstance(value, Mapping) else {"value": value}
        ends = interval(bounds.get("low"), bounds.get("high")) if "low" in bounds else ""
        table.add_row(f"pass@{k}", percent(bounds["value"]), ends)
    for label, part in record.get("tasks", {}).items():
        name = Text(f"avg@{record['samples']}, {label} ({part['problems']} problems)")
        table.add_row(name, percent(part["accuracy"]), interval(part["low"], part["high"]))
    console.print(table)
    facts = _grid()
    facts.add_row("problems", f"{record['problems']} x {record['samples']} samples")
    facts.add_row(
        "length", f"{record['length']:.1f} tokens on average, {percent(record['truncated'])} cut by max_new_tokens"
    )
    facts.add_row("no answer", percent(record["no_answer"]))
    console.print()
    console.print(facts)


def show_checks(console: Console, checks: Iterable[Any]) -> None:
    """One row per check of the doctor: outcome, name, evidence."""
    colours = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        table.add_row(f"[{colours[check.outcome]}]{check.outcome}[/]", check.name, escape(check.evidence))
    console.print(table)


def show_json(value: Any) -> None:
    """A value as JSON on standard output, for programs."""
    print(json.dumps(value, indent=1, default=str))


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    return grid
