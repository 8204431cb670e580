"""What Ctrl-C leaves of a run: whether there is something to go on from, and the command that does."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from surefoot.errors import SurefootError

if TYPE_CHECKING:
    from surefoot.training.config import RunConfig, SftConfig

INTERRUPTED = 130


class Stopped(SurefootError):
    """A run was stopped by Ctrl-C; the message says what is left of it."""

    exit_code = INTERRUPTED


@contextmanager
def told_what_is_left(config: RunConfig | SftConfig, given: Sequence[str], resume: bool | None) -> Iterator[None]:
    """Turn Ctrl-C within the context into :class:`Stopped`.

    Args:
        config: of the run.
        given: the words after ``surefoot``.
        resume: whether the run is gone on with; None for one that cannot be.
    """
    from surefoot.training.folder import run_path

    there = (run_path(config) / "config.toml").exists()  # then a run that is not resumed never touches it
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(what_is_left(config, given, resume, untouched=there and not resume)) from None


def what_is_left(config: RunConfig | SftConfig, given: Sequence[str], resume: bool | None, *, untouched: bool) -> str:
    """The end of the line that begins with "stopped"."""
    from surefoot.training.folder import run_path
    from surefoot.training.kept import kept_states, steps_done

    run = run_path(config)
    if untouched or not (run / "config.toml").exists():
        again = [word for word in given if word != "--resume"]
        return (
            f" before the first step was done, and nothing is kept of it; to begin again: surefoot {shlex.join(again)}"
        )
    done, saved = steps_done(run), max(kept_states(run), default=0)
    after = f" after step {done}" if done else " before the first step was done"
    if resume is None:
        return (
            f"{after}; supervised training cannot be gone on with, and the folder holds what there is of it; to begin again, "
            f"give another --name or remove it: rm -r {shlex.quote(str(run))}"
        )
    command = shlex.join([*given, *([] if "--resume" in given else ["--resume"])])
    if saved:
        return f"{after}; to go on from the last saved step, {saved}: surefoot {command}"
    return (
        f"{after} and before a state was saved, so that there is none to go on from; to begin again: surefoot {command}"
    )
