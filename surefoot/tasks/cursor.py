"""The order of the prompts: a new permutation every epoch, known from the seed and the position alone."""

from __future__ import annotations

import numpy as np

from surefoot.seeds import generator


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
