"""From the ``[reward]`` section and a task to a Reward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from surefoot.config import nearest
from surefoot.errors import ConfigError
from surefoot.rewards.base import Completion, Reward
from surefoot.rewards.config import RewardConfig
from surefoot.rewards.functions import EachReward
from surefoot.rewards.grade import grade
from surefoot.rewards.verifiers import VERIFIERS, is_number, make_verifier
from surefoot.tasks.base import Task
from surefoot.types import Prompt, Score, Status


def build_reward(config: RewardConfig, task: Task) -> Reward:
    """The reward of a run: the verdict of a verifier, weighted.

    ``verifier = 'auto'`` is the task's own verifier. For a task without one it is 'number' where all gold answers are
    numbers and 'exact' otherwise.

    Raises:
        ConfigError: an unknown verifier.
        RewardError: a problem without a gold answer, or with one that the verifier cannot compare with.
    """
    if config.verifier == "auto" and task.verify is not None:
        return ShapedReward(task.name, _each(task.name, task.verify), config)
    prompts = [*task.train, *task.heldout]
    name = config.verifier
    if name == "auto":
        name = "number" if all(is_number(prompt.answer) for prompt in prompts) else "exact"
    if name not in VERIFIERS:
        raise ConfigError(f"reward.verifier = '{name}': unknown verifier." + nearest(name, ["auto", *VERIFIERS]))
    verifier = make_verifier(name)
    verifier.check(prompts)
    return ShapedReward(name, verifier, config)


@dataclass(frozen=True)
class ShapedReward:
    """A verdict as a reward: ``wrong + (right - wrong) * accuracy + format_weight * format``.

    ``accuracy`` is 1 or 0 (the total of a verifier that does not say whether the answer is right), ``format`` is 1
    where an answer was found. Both are components of the score. A verdict that could not be reached stays as it is.
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
        total = self.config.wrong + (self.config.right - self.config.wrong) * accuracy
        total += self.config.format_weight * found
        return replace(score, total=total, components={**score.components, "accuracy": accuracy, "format": found})


def _each(name: str, verify: Callable[[Prompt, str], Score]) -> EachReward:
    return EachReward(name, lambda completion: verify(completion.prompt, completion.text))
