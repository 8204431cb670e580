"""From scored groups to rows with advantages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.tokens import RewardTable
from surefoot.evaluation.evaluate import is_right
from surefoot.types import Group, Sample, Score


@dataclass(frozen=True)
class Batch:
    """The rows of a rollout batch, group after group.

    Attributes:
        samples, scores: a row each.
        group: [B] int64, the row's group.
        advantage: [B] float64, 0 for rows that were not graded or not selected.
        kept: [B] bool, rows that the selection kept; the others are in no denominator.
        signal: [groups] bool, groups whose valid rewards are not all equal, over all groups, before the selection.
    """

    samples: tuple[Sample, ...]
    scores: tuple[Score, ...]
    group: np.ndarray
    advantage: np.ndarray
    kept: np.ndarray
    signal: np.ndarray


def make_batch(
    algorithm: Algorithm, groups: Sequence[Group], memory: dict[str, float], penalty: Sequence[float] | None = None
) -> Batch:
    """Select rows and compute their advantages.

    Args:
        algorithm: whose selection and advantage are used.
        groups: scored groups.
        memory: what the advantage remembers from step to step; updated in place.
        penalty: [B], subtracted from the rewards before the baseline (the KL term in the reward).
    """
    samples = tuple(sample for group in groups for sample in group.samples)
    scores = tuple(score for group in groups for score in group.scores)
    index = np.repeat(np.arange(len(groups)), [len(group.samples) for group in groups]).astype(np.int64)
    table = _table(samples, scores, index, memory, penalty)
    signal = table.signal().numpy() if len(samples) else np.zeros(0, dtype=bool)
    kept = algorithm.selection(table).numpy() if len(samples) else np.zeros(0, dtype=bool)
    advantage = np.zeros(len(samples))
    if kept.any():
        rows = np.flatnonzero(kept).tolist()
        # Statistics over the batch are taken after the selection.
        part = _table(
            [samples[i] for i in rows],
            [scores[i] for i in rows],
            np.unique(index[rows], return_inverse=True)[1],
            memory,
            None if penalty is None else [penalty[i] for i in rows],
        )
        advantage[rows] = algorithm.advantage(part).numpy()
    return Batch(samples, scores, index, advantage, kept, signal)


def _table(
    samples: Sequence[Sample],
    scores: Sequence[Score],
    group: np.ndarray,
    memory: dict[str, float],
    penalty: Sequence[float] | None,
) -> RewardTable:
    reward = torch.tensor([score.total for score in scores], dtype=torch.float64)
    if penalty is not None:
        reward = reward - torch.tensor(list(penalty), dtype=torch.float64)
    names = sorted({name for score in scores for name in score.components})
    return RewardTable(
        reward=reward,
        valid=torch.tensor([score.valid for score in scores], dtype=torch.bool),
        group=torch.from_numpy(np.ascontiguousarray(group)),
        length=torch.tensor([sample.length for sample in samples], dtype=torch.float64),
        components={
            name: torch.tensor([score.components.get(name, float("nan")) for score in scores], dtype=torch.float64)
            for name in names
        },
        correct=torch.tensor([is_right(score) for score in scores], dtype=torch.bool),
        memory=memory,
    )
