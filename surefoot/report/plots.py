"""Plots in files, for documents: one run, or several seeds over one another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.errors import ConfigError, RunFolderError
from surefoot.extras import require
from surefoot.files import explained
from surefoot.report import palette
from surefoot.report.figures import moving_mean
from surefoot.report.reading import RunFiles, column, number, read_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GROUP_COLOURS = tuple(light for light, _ in palette.ARMS)
_STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.edgecolor": palette.SLATE_PALE,
    "axes.labelcolor": palette.MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": palette.LINE,
    "grid.linewidth": 0.8,
    "xtick.color": palette.MUTED,
    "ytick.color": palette.MUTED,
    "text.color": palette.INK,
    "legend.frameon": False,
    "svg.hashsalt": "surefoot",
}


def plot_run(run: Path, file: Path) -> None:
    """Held-out accuracy with its interval, and training reward, over the steps of one run.

    Args:
        run: the run folder.
        file: where to write, ``.png`` or ``.svg``.

    Raises:
        RunFolderError: no run there, or it holds neither evaluations nor metrics; the file cannot be written.
        ConfigError: a file name that ends in neither .png nor .svg.
        MissingExtraError: Matplotlib is not installed.
    """
    files = _read(run)

    def draw(left: Axes, right: Axes) -> None:
        _draw_accuracy(left, files, palette.ACCENT)
        left.set_title(f"Held-out accuracy, {100 * files.confidence:g} % interval")
        _draw_reward(right, files, palette.ACCENT)

    _write(file, files.name, draw)


def plot_runs(runs: Sequence[Path], file: Path, labels: Sequence[str] | None = None) -> None:
    """Several runs over one another: a thin line for each, and the mean of those that share a label.

    Args:
        runs: run folders, for instance of several seeds.
        file: where to write, ``.png`` or ``.svg``.
        labels: one for each run; runs with the same label share a colour. Without labels, all runs are one group.

    Raises:
        RunFolderError, MissingExtraError: as :func:`plot_run`.
        ConfigError: no runs, or labels of another number than the runs; a file name that ends in neither .png nor .svg.
    """
    if not runs or (labels is not None and len(labels) != len(runs)):
        given = "no labels" if labels is None else f"{len(labels)} labels"
        raise ConfigError(f"{len(runs)} runs and {given} were given: give at least one run, and one label for each")
    read = [_read(run) for run in runs]
    names = list(labels) if labels is not None else [f"{len(runs)} runs"] * len(runs)
    groups = {name: [files for files, own in zip(read, names, strict=True) if own == name] for name in names}

    def draw(left: Axes, right: Axes) -> None:
        for index, (name, members) in enumerate(groups.items()):
            colour = GROUP_COLOURS[index % len(GROUP_COLOURS)]
            _draw_group(left, members, "accuracy", name, colour)
            _draw_group(right, members, "reward", name, colour)
        left.set_title("Held-out accuracy, mean and each run")
        right.set_title("Training reward, mean and each run")
        left.legend(loc="best")

    _write(file, "", draw)


def _read(run: Path) -> RunFiles:
    files = read_run(Path(run))
    if not files.metrics and not files.evaluations:
        raise RunFolderError(f"{run} holds neither metrics nor evaluations: train for at least one step")
    return files


def _points(files: RunFiles, what: str) -> tuple[list[int], list[float]]:
    if what == "accuracy":
        return column(files.evaluations, "accuracy")
    steps, values = column(files.metrics, "reward/mean")
    return steps, moving_mean(values, max(1, len(values) // 20))


def _draw_accuracy(axes: Axes, files: RunFiles, colour: str) -> None:
    steps, values = column(files.evaluations, "accuracy")
    banded = [r for r in files.evaluations if number(r.get("low")) is not None and number(r.get("high")) is not None]
    if banded:
        x, low, high = ([r[name] for r in banded] for name in ("step", "low", "high"))
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(steps, values, color=colour, linewidth=1.8, marker="o", markersize=3)
    _say_if_empty(axes, steps)


def _draw_reward(axes: Axes, files: RunFiles, colour: str) -> None:
    steps, values = column(files.metrics, "reward/mean")
    axes.plot(steps, values, color=colour, linewidth=0.8, alpha=0.35)
    window = max(1, len(values) // 20)
    axes.plot(steps, moving_mean(values, window), color=colour, linewidth=1.8)
    axes.set_title("Training reward" + (f", mean of {2 * (window // 2) + 1} steps" if window > 1 else ""))
    _say_if_empty(axes, steps)


def _draw_group(axes: Axes, members: Sequence[RunFiles], what: str, name: str, colour: str) -> None:
    drawn = [dict(zip(*_points(files, what), strict=True)) for files in members]
    drawn = [points for points in drawn if points]
    alone = len(drawn) == 1
    for points in drawn:
        axes.plot(
            list(points),
            list(points.values()),
            color=colour,
            linewidth=1.8 if alone else 0.9,
            alpha=1 if alone else 0.35,
        )
    common = sorted(set.intersection(*(set(points) for points in drawn))) if drawn else []
    means = [sum(points[step] for points in drawn) / len(drawn) for step in common]
    axes.plot(common, means, color=colour, linewidth=1.8, label=name)


def _say_if_empty(axes: Axes, steps: Sequence[int]) -> None:
    if not steps:
        axes.text(0.5, 0.5, "not recorded", transform=axes.transAxes, ha="center", color=palette.MUTED)


def _write(file: Path, title: str, draw: Any) -> None:
    """Two plots side by side, over steps."""
    ticker = require("matplotlib.ticker", "report", "a plot")

    def pair(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        draw(left, right)
        left.yaxis.set_major_formatter(ticker.PercentFormatter(1.0, decimals=0))
        for axes in (left, right):
            axes.set_xlabel("step")
            axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        if title:
            figure.suptitle(title.replace("$", r"\$"), x=0.01, ha="left", fontsize=9, color=palette.MUTED)

    save_figure(file, pair, size=(8.4, 3.1))


def save_figure(file: Path, draw: Callable[[Figure], None], *, size: tuple[float, float]) -> None:
    """Draw into a figure of the house style and write it.

    Args:
        file: where to write, ``.png`` or ``.svg``.
        draw: what is in it.
        size: in inches.

    Raises:
        ConfigError: a file name that ends in neither .png nor .svg.
        MissingExtraError: Matplotlib is not installed.
    """
    file = Path(file)
    kind = file.suffix.lower().removeprefix(".")
    if kind not in ("png", "svg"):
        raise ConfigError(f"the plot '{file.name}' ends in neither .png nor .svg: rename it")
    matplotlib = require("matplotlib", "report", "a plot")
    figures = require("matplotlib.figure", "report", "a plot")
    with matplotlib.rc_context(_STYLE):
        # A figure of its own, without pyplot: no global state, no window, whatever the caller draws besides.
        figure: Figure = figures.Figure(figsize=size, layout="constrained")
        draw(figure)
        with explained(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(file, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None)
