"""Where the prompts of a step come from: the order of the epochs, or draws by weight; and what is known of each prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from surefoot.algorithms.part import Part
from surefoot.algorithms.prompts import PromptTable, choose
from surefoot.errors import AlgorithmError
from surefoot.evaluation.evaluate import is_right
from surefoot.tasks.cursor import PromptCursor
from surefoot.training.state import RunState
from surefoot.types import Group, Prompt


class PromptSource:
    """Chooses the training prompts of every step and remembers how they were answered.

    Everything that it remembers is in the run state, so that a resumed run goes on with the prompts that the
    uninterrupted one would have taken.

    Args:
        part: of the slot ``prompts``.
        prompts: the training prompts.
        seed: of the run.
        state: of the run; its cursor and history are kept up to date.

    Raises:
        AlgorithmError: a curriculum over prompts without labels of their difficulty.
    """

    def __init__(self, part: Part, prompts: Sequence[Prompt], seed: int, state: RunState) -> None:
        self.part, self.seed, self.state = part, seed, state
        self.cursor = PromptCursor(len(prompts), seed, state.cursor)
        self.difficulty = np.array([_number(prompt.metadata.get("difficulty")) for prompt in prompts])
        if "labels" in part.kind.traits and np.isnan(self.difficulty).all():
            raise AlgorithmError(
                f"algorithm.prompts = '{part.name}' orders prompts by their difficulty, and none has a label: give prompts "
                "metadata with a number 'difficulty', or set algorithm.prompts = 'in_order'"
            )
        self.graded, self.right = np.zeros((2, len(prompts)), dtype=np.int64)
        for index, (graded, right) in state.history.items():
            self.graded[int(index)], self.right[int(index)] = graded, right

    def take(self, count: int, step: int, rollout: int) -> list[int]:
        """Indices of up to ``count`` prompts for a rollout batch of a step; none where no prompt is left to sample."""
        if "idle" in self.part.kind.traits:
            taken = self.cursor.take(count)
        else:
            weight = self._weight(step)
            if "draw" in self.part.kind.traits:
                return choose(weight, count, self.seed, "prompts", step, rollout)
            taken = self._walk(count, weight > 0)
        self.state.cursor = self.cursor.position
        return taken

    def left(self, step: int) -> bool:
        """Whether any prompt may still be sampled after this step."""
        if "idle" in self.part.kind.traits:
            return True
        return bool((self._weight(step + 1) > 0).any())

    def _weight(self, step: int) -> np.ndarray:
        weight: np.ndarray = self.part(PromptTable(self.graded, self.right, self.difficulty, step))
        return weight

    def _walk(self, count: int, allowed: np.ndarray) -> list[int]:
        """The next prompts of the epochs' order, those that are not allowed passed over, none of them twice."""
        taken: list[int] = []
        while len(taken) < min(count, int(allowed.sum())):
            taken += [index for index in self.cursor.take(1) if allowed[index] and index not in taken]
        return taken

    def learn(self, indices: Sequence[int], groups: Sequence[Group]) -> None:
        """Remember how the prompts were answered."""
        if not {"history"} & self.part.kind.traits:
            return
        for index, group in zip(indices, groups, strict=True):
            valid = [score for score in group.scores if score.valid]
            self.graded[index] += len(valid)
            self.right[index] += sum(is_right(score) for score in valid)
            self.state.history[str(index)] = [int(self.graded[index]), int(self.right[index])]


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else float("nan")
