"""Grading a batch of completions, with the contract of rewards enforced."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from surefoot.errors import RewardError, SurefootError
from surefoot.rewards.base import Completion, Reward
from surefoot.rewards.values import one_line, scalar, short, well_formed
from surefoot.types import Score, Status, StepScore

LARGEST = 1e15
"""Rewards of a larger magnitude are invalid: sums of squares and float32 advantages of a batch must stay finite."""


FULL_MARKS = 1.0


def is_right(score: Score) -> bool:
    """Whether a sample counts as right: what the reward says; where it does not say, whether it gives full marks (1).

    A sample that could not be graded is wrong.
    """
    if not score.valid:
        return False
    return score.total >= FULL_MARKS if score.correct is None else score.correct


def grade(reward: Reward, completions: Sequence[Completion]) -> list[Score]:
    """One score per completion, in order, in plain Python values.

    A total that is not finite, or above 1e15 in magnitude, although the reward calls it valid becomes
    ``Status.INVALID``: counted, and out of the statistics of its group. A component like that becomes NaN (it has no
    value for this sample), and the sample stays graded by its total. Numbers of NumPy and PyTorch become Python's, and
    lone surrogates in names and texts are escaped.

    Raises:
        RewardError: the reward raises, or gives another number of scores, something that is not a Score, or a Score
            with values of other types than its fields have.
    """
    if not completions:
        return []
    try:
        scores = reward.score(completions)
    except SurefootError:
        raise
    except Exception as error:
        raise RewardError(
            f"the reward '{reward.name}' failed on a batch of {len(completions)} completions: {one_line(error)}"
        ) from error
    if not isinstance(scores, (list, tuple)):
        raise RewardError(
            f"the reward '{reward.name}' gave {type(scores).__name__}; expected a list with one Score each"
        )
    if len(scores) != len(completions):
        raise RewardError(
            f"the reward '{reward.name}' gave {len(scores)} scores for {len(completions)} completions; expected one "
            f"each, in the same order"
        )
    for score in scores:
        if not isinstance(score, Score):
            raise RewardError(f"the reward '{reward.name}' gave {short(score)}; expected a Score for each completion")
    return [_checked(reward.name, score) for score in scores]


def _checked(name: str, score: Score) -> Score:
    score = replace(
        score,
        components=_components(name, score.components),
        correct=_correct(name, score.correct),
        status=_status(name, score.status),
        steps=_steps(name, score.steps),
        text=well_formed("" if score.text is None else str(score.text)),
    )
    if score.status not in (Status.OK, Status.NO_ANSWER):
        return replace(score, total=math.nan)
    total = _number(name, "total", score.total)
    if abs(total) <= LARGEST:
        return replace(score, total=total)
    why = f"the total is {total:g}" + (f", above {LARGEST:g} in magnitude" if math.isfinite(total) else "")
    text = f"{score.text} ({why})" if score.text else why
    return replace(score, status=Status.INVALID, total=math.nan, text=text)


def _components(name: str, components: Any) -> dict[str, float]:
    if not isinstance(components, Mapping):
        raise _wrong(name, "components are", components, "a mapping from names to numbers")
    checked = {}
    for part, value in components.items():
        if not isinstance(part, str):
            raise _wrong(name, "components have the name", part, "text")
        number = _number(name, f"component {short(part)}", value)
        checked[well_formed(part)] = number if abs(number) <= LARGEST else math.nan
    return checked


def _steps(name: str, steps: Any) -> tuple[StepScore, ...]:
    """Scores of steps in plain Python values; a value that is not finite, or too large, becomes NaN: it has none."""
    if not isinstance(steps, (list, tuple)):
        raise _wrong(name, "steps are", steps, "a tuple of StepScore")
    checked = []
    for step in steps:
        if not isinstance(step, StepScore):
            raise _wrong(name, "steps hold", step, "StepScore(end, value)")
        end = scalar(step.end)
        if end is None or end != end or int(end) != end:
            raise _wrong(name, "step ends at", step.end, "a whole number of characters")
        value = _number(name, "step's value", step.value)
        checked.append(replace(step, end=int(end), value=value if abs(value) <= LARGEST else math.nan, token=None))
    return tuple(checked)


def _correct(name: str, correct: Any) -> bool | None:
    verdict = scalar(correct)
    if correct is not None and verdict not in (0, 1):
        raise _wrong(name, "'correct' is", correct, "True, False or None")
    return None if verdict is None else bool(verdict)


def _status(name: str, status: Any) -> Status:
    try:
        return Status(status)
    except ValueError:
        raise _wrong(name, "status is", status, f"one of {', '.join(Status)}") from None


def _number(name: str, what: str, value: Any) -> float:
    number = scalar(value)
    if number is None:
        raise _wrong(name, f"{what} is", value, "a number")
    return float(number)


def _wrong(name: str, what: str, value: Any, expected: str) -> RewardError:
    return RewardError(
        f"the reward '{name}' gave a Score whose {what} {short(value)} ({type(value).__name__}); expected {expected}"
    )
