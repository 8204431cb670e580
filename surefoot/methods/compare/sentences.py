"""A comparison in words and as a table of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surefoot.evaluation.comparison import Verdict


def points(value: float, *, signed: bool = True) -> str:
    """A share in percentage points.

    >>> points(0.0512), points(0.5, signed=False)
    ('+5.1', '50.0')
    """
    return f"{100 * value:{'+' if signed else ''}.1f}"


def sentence(arm: str, pair: Mapping[str, Any], comparison: Mapping[str, Any]) -> str:
    """One plain sentence about an arm and the baseline."""
    baseline, seeds = comparison["baseline"], len(comparison["seeds"])
    value, low, high = pair["difference"]
    sure = f"{100 * (1 - comparison['level']):g} %"
    seen = f"{points(value)} points, {sure} interval {points(low)} to {points(high)}"
    if pair["verdict"] == Verdict.UNKNOWN:
        return f"{arm} against {baseline}: {points(value)} points with one seed, which says nothing of others: run at least two."
    chance = f"corrected p = {pair['adjusted']:.2g}"
    if pair["verdict"] == Verdict.NOT_SHOWN:
        return f"No difference shown between {arm} and {baseline} ({seen}, {chance}, {seeds} seeds). {more(pair, seeds)}".strip()
    return f"{arm} is {pair['verdict']} than {baseline} ({seen}, {chance}, {seeds} seeds)."


def more(pair: Mapping[str, Any], seeds: int) -> str:
    """What it would take to show a difference of the size that was seen."""
    if pair["difference"][0] == 0:
        return ""
    needed = pair["seeds_needed"]
    if needed is None:
        return "A difference of this size needs more problems, not only more seeds."
    if needed <= seeds:
        return "A difference of this size would usually be shown with this many seeds."
    return f"About {needed} seeds would show a difference of this size."


def sentences(comparison: Mapping[str, Any]) -> list[str]:
    """One for each arm but the baseline, over all tasks."""
    return [sentence(arm, pair, comparison) for arm, pair in comparison["pairs"].items()]


def table(comparison: Mapping[str, Any], task: str) -> list[list[str]]:
    """The head and a row for each arm of a task, the best first; accuracies in per cent, differences in points of them."""
    results = comparison["results"][task]
    pairs = comparison["pairs_by_task"].get(task) or comparison["pairs"]
    last = max((int(k) for one in results.values() for k in one["pass"]), default=1)
    head = [
        "arm",
        "accuracy, %",
        f"against {comparison['baseline']}, points",
        "p",
        "better runs",
        "steps",
        "tokens",
        "seconds",
    ]
    if last > 1:
        head.insert(2, f"pass@{last}, %")
    rows = [head]
    for arm in sorted(results, key=lambda name: -results[name]["accuracy"][0]):
        one, pair = results[arm], pairs.get(arm)
        row = [
            arm,
            _interval(one["accuracy"]),
            "baseline" if pair is None else _interval(pair["difference"], signed=True),
            "" if pair is None else f"{pair['adjusted']:.2g}",
            "" if pair is None else f"{100 * pair['improvement']:.0f} %",
            f"{one['spent']['steps']:,.0f}",
            f"{one['spent']['tokens']:,.0f}",
            f"{one['spent']['seconds']:,.0f}",
        ]
        if last > 1:
            row.insert(2, _interval(one["pass"][str(last)]))
        rows.append(row)
    return rows


def _interval(values: list[float], *, signed: bool = False) -> str:
    value, low, high = values
    return f"{points(value, signed=signed)} [{points(low, signed=signed)}, {points(high, signed=signed)}]"
