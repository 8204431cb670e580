"""What a run tells whoever watches it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Where a run stands.

    Attributes:
        step: steps finished.
        steps: steps in all.
        reward: mean reward of the last step's samples; None before the first.
        accuracy: held-out accuracy at the last evaluation; None before the first.
        seconds_left: estimate from the median step so far and what is left of steps and budget; None before the first step has
            been timed.
        phase: ``"train"``, ``"evaluate"``, ``"warm-up"`` or ``"save"``.
    """

    step: int
    steps: int
    reward: float | None
    accuracy: float | None
    seconds_left: float | None
    phase: str
