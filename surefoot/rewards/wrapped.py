"""Rewards around rewards: behind a tag that the prompt opened, and each part of a mixture by its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from surefoot.metrics import StepReport
from surefoot.rewards.base import Completion, Reward, notes_of, threads_of
from surefoot.rewards.grade import grade
from surefoot.types import Score


@dataclass(frozen=True)
class Opened:
    """A verifier that reads a completion behind the tag that its prompt opened: else an unfinished thought would be an answer.

    Steps end where they do in the completion. A verifier of manner is given the completion as it is.
    """

    verifier: Reward

    @property
    def name(self) -> str:
        return self.verifier.name

    @property
    def threads(self) -> int:
        return threads_of(self.verifier)

    def take_notes(self) -> StepReport:
        return notes_of(self.verifier)

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        if getattr(self.verifier, "manner", False):
            return self.verifier.score(completions)
        read = [replace(one, text=one.opens + one.text, opens="") if one.opens else one for one in completions]
        scores = self.verifier.score(read)
        return [_shifted(score, len(one.opens)) for score, one in zip(scores, completions, strict=True)]


def _shifted(score: Score, before: int) -> Score:
    if not before or not score.steps:
        return score
    return replace(score, steps=tuple(replace(step, end=max(0, step.end - before)) for step in score.steps))


@dataclass(frozen=True)
class PartsReward:
    """The reward of a mixture: every completion is graded, with its like, by the reward of its prompt's part."""

    name: str
    parts: Mapping[str, Reward]

    @property
    def threads(self) -> int:
        return min(threads_of(reward) for reward in self.parts.values())

    def take_notes(self) -> StepReport:
        return notes_of(*self.parts.values())

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        scores: dict[int, Score] = {}
        for label, reward in self.parts.items():
            own = [i for i, completion in enumerate(completions) if completion.prompt.metadata["task"] == label]
            scores |= dict(zip(own, grade(reward, [completions[i] for i in own]), strict=True))
        return [scores[i] for i in range(len(completions))]
