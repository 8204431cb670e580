"""From scored groups to rows with advantages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.finite import require_finite
from surefoot.algorithms.returns import after_baseline
from surefoot.algorithms.table import RewardTable, StepTable
from surefoot.policy.packing import loss_mask
from surefoot.rewards.grade import is_right
from surefoot.training.streams import RowValues, Streams
from surefoot.types import Finish, Group, Sample, Score

Values = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Batch:
    """The rows of a rollout batch, group after group.

    Attributes:
        samples, scores: a row each.
        group: [B] int64, the row's group.
        reward: [B] float64, after shaping and the KL term; NaN for rows that were not graded.
        penalty: [B] float64, the KL term of the row, where there is one in the reward.
        advantage: [B] float64, 0 for rows that were not graded or not selected; the mean over the row's tokens where they
            differ.
        token_advantage: for each row [L_i] float64, where advantages differ within a row.
        returns: for each row [L_i] float64, what the critic is to predict, where there is one.
        kept: [B] bool, rows that the selection kept: they are in the baseline.
        trained: [B] bool, rows whose tokens are in the loss and in its denominators.
        signal: [groups] bool, groups whose graded rewards are not all equal, before shaping and selection.
    """

    samples: tuple[Sample, ...]
    scores: tuple[Score, ...]
    group: np.ndarray
    reward: np.ndarray
    penalty: np.ndarray | None
    advantage: np.ndarray
    token_advantage: Values | None
    returns: Values | None
    kept: np.ndarray
    trained: np.ndarray
    signal: np.ndarray

    @property
    def silent(self) -> np.ndarray:
        """[B] bool, rows whose every token has advantage 0."""
        if self.token_advantage is None:
            return self.advantage == 0
        return np.array([not row.any() for row in self.token_advantage], dtype=bool)


def make_batch(
    algorithm: Algorithm,
    groups: Sequence[Group],
    memory: dict[str, float],
    *,
    step: int = 1,
    budget: int = 1,
    streams: Streams | None = None,
) -> Batch:
    """Shape rewards, select rows and compute their advantages.

    Args:
        algorithm: whose parts are used.
        groups: scored groups.
        memory: what the parts remember from step to step; updated in place.
        step: number of the rollout batch, from 1.
        budget: tokens that a completion may have.
        streams: what the parts need to know of every token.
    """
    raw = reward_table(groups, memory, step, budget, streams or Streams())
    table, in_loss = prepare(algorithm, raw)
    penalty = None
    if algorithm.kl_in_reward:
        token_penalty = algorithm.kl(table)
        penalty = table.row_sum(token_penalty)
        taken = penalty if not (algorithm.kl.after_baseline or _per_token(algorithm)) else torch.zeros_like(penalty)
        table = replace(table, token_penalty=token_penalty, reward=table.reward - taken)
    # Statistics over the batch are taken after the selection.
    kept = algorithm.selection(table) & (table.valid | ~raw.valid)
    advantage, token_advantage, returns = _advantages(algorithm, table, kept)
    name = f"the advantage '{algorithm.advantage.name}' in rollout batch {step}"
    require_finite({name: advantage})
    require_finite({name: token_advantage, f"the return of {name}": returns}, table.row)
    return Batch(
        samples=tuple(sample for group in groups for sample in group.samples),
        scores=tuple(score for group in groups for score in group.scores),
        group=raw.group.numpy(),
        reward=table.reward.numpy(),
        penalty=None if penalty is None else penalty.numpy(),
        advantage=advantage.numpy(),
        token_advantage=_rows(token_advantage, table),
        returns=_rows(returns, table),
        kept=kept.numpy(),
        trained=(kept & in_loss).numpy(),
        signal=raw.signal().numpy(),
    )


def kept_groups(algorithm: Algorithm, groups: Sequence[Group], step: int, budget: int) -> list[bool]:
    """Which groups the selection keeps, before any log-probability is known (so without a KL term in the reward)."""
    table, _ = prepare(algorithm, reward_table(groups, {}, step, budget, Streams()))
    kept = algorithm.selection(table)
    return [bool(kept[table.group == g].any()) for g in range(len(groups))]


def prepare(algorithm: Algorithm, table: RewardTable) -> tuple[RewardTable, Tensor]:
    """The table with shaped rewards and without cut completions that leave the baseline; and [B] bool, rows in the loss."""
    in_baseline, in_loss = algorithm.truncated(table)
    table = replace(table, valid=table.valid & in_baseline)
    return replace(table, reward=algorithm.shaping(table)), in_baseline & in_loss


def _per_token(algorithm: Algorithm) -> bool:
    return "token" in algorithm.advantage.kind.traits


def _advantages(algorithm: Algorithm, table: RewardTable, kept: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """[B] advantages, and where the algorithm has them [M] advantages and returns; 0 for rows that are not kept."""
    advantage = torch.zeros_like(table.reward)
    if not kept.any():
        return advantage, None, None
    part = table.take(kept)
    found = algorithm.advantage(part)
    found, returned = found if algorithm.needs_critic else (found, None)
    if algorithm.kl_in_reward and algorithm.kl.after_baseline:
        found = after_baseline(part, found)
    elif not _per_token(algorithm):
        advantage[kept] = found
        return advantage, None, None
    advantage[kept] = part.row_sum(found) / part.length.clamp(min=1)
    tokens = kept[table.row]

    def spread(value: Tensor) -> Tensor:
        return torch.zeros(len(tokens), dtype=torch.float64).masked_scatter(tokens, value.double())

    return advantage, spread(found), None if returned is None else spread(returned)


def _rows(value: Tensor | None, table: RewardTable) -> Values | None:
    """[M] as an array [L_i] per row."""
    return None if value is None else tuple(part.numpy() for part in value.split(table.length.long().tolist()))


def reward_table(
    groups: Sequence[Group], memory: dict[str, float], step: int, budget: int, streams: Streams
) -> RewardTable:
    """The scores of all groups as a table."""
    samples = [sample for group in groups for sample in group.samples]
    scores = [score for group in groups for score in group.scores]
    names = sorted({name for score in scores for name in score.components})
    return RewardTable(
        reward=torch.tensor([score.total for score in scores], dtype=torch.float64),
        valid=torch.tensor([score.valid for score in scores], dtype=torch.bool),
        group=torch.repeat_interleave(torch.arange(len(groups)), torch.tensor([len(g.samples) for g in groups]).long()),
        length=torch.tensor([loss_mask(sample).sum() for sample in samples], dtype=torch.float64),
        components={
            name: torch.tensor([score.components.get(name, float("nan")) for score in scores], dtype=torch.float64)
            for name in names
        },
        correct=torch.tensor([is_right(score) for score in scores], dtype=torch.bool),
        memory=memory,
        truncated=torch.tensor([sample.finish == Finish.LENGTH for sample in samples], dtype=torch.bool),
        budget=float(budget),
        step=step,
        greedy=_greedy(groups),
        steps=_steps(scores),
        logp_old=_flat(streams.old),
        logp_reference=_flat(streams.reference),
        values=_flat(streams.values),
    )


def _greedy(groups: Sequence[Group]) -> Tensor | None:
    scores = [group.greedy for group in groups]
    if all(score is None for score in scores):
        return None
    rewards = [score.total if score is not None and score.valid else float("nan") for score in scores]
    return torch.tensor(rewards, dtype=torch.float64)


def _steps(scores: Sequence[Score]) -> StepTable:
    steps = [(row, step) for row, score in enumerate(scores) if score.valid for step in score.steps]
    placed = [(row, step.token, step.value) for row, step in steps if step.token is not None]
    row, end, value = zip(*placed, strict=True) if placed else ((), (), ())
    return StepTable(
        torch.tensor(row, dtype=torch.int64),
        torch.tensor(end, dtype=torch.int64),
        torch.tensor(value, dtype=torch.float64),
    )


def _flat(rows: RowValues | None) -> Tensor | None:
    if rows is None:
        return None
    return torch.cat([torch.zeros(0, dtype=torch.float64), *(part.cpu().double() for part in rows)])
