"""``surefoot reproduce``: the claims of the papers behind the presets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot.cli import output
from surefoot.cli.commands import Json, Quiet

if TYPE_CHECKING:
    from surefoot.methods.reproduce.claim import Claim
    from surefoot.methods.reproduce.store import Bench


def reproduce(
    claims: Annotated[
        list[str] | None, typer.Argument(metavar="CLAIM", help="Names of claims.", show_default=False)
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the claims and run nothing.")] = False,
    every: Annotated[bool, typer.Option("--all", help="All claims.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Those without training runs: minutes, not hours.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder that keeps results and runs.")] = Path(
        "runs/reproduce"
    ),
    jobs: Annotated[int, typer.Option(min=0, help="Training runs at a time; 0: as many as there are free cores.")] = 0,
    again: Annotated[
        bool, typer.Option("--again", help="Forget what was measured of these claims, and measure it once more.")
    ] = False,
    second: Annotated[
        bool,
        typer.Option("--second-look", help="Measure three times the seeds of claims whose intervals decide nothing."),
    ] = False,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="SEEDS", help="Other seeds: 1000:1005 (1000 to 1004) or 1000,1001; kept in DIR/other-seeds."
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Run nothing, show what is finished.")] = False,
    page: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the tables into this Markdown page.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Put claims of the papers to the test: reproduced, not reproduced, or inconclusive."""
    from surefoot.cli.show import show_json
    from surefoot.errors import ConfigError
    from surefoot.methods.reproduce.catalogue import CLAIMS, QUICK, find
    from surefoot.methods.reproduce.store import Bench, measured, results, run_claim
    from surefoot.methods.reproduce.table import check_page, keep

    chosen = find([*(claims or ()), *(CLAIMS if every else QUICK if quick else ())])
    bench, known = Bench(out, jobs, (lambda words: None) if quiet or as_json else _say), dict(CLAIMS)
    if seeds is not None:
        if page is not None:
            raise ConfigError(
                "--page keeps what the seeds that were fixed beforehand have measured, and --seeds asks for others: leave one out"
            )
        bench, known = bench.elsewhere(), {name: claim.with_seeds(seeds) for name, claim in CLAIMS.items()}
        chosen = [known[claim.name] for claim in chosen]
    if list_all or not (chosen or show or page):
        _list(chosen or list(known.values()), bench, as_json)
        return
    if page is not None:
        there = {record["claim"] for record in results(bench, CLAIMS)}
        check_page(page, there if show else {*there, *(claim.name for claim in chosen)})
    if not show:
        for claim in () if again else chosen:
            measured(bench, claim)  # a damaged file is said before the hours of the claims before it
        for claim in chosen:
            run_claim(bench, claim, again=again, second=second)
    shown = list(results(bench, {claim.name: claim for claim in chosen or known.values()}))
    if as_json:
        show_json(shown)
    else:
        for record in shown:
            show_finding(record)
    if page is not None:
        keep(page, CLAIMS.values(), list(results(bench, CLAIMS)))


def _say(words: str) -> None:
    import sys

    print(words, file=sys.stderr)


def _list(claims: Sequence[Claim], bench: Bench, as_json: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    from surefoot.cli.show import show_json
    from surefoot.methods.reproduce.catalogue import QUICK
    from surefoot.methods.reproduce.store import measured
    from surefoot.methods.reproduce.table import listing

    done = {claim.name: len(measured(bench, claim)) for claim in claims}
    if as_json:
        show_json([described(claim) | {"seeds_done": done[claim.name]} for claim in claims])
        return
    head, *rest = listing(claims)
    table = Table(box=None, pad_edge=False)
    for i, name in enumerate([*head, "quick", "done"]):
        table.add_column(name, no_wrap=i != 1, justify="right" if i in (2, 3) else "left", overflow="fold")
    for claim, row in zip(claims, rest, strict=True):
        seeds = done[claim.name]
        state = "yes" if seeds == len(claim.seeds) else f"{seeds} of {len(claim.seeds)}" if seeds else ""
        table.add_row(*map(escape, [*row, "yes" if claim.name in QUICK else "", state]))
    output.console().print(table)


def described(claim: Claim) -> dict[str, Any]:
    """A claim as plain values: what it will be judged by, before anything runs."""
    from dataclasses import asdict

    from surefoot.methods.reproduce.catalogue import QUICK

    words = {key: getattr(claim, key) for key in ("name", "title", "paper", "hypothesis", "seconds")}
    return {
        **words,
        "quick": claim.name in QUICK,
        "criteria": [asdict(criterion) for criterion in claim.criteria],
        "control": asdict(claim.control),
        "seeds": list(claim.seeds),
        "settings": dict(claim.settings),
    }


def show_finding(record: dict[str, Any]) -> None:
    """A finding in a few lines: what was claimed, what was measured, what the control did, the verdict."""
    from surefoot.methods.reproduce.table import SIGNS, interval, looked, number, wanted
    from surefoot.report.wording import duration

    lines = [f"{record['claim']}: {record['verdict'].upper()}", f"  {record['hypothesis']}"]
    for criterion in record["criteria"]:
        claimed = f"{SIGNS[criterion['side']].strip()} {number(criterion['threshold'])}"
        lines.append(f"  {interval(criterion['interval'])}, claimed {claimed}: {criterion['quantity']}")
    control = record["control"]
    lines.append(
        f"  control {'held' if control['held'] else 'MOVED'}, {interval(control['interval'])}, had to be {wanted(control)}: "
        f"{control['quantity']}"
    )
    lines.append(
        f"  {record['paper']}; seeds: {looked(record)}; {100 * record['confidence']:g} % intervals; {duration(record['seconds'])}"
    )
    for line in lines:
        output.say(line)
    print()
