"""Grading beside sampling: a group is graded in the background while later groups are still being made.

What comes out does not depend on what was ready when. A reward that may be called from other threads sees one group at a
time, in whatever order they are finished; any other sees all completions of the batch at once, after they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

from surefoot.rewards.base import BrokenRewardError, Reward, threads_of
from surefoot.types import Prompt, Sample, Score

Pairs = Sequence[tuple[Prompt, Sample]]
Grade = Callable[[Pairs], list[Score]]


def grading_threads(reward: Reward, overlap: Literal["auto", "always", "never"]) -> int:
    """How many threads grade beside the one that samples; 0: none does."""
    return {"auto": threads_of(reward), "always": max(1, threads_of(reward)), "never": 0}[overlap]


class Grading:
    """The grading of one rollout batch.

    Args:
        grade: scores of samples, in order.
        threads: that may grade in the background; 0: the calling thread grades everything in :meth:`scores`.
    """

    def __init__(self, grade: Grade, threads: int) -> None:
        self._grade = grade
        self._pool = ThreadPoolExecutor(threads, "surefoot-grading") if threads else None
        self._begun: dict[int, Future[list[Score]]] = {}

    def __enter__(self) -> Grading:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            # After an error nobody wants what is still being graded.
            self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def ahead(self) -> bool:
        """Whether it makes sense to :meth:`begin` a group before all are there."""
        return self._pool is not None

    def begin(self, number: int, pairs: Pairs) -> None:
        """Start to grade group ``number`` in the background."""
        assert self._pool is not None
        self._begun[number] = self._pool.submit(self._grade, pairs)

    def scores(self, groups: Sequence[Pairs]) -> list[list[Score]]:
        """The scores of all groups, in order; waits for what is not graded yet.

        Raises:
            BrokenRewardError: not one sample of the batch could be graded.
            RewardError: as the reward raises it.
        """
        if self._pool is None:
            scores = iter(self._grade([pair for pairs in groups for pair in pairs]))
            return [[next(scores) for _ in pairs] for pairs in groups]
        for number, pairs in enumerate(groups):
            if number not in self._begun:
                self.begin(number, pairs)
        found: list[list[Score]] = []
        broken: list[BrokenRewardError] = []
        for number in range(len(groups)):
            try:
                found.append(self._begun[number].result())
            except BrokenRewardError as error:
                broken.append(error)
                found.append(error.scores)
        if broken and len(broken) == len(groups):
            raise broken[0]
        return found
