"""What a run shows in the terminal: a live bar, or plain lines where nobody watches, and the table at the end."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from surefoot.report import wording
from surefoot.report.summary import Accuracy, Summary, from_result
from surefoot.training.progress import Progress

WIDTH = 80


class ProgressView:
    """Shows the progress of a run: ``with ProgressView() as watch: train(config, watch=watch)``.

    On a terminal a live bar; elsewhere (a file, a pipe, ``TERM=dumb``) plain ASCII lines of at most 80 characters, one
    at the first and the last step, at every new held-out accuracy, and otherwise every ``seconds`` seconds.

    Args:
        quiet: show nothing at all.
        stream: where to write; standard output by default.
        seconds: pause between two plain lines.
        clock: a monotonic clock in seconds.
    """

    def __init__(
        self,
        quiet: bool = False,
        stream: TextIO | None = None,
        seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.quiet = quiet
        self.stream = (sys.stdout or io.StringIO()) if stream is None else stream  # None: closed by ``>&-``
        self.seconds = seconds
        self.clock = clock
        self.live = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self._bar: Bar | None = None
        self._last: Progress | None = None
        self._said: Progress | None = None
        self._said_at = -float("inf")

    def __enter__(self) -> ProgressView:
        if self.live and not self.quiet:
            self._bar = Bar(
                TextColumn("{task.fields[phase]:<15}", style="bright_black", markup=False),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[state]}", markup=False),
                console=Console(file=self.stream),
                refresh_per_second=4,
                expand=True,
            )
            self._bar.add_task("", total=None, phase="start", state="")
            try:
                self._bar.start()
            except OSError:
                self._bar, self.quiet = None, True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self._bar.stop()
            self._bar = None
        elif self._last is not None and not (self._said and replace(self._last, phase=self._said.phase) == self._said):
            self._say(self._last)

    def __call__(self, progress: Progress) -> None:
        """Take note of where the run stands. A stream that cannot be written is left alone from then on."""
        self._last = progress
        if self.quiet:
            return
        if self._bar is not None:
            self._bar.update(
                self._bar.task_ids[0],
                completed=progress.step,
                total=progress.steps,
                phase=wording.PHASES.get(progress.phase, progress.phase)[:15],
                state=state(progress),
            )
        elif self._is_due(progress):
            self._say(progress)

    def _is_due(self, progress: Progress) -> bool:
        said = self._said
        if said is None or (progress.accuracy is not None and progress.accuracy != said.accuracy):
            return True
        if progress.step == progress.steps and said.step != progress.steps:
            return True
        return self.clock() - self._said_at >= self.seconds

    def _say(self, progress: Progress) -> None:
        if self.quiet:
            return
        self._said, self._said_at = progress, self.clock()
        try:
            print(plain_line(progress), file=self.stream, flush=True)
        except (OSError, ValueError):  # a run does not end with its spectator, nor with a full disk
            self.quiet = True


def state(progress: Progress) -> str:
    """Step, reward, held-out accuracy and time left, in ASCII.

    >>> state(Progress(3, 20, reward=0.5, accuracy=0.25, seconds_left=75, phase="train"))
    '3/20  reward 0.50  held-out 25.0 %  1:15 left'
    """
    parts = [f"{progress.step}/{progress.steps}"]
    if progress.reward is not None:
        parts.append(f"reward {progress.reward:.2f}" if abs(progress.reward) < 1e4 else f"reward {progress.reward:.2e}")
    if progress.accuracy is not None:
        drawn = "sampled" if progress.phase == "warm-up" else "held-out"
        parts.append(f"{drawn} {wording.percent(progress.accuracy)}")
    if progress.seconds_left is not None:
        parts.append(f"{wording.countdown(progress.seconds_left)} left")
    return "  ".join(parts)


def plain_line(progress: Progress) -> str:
    """One line without control characters, at most :data:`WIDTH` of them."""
    phase = wording.PHASES.get(progress.phase, progress.phase)
    line = f"step {state(progress)}  {phase}"
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in line)[:WIDTH].rstrip()


def result_table(result: Mapping[str, Any], report: Path | None = None, confidence: float = 0.95) -> Table:
    """The outcome of a run: accuracy before and after with intervals, speed, where the time went, the report's path.

    Args:
        result: the content of ``result.json``; what it lacks is left out of the table.
        report: path of ``report.html``.
        confidence: level of the intervals, as configured in ``evaluation.confidence``.
    """
    summary = from_result(result)
    table = Table(box=box.HORIZONTALS, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, style="bright_black")
    table.add_column(overflow="fold")
    for name, one in (("held-out accuracy before", summary.before), ("held-out accuracy after", summary.after)):
        if one is not None:
            table.add_row(name, _accuracy(one, confidence))
    if summary.gain is not None:
        table.add_row("difference", _difference(summary, confidence))
    table.add_row("steps", f"{wording.count(summary.steps)}{_ended(summary.ended)}", end_section=True)
    _add_speed(table, summary)
    for index, phase in enumerate(summary.phases):
        row = f"{wording.duration(phase.seconds):>12}  {wording.percent(phase.share):>7}"
        table.add_row(Text(f"time: {phase.name}"), row, end_section=index == len(summary.phases) - 1)
    if report is not None:
        table.add_row("report", Text(str(report), overflow="fold"))
    return table


def _ended(what: str) -> str:
    """Why a run ended before its steps were done."""
    if what == "prompts":
        return ", ended since no prompt is left to sample"
    return f", ended by {what}" if what.startswith("budget.") else ""


def text_table(rows: Sequence[Sequence[str]], width: int = WIDTH) -> list[list[str]]:
    """A table as lines of text that fit a width: columns that do not follow in a block of their own.

    The first column is repeated in each block; it is cut where it would take more than a third of the width.

    Args:
        rows: the head and the rows, all of one length.
        width: of the terminal.

    Returns:
        The lines of each block.

    >>> text_table([["arm", "accuracy"], ["grpo", "50.0"]])
    [['arm   accuracy', 'grpo      50.0']]
    """
    names = [_cut(row[0], max(width // 3, 8)) for row in rows]
    first = max(map(cell_len, names))
    blocks: list[list[int]] = [[]]
    room = width - first
    for column in range(1, len(rows[0])):
        size = max(cell_len(row[column]) for row in rows) + 2
        if size > room and blocks[-1]:
            blocks.append([])
            room = width - first
        blocks[-1].append(column)
        room -= size
    lines = []
    for columns in blocks:
        sizes = [max(cell_len(row[column]) for row in rows) for column in columns]
        lines.append(
            [
                "".join(
                    [_padded(name, first)]
                    + [f"  {' ' * (size - cell_len(row[c]))}{row[c]}" for c, size in zip(columns, sizes, strict=True)]
                )
                for name, row in zip(names, rows, strict=True)
            ]
        )
    return lines


def _padded(text: str, size: int) -> str:
    return text + " " * (size - cell_len(text))


def _cut(text: str, size: int) -> str:
    return text if cell_len(text) <= size else text[: size - 2] + ".."


def _difference(summary: Summary, confidence: float) -> str:
    assert summary.gain is not None
    text = f"[bold]{wording.points(summary.gain)}[/bold]"
    if summary.low is None or summary.high is None:
        return text
    return f"{text}  ({100 * confidence:g} % interval {100 * summary.low:+.1f} to {100 * summary.high:+.1f}, paired)"


def _add_speed(table: Table, summary: Summary) -> None:
    for name, rate in (("generated", summary.generated_per_second), ("trained", summary.trained_per_second)):
        if rate is not None:
            table.add_row(f"tokens per second {name}", wording.count(rate))
    if summary.seconds:
        table.add_row("time", wording.duration(summary.seconds))


def _accuracy(one: Accuracy, confidence: float) -> str:
    text = f"[bold]{wording.percent(one.value)}[/bold]"
    if one.low is None or one.high is None:
        return text
    return f"{text}  ({100 * confidence:g} % interval {wording.interval(one.low, one.high)})"
