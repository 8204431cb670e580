"""The Reward protocol: completions in, scores out, in the same order. A reward sees no tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from surefoot.errors import RewardError
from surefoot.metrics import StepReport
from surefoot.types import Finish, Prompt, Score


@dataclass(frozen=True)
class Completion:
    """What a reward sees of a sample: the text of its completion, and why it ended.

    Attributes:
        prompt: the problem, with its gold answer.
        text: what the policy wrote, with the phrase that was forced on it where its thinking was ended; no tool output. Only
            the token that ended it and padding are left out: other special tokens (``<think>``, ``<tool_call>``, an end of
            sequence in the middle) are written out.
        finish: why the completion ended.
        length: number of policy tokens.
        ids: the policy's tokens, a final stop token included; empty for a text that was never sampled.
        step: number of the rollout batch that it is for; 0 before the first.
        steps: number of rollout batches of the run; 0 outside a run.
        opens: the tag that the prompt ends with (``<think>``), where the completion begins inside a thought. The policy
            did not write it; a verifier reads it before the text, or it could not tell an unfinished thought from an answer.
    """

    prompt: Prompt
    text: str
    finish: Finish = Finish.STOP
    length: int = 0
    ids: tuple[int, ...] = ()
    step: int = 0
    steps: int = 0
    opens: str = ""


class Reward(Protocol):
    """What every reward does.

    Three further members are read where a reward has them:

    ``threads: int``
        how many threads may call ``score`` at once. Such a reward is called from background threads, group by group,
        while later groups are still being sampled. 0, or nothing said: only the thread that trains calls it, with all
        completions of a rollout batch at once.
    ``asks_model: bool``
        whether a grading asks a model and costs something, so that nothing is graded but what a run needs.
    ``take_notes() -> StepReport``
        what it counted since it was last asked (requests, tokens), for the metrics of the step.
    """

    @property
    def name(self) -> str:
        """What messages and metrics call it."""

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        """One score per completion, in order; a completion that cannot be graded gets a status, not a zero."""


class BrokenRewardError(RewardError):
    """Not one of the completions could be graded.

    Attributes:
        scores: what each of them got all the same. Whoever grades a batch piece by piece goes on with them, and raises the
            error only where no piece could be graded.
    """

    def __init__(self, message: str, scores: Sequence[Score]) -> None:
        super().__init__(message)
        self.scores = list(scores)


def threads_of(reward: Reward) -> int:
    """How many threads may call the reward at once; 0: only the thread that trains."""
    return int(getattr(reward, "threads", 0))


def notes_of(*rewards: Reward) -> StepReport:
    """What the rewards counted since they were last asked."""
    report = StepReport()
    for reward in rewards:
        if callable(take := getattr(reward, "take_notes", None)):
            report.merge(take())
    return report
