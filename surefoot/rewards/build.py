"""From the ``[reward]`` section and a task to a Reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    if config.verifier == "auto" and task.parts:
        parts = {label: build_reward(config, part) for label, part in task.parts.items()}
        return PartsReward(task.name, parts)
    if config.verifier == "auto" and task.verify is not None:
        return ShapedReward(task.name, _each(task.name, task.verify), config)
    prompts = [*task.train, *task.heldout]
    name = task.verifier if config.verifier == "auto" else config.verifier
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


@dataclass(frozen=True)
class PartsReward:
    """The reward of a mixture: every completion is graded, with its like, by the reward of its prompt's part."""

    name: str
    parts: Mapping[str, Reward]

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        scores: dict[int, Score] = {}
        for label, reward in self.parts.items():
            own = [i for i, completion in enumerate(completions) if completion.prompt.metadata["task"] == label]
            scores |= dict(zip(own, grade(reward, [completions[i] for i in own]), strict=True))
        return [scores[i] for i in range(len(completions))]


def _each(name: str, verify: Callable[[Prompt, str], Score]) -> EachReward:
    return EachReward(name, lambda completion: _judge(verify, completion))


def _judge(verify: Callable[[Prompt, str], Score], completion: Completion) -> Score:
    """The verdict on a completion behind the tag that its prompt opened; steps end where they do in the completion."""
    score = verify(completion.prompt, completion.opens + completion.text)
    if not completion.opens or not score.steps:
        return score
    before = len(completion.opens)
    return replace(score, steps=tuple(replace(step, end=max(0, step.end - before)) for step in score.steps))
