"""Selection: which rows of the batch stay. Rows that leave are in no baseline, no loss and no denominator."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from surefoot.algorithms.part import part
from surefoot.algorithms.table import RewardTable


@part("selection", "all groups", r"\text{{all groups}}", "idle")
def keep(table: RewardTable) -> Tensor:
    """Every row stays: a group with equal rewards has advantage 0 and still counts in the denominators."""
    return torch.ones_like(table.valid)


@part(
    "selection",
    "groups whose rewards are not all equal",
    r"\text{{groups with }}\operatorname{{std}}_g(r) > 0",
    "group",
)
def drop_no_signal(table: RewardTable) -> Tensor:
    """Groups without signal leave the batch, which shrinks (ScaleRL's zero-variance filter, arXiv 2510.13786)."""
    return table.signal()[table.group]


@part(
    "selection",
    "groups with right and wrong answers",
    r"\text{{groups with right and wrong answers}}",
    "group",
)
def mixed(table: RewardTable) -> Tensor:
    """Groups that are neither solved by every sample nor by none (DAPO's filter, arXiv 2503.14476), without a refill.

    Read from the answers, not from the reward: a penalty for length makes no signal of a solved prompt. Groups of a single
    row stay, as the authors' code has it. The batch shrinks as the policy improves.
    """
    return _groups(table, table.right.to(table.reward.dtype))


def _refill_text(*, rounds: int, measure: str) -> str:
    return f"{_kept(measure)}, refilled from at most {rounds} rollout batches"


def _refill_latex(*, rounds: int, measure: str) -> str:
    return rf"\text{{{_refill_text(rounds=rounds, measure=measure)}}}"


def _kept(measure: str) -> str:
    return "groups with right and wrong answers" if measure == "accuracy" else "groups whose rewards are not all equal"


@part("selection", _refill_text, _refill_latex, "group", "refill")
def refill(
    table: RewardTable,
    *,
    rounds: Annotated[int, Field(ge=1)] = 10,
    measure: Literal["accuracy", "reward"] = "accuracy",
) -> Tensor:
    """Dynamic sampling (DAPO, arXiv 2503.14476): further prompts are sampled until the batch has its number of groups.

    Kept are groups with right and wrong answers (``accuracy``), or with rewards that differ (``reward``), and groups of a
    single row. After ``rounds`` rollout batches the step is taken with what there is. Costs more rollouts the better,
    or the worse, the policy does; prompts of middling difficulty are over-represented.
    """
    return _groups(table, table.right.to(table.reward.dtype) if measure == "accuracy" else table.reward)


def _groups(table: RewardTable, value: Tensor) -> Tensor:
    """[B] bool, rows of groups in which the value differs among the valid rows, or that have one row in all."""
    low, high = table.group_extremes(value)
    alone = torch.bincount(table.group, minlength=table.groups) == 1
    return (table.differ(low, high) | alone)[table.group]
