"""Where the prompts of a step come from: the order of the epochs, or draws by weight; and what is known of each prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from surefoot.algorithms.part import Part
from surefoot.algorithms.prompts import Level, PromptTable, choose, rise
from surefoot.errors import AlgorithmError
from surefoot.metrics import StepReport
from surefoot.rewards.grade import is_right
from surefoot.tasks.cursor import make_cursor, members_of
from surefoot.training.state import RunState
from surefoot.types import Group, Prompt

LEVEL, GRADED, RATE = "prompts/level", "prompts/level_graded", "prompts/level_rate"


class PromptSource:
    """Chooses the training prompts of every step and remembers how they were answered.

    Everything that it remembers is in the run state, so that a resumed run goes on with the prompts that the
    uninterrupted one would have taken.

    Args:
        part: of the slot ``prompts``.
        prompts: the training prompts.
        seed: of the run.
        state: of the run; its cursor, history and memory are kept up to date.
        weights: of the parts of a mixture, by label; each part keeps its share, whatever the part ``prompts`` chooses in it.

    Raises:
        AlgorithmError: a curriculum over prompts without labels of their difficulty.
    """

    def __init__(
        self,
        part: Part,
        prompts: Sequence[Prompt],
        seed: int,
        state: RunState,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self.part, self.seed, self.state = part, seed, state
        self.cursor = make_cursor(prompts, weights or {}, seed, state.cursor)
        members = members_of(prompts, weights or {})
        self.parts = [(np.array(indices), (weights or {})[label]) for label, indices in members.items()]
        self.difficulty = np.array([_number(prompt.metadata.get("difficulty")) for prompt in prompts])
        if "labels" in part.kind.traits and np.isnan(self.difficulty).all():
            raise AlgorithmError(
                f"algorithm.prompts = '{part.name}' orders prompts by their difficulty, and none has a label: give prompts "
                "metadata with a number 'difficulty', or set algorithm.prompts = 'in_order'"
            )
        self.graded, self.right = np.zeros((2, len(prompts)), dtype=np.int64)
        for index, (graded, right) in state.history.items():
            self.graded[int(index)], self.right[int(index)] = graded, right
        labels = np.where(np.isnan(self.difficulty), np.inf, self.difficulty)
        self.labels, self.level_of = np.unique(labels, return_inverse=True)

    def take(self, count: int, step: int, rollout: int) -> list[int]:
        """Indices of up to ``count`` prompts for a rollout batch of a step; none where no prompt is left to sample."""
        if "idle" in self.part.kind.traits:
            taken = self.cursor.take(count)
        else:
            weight = self._weight(step)
            if "draw" in self.part.kind.traits:
                return choose(self._shared(weight), count, self.seed, "prompts", step, rollout)
            taken = self._walk(count, weight > 0)
        self.state.cursor = self.cursor.position
        return taken

    def left(self, step: int) -> bool:
        """Whether any prompt may still be sampled after this step."""
        if "idle" in self.part.kind.traits:
            return True
        return bool((self._weight(step + 1) > 0).any())

    def _weight(self, step: int) -> np.ndarray:
        weight: np.ndarray = self.part(PromptTable(self.graded, self.right, self.difficulty, step, self.level.number))
        return weight

    def _shared(self, weight: np.ndarray) -> np.ndarray:
        """Weights of which each part of a mixture has its share."""
        shared = weight.astype(np.float64)
        for indices, share in self.parts:
            total = shared[indices].sum()
            if total > 0:
                shared[indices] *= share / total
        return shared

    @property
    def level(self) -> Level:
        """The level of difficulty that the run has reached, where the part goes by levels."""
        memory = self.state.memory
        return Level(int(memory.get(LEVEL, 0)), int(memory.get(GRADED, 0)), memory.get(RATE, 0.0))

    def _walk(self, count: int, allowed: np.ndarray) -> list[int]:
        """The next prompts of the epochs' order, those that are not allowed passed over, none of them twice."""
        taken: list[int] = []
        while len(taken) < min(count, int(allowed.sum())):
            taken += [index for index in self.cursor.take(1) if allowed[index] and index not in taken]
        return taken

    def learn(self, indices: Sequence[int], groups: Sequence[Group]) -> None:
        """Remember how the prompts were answered."""
        if "levels" in self.part.kind.traits:
            self._rise(indices, groups)
        if not {"history"} & self.part.kind.traits:
            return
        for index, group in zip(indices, groups, strict=True):
            graded, right = _counts(group)
            self.graded[index] += graded
            self.right[index] += right
            self.state.history[str(index)] = [int(self.graded[index]), int(self.right[index])]

    def _rise(self, indices: Sequence[int], groups: Sequence[Group]) -> None:
        """Count the answers at the level of now, and go to the next one where it is mastered."""
        level = self.level
        here = [group for index, group in zip(indices, groups, strict=True) if self.level_of[index] == level.number]
        graded, right = np.sum([_counts(group) for group in here], axis=0, dtype=int) if here else (0, 0)
        level = rise(
            level,
            int(graded),
            int(right),
            rate=self.part.rate,
            samples=self.part.samples,
            last=len(self.labels) - 1,
        )
        self.state.memory |= {LEVEL: level.number, GRADED: level.graded, RATE: level.rate}

    def measure(self) -> StepReport:
        """How many levels of difficulty are passed, and the success rate at the one of now; after :meth:`learn`."""
        report = StepReport()
        if "levels" in self.part.kind.traits:
            level = self.level
            report.total("prompts/level", level.number)
            if level.graded:
                report.add("prompts/level_accuracy", level.rate)
        return report


def _counts(group: Group) -> tuple[int, int]:
    """Samples of a group that were graded, and those that are right."""
    valid = [score for score in group.scores if score.valid]
    return len(valid), sum(is_right(score) for score in valid)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else float("nan")
