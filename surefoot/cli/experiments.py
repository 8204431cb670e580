"""The commands over many runs: ``surefoot compare``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot.cli import output
from surefoot.cli.commands import Json, Quiet, Set, read_config

if TYPE_CHECKING:
    from surefoot.methods.compare.experiment import Experiment
    from surefoot.methods.compare.schedule import News


def compare(
    context: typer.Context,
    experiment: Annotated[list[Path], typer.Argument(metavar="EXPERIMENT", help="TOML files, merged left to right.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check every run and list them; run nothing.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Run nothing, compare what is finished.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    pairs: Set = None,
) -> None:
    """Train several algorithms on several seeds and say which is better."""
    from surefoot.cli.show import show_json
    from surefoot.methods.compare.experiment import ExperimentConfig, make_experiment
    from surefoot.methods.compare.results import write_comparison
    from surefoot.methods.compare.schedule import run_all

    made = make_experiment(read_config(ExperimentConfig, experiment, pairs, context))
    if dry_run:
        _plan(made)
        return
    failed: list[News] = []
    if not show:
        failed = run_all(made, (lambda news: None) if quiet or as_json else _told)
    found = write_comparison(made)
    if as_json:
        show_json(found)
    else:
        show_comparison(found, made.folder)
    if failed:
        print(f"surefoot: {len(failed)} runs failed: {'; '.join(str(news.job) for news in failed)}", file=sys.stderr)
        raise typer.Exit(1)


def _plan(made: Experiment) -> None:
    from surefoot.methods.compare.schedule import finished

    done = finished(made)
    for job in made.jobs():
        print(f"{'done' if job in done else 'to do'}  {job}")


def _told(news: News) -> None:
    what = f"{news.done}/{news.of} {news.job}: "
    if news.record is None:
        print(f"{what}failed\n{news.trouble}", file=sys.stderr)
    else:
        print(f"{what}{news.record['seconds']:.0f} s", file=sys.stderr)


def show_comparison(found: dict[str, Any], folder: Path) -> None:
    """A table for each task, one sentence for each arm."""
    from rich.markup import escape
    from rich.table import Table

    from surefoot.methods.compare.sentences import sentences, table

    console = output.console()
    for task in found["tasks"]:
        head, *rows = table(found, task)
        shown = Table(
            title=escape(task) if len(found["tasks"]) > 1 else None, box=None, pad_edge=False, title_justify="left"
        )
        for i, name in enumerate(head):
            shown.add_column(escape(name), justify="left" if i == 0 else "right")
        for row in rows:
            shown.add_row(*map(escape, row))
        console.print(shown)
        console.print()
    for line in sentences(found):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    done, planned = found["seeds"], found["seeds_planned"]
    if len(done) < len(planned):
        console.print(f"{len(done)} of {len(planned)} seeds are finished.", highlight=False, soft_wrap=True)
    console.print(f"Everything is in {folder}", highlight=False, markup=False, soft_wrap=True)
