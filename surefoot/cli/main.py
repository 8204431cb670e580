"""The command ``surefoot``: finds the command, gathers dotted options, turns errors into one line and an exit code."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from surefoot import __version__
from surefoot.cli import audit, commands, experiments, options, reproduce, views
from surefoot.cli.output import folded, forgiving_output, harmless
from surefoot.cli.stopped import INTERRUPTED, Stopped
from surefoot.errors import SurefootError
from surefoot.training.threads import wait_passively

BAD_INPUT = 2
RUNS = ("demo", "train", "sft")

app = typer.Typer(
    name="surefoot",
    help="Reinforcement-learning post-training of language models that reason.",
    epilog="Documentation: docs/ and README.md. A command's own options: surefoot COMMAND --help",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if show:
        typer.echo(f"surefoot {__version__}")
        raise typer.Exit


for command in (
    commands.demo,
    commands.train,
    commands.sft,
    commands.evaluate,
    audit.audit,
    commands.doctor,
    commands.cards,
    experiments.compare,
    experiments.fit,
    views.report,
    views.view,
    views.sample,
    reproduce.reproduce,
):
    app.command(epilog=commands.EPILOGS.get(command.__name__))(command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and give its exit code.

    0: done. 1: the doctor found something. 2: bad input, with one line on standard error. 130: stopped by Ctrl-C.
    Output that cannot be written is a warning after a run, and an error (2) where it was all that the command makes;
    a reader that has gone (``| head``) is neither.

    Args:
        arguments: the words after ``surefoot``; those of the process where None.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    with forgiving_output() as output:
        code = _guarded(given)
        output.flush()
        if output.lost and given[:1] and given[0] in RUNS:
            print(f"surefoot: warning: the output cannot be written: {output.lost}", file=sys.stderr)
        elif output.lost and code == 0:
            code = _complain(f"the output cannot be written: {output.lost}", BAD_INPUT)
    return code


def _guarded(given: list[str]) -> int:
    wait_passively()
    _quiet_libraries()
    _tell_of_long_work()
    with warnings.catch_warnings():
        _plain_warnings()
        try:
            code = _invoke(given or ["--help"])
        except Stopped as stopped:
            print(f"surefoot: stopped{stopped}", file=sys.stderr)
            return stopped.exit_code
        except SurefootError as error:
            return _complain(str(error), error.exit_code)
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
    if code == INTERRUPTED:
        _say_how_to_go_on(given)
    return code


def _invoke(given: list[str]) -> int:
    group: Any = typer.main.get_command(app)
    typed = given
    name = next((word for word in given if not word.startswith("-")), "")
    if name in group.commands and given[0] == name:
        given = [name, *options.expand(given[1:], group.commands[name])]
    try:
        code = group.main(args=given, prog_name="surefoot", standalone_mode=False, obj=typed)
    except Exception as error:
        if not hasattr(error, "format_message"):  # what Typer raises for a wrong command line
            raise
        message = str(error.format_message())
        page = f"surefoot {name} --help" if name in group.commands else "surefoot --help"
        return _complain(f"{message[:1].lower()}{message[1:]} See '{page}'.", BAD_INPUT)
    return code if isinstance(code, int) else 0


def _complain(message: str, code: int) -> int:
    print(folded(harmless(f"surefoot: error: {' '.join(message.split())}"), sys.stderr), file=sys.stderr)
    return code


def _say_how_to_go_on(given: Sequence[str]) -> None:
    line = "surefoot: stopped"
    if given[:1] == ["compare"]:
        line += "; the same command goes on from the last saved steps"
    print(line, file=sys.stderr)


def _quiet_libraries() -> None:
    """Keep what the libraries below say to themselves off the terminal; an environment that asks for it is obeyed."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _tell_of_long_work() -> None:
    """What the library logs (the conversion of a model takes half a minute) is a line on standard error."""
    logger = logging.getLogger("surefoot")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("surefoot: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)


def _plain_warnings() -> None:
    """A warning is one line; those that speak to programmers (deprecations, syntax) are for the tests, not for this command."""

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        print(folded(harmless(f"surefoot: warning: {' '.join(str(message).split())}"), sys.stderr), file=sys.stderr)

    if not sys.warnoptions:
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, SyntaxWarning):
            warnings.simplefilter("ignore", category)
    warnings.showwarning = show
