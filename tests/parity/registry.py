"""Declarations of what is compared with what, and whether it must be equal.

A comparison is a function of a preset's name and a seed that runs Surefoot and another library on the same random batch.
Its declaration is what the tests assert and what the page prints, so neither can say what the other does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

Values = Mapping[str, Tensor]
# The libraries add 1e-8 to token counts, so that float64 results agree to about that.
TOLERANCE = 1e-7
# For what a library computes in float32.
FLOAT32 = 1e-5
SEEDS = range(5)


class Outcome(NamedTuple):
    """What both gave for one batch; ``changed``: Surefoot with the declared difference applied."""

    ours: Values
    theirs: Values
    changed: Values | None = None


Run = Callable[[str, int], Outcome]


@dataclass(frozen=True)
class Comparison:
    """One declaration.

    Attributes:
        library: ``trl`` or ``verl``.
        presets: presets, or single parts as ``slot.name``, that are compared, one after the other.
        what: what is compared, in a few words.
        functions: names of the other library's functions that run.
        differs: how it differs; empty where both must be equal. A comparison that differs must show the difference
            on every seed and must be equal once the declared change is made.
        tolerance: of every tensor, relative to its largest entry.
        run: of a preset's name and a seed.
    """

    library: str
    presets: tuple[str, ...]
    what: str
    functions: tuple[str, ...]
    differs: str
    tolerance: float
    run: Run

    @property
    def name(self) -> str:
        return f"{self.library}-{self.run.__name__}"


REGISTRY: list[Comparison] = []


def compare(
    library: str, presets: str, what: str, functions: str, *, differs: str = "", tolerance: float = TOLERANCE
) -> Callable[[Run], Run]:
    """Register a comparison. ``presets`` and ``functions`` are separated by blanks."""

    def register(run: Run) -> Run:
        entry = Comparison(library, tuple(presets.split()), what, tuple(functions.split()), differs, tolerance, run)
        assert entry.name not in {other.name for other in REGISTRY}, f"{entry.name} is declared twice"
        REGISTRY.append(entry)
        return run

    return register


def distance(have: Values, want: Values) -> float:
    """The largest difference between tensors of the same name, relative to the largest entry of the one expected."""
    assert have.keys() == want.keys(), f"{sorted(have)} against {sorted(want)}"
    worst = 0.0
    for key in want:
        ours, theirs = have[key].double(), want[key].double()
        assert ours.shape == theirs.shape, f"{key}: {tuple(ours.shape)} against {tuple(theirs.shape)}"
        assert ours.isfinite().all() and theirs.isfinite().all(), f"{key}: not finite"
        scale = float(theirs.abs().max()) or 1.0
        worst = max(worst, float((ours - theirs).abs().max()) / scale)
    return worst


def check(entry: Comparison, preset: str, seed: int) -> None:
    """Assert what the comparison declares."""
    outcome, named = entry.run(preset, seed), f"{entry.name} of {preset}, seed {seed}"
    assert torch.stack([value.double().abs().max() for value in outcome.theirs.values()]).max() > 0, (
        f"{named}: all zero"
    )
    apart = distance(outcome.ours, outcome.theirs)
    if not entry.differs:
        assert outcome.changed is None
        assert apart <= entry.tolerance, f"{named}: {apart:.3g} apart and declared equal"
        return
    assert outcome.changed is not None, f"{entry.name} declares a difference and does not apply it"
    assert apart > 10 * entry.tolerance, f"{named}: equal and declared different ({entry.differs})"
    left = distance(outcome.changed, outcome.theirs)
    assert left <= entry.tolerance, f"{named}: {left:.3g} apart after the declared change ({entry.differs})"
