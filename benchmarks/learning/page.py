"""The tables of docs/learning.md, put between the comments that mark their places; the rest of the page is written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning.settings import CONTROL, CONTROL_PRESET, DIFFERENCES, updates_per_step
from surefoot.algorithms.presets import PRESETS
from surefoot.evaluation.intervals import Interval, mean_interval, paired_interval
from surefoot.files import write_atomic
from surefoot.methods import pages
from surefoot.methods.pages import made_with

Record = Mapping[str, Any]
Records = Mapping[tuple[str, int], Record]

# Each stands above the preset that it names; the presets come in the order in which they are registered.
FAMILIES = {
    "reinforce": "REINFORCE and its baselines",
    "ppo": "PPO and REINFORCE++",
    "grpo": "GRPO and what grew from it",
    "dapo": "Recipes",
    "trl_grpo": "What other libraries call GRPO",
}
COLUMNS = ("preset", "before", "after", "difference", "each seed after", "seeds up", "sampled", "updates", "seconds")
EMPTY = "# Does every preset learn?\n\n<!-- results -->\n<!-- /results -->\n\n<!-- settings -->\n<!-- /settings -->\n"


def write_page(path: Path, records: Records, seeds: Sequence[int]) -> None:
    """Put the results and the settings into the page, which is made where there is none.

    Args:
        path: of the page.
        records: of finished runs, by preset and seed; a preset without all of its seeds is left out.
        seeds: of each.

    Raises:
        DataError: a page without the comments between which they belong.
    """
    shown = {
        name: [records[name, seed] for seed in seeds]
        for name in (*PRESETS, CONTROL)
        if all((name, seed) in records for seed in seeds)
    }
    if not path.exists():
        write_atomic(path, EMPTY)
    pages.write_page(path, {"results": results(shown), "settings": settings(list(shown))})


def results(shown: Mapping[str, Sequence[Record]]) -> str:
    """The table, family by family, the control under it, and what the runs were made with."""
    lines = [_line(*COLUMNS), "|" + "---|" * len(COLUMNS)]
    title = ""
    for name in PRESETS:
        title = FAMILIES.get(name, title)
        if name in shown:
            lines += _heading(title) if title else []
            title = ""
            lines.append(_line(*row(name, shown[name])))
    if CONTROL in shown:
        lines += [*_heading("A coin toss as reward"), _line(*row(CONTROL, shown[CONTROL]))]
    return "\n".join(lines) + "\n\n" + environment([record for found in shown.values() for record in found])


def row(name: str, found: Sequence[Record]) -> tuple[str, ...]:
    """The cells of a preset, from the records of its seeds."""
    before, after = (right(found, when) for when in ("right_before", "right_after"))
    ups = [paired_interval(right([one], "right_after"), right([one], "right_before")).low > 0 for one in found]
    sampled = np.mean([one["course"]["reward/correct"] for one in found], axis=0)
    return (
        f"`{name}`" if name in PRESETS else f"as `{CONTROL_PRESET}`",
        percent(mean_interval(before)),
        percent(mean_interval(after)),
        percent(paired_interval(after, before), signed=True),
        ", ".join(f"{100 * np.mean(one['right_after']):.1f}" for one in found),
        f"{sum(ups)} of {len(ups)}",
        f"{sampled[0]:.2f} to {sampled[-1]:.2f}",
        ", ".join(sorted({str(one["updates"]) for one in found})),
        f"{np.mean([one['cpu_seconds'] for one in found]):.0f}",
    )


def right(found: Sequence[Record], when: str) -> np.ndarray:
    """[P] float64, the share of the seeds in which each problem was answered right: seeds are no problems of their own."""
    return np.mean([one[when] for one in found], axis=0)


def percent(interval: Interval, signed: bool = False) -> str:
    """In percent, or in percentage points with a sign."""
    value, low, high = (f"{100 * number:{'+' if signed else ''}.1f}" for number in interval)
    return f"{value} [{low}, {high}]"


def settings(shown: Sequence[str]) -> str:
    """What differs, preset by preset, and why."""
    lines = [_line("preset", "setting", "why"), "|---|---|---|"]
    for name in PRESETS:
        if name in DIFFERENCES and name in shown:
            given = DIFFERENCES[name].settings
            keys = ", ".join(f"`{key} = {json.dumps(value)}`" for key, value in given.items())
            lines.append(_line(f"`{name}`", keys, DIFFERENCES[name].reason))
    single = [f"`{name}`" for name, preset in PRESETS.items() if name in shown and updates_per_step(preset) == 1]
    if single:
        lines.append(
            _line(", ".join(single), "`train.updates_per_step = 1`", "no ratio: a second update would be uncorrected")
        )
    return "\n".join(lines)


def environment(records: Sequence[Record]) -> str:
    """Versions and machine of the runs; more than one line where they differ."""
    return "\n".join(sorted({made_with(record["environment"])[:-1] + ", one thread a run." for record in records}))


def _heading(title: str) -> list[str]:
    return [_line(f"**{title}**", *[""] * (len(COLUMNS) - 1))]


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
