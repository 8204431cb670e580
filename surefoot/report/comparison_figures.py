"""Figures of a comparison: every arm in its colour, intervals wherever there are any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.report import palette
from surefoot.report.figures import Figure, Trace, base_layout, line, rounded
from surefoot.report.reading import Record
from surefoot.report.wording import percent, points, short

AXES = {
    "step": "steps",
    "tokens": "generated tokens",
    "flops": "estimated operations (FLOPs)",
    "seconds": "seconds, evaluations left out",
}
"""What a learning curve is drawn over, and how it is called."""

COURSES: dict[str, tuple[str, str, bool]] = {
    "rollout/entropy": ("Entropy", "nats per sampled token, mean of the seeds and their range", False),
    "groups/no_signal": ("Prompts with signal", "share of groups whose rewards differ", True),
    "length/truncated": ("Truncated", "share of completions cut by rollout.max_new_tokens", True),
    "optimiser/grad_norm": ("Gradient norm", "global L2 norm before clipping", False),
}


ROW, LEGEND_LINE = 1.5, 1.4
"""Heights in rem: of an arm's row, and of a line of a legend."""


def tall(arms: int, *, wide: bool = False) -> float:
    """The height of curves under a legend that many arms break into several lines; 0 where they do not."""
    lines = -(-arms // (8 if wide else 3)) - 2
    return (23 if wide else 15) + LEGEND_LINE * lines if lines > 0 or (wide and arms > 4) else 0


def short_name(arm: str) -> str:
    """An arm's name as Plotly may show it: it reads tags in names."""
    return arm.replace("<", "\u2039")


def learning_curves(found: Record, task: str) -> dict[str, Figure]:
    """Held-out accuracy with its band over each of ``AXES``."""
    results = found["results"][task]
    figures = {}
    for axis, label in AXES.items():
        data: list[Trace] = []
        for number, arm in enumerate(found["arms"]):
            curve = results[arm]["curve"]
            if axis not in curve:
                continue  # compared by an earlier version
            data += banded(
                curve[axis], curve["accuracy"], curve["low"], curve["high"], arm, number, share=True, alpha=band(found)
            )
        layout = base_layout([0, 100], share=True)
        layout["xaxis"] = {key: value for key, value in layout["xaxis"].items() if key not in ("dtick", "range")}
        layout["xaxis"] |= {
            "title": {"text": label, "standoff": 6},
            "tickformat": "~s" if axis in ("tokens", "flops") else ",~g",
        }
        layout["yaxis"] |= {"rangemode": "normal"}
        key = f"learning {axis} {task}"
        words = _each(
            found, lambda arm: f"{percent(results[arm]['before'][0])} to {percent(results[arm]['accuracy'][0])}"
        )
        level = f"{100 * (1 - found['level']):g} % interval over seeds and problems"
        figures[axis] = Figure(
            key,
            "Held-out accuracy",
            f"bands: {level}",
            words,
            data,
            layout,
            wide=True,
            rem=tall(len(found["arms"]), wide=True),
        )
    return figures


def final_accuracy(found: Record, task: str) -> Figure:
    """Final accuracy of each arm with its interval, and each seed as a small mark."""
    results = found["results"][task]
    arms = list(reversed(sorted(found["arms"], key=lambda arm: -results[arm]["accuracy"][0])))
    order = {arm: number for number, arm in enumerate(found["arms"])}
    data: list[Trace] = []
    for arm in arms:
        colour = palette.arm_colour(order[arm])
        seeds = results[arm]["by_seed"]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": rounded(seeds),
                "y": [short_name(arm)] * len(seeds),
                "marker": {"color": colour, "size": 7, "symbol": "line-ns-open", "opacity": 0.7},
                "hovertemplate": "a seed: %{x:.1%}<extra></extra>",
            }
        )
        data.append(_interval_mark(arm, results[arm]["accuracy"], colour, "%{x:.1%}"))
    words = _each(found, lambda arm: _interval_words(results[arm]["accuracy"]))
    title = "Final held-out accuracy"
    unit = f"{100 * (1 - found['level']):g} % intervals over seeds and problems; small marks: seeds"
    return Figure(f"final {task}", title, unit, words, data, _row_layout(arms, ".0%"), rem=rows_tall(arms))


