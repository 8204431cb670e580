"""The commands that show: ``surefoot report``, ``surefoot view`` and ``surefoot sample``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.commands import Json, NoProgress
from surefoot.cli.output import harmless

Folders = Annotated[
    list[Path], typer.Argument(metavar="FOLDER", help="Run folders, or experiments of 'surefoot compare'.")
]


def report(folders: Folders, quiet: NoProgress = False) -> None:
    """Write report.html of runs and of comparisons; of several runs, with where their settings differ."""
    from surefoot.report.comparison_page import write_comparison_report
    from surefoot.report.experiment import is_experiment
    from surefoot.report.page import write_report

    runs = [folder for folder in folders if not is_experiment(folder)]
    for folder in folders:
        if folder in runs:
            print(write_report(folder, others=[other for other in runs if other != folder]))
        else:
            print(write_comparison_report(folder))


def view(
    folders: Folders,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    host: Annotated[
        str, typer.Option(help="Where to listen; 127.0.0.1 is reached from this machine alone.")
    ] = "127.0.0.1",
    quiet: NoProgress = False,
) -> None:
    """Show runs and comparisons in the browser, live while they go on (a local server)."""
    from surefoot.report.server import Server, find_pages, is_loopback, serve

    if not is_loopback(host):
        print(
            f"surefoot: warning: {host} can be reached from other machines, and whoever reaches it can read these runs",
            file=sys.stderr,
        )
    for page in find_pages(folders):
        if page.trouble:
            print(f"surefoot: warning: {page.trouble}", file=sys.stderr)
    server = Server(folders, host, port)
    serve(server, lambda: print(f"{server.url}  (Ctrl-C ends it)", flush=True))


def sample(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    step: Annotated[int, typer.Option(min=0, help="Step at which it was sampled.")],
    prompt: Annotated[str, typer.Option(metavar="ID", help="prompt_id of its prompt.")],
    number: Annotated[int, typer.Option("--sample", min=0, help="sample_id of it.")] = 0,
    heldout: Annotated[bool, typer.Option("--heldout", help="A sample of the evaluation after that step.")] = False,
    quiet: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Make a sample of a run again from its seed, with the weights of its version where they are kept."""
    from surefoot.cli.show import show_json
    from surefoot.training.regenerate import regenerate

    made = regenerate(run, step, prompt, number, heldout=heldout)
    if as_json:
        show_json(made.record())
        return
    print(harmless(made.text) if sys.stdout.isatty() else made.text)
    print(f"surefoot: {made.says}", file=sys.stderr)
