"""Shaping: what is added to the rewards of a batch before anything is compared. A part returns the new rewards, [B].

Rows that were not graded keep their NaN. Only rewards are shaped: ``RewardTable.correct`` still says which answers are right.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from surefoot.algorithms.part import part
from surefoot.algorithms.table import RewardTable
from surefoot.errors import AlgorithmError

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@part("shaping", "", "", "idle")
def none(table: RewardTable) -> Tensor:
    """The rewards as they were given."""
    return table.reward


def _times(factor: float) -> str:
    return "" if factor == 1 else f"{factor:g} "


def _overlong_text(*, tokens: int, share: float, factor: float) -> str:
    cache = f"{tokens}" if tokens else f"{share:g} L_max"
    return (
        f"r_i <- r_i + {_times(factor)}clip((L_max - c - L_i)/c, -1, 0),  c = {cache},  L_max = the generation budget"
    )


def _overlong_latex(*, tokens: int, share: float, factor: float) -> str:
    cache = f"{tokens}" if tokens else rf"{share:g}L_{{\max}}"
    return (
        rf"r_i \leftarrow r_i + {_times(factor)}\operatorname{{clip}}\big(\tfrac{{L_{{\max}}-c-L_i}}{{c}},-1,0\big),"
        rf"\; c = {cache}"
    )


@part("shaping", _overlong_text, _overlong_latex)
def soft_overlong(
    table: RewardTable,
    *,
    share: Annotated[float, Field(gt=0, le=1)] = 0.2,
    tokens: Annotated[int, Field(ge=0)] = 0,
    factor: NotNegative = 1.0,
) -> Tensor:
    """A penalty that grows over the last tokens of the budget, from 0 to ``factor`` (DAPO, arXiv 2503.14476).

    It grows over a ``share`` of the generation budget, or over a number of ``tokens`` where that is not 0. The paper has 4096
    of 20480 tokens, a share of 0.2. Beyond the budget it grows no further; some implementations let it.

    Raises:
        AlgorithmError: more ``tokens`` than the budget has.
    """
    if tokens > table.budget:
        raise AlgorithmError(
            f"algorithm.shaping.tokens = {tokens} is more than the generation budget of {table.budget:g} tokens: an empty "
            "completion would be penalised; lower it, or set algorithm.shaping.share instead"
        )
    return table.reward + factor * overlong_penalty(table.length, table.budget, tokens or share * table.budget)


def overlong_penalty(length: Tensor, budget: float, cache: float) -> Tensor:
    """0 up to ``budget - cache`` tokens, then a line that reaches -1 at the budget and stays there."""
    return ((budget - cache - length) / cache).clamp(-1, 0)


def _length_text(*, weight: float, warmup_steps: int) -> str:
    late = f" from step {warmup_steps + 1}" if warmup_steps else ""
    return (
        f"r_i <- r_i + {_times(weight)}(lam_i if right else min(0, lam_i)){late},  "
        "lam_i = 1/2 - (L_i - min_group(L))/(max_group(L) - min_group(L))"
    )


def _length_latex(*, weight: float, warmup_steps: int) -> str:
    late = rf"\;(\text{{step}} > {warmup_steps})" if warmup_steps else ""
    return (
        rf"r_i \leftarrow r_i + {_times(weight)}\begin{{cases}}\lambda_i & \text{{right}}\\ \min(0,\lambda_i) & "
        rf"\text{{wrong}}\end{{cases}}{late},\; \lambda_i = \tfrac12 - \tfrac{{L_i-\min_g L}}{{\max_g L-\min_g L}}"
    )


@part("shaping", _length_text, _length_latex, "group")
def length_reward(
    table: RewardTable, *, weight: NotNegative = 1.0, warmup_steps: Annotated[int, Field(ge=0)] = 0
) -> Tensor:
    """Short right answers earn more than long ones, long wrong ones lose (Kimi k1.5, arXiv 2501.12599).

    Lengths are compared within the group, over graded rows; where they are all equal nothing is added. A wrong answer never
    gains by being short. The paper leaves it off at first (``warmup_steps``), since it slows early training down; its
    weight and the length of that phase are not printed.
    """
    if table.step <= warmup_steps:
        return table.reward
    return table.reward + weight * length_term(table)


def length_term(table: RewardTable) -> Tensor:
    """[B], 1/2 for the shortest of the group down to -1/2 for the longest, at most 0 for wrong answers; 0 if not graded."""
    low, high = (bound[table.group] for bound in table.group_extremes(table.length))
    span = high - low
    term = torch.where(span > 0, 0.5 - (table.length - low) / span, torch.zeros_like(span))
    return table.where_valid(torch.where(table.right, term, term.clamp(max=0)))


def _cut(coef: float) -> str:
    return f"{coef:g}" if coef <= 0 else f"{coef:g} r_i"


@part(
    "shaping",
    lambda *, coef: f"r_i <- {_cut(coef)} where the budget cut the completion",
    lambda *, coef: rf"r_i \leftarrow {_cut(coef)}\;\text{{where the budget cut the completion}}",
)
def stop_properly(table: RewardTable, *, coef: Annotated[float, Field(le=1, allow_inf_nan=False)] = 0.0) -> Tensor:
    """The reward of a completion that the budget cut: scaled by ``coef`` if that is 0 or more, replaced by it if less.

    From training recipes that follow ProRL (arXiv 2505.24864) for long runs. A right answer that did not stop in time is
    then worth less than one that did. A negative reward is scaled like any other, which raises it: where wrong answers have one,
    a negative ``coef`` keeps being cut from paying.
    """
    if table.truncated is None:
        return table.reward
    cut = table.reward * coef if coef >= 0 else torch.full_like(table.reward, coef)
    return torch.where(table.truncated & table.valid, cut, table.reward)