def forest(found: Record, pairs: Mapping[str, Any], key: str) -> Figure:
    """Paired differences from the baseline with their intervals and corrected p-values."""
    arms = list(pairs)[::-1]
    order = {arm: number for number, arm in enumerate(found["arms"])}
    data = []
    labels = {}
    for arm in arms:
        labels[arm] = f"p = {pairs[arm]['adjusted']:.2g}" if _is_number(pairs[arm]["adjusted"]) else "one seed"
        trace = _interval_mark(
            arm, pairs[arm]["difference"], palette.arm_colour(order.get(arm, 0)), f"%{{x:+.1%}}, {labels[arm]}"
        )
        data.append(trace)
    layout = _row_layout(arms, "+.0%")
    layout["shapes"] = [
        {
            "type": "line",
            "x0": 0,
            "x1": 0,
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "line": {"color": palette.SLATE_MID, "width": 1, "dash": "dot"},
        }
    ]
    layout["yaxis"] |= {
        "tickmode": "array",
        "tickvals": [short_name(arm) for arm in arms],
        "ticktext": [f"{short_name(arm)} <span style='font-size:11px'>{labels[arm]}</span>" for arm in arms],
    }
    words = " ".join(
        f"{arm}: {points(pairs[arm]['difference'][0])} ({points(pairs[arm]['difference'][1])} to "
        f"{points(pairs[arm]['difference'][2])}), {labels[arm]}."
        for arm in pairs
    )
    unit = f"accuracy minus that of {found['baseline']}, same seeds and problems; p corrected after Holm"
    return Figure(key, f"Difference from {found['baseline']}", unit, words, data, layout, rem=rows_tall(arms))


def pass_at_k(found: Record, task: str) -> Figure:
    """pass@k with intervals, k on a logarithmic axis."""
    results = found["results"][task]
    data = []
    for number, arm in enumerate(found["arms"]):
        passed = sorted(((int(k), value) for k, value in results[arm]["pass"].items()), key=lambda item: item[0])
        colour = palette.arm_colour(number)
        trace = line([k for k, _ in passed], [value[0] for _, value in passed], short_name(arm), colour, share=True)
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": rounded([value[2] - value[0] for _, value in passed]),
            "arrayminus": rounded([value[0] - value[1] for _, value in passed]),
            "thickness": 1,
            "width": 3,
            "color": colour,
        }
        data.append(trace)
    ks = data[0]["x"] if data else []
    if len(ks) < 2:
        return Figure(f"pass {task}", "pass@k", "", "", [], {})
    layout = base_layout([1, 100], share=True)
    layout["xaxis"] |= {"type": "log", "tickvals": ks, "title": {"text": "k", "standoff": 6}}
    layout["yaxis"] |= {"rangemode": "normal"}
    words = _each(found, lambda arm: f"pass@{ks[-1]} {percent(results[arm]['pass'][str(ks[-1])][0])}")
    return Figure(
        f"pass {task}",
        "pass@k",
        "share of problems with a right answer among k",
        words,
        data,
        layout,
        rem=tall(len(found["arms"])),
    )


def courses(found: Record, task: str) -> list[Figure]:
    """What training looked like: entropy, lengths of right and wrong answers, signal, truncation, gradient."""
    results = found["results"][task]
    figures = []
    for name, (title, unit, share) in COURSES.items():
        data: list[Trace] = []
        for number, arm in enumerate(found["arms"]):
            course = results[arm].get("courses", {}).get(name)
            if course:
                mean, low, high = (course[key] for key in ("mean", "low", "high"))
                if name == "groups/no_signal":
                    mean, low, high = [1 - v for v in mean], [1 - v for v in high], [1 - v for v in low]
                data += banded(course["step"], mean, low, high, arm, number, share=share, alpha=band(found))
        figures.append(_course_figure(f"course {name} {task}", title, unit, data, share, len(found["arms"])))
    figures.insert(1, lengths(found, task))
    return [figure for figure in figures if figure.data]


