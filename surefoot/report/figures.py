"""How a curve becomes a Plotly figure: plain dictionaries in the light colours of the palette, drawn by the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.report import palette
from surefoot.report.reading import Record, column
from surefoot.report.wording import percent, short

Trace = dict[str, Any]

_MARKERS_UP_TO = 40  # a curve of fewer points shows them


@dataclass(frozen=True)
class Figure:
    """One figure of the page.

    Attributes:
        key: name of its element.
        title: what is shown.
        unit: what it is measured in and averaged over.
        summary: the curve in words, for those who do not see it and for those in a hurry.
        data, layout: as Plotly takes them; no data where the run recorded none.
        wide: whether it spans the page.
        rem: height, where it needs more than others have; 0: as they are.
    """

    key: str
    title: str
    unit: str
    summary: str
    data: list[Trace]
    layout: dict[str, Any]
    wide: bool = False
    rem: float = 0


@dataclass(frozen=True)
class Curve:
    """One metric of a figure."""

    metric: str
    label: str
    colour: str = palette.ACCENT
    share: bool = False
    lower: bool = False
    smooth: bool = False


def metric_figure(records: Sequence[Record], key: str, title: str, unit: str, curves: Sequence[Curve]) -> Figure:
    """Lines of metrics over steps; curves marked ``lower`` go into a panel of their own beneath."""
    series = [(curve, *column(records, curve.metric)) for curve in curves]
    series = [(curve, steps, values) for curve, steps, values in series if steps]
    if not series:
        return Figure(key, title, unit, "", [], {})
    two_panels = len({curve.lower for curve, _, _ in series}) == 2
    data: list[Trace] = []
    words = []
    for curve, steps, values in series:
        axis = {"yaxis": "y2"} if two_panels and curve.lower else {}
        data += [{**trace, **axis} for trace in _traces(curve, steps, values)]
        said = in_words(steps, values, percent if curve.share else short)
        words.append(f"{curve.label.capitalize()}: {said}" if len(curves) > 1 else said)
    every_step = sorted({step for _, steps, _ in series for step in steps})
    layout = base_layout(every_step, all(curve.share for curve, _, _ in series), two_panels)
    layout["showlegend"] = len(curves) > 1
    return Figure(key, title, unit, " ".join(words), data, layout)


def _traces(curve: Curve, steps: list[int], values: list[float]) -> list[Trace]:
    window = max(1, len(steps) // 20)
    if not curve.smooth or window == 1:
        return [line(steps, values, curve.label, curve.colour, share=curve.share)]
    raw = line(steps, values, "", curve.colour, share=curve.share, width=1)
    raw |= {"opacity": 0.3, "showlegend": False, "hoverinfo": "skip", "hovertemplate": None}
    label = f"{curve.label}, mean of {2 * (window // 2) + 1} steps"
    return [raw, line(steps, moving_mean(values, window), label, curve.colour, share=curve.share)]


def moving_mean(values: Sequence[float], window: int) -> list[float]:
    """Centred mean over an odd window of at least ``window`` values, cut off at both ends of the curve: [n] -> [n]."""
    half = window // 2
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    means = []
    for i in range(len(values)):
        begin, end = max(i - half, 0), min(i + half + 1, len(values))
        means.append((sums[end] - sums[begin]) / (end - begin))
    return means


def line(x: list[int], y: list[float], name: str, colour: str, *, share: bool = False, width: float = 2) -> Trace:
    """One line over steps, with a mark at each point where there are few."""
    return {
        "type": "scatter",
        "x": x,
        "y": rounded(y),
        "name": name,
        "mode": "lines+markers" if len(x) <= _MARKERS_UP_TO else "lines",
        "line": {"color": colour, "width": width},
        "marker": {"color": colour, "size": 5},
        "hovertemplate": "%{y:.1%}" if share else "%{y:.4~g}",
    }


def base_layout(steps: Sequence[int], share: bool = False, two_panels: bool = False) -> dict[str, Any]:
    """Axes, margins and type of every figure; with ``two_panels``, a second axis beneath for a share."""
    few = {"dtick": 1, "range": [steps[0] - 0.6, steps[-1] + 0.6]} if steps[-1] - steps[0] <= 8 else {"nticks": 8}
    grid = {
        "gridcolor": palette.LINE,
        "zeroline": False,
        "rangemode": "tozero",
        "automargin": True,
        "fixedrange": True,
        "nticks": 6,
    }
    layout: dict[str, Any] = {
        "autosize": True,
        "margin": {"l": 44, "r": 8, "t": 8, "b": 36},
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": palette.MUTED},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "x unified",
        "hoverlabel": {"bgcolor": palette.PAPER, "bordercolor": palette.LINE, "font": {"color": palette.INK}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "xaxis": {
            "title": {"text": "step", "standoff": 6},
            "showgrid": False,
            "zeroline": False,
            "linecolor": palette.LINE,
            "tickformat": ",d",
            "hoverformat": ",d",
            **few,
        },
        "yaxis": {**grid, **({"tickformat": ".0%"} if share else {})},
    }
    if two_panels:
        layout["yaxis"]["domain"] = [0.42, 1]
        layout["yaxis2"] = {**grid, "domain": [0, 0.3], "tickformat": ".0%", "nticks": 3}
        layout["xaxis"]["anchor"] = "y2"
    return layout


def in_words(steps: Sequence[int], values: Sequence[float], spell: Callable[[float], str]) -> str:
    """Where a curve begins, ends, and between which values it stays."""
    if len(steps) == 1:
        return f"{spell(values[0])} at step {steps[0]:,}."
    low, high = min(values), max(values)
    if low == high:
        return f"{spell(low)} from step {steps[0]:,} to step {steps[-1]:,}."
    return (
        f"{spell(values[0])} at step {steps[0]:,}, {spell(values[-1])} at step {steps[-1]:,}; "
        f"between {spell(low)} and {spell(high)}."
    )


def rounded(values: Sequence[float]) -> list[float]:
    """Six significant digits: more than a screen shows, and half the bytes."""
    return [float(f"{value:.6g}") for value in values]
