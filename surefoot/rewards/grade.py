"""Grading a batch of completions, with the contract of rewards enforced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from surefoot.errors import RewardError
from surefoot.rewards.base import Completion, Reward
from surefoot.types import Score, Status


def grade(reward: Reward, completions: Sequence[Completion]) -> list[Score]:
    """One score per completion, in order.

    A total that is not finite although the reward calls it valid becomes ``Status.INVALID``: counted, and out of the
    statistics of its group.

    Raises:
        RewardError: the reward gives another number of scores, or something that is not a Score.
    """
    if not completions:
        return []
    scores = reward.score(completions)
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
            raise RewardError(f"the reward '{reward.name}' gave {score!r}; expected a Score for each completion")
    return [_checked(score) for score in scores]


def _checked(score: Score) -> Score:
    if score.status in (Status.OK, Status.NO_ANSWER) and not math.isfinite(score.total):
        return replace(score, status=Status.INVALID, total=math.nan, text=score.text or f"the total is {score.total}")
    return score
