"""Advantages of maximum-likelihood RL (MaxRL, arXiv 2602.02710).

With success probability p of a prompt and q = 1 - p, the objective of order T is J_T = -sum_{k=1..T} q^k / k: order 1 is
the expected reward, order infinity is log p. N samples with K successes estimate its gradient.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from surefoot.algorithms.part import part
from surefoot.algorithms.table import RewardTable
from surefoot.errors import AlgorithmError


def _text(form: str, order: int) -> str:
    top = order or "N"
    return {
        "conditional": "A_i = r_i N/K_g",
        "control_variate": "A_i = r_i N/K_g - 1, and -1 where K_g = 0",
        "mean_normalised": "A_i = r_i N/K_g - 1 where K_g > 0, else 0",
        "subset": f"A_i = r_i sum_(k < T) C(N-K_g, k) / C(N-1, k),  T = {top}",
        "maclaurin": f"A_i = r_i - (1 - r_i) sum_(0 < j < T) C(N-K_g-1, j) / C(N-1, j),  T = {top}",
    }[form] + "  (K_g right answers among N)"


def _latex(form: str, order: int) -> str:
    top = order or "N"
    return {
        "conditional": r"A_i = r_i\tfrac{N}{K_g}",
        "control_variate": r"A_i = r_i\tfrac{N}{K_g} - 1,\text{ and }-1\text{ where }K_g = 0",
        "mean_normalised": r"A_i = \big(r_i\tfrac{N}{K_g} - 1\big)[K_g > 0]",
        "subset": rf"A_i = r_i\sum_{{k<T}}\tbinom{{N-K_g}}{{k}}/\tbinom{{N-1}}{{k}},\;T = {top}",
        "maclaurin": rf"A_i = r_i - (1-r_i)\sum_{{0<j<T}}\tbinom{{N-K_g-1}}{{j}}/\tbinom{{N-1}}{{j}},\;T = {top}",
    }[form]


@part("advantage", _text, _latex, "group", "successes")
def maximum_likelihood(
    table: RewardTable,
    *,
    form: Literal["mean_normalised", "control_variate", "conditional", "subset", "maclaurin"] = "control_variate",
    order: Annotated[int, Field(ge=0)] = 0,
) -> Tensor:
    """The score function of successes, weighted so that its expectation is the gradient of J_T. Rewards of 0 and 1.

    =================  =====================  =================  ===========  =======================================
    form               a success              a failure          K = 0        order that is reached
    =================  =====================  =================  ===========  =======================================
    conditional        N / K                  0                  0            N
    control_variate    N / K - 1              -1                 -1           N
    mean_normalised    N / K - 1              -1                 0            N - 1 (as shipped by the authors)
    subset             N c_T(K)               0                  0            ``order`` = T <= N
    maclaurin          1                      -sum_j ratio_j     the same     ``order`` = T <= N
    =================  =====================  =================  ===========  =======================================

    ``conditional`` and ``control_variate`` do not see the scale: a success may be worth another number than 1, the same for
    all of the batch. ``mean_normalised`` also takes partial credit, any rewards that are not negative, without the reading as
    a likelihood. ``order`` 0 is N. A group of one has advantage 0.

    Raises:
        AlgorithmError: a reward that the form cannot count.
    """
    reward = table.where_valid(table.reward)
    _check(form, reward)
    size = table.group_count()
    successes = table.group_sum(reward)
    weights = _WEIGHTS[form](successes, size, order)
    right, wrong = (weight[table.group] for weight in weights)
    advantage = wrong + (right - wrong) * reward
    return torch.where(table.valid & (size[table.group] > 1), advantage, torch.zeros_like(reward))


def _check(form: str, reward: Tensor) -> None:
    """Refuse rewards [B] (0 where not graded) that are not successes and failures."""
    way_out = (
        "return 1 for a right answer and 0 for a wrong one (reward.wrong = 0, no penalties in the reward, parts of the reward "
        "that are no verdict with the weight 0)"
    )
    if bool((reward < 0).any()):
        raise AlgorithmError(
            f"the advantage 'maximum_likelihood' counts successes and met a negative reward, {float(reward.min()):g}: {way_out}"
        )
    if form == "mean_normalised":
        return
    success = 1.0 if form in ("subset", "maclaurin") else float(reward.max()) if len(reward) else 1.0
    partial = (reward > 0) & ((reward - success).abs() > 1e-9 * success)
    if bool(partial.any()):
        raise AlgorithmError(
            f"the advantage 'maximum_likelihood' in the form '{form}' counts successes, and a reward of "
            f"{float(reward[partial][0]):g} is neither a failure (0) nor a success ({success:g}): {way_out}; with partial credit "
            "set algorithm.advantage.form = 'mean_normalised', or algorithm.advantage = 'group_norm'"
        )


def _conditional(successes: Tensor, size: Tensor, order: int) -> tuple[Tensor, Tensor]:
    some = successes > 0
    return torch.where(some, size / successes.clamp(min=1e-12), 0.0), torch.zeros_like(size)


def _control_variate(successes: Tensor, size: Tensor, order: int) -> tuple[Tensor, Tensor]:
    return _conditional(successes, size, order)[0] - 1, -torch.ones_like(size)


def _mean_normalised(successes: Tensor, size: Tensor, order: int) -> tuple[Tensor, Tensor]:
    some = (successes > 0).to(size.dtype)
    return _conditional(successes, size, order)[0] - some, -some


def _subset(successes: Tensor, size: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """c_{T,N}(K) = (1/N) sum_{k<T} C(N-K, k) / C(N-1, k); a success weighs N c."""
    weight = _series(size - successes, size - 1, _orders(size, order), first=0)
    return torch.where(successes > 0, weight, 0.0), torch.zeros_like(size)


def _maclaurin(successes: Tensor, size: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """A failure weighs -sum_{j=1..T-1} C(F-1, j) / C(N-1, j), F = N - K."""
    return torch.ones_like(size), -_series(size - successes - 1, size - 1, _orders(size, order), first=1)


def _orders(size: Tensor, order: int) -> Tensor:
    return size if order == 0 else size.clamp(max=order)


def _series(top: Tensor, bottom: Tensor, orders: Tensor, first: int) -> Tensor:
    """[groups], sum over j = first .. T - 1 of C(top, j) / C(bottom, j), each from the one before it."""
    total, ratio = torch.zeros_like(top), torch.ones_like(top)
    for j in range(int(orders.max()) if len(orders) else 0):
        if j:
            ratio = ratio * ((top - j + 1).clamp(min=0) / (bottom - j + 1).clamp(min=1))
        if j >= first:
            total = total + torch.where(j < orders, ratio, 0.0)
    return total


_WEIGHTS = {
    "conditional": _conditional,
    "control_variate": _control_variate,
    "mean_normalised": _mean_normalised,
    "subset": _subset,
    "maclaurin": _maclaurin,
}
