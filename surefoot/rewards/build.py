"""From the ``[reward]`` section and a task to a Reward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from surefoot.errors import RewardError
from surefoot.rewards.base import Completion, Reward
from surefoot.rewards.config import RewardConfig
from surefoot.rewards.functions import as_reward
from surefoot.rewards.grade import grade
from surefoot.tasks.base import Task
from surefoot.types import Score, Status


@dataclass(frozen=True)
class ShapedReward:
    """A verifier's verdict as a reward: ``wrong + (right - wrong) * accuracy + format_weight * format``.

    ``accuracy`` is 1 or 0 (the total of a verifier that does not say whether the answer is right), ``format`` is 1 where
    an answer was found. Both are components of the score; verdicts that could not be reached stay as they are.
    """

    name: str
    verifier: Reward
    config: RewardConfig

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        return [self._shaped(score) for score in grade(self.verifier, completions)]

    def _shaped(self, score: Score) -> Score:
        if not score.valid:
            return score
        accuracy = score.total if score.correct is None else float(score.correct)
        found = float(score.status is not Status.NO_ANSWER)
        total = self.config.wrong + (self.config.right - self.config.wrong) * accuracy + self.config.format_weight * found
        return replace(score, total=total, components={**score.components, "accuracy": accuracy, "format": found})


def build_reward(config: RewardConfig, task: Task) -> Reward:
    """The reward of a run."""
    if task.verify is None:
        raise RewardError(f"the task '{task.name}' has no verifier of its own: set reward.verifier")
    return ShapedReward(task.name, replace_name(as_reward(task.verify), task.name), config)


def replace_name(reward: Reward, name: str) -> Reward:
    return replace(reward, name=name)  # type: ignore[type-var]
