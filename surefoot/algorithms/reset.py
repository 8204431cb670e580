"""Resets: when the reference policy and the optimiser start afresh. A part returns whether this is such a step.

What is reset is said by numbers that every part here has: ``reference`` (pi_ref <- alpha pi + (1 - alpha) pi_ref),
``optimiser`` (its moments are forgotten) and ``alpha``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from surefoot.algorithms.part import part

Alpha = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True)
class Course:
    """How the run has gone.

    Attributes:
        step: rollout batches finished.
        since: step of the last reset, 0 where there was none.
        evaluations: (step, held-out accuracy) of every evaluation so far, the one before the first step included.
    """

    step: int
    since: int
    evaluations: Sequence[tuple[int, float]]


@part("reset", "", "", "idle")
def never(course: Course) -> bool:
    """The reference stays what the run started from."""
    return False


def _what(reference: bool, optimiser: bool, alpha: float) -> str:
    mixed = "pi_ref <- pi" if alpha == 1 else f"pi_ref <- {alpha:g} pi + {1 - alpha:g} pi_ref"
    return ", ".join([mixed] * reference + ["optimiser state <- 0"] * optimiser) or "nothing is reset"


def _what_latex(reference: bool, optimiser: bool, alpha: float) -> str:
    policy, of_reference = r"\pi_\theta", r"\pi_{\text{ref}}"
    mixed = policy if alpha == 1 else rf"{alpha:g}\,{policy} + {1 - alpha:g}\,{of_reference}"
    done = [rf"{of_reference}\leftarrow {mixed}"] * reference + [r"\text{optimiser state}\leftarrow 0"] * optimiser
    return r",\;".join(done) or r"\text{nothing is reset}"


def _when(steps: int) -> str:
    return "after every step" if steps == 1 else f"every {steps} steps"


def _every_text(steps: int, reference: bool, optimiser: bool, alpha: float) -> str:
    return f"{_when(steps)}: {_what(reference, optimiser, alpha)}"


def _every_latex(steps: int, reference: bool, optimiser: bool, alpha: float) -> str:
    return rf"\text{{{_when(steps)}: }}{_what_latex(reference, optimiser, alpha)}"


@part("reset", _every_text, _every_latex)
def every(
    course: Course,
    *,
    steps: Annotated[int, Field(ge=1)] = 512,
    reference: bool = True,
    optimiser: bool = True,
    alpha: Alpha = 1.0,
) -> bool:
    """A reset once ``steps`` rollout batches have passed since the last one.

    TRL's ``sync_ref_model`` is ``every(steps=512, optimiser=False, alpha=0.6)``: a reference that is drawn along, an
    optimiser that is left alone.
    """
    return course.step - course.since >= steps


def _stagnation_text(patience: int, threshold: float, reference: bool, optimiser: bool, alpha: float) -> str:
    return (
        f"after {patience} evaluations without more than {threshold:g} over the best accuracy since the last reset: "
        f"{_what(reference, optimiser, alpha)}"
    )


def _stagnation_latex(patience: int, threshold: float, reference: bool, optimiser: bool, alpha: float) -> str:
    return (
        rf"\text{{after {patience} evaluations without more than {threshold:g} over the best accuracy since the last reset: }}"
        f"{_what_latex(reference, optimiser, alpha)}"
    )


@part("reset", _stagnation_text, _stagnation_latex, "evaluation")
def on_stagnation(
    course: Course,
    *,
    patience: Annotated[int, Field(ge=1)] = 2,
    threshold: Annotated[float, Field(ge=0)] = 0.0,
    reference: bool = True,
    optimiser: bool = True,
    alpha: Alpha = 1.0,
) -> bool:
    """A hard reset when held-out accuracy stagnates or degrades (ProRL, arXiv 2505.24864).

    That is: ``patience`` evaluations have passed since the best one, and none of them was better by more than
    ``threshold``. Only evaluations since the last reset count, the one at the reset included, so there are always
    ``patience`` new ones between two resets. Never between evaluations. The two numbers are ours, not the paper's.
    """
    if not course.evaluations or course.evaluations[-1][0] != course.step:
        return False
    accuracies = [accuracy for step, accuracy in course.evaluations if step >= course.since]
    best, at = -float("inf"), 0
    for index, accuracy in enumerate(accuracies):
        if accuracy > best + threshold:
            best, at = accuracy, index
    return len(accuracies) - 1 - at >= patience
