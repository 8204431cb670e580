"""A comparison in words and as a table of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.evaluation.comparison import POWER, Verdict

EDGE = 0.01  # of an accuracy: where every arm is this near to 0 or 1, there is nothing to tell them apart by
KINDS = 3  # of warnings that are named
REPLACED = {"coin": "a coin toss", "shuffled": "that of another completion"}


def points(value: float, *, signed: bool = True) -> str:
    """A share in percentage points.

    >>> points(0.0512), points(0.5, signed=False), points(-0.0)
    ('+5.1', '50.0', '+0.0')
    """
    return f"{round(100 * value, 1) + 0.0:{'+' if signed else ''}.1f}"


def sentences(comparison: Mapping[str, Any]) -> list[str]:
    """What came out, over all tasks: one for each arm but the baseline, one for each control, and what else must be known."""
    controls = _controls(comparison)
    pairs = comparison["pairs"]
    return [
        *_edges(comparison),
        *(sentence(arm, pair, comparison) for arm, pair in pairs.items() if arm not in controls),
        *(control_sentence(arm, comparison) for arm in comparison["arms"] if arm in controls),
        *_gained(comparison),
        *_ended(comparison),
        *_warned(comparison),
    ]


def sentence(arm: str, pair: Mapping[str, Any], comparison: Mapping[str, Any]) -> str:
    """One plain sentence about an arm and the baseline."""
    baseline, seeds = comparison["baseline"], len(comparison["seeds"])
    if pair["verdict"] == Verdict.UNKNOWN:
        value = pair["difference"][0]
        return f"{arm} against {baseline}: {points(value)} points with one seed, which says nothing of others: run at least two."
    seen = f"{_seen(pair['difference'], comparison)}, corrected p = {pair['adjusted']:.2g}, {seeds} seeds"
    if pair["verdict"] == Verdict.NOT_SHOWN:
        return f"No difference shown between {arm} and {baseline} ({seen}). {more(pair, seeds)}"
    return f"{arm} is {pair['verdict']} than {baseline} ({seen})."


def more(pair: Mapping[str, Any], seeds: int) -> str:
    """What it would take to show a difference of the size that was seen."""
    if pair["difference"][0] == 0:
        return "The two are equal to the last sample: train longer, or evaluate on more problems or harder ones."
    needed = pair["seeds_needed"]
    if needed is None:
        return "A difference of this size needs more problems, not only more seeds."
    power = f"with {100 * POWER:g} % power"
    if needed <= seeds:
        return f"This many seeds show a difference of this size {power}."
    return f"About {needed} seeds would show a difference of this size {power}."


def control_sentence(arm: str, comparison: Mapping[str, Any]) -> str:
    """What an arm without a reward to learn from did by itself, and the difference that the reward makes to the baseline."""
    baseline, kind = comparison["baseline"], comparison["controls"][arm]
    parts = [f"{arm} is a control: its reward is {REPLACED.get(kind, kind)}."]
    gain = comparison.get("gains", {}).get(arm)
    if gain is not None and gain["verdict"] != Verdict.UNKNOWN:
        value, low, high = gain["difference"]
        moved = _by_sign(low, high, "it rose by itself, and so may the others", "no change is shown", "it got worse")
        parts.append(f"Against its own start: {_seen([value, low, high], comparison)}; {moved}.")
    pair = comparison["pairs"].get(arm)
    if pair is None:
        return " ".join([*parts, "It is the baseline: an arm's difference to it is the one that the reward makes."])
    value, low, high = pair["difference"]
    if pair["verdict"] == Verdict.UNKNOWN:
        parts.append(f"{baseline} ends {points(-value)} points from it with one seed, which says nothing of others.")
    else:
        seen = _seen([-value, -high, -low], comparison)
        nothing = "it is not shown that the reward makes a difference"
        taught = _by_sign(-high, -low, "the reward makes this difference", nothing, "the reward did harm")
        parts.append(f"{baseline} against it: {seen}; {taught}.")
    return " ".join(parts)


def _by_sign(low: float, high: float, above: str, neither: str, below: str) -> str:
    return above if low > 0 else below if high < 0 else neither


def legend(comparison: Mapping[str, Any]) -> str:
    """How to read the tables."""
    results = [one for arms in comparison["results"].values() for one in arms.values()]
    last = max((int(k) for one in results for k in one["pass"]), default=1)
    samples, problems = (sorted({one[key] for one in results}) for key in ("samples", "problems"))
    many = f", pass@{last} from {_list(samples)} samples of a problem" if last > 1 else ""
    order = "The best first" + (", controls last" if _controls(comparison) else "")
    return (
        f"{order}. Accuracy on {_list(problems)} held-out problems{many}; in brackets {_sure(comparison)} intervals over "
        "seeds and problems; p is corrected for the number of arms, the intervals are not."
    )


def table(comparison: Mapping[str, Any], task: str) -> list[list[str]]:
    """The head and a row for each arm of a task, the best first and controls last; accuracies in per cent, differences in points
    of them."""
    results = comparison["results"][task]
    pairs = comparison["pairs_by_task"].get(task) or comparison["pairs"]
    last = max((int(k) for one in results.values() for k in one["pass"]), default=1)
    head = [
        "arm",
        "start, %",
        "accuracy, %",
        f"against {comparison['baseline']}, points",
        "p",
        "better",
        "steps",
        "tokens",
        "seconds",
    ]
    if last > 1:
        head.insert(3, f"pass@{last}, %")
    rows = [head]
    controls = _controls(comparison)
    for arm in sorted(results, key=lambda name: (name in controls, -results[name]["accuracy"][0])):
        one, pair = results[arm], pairs.get(arm)
        row = [
            label(arm, comparison),
            points(one["before"][0], signed=False),
            _interval(one["accuracy"]),
            "baseline" if pair is None else _interval(pair["difference"], signed=True),
            "" if pair is None else _p_value(pair["adjusted"]),
            "" if pair is None else f"{100 * pair['improvement']:.0f} %",
            f"{one['spent']['steps']:,.0f}",
            _thousands(one["spent"]["tokens"]),
            _rounded(one["spent"]["seconds"]),
        ]
        if last > 1:
            row.insert(3, _interval(one["pass"][str(last)]))
        rows.append(row)
    return rows


def label(arm: str, comparison: Mapping[str, Any]) -> str:
    """An arm in the table."""
    return f"{arm} (control)" if arm in _controls(comparison) else arm


def _edges(comparison: Mapping[str, Any]) -> list[str]:
    """Tasks on which no arm could fail or none could succeed."""
    lines = []
    for task, results in comparison["results"].items():
        ends = [one["accuracy"][0] for arm, one in results.items() if arm not in _controls(comparison)]
        where = f"On {task} every arm" if len(comparison["results"]) > 1 else "Every arm"
        if max(ends) <= EDGE:
            lines.append(
                f"{where} ends at {100 * max(ends):.1f} % or below: nothing was learned that could be compared. Begin with a "
                "better model ([warm_up]), give easier problems, or train longer."
            )
        elif min(ends) >= 1 - EDGE:
            lines.append(
                f"{where} ends at {100 * min(ends):.1f} % or above: the problems are too easy to tell the arms apart. "
                "Give harder ones, or a smaller budget."
            )
    return lines


def _gained(comparison: Mapping[str, Any]) -> list[str]:
    """How many arms are shown to have gained anything."""
    controls = _controls(comparison)
    gains = {arm: gain for arm, gain in comparison.get("gains", {}).items() if arm not in controls}
    if not gains or len(comparison["seeds"]) < 2:
        return []
    rose = [arm for arm, gain in gains.items() if gain["difference"][1] > 0]
    rest = [arm for arm in gains if arm not in rose]
    told = f" Not shown for {', '.join(rest)}." if rose and rest else ""
    some = "all" if not rest else str(len(rose)) if rose else "none"
    return [
        f"Against their own start, {some} of the {len(gains)} arms gained (the {_sure(comparison)} interval lies above 0).{told}"
    ]


def _ended(comparison: Mapping[str, Any]) -> list[str]:
    """What ended the runs, where it was not the number of steps alone."""
    places: dict[str, tuple[int, list[str]]] = {}
    for results in comparison["results"].values():
        for arm, one in results.items():
            for what, runs in one.get("ended", {}).items():
                number, arms = places.get(what, (0, []))
                places[what] = (number + runs, [*arms, arm] if arm not in arms else arms)
    if not any(what != "steps" for what in places):
        return []
    many = len(places) > 1
    parts = [
        f"{number} {'for want of prompts' if what == 'prompts' else f'by {what}'}"
        + (f" ({_some(arms)})" if many else "")
        for what, (number, arms) in places.items()
    ]
    over = (
        " A step that has begun is finished, so a run spends a little more."
        if any("." in what for what in places)
        else ""
    )
    return [f"Runs ended: {', '.join(parts)}.{over}"]


def _warned(comparison: Mapping[str, Any]) -> list[str]:
    """How many runs gave warnings, and the first kinds."""
    found = comparison.get("warnings", {})
    if not found.get("runs"):
        return []
    kinds = [f"{kind['name']} ({kind['runs']}: {_some(kind['arms'])})" for kind in found["kinds"][:KINDS]]
    rest = len(found["kinds"]) - len(kinds)
    more_kinds = f" and {rest} more" if rest else ""
    return [
        f"{found['runs']} of {found['of']} runs gave warnings: {', '.join(kinds)}{more_kinds}. Their words are in "
        "warnings.jsonl of the runs."
    ]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more arms"


def _controls(comparison: Mapping[str, Any]) -> Mapping[str, str]:
    return comparison.get("controls") or {}


def _seen(difference: Sequence[float], comparison: Mapping[str, Any]) -> str:
    value, low, high = difference
    return f"{points(value)} points, {_sure(comparison)} interval {points(low)} to {points(high)}"


def _sure(comparison: Mapping[str, Any]) -> str:
    return f"{100 * (1 - comparison['level']):g} %"


def _list(numbers: Sequence[int]) -> str:
    return " or ".join(f"{number:,}" for number in numbers)


def _p_value(p: float) -> str:
    return f"{p:.2g}" if p >= 0.001 else "<0.001"


def _thousands(number: float) -> str:
    """In few characters.

    >>> _thousands(9_999), _thousands(579_043)
    ('9,999', '579k')
    """
    return f"{number:,.0f}" if number < 10_000 else f"{number / 1000:,.0f}k"


def _rounded(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 9.95 else f"{seconds:.2g}"


def _interval(values: Sequence[float], *, signed: bool = False) -> str:
    value, low, high = values
    return f"{points(value, signed=signed)} [{points(low, signed=signed)}, {points(high, signed=signed)}]"
