"""From the ``[reward]`` section and a task to a Reward."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from surefoot.config import nearest, validate
from surefoot.errors import ConfigError, RewardError
from surefoot.metrics import StepReport
from surefoot.rewards.asynchronous import Limits
from surefoot.rewards.base import Completion, Reward, notes_of, threads_of
from surefoot.rewards.compose import Composed
from surefoot.rewards.config import RewardConfig
from surefoot.rewards.functions import EachReward
from surefoot.rewards.grade import grade
from surefoot.rewards.judge import make_judge
from surefoot.rewards.verifiers import VERIFIERS, is_number, make_verifier
from surefoot.rewards.wrapped import Opened, PartsReward
from surefoot.tasks.base import Task
from surefoot.types import Score, Status

Maker = Callable[[Mapping[str, Any]], Reward]
_NONE: Mapping[str, Maker] = MappingProxyType({})


def build_reward(config: RewardConfig, task: Task, makers: Mapping[str, Maker] = _NONE) -> Reward:
    """The reward of a run: the verdict of a verifier, weighted, or the sum of several parts.

    ``verifier = 'auto'`` is the task's own verifier. For a task without one it is 'number' where all gold answers are
    numbers and 'exact' otherwise.

    Args:
        config: the section.
        task: its verifier and its gold answers.
        makers: further names and what makes a reward of their options, from rooms that this one does not know.

    Raises:
        ConfigError: an unknown verifier.
        RewardError: a problem without a gold answer, or with one that the verifier cannot compare with; a wrong option.
        MissingExtraError: a package that a verifier needs is not installed.
    """
    limits = Limits(config.concurrency, config.deadline)
    makers = {"judge": lambda options: make_judge(options, limits), **makers}
    if not config.parts:
        return ShapedReward.of(_one("reward", config.verifier, config.options, task, makers), config)
    made: dict[
        str, Reward
    ] = {}  # of one verifier with the same options there is one, which grades once for all its parts
    parts = []
    for term in config.terms():
        part = config.parts[term.name]
        key = json.dumps([part.verifier, part.options], sort_keys=True, default=str)
        if key not in made:
            made[key] = _one(f"reward.parts.{term.name}", part.verifier, part.options, task, makers)
        parts.append(replace(term, reward=made[key]))
    return Composed(tuple(parts), limits)


def _code(options: Mapping[str, Any], task: Task) -> Reward:
    """The verifier of programs: ``score_by``, and a table ``sandbox`` of where they run."""
    from surefoot.rewards.code import CodeTests
    from surefoot.rewards.sandbox import SandboxConfig

    known = ("score_by", "sandbox")
    for option in options:
        if option not in known:
            raise RewardError(f"the verifier 'code' has no option '{option}'." + nearest(option, known))
    score_by = options.get("score_by", "all")
    if score_by not in ("all", "share"):
        raise RewardError(f"the option score_by = {score_by!r} of the verifier 'code': expected 'all' or 'share'")
    verifier = CodeTests(score_by=score_by, sandbox=validate(SandboxConfig, options.get("sandbox", {})))
    verifier.check([*task.train, *task.heldout])
    return verifier


def _one(key: str, name: str, options: Mapping[str, Any], task: Task, makers: Mapping[str, Maker]) -> Reward:
    """The reward of one name and its options."""
    if name == "auto" and (task.parts or task.verify is not None):
        if options:
            raise ConfigError(f"{key}.options: the verifier of the task '{task.name}' has no options")
        if task.parts:
            return PartsReward(
                task.name, {label: _one(key, name, {}, part, makers) for label, part in task.parts.items()}
            )
        verify = task.verify
        assert verify is not None
        return Opened(EachReward(task.name, lambda completion: verify(completion.prompt, completion.text)))
    if name == "auto":
        name = task.verifier
    if name == "code":
        return Opened(_code(options, task))
    if name in makers:
        return makers[name](options)
    prompts = [*task.train, *task.heldout]
    if name == "auto":
        name = "number" if all(is_number(prompt.answer) for prompt in prompts) else "exact"
    if name not in VERIFIERS:
        known = ["auto", "code", *VERIFIERS, *makers]
        raise ConfigError(f"{key}.verifier = '{name}': unknown verifier." + nearest(name, known))
    verifier = make_verifier(name, options)
    verifier.check(prompts)
    return Opened(verifier)


@dataclass(frozen=True)
class ShapedReward:
    """A verdict as a reward: ``wrong + (right - wrong) * accuracy + format_weight * format``.

    ``accuracy`` is 1 or 0 (the total of a verifier that does not say whether the answer is right), ``format`` is 1
    where an answer was found. Both are components of the score. A verdict that could not be reached stays as it is.
    """

    name: str
    verifier: Reward
    config: RewardConfig

    @classmethod
    def of(cls, verifier: Reward, config: RewardConfig) -> ShapedReward:
        return cls(verifier.name, verifier, config)

    @property
    def threads(self) -> int:
        return threads_of(self.verifier)

    def take_notes(self) -> StepReport:
        return notes_of(self.verifier)

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
