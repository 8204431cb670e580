"""The order of the prompts: a new permutation every epoch, known from the seed and the position alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from surefoot.seeds import derive, generator
from surefoot.types import Prompt


class PromptCursor:
    """Walks over ``size`` prompts, each exactly once per epoch; one epoch follows another without a gap.

    Attributes:
        position: prompts taken since the start of the run. It is the whole state: a cursor made with the same size and
            seed and this position goes on where this one stands.
    """

    def __init__(self, size: int, seed: int, position: int = 0) -> None:
        if size <= 0:
            raise ValueError(f"a cursor needs at least one prompt, not {size}")
        if position < 0:
            raise ValueError(f"position = {position}: the number of prompts taken cannot be negative")
        self.size = size
        self.seed = seed
        self.position = position
        self._order: tuple[int, np.ndarray] | None = None

    @property
    def epoch(self) -> int:
        """Number of whole epochs taken."""
        return self.position // self.size

    def take(self, n: int) -> list[int]:
        """The next ``n`` indices; a take that is larger than what is left of the epoch goes on in the next one."""
        if n < 0:
            raise ValueError(f"cannot take {n} prompts")
        taken: list[int] = []
        while len(taken) < n:
            start = self.position % self.size
            part = self._permutation(self.epoch)[start : start + n - len(taken)]
            taken += part.tolist()
            self.position += len(part)
        return taken

    def _permutation(self, epoch: int) -> np.ndarray:
        """[size] int64, the order of an epoch."""
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, generator("prompt order", self.seed, epoch).permutation(self.size))
        return self._order[1]


class MixtureCursor:
    """Walks over several parts in proportion to their weights; each part goes through epochs of its own.

    Prompt n comes from the part that is furthest behind its share: the one with the largest weight * (n + 1) minus what it
    has given so far, the first of equals. So every stretch of prompts has each part in its proportion, to within a prompt
    or two, and nothing but the position says where it stands.

    Args:
        members: for each part, the indices of its prompts among all.
        weights: of the parts, positive.
        seed: of the orders.
        position: prompts taken since the start of the run.

    Raises:
        ValueError: an empty part, a weight that is not positive, or a negative position.
    """

    def __init__(
        self, members: Sequence[Sequence[int]], weights: Sequence[float], seed: int, position: int = 0
    ) -> None:
        if position < 0:
            raise ValueError(f"position = {position}: the number of prompts taken cannot be negative")
        if len(members) != len(weights) or not all(weight > 0 for weight in weights):
            raise ValueError(f"weights = {list(weights)}: expected a positive one for each of {len(members)} parts")
        self.members = members
        self.shares = np.asarray(weights, dtype=np.float64) / sum(weights)
        self.position = 0
        self._given = np.zeros(len(members), dtype=np.int64)
        for _ in range(position):
            self._next()
        self._cursors = [
            PromptCursor(len(part), derive(seed, "mixture", index), int(self._given[index]))
            for index, part in enumerate(members)
        ]

    def take(self, n: int) -> list[int]:
        """The next ``n`` indices."""
        if n < 0:
            raise ValueError(f"cannot take {n} prompts")
        taken = []
        for _ in range(n):
            part = self._next()
            taken.append(self.members[part][self._cursors[part].take(1)[0]])
        return taken

    def _next(self) -> int:
        """The part that the next prompt comes from; it counts as given."""
        part = int(np.argmax(self.shares * (self.position + 1) - self._given))
        self._given[part] += 1
        self.position += 1
        return part


def make_cursor(
    prompts: Sequence[Prompt], weights: Mapping[str, float], seed: int, position: int = 0
) -> PromptCursor | MixtureCursor:
    """The cursor over a task's training prompts: by the weights of its parts, where it is a mixture."""
    if not weights:
        return PromptCursor(len(prompts), seed, position)
    members = members_of(prompts, weights)
    return MixtureCursor(list(members.values()), [weights[label] for label in members], seed, position)


def members_of(prompts: Sequence[Prompt], weights: Mapping[str, float]) -> dict[str, list[int]]:
    """label -> the indices of its prompts, for the parts of a mixture that have any, in the order of the weights.

    Empty for a task that is no mixture.
    """
    if not weights:
        return {}
    members: dict[str, list[int]] = {label: [] for label in weights}
    for index, prompt in enumerate(prompts):
        members[prompt.metadata["task"]].append(index)
    return {label: indices for label, indices in members.items() if indices}
