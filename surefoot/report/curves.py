"""Which curves a run is shown with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from surefoot.report import palette
from surefoot.report.figures import Curve, Figure, Trace, base_layout, in_words, line, metric_figure, rounded
from surefoot.report.reading import Record, RunFiles, column, number
from surefoot.report.wording import PHASES, percent


def figures(files: RunFiles) -> list[Figure]:
    """All figures of a run, in reading order."""
    return [
        heldout(files),
        metric_figure(
            files.metrics,
            "reward",
            "Training reward and share correct",
            "mean over the samples of a step",
            [
                Curve("reward/mean", "reward", smooth=True),
                Curve("reward/correct", "share correct", palette.SLATE_MID, smooth=True),
            ],
        ),
        metric_figure(
            files.metrics,
            "likelihood",
            "Negative log-probability of the demonstrations",
            "nats per token",
            [Curve("loss/nll_per_token", "negative log-probability")],
        ),
        *policy_figures(files),
        times(files),
    ]


def policy_figures(files: RunFiles) -> list[Figure]:
    """How the policy and its batches change."""
    return [
        metric_figure(
            files.metrics,
            "entropy",
            "Entropy",
            "nats per token",
            [
                Curve("policy/entropy", "tokens of the loss"),
                Curve("rollout/entropy", "all sampled tokens, estimate", palette.SLATE_MID),
            ],
        ),
        metric_figure(
            files.metrics,
            "kl",
            "KL divergence",
            "nats per token, from the policy at the loss",
            [
                Curve("policy/kl_behaviour", "to the behaviour policy"),
                Curve("policy/kl_reference", "to the reference policy", palette.SLATE_MID),
            ],
        ),
        metric_figure(
            files.metrics,
            "length",
            "Response length and truncated share",
            "tokens (above), share of completions cut by rollout.max_new_tokens (below)",
            [
                Curve("length/mean", "tokens"),
                Curve("length/truncated", "truncated", palette.SLATE_MID, share=True, lower=True),
            ],
        ),
        metric_figure(
            files.metrics,
            "gradient",
            "Gradient norm",
            "global L2 norm before clipping",
            [Curve("optimiser/grad_norm", "gradient norm")],
        ),
        metric_figure(
            files.metrics,
            "signal",
            "Groups without signal",
            "share of groups whose rewards are all equal",
            [Curve("groups/no_signal", "no signal", share=True)],
        ),
    ]


SHOWN = (
    "reward/mean", "reward/correct", "loss/nll_per_token", "policy/entropy", "rollout/entropy", "policy/kl_behaviour",
    "policy/kl_reference", "length/mean", "length/truncated", "optimiser/grad_norm", "groups/no_signal",
)  # fmt: skip
"""Metrics that have a place in :func:`figures`."""


def other_metrics(files: RunFiles) -> list[Figure]:
    """A figure for every recorded metric that has no figure of its own."""
    names = sorted({name for record in files.metrics for name in record} - {"step", *SHOWN})
    made = [metric_figure(files.metrics, f"metric {name}", name, "", [Curve(name, "")]) for name in names]
    return [figure for figure in made if figure.data]


def heldout(files: RunFiles) -> Figure:
    """Held-out accuracy with its interval as a band, and pass@k for k > 1."""
    records = files.evaluations
    steps, values = column(records, "accuracy")
    key, title = "heldout", "Held-out accuracy"
    unit = f"share of held-out answers that are right, band: {100 * files.confidence:g} % interval"
    if not steps:
        return Figure(key, title, unit, "", [], {}, wide=True)
    banded = [r for r in records if all(number(r.get(name)) is not None for name in ("accuracy", "low", "high"))]
    data: list[Trace] = []
    if banded:
        edge = {"x": [r["step"] for r in banded], "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
        data += [
            {**edge, "type": "scatter", "y": rounded([r["low"] for r in banded]), "showlegend": False},
            {
                **edge,
                "type": "scatter",
                "y": rounded([r["high"] for r in banded]),
                "fill": "tonexty",
                "fillcolor": palette.BAND,
                "name": f"{100 * files.confidence:g} % interval",
            },
        ]
    for k, colour in zip(_pass_at(records), (palette.SLATE_MID, palette.SLATE_PALE, palette.SLATE), strict=False):
        pass_steps, pass_values = column([{"step": r["step"], "pass": _pass(r, k)} for r in records], "pass")
        data.append(line(pass_steps, pass_values, f"pass@{k}", colour, share=True, width=1.5))
    data.append(line(steps, values, "accuracy", palette.ACCENT, share=True, width=2.5))
    return Figure(key, title, unit, in_words(steps, values, percent), data, base_layout(steps, True), wide=True)


def times(files: RunFiles) -> Figure:
    """Seconds of every step, stacked by phase."""
    key, title, unit = "times", "Where the time goes", "seconds of each step, stacked"
    keys = {name for record in files.timings for name in record if not name.startswith("tokens_")} - {"step"}
    order = [name for name in PHASES if name in keys and name != "other"]
    order += sorted(keys - set(PHASES)) + (["other"] if "other" in keys else [])
    data: list[Trace] = []
    for name in order:
        steps, values = column(files.timings, name)
        values = [max(value, 0.0) for value in values]
        if not any(values):
            continue
        label = PHASES.get(name, name.replace("<", "\u2039"))  # Plotly reads tags in names
        data.append(
            {
                "type": "bar",
                "x": steps,
                "y": rounded(values),
                "name": label,
                "marker": {"color": palette.phase_colour(name), "line": {"width": 0}},
                "hovertemplate": "%{y:.3~g} s",
            }
        )
    if not data:
        return Figure(key, title, unit, "", [], {}, wide=True)
    layout = {**base_layout(data[0]["x"]), "barmode": "stack", "bargap": 0.1 if len(files.timings) <= 100 else 0}
    totals = [sum(trace["y"]) for trace in data]
    most = max(range(len(data)), key=totals.__getitem__)
    words = f"{percent(totals[most] / sum(totals), 0)} of the time of all steps goes to {data[most]['name']}."
    return Figure(key, title, unit, words, data, layout, wide=True)


def _pass_at(records: Sequence[Record]) -> list[int]:
    keys = {key for r in records if isinstance(r.get("pass"), dict) for key in r["pass"]}
    return sorted((int(key) for key in keys if key.isascii() and key.isdigit() and int(key) > 1), reverse=True)[:3]


def _pass(record: Record, k: int) -> Any:
    values = record.get("pass")
    return values.get(str(k)) if isinstance(values, dict) else None
