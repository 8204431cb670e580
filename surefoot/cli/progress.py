"""What a person sees while a run goes on: a live bar in a terminal, a line now and then elsewhere, nothing if quiet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

SHARE_OF_A_LINE = 0.1  # of the run between two lines, where there is no terminal


class Event(Protocol):
    """What is read of :class:`surefoot.training.loop.Progress`."""

    @property
    def step(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def reward(self) -> float | None: ...
    @property
    def accuracy(self) -> float | None: ...
    @property
    def seconds_left(self) -> float | None: ...
    @property
    def phase(self) -> str: ...


Watch = Callable[[Event], None]


@contextmanager
def watching(console: Console, quiet: bool = False) -> Iterator[Watch | None]:
    """Give the ``watch`` of a run: ``with watching(console) as watch: train(config, watch=watch)``."""
    if quiet:
        yield None
    elif not console.is_terminal:
        yield _Lines(console)
    else:
        columns = TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.fields[facts]}")
        with Progress(*columns, console=console, transient=True) as bar:
            yield _Bar(bar)


def clock(seconds: float) -> str:
    """``clock(75) == "1:15"``; hours only where there are any."""
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def facts(event: Event) -> str:
    """``12/100  reward 0.42  held-out 55.1 %  1:15 left``, without what is not known yet."""
    parts = [f"{event.step}/{event.steps}"]
    if event.reward is not None:
        parts.append(f"reward {event.reward:.3f}")
    if event.accuracy is not None:
        parts.append(f"held-out {event.accuracy:.1%}".replace("%", " %"))
    if event.seconds_left is not None:
        parts.append(f"{clock(event.seconds_left)} left")
    return "  ".join(parts)


class _Bar:
    def __init__(self, bar: Progress) -> None:
        self.bar = bar
        self.task = bar.add_task("starting", total=None, facts="")

    def __call__(self, event: Event) -> None:
        description = event.phase.ljust(10)
        self.bar.update(
            self.task, description=description, completed=event.step, total=event.steps, facts=facts(event)
        )


class _Lines:
    def __init__(self, console: Console) -> None:
        self.console = console
        self.last: tuple[int, int] = (0, -1)

    def __call__(self, event: Event) -> None:
        part = event.steps, int(event.step / max(event.steps, 1) / SHARE_OF_A_LINE)
        if part != self.last:
            self.last = part
            self.console.print(f"{event.phase}: {facts(event)}", highlight=False)
