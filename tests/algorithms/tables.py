"""Reward tables for tests: of worked cases, and at random with empty rows, unequal groups and rows without a grade."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from surefoot.algorithms.table import RewardTable, StepTable
from tests.algorithms.harness import table, tensor


def masked(rewards: Any, mask: Any, groups: list[int] | None = None, **streams: Any) -> RewardTable:
    """The table of rows [B, T] with a mask; streams are [B, T] and become [M]."""
    inside = tensor(mask).bool()
    base = table(rewards, groups if groups is not None else list(range(len(inside))), inside.sum(1).tolist())
    return replace(base, **{name: tensor(value)[inside] for name, value in streams.items()})


def rows_of(rows: RewardTable, value: Tensor) -> list[list[float]]:
    """[M] as a list for each row."""
    return [part.tolist() for part in value.split(rows.length.long().tolist())]


@st.composite
def tables(draw: Any, binary: bool = False, rows: int = 9, all_valid: bool = False) -> RewardTable:
    """Every optional field is filled; rewards of rows without a grade are NaN."""
    count = draw(st.integers(1, rows))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    length = torch.randint(0, 6, (count,), generator=generator)
    group = torch.unique(torch.randint(0, 3, (count,), generator=generator), return_inverse=True)[1]
    valid = torch.ones(count, dtype=torch.bool) if all_valid else uniform(count) < 0.8
    right = uniform(count) < 0.5
    reward = right.double() if binary else 4 * uniform(count) - 2
    tokens = int(length.sum())
    ends = [(i, end) for i, size in enumerate(length.tolist()) for end in range(size) if uniform(1) < 0.5]
    row, end = zip(*ends, strict=True) if ends else ((), ())
    return RewardTable(
        reward=torch.where(valid, reward, torch.nan),
        valid=valid,
        group=group,
        length=length.double(),
        components={"a": uniform(count), "b": torch.where(uniform(count) < 0.9, uniform(count), torch.nan)},
        correct=right,
        memory={},
        truncated=uniform(count) < 0.3,
        budget=5.0,
        greedy=torch.where(uniform(3) < 0.8, uniform(3), torch.nan)[: int(group.max()) + 1],
        steps=StepTable(torch.tensor(row).long(), torch.tensor(end).long(), uniform(len(ends))),
        logp_old=-uniform(tokens),
        logp_reference=-uniform(tokens),
        values=uniform(tokens),
        token_penalty=0.3 * uniform(tokens) - 0.1,
    )