def lengths(found: Record, task: str) -> Figure:
    """Mean length of right answers (solid) and of wrong ones (dotted)."""
    data: list[Trace] = []
    for number, arm in enumerate(found["arms"]):
        for name, dash in (("length/right", "solid"), ("length/wrong", "dot")):
            course = found["results"][task][arm].get("courses", {}).get(name)
            if course:
                label = short_name(arm) + (", wrong" if dash == "dot" else ", right")
                trace = line([int(step) for step in course["step"]], course["mean"], label, palette.arm_colour(number))
                trace |= {"mode": "lines", "line": {**trace["line"], "dash": dash}, "legendgroup": arm}
                trace["showlegend"] = dash == "solid"
                trace["name"] = label if dash == "dot" else short_name(arm)
                data.append(trace)
    unit = "tokens; solid: right answers, dotted: wrong ones"
    return _course_figure(f"lengths {task}", "Length of right and wrong answers", unit, data, False, len(found["arms"]))


def banded(
    x: Sequence[float],
    y: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    arm: str,
    number: int,
    *,
    share: bool,
    alpha: float,
) -> list[Trace]:
    """A band and a line over it, one legend entry for both."""
    colour, name = palette.arm_colour(number), short_name(arm)
    edge: Trace = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "legendgroup": name}
    edge |= {"x": rounded(x), "showlegend": False}
    drawn = line([0], list(y), name, colour, share=share)
    drawn |= {"x": rounded(x), "legendgroup": name, "mode": "lines+markers" if len(x) <= 40 else "lines"}
    if number >= len(palette.ARMS):
        drawn["line"] = {**drawn["line"], "dash": "dash"}
    return [
        {**edge, "y": rounded(low)},
        {**edge, "y": rounded(high), "fill": "tonexty", "fillcolor": palette.faint(colour, alpha)},
        drawn,
    ]


def _course_figure(key: str, title: str, unit: str, data: list[Trace], share: bool, arms: int) -> Figure:
    steps = sorted({int(x) for trace in data for x in trace["x"]}) or [0]
    words = " ".join(
        f"{trace['name']}: {percent(trace['y'][-1]) if share else short(trace['y'][-1])} at the end."
        for trace in data
        if trace.get("mode") != "lines" or trace["line"].get("width")
    )
    return Figure(key, title, unit, words, data, base_layout(steps, share) if data else {}, rem=tall(arms))


def _interval_mark(arm: str, values: Sequence[float], colour: str, text: str) -> Trace:
    value, low, high = values
    return {
        "type": "scatter",
        "mode": "markers",
        "x": rounded([value]),
        "y": [short_name(arm)],
        "marker": {"color": colour, "size": 10},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": rounded([high - value]),
            "arrayminus": rounded([value - low]),
            "thickness": 2,
            "width": 0,
            "color": colour,
        },
        "hovertemplate": f"{text}, {100 * low:.1f} to {100 * high:.1f} %<extra></extra>",
    }


def rows_tall(arms: Sequence[str]) -> float:
    """The height of a figure with a row for each arm."""
    return 4 + ROW * len(arms) if len(arms) > 6 else 0


def band(found: Record) -> float:
    """How strong the bands are: many over each other would hide the lines."""
    return palette.BAND_ALPHA if len(found["arms"]) <= 6 else palette.BAND_ALPHA_MANY


def _row_layout(arms: Sequence[str], tickformat: str) -> dict[str, Any]:
    """A row for each arm, the last at the top."""
    layout = base_layout([0, 100])
    layout["showlegend"] = False
    layout["hovermode"] = "closest"
    layout["margin"] = {"l": 8, "r": 16, "t": 8, "b": 36}
    grid = layout["yaxis"]
    layout["xaxis"] = {**grid, "showgrid": True, "tickformat": tickformat, "rangemode": "normal"}
    layout["yaxis"] = {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": [short_name(arm) for arm in arms],
        "range": [-0.6, len(arms) - 0.4],
        "automargin": True,
        "fixedrange": True,
        "showgrid": False,
    }
    return layout


def _each(found: Record, words: Any) -> str:
    return " ".join(f"{arm}: {words(arm)}." for arm in found["arms"])


def _interval_words(values: Sequence[float]) -> str:
    return f"{percent(values[0])} ({100 * values[1]:.1f} to {100 * values[2]:.1f})"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and value == value
