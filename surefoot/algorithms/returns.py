"""Advantages of single tokens: rewards placed on tokens and summed from each token to the end of its row.

Only loss tokens are in the table, so the token after a hole (tool output, injected text) follows the one before it: values
and sums carry over. Rows that were not graded get 0 and enter no statistic.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from surefoot.algorithms.advantages import group_norm, whitened
from surefoot.algorithms.part import part
from surefoot.algorithms.table import RewardTable, StepTable
from surefoot.errors import AlgorithmError

Discount = Annotated[float, Field(ge=0, le=1)]


def token_rewards(table: RewardTable) -> Tensor:
    """[M] float64, R_it: the row's reward on its last loss token, minus the KL penalty of each; 0 in invalid rows."""
    penalty = table.token_penalty
    reward = table.reward.new_zeros(len(table.row))
    if penalty is not None:
        reward = torch.where(table.valid[table.row], -penalty.to(reward.dtype), reward)
    graded = table.valid & (table.length > 0)
    return reward.index_add(0, table.last[graded], table.reward[graded])


def to_go(table: RewardTable, value: Tensor, factor: float = 1.0) -> Tensor:
    """[M] -> [M], ``sum_(k >= 0) factor^k value_(t+k)`` to the end of the token's row.

    All rows walk backwards together, from the end of the longest one: [T, B] numbers are held.
    """
    length, row = table.length.long(), table.row
    longest = int(length.max()) if len(length) else 0
    place = torch.arange(len(row), device=row.device) - (table.last + 1 - length)[row]
    total = value.new_zeros(longest, len(length))
    total[place, row] = value
    for t in reversed(range(longest - 1)):
        total[t].add_(total[t + 1], alpha=factor)
    return total[place, row]


def after_baseline(table: RewardTable, advantage: Tensor) -> Tensor:
    """[B] -> [M], ``A_i - sum_(t' >= t) penalty_it'``: the KL penalty comes off token by token, after the baseline.

    The baseline then does not contain the penalties of the prompt's other samples. 0 in invalid rows.
    """
    advantage = advantage[table.row]
    if table.token_penalty is not None:
        advantage = advantage - to_go(table, table.token_penalty.to(advantage.dtype))
    return torch.where(table.valid[table.row], advantage, torch.zeros_like(advantage))


def _white(table: RewardTable, value: Tensor, ddof: int) -> Tensor:
    """Whitened over all loss tokens of the valid rows."""
    return whitened(value, table.valid[table.row].to(value.dtype), ddof)


def _power(factor: float, latex: bool = False) -> str:
    """The factor of the k-th term of a sum; nothing where it is 1."""
    if factor == 1:
        return ""
    return f"{factor:g}^k" if latex else f"{factor:g}^k "


def _over_tokens(term: str, whiten: bool, ddof: int) -> str:
    return f"whiten({term}; over tokens, ddof {ddof})" if whiten else term


def _over_tokens_latex(term: str, whiten: bool, ddof: int) -> str:
    return rf"\operatorname{{whiten}}_{{\text{{tokens, ddof {ddof}}}}}\Big({term}\Big)" if whiten else term


def _gae_text(*, gamma: float, lam: float, whiten: bool, ddof: int, bootstrap_truncated: bool) -> str:
    total = f"sum_(k >= 0) {_power(gamma * lam)}d_i,t+k"
    step = "V_i,t+1" if gamma == 1 else f"{gamma:g} V_i,t+1"
    end = "V of the last token in rows that were cut, 0 in others" if bootstrap_truncated else "0"
    return (
        f"A_it = {_over_tokens(total, whiten, ddof)},  d_it = R_it + {step} - V_it,  V after the last token = {end},  "
        f"R_it = r_i on the last token;  Ret_it = V_it + A_it{' before it is whitened' if whiten else ''}"
    )


def _gae_latex(*, gamma: float, lam: float, whiten: bool, ddof: int, bootstrap_truncated: bool) -> str:
    total = rf"\sum_{{k\ge 0}} {_power(gamma * lam, latex=True)}\delta_{{i,t+k}}"
    step = "V_{i,t+1}" if gamma == 1 else rf"{gamma:g}V_{{i,t+1}}"
    end = r"V_{iT_i}\,[i\text{ cut}]" if bootstrap_truncated else "0"
    end_of_return = r"\text{ before it is whitened}" if whiten else ""
    return (
        rf"A_{{it}} = {_over_tokens_latex(total, whiten, ddof)},\; \delta_{{it}} = R_{{it}} + {step} - V_{{it}},\; "
        rf"V_{{i,T_i+1}} = {end},\; R_{{it}} = r_i\,[t = T_i],\; "
        rf"\mathrm{{Ret}}_{{it}} = V_{{it}} + A_{{it}}{end_of_return}"
    )


@part("advantage", _gae_text, _gae_latex, "token", "values")
def gae(
    table: RewardTable,
    *,
    gamma: Discount = 1.0,
    lam: Discount = 0.95,
    whiten: bool = True,
    ddof: Literal[0, 1] = 1,
    bootstrap_truncated: bool = False,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (arXiv 1506.02438) over loss tokens, with a critic, as PPO uses it (arXiv 1707.06347).

    ``lam`` trades the critic's bias (0: one step) for variance (1: the whole return minus the value). Whitening is over all
    loss tokens of the batch's valid rows, once, before it is split into mini-batches; 1e-8 is added to the variance.

    ``bootstrap_truncated``: a row that the budget cut would have gone on. No value is known of the state after its last
    token; that of the state before it, V_iT, stands in for it. Otherwise the end of the budget is an end like any other.

    Returns:
        The advantages [M] and what the critic learns [M], both float64: the returns are the values plus the advantages
        before whitening. In rows that were not graded they are the values themselves, where the critic has no gradient.
    """
    values = table.needed("values", "the advantage 'gae'").to(torch.float64)
    row = table.row
    following = torch.zeros_like(values)
    following[:-1] = torch.where(row[1:] == row[:-1], values[1:], following[1:])
    if bootstrap_truncated and table.truncated is not None:
        last = table.last[table.truncated & (table.length > 0)]
        following[last] = values[last]
    advantage = to_go(table, token_rewards(table) + gamma * following - values, gamma * lam)
    advantage = torch.where(table.valid[row], advantage, torch.zeros_like(advantage))
    return (_white(table, advantage, ddof) if whiten else advantage), advantage + values


def _return_text(*, gamma: float, whiten: bool, ddof: int) -> str:
    return f"A_it = {_over_tokens(f'sum_(k >= 0) {_power(gamma)}R_i,t+k', whiten, ddof)};  R_it = r_i on the last token"


def _return_latex(*, gamma: float, whiten: bool, ddof: int) -> str:
    total = _over_tokens_latex(rf"\sum_{{k\ge 0}} {_power(gamma, latex=True)}R_{{i,t+k}}", whiten, ddof)
    return rf"A_{{it}} = {total},\; R_{{it}} = r_i\,[t = T_i]"


@part("advantage", _return_text, _return_latex, "token")
def reward_to_go(table: RewardTable, *, gamma: Discount = 1.0, whiten: bool = True, ddof: Literal[0, 1] = 1) -> Tensor:
    """What each token still earns, whitened over all loss tokens of the batch (REINFORCE++, arXiv 2501.03262).

    No critic and no groups: the baseline is the mean over the batch's tokens, in which long rows weigh more. With gamma 1 and
    no KL in the reward, a row's tokens are all alike.
    """
    earned = to_go(table, token_rewards(table), gamma)
    return _white(table, earned, ddof) if whiten else earned


@part(
    "advantage",
    "A_it = sum_(steps s of i that end at t or later) (r_s - mean_group(r)) / (std_group(r; ddof {ddof}) + {eps:g})",
    r"A_{{it}} = \sum_{{s \in i,\, \operatorname{{end}}(s) \ge t}}"
    r"\frac{{r_s - \bar r_g}}{{\operatorname{{std}}_g(r;\,\text{{ddof }}{ddof}) + {eps:g}}}",
    "token",
    "group",
    "steps",
)
def process(table: RewardTable, *, ddof: Literal[0, 1] = 1, eps: Annotated[float, Field(ge=0)] = 1e-6) -> Tensor:
    """GRPO with process supervision (arXiv 2402.03300): rewards of steps, standardised over all steps of the group.

    A token gets the sum over its own step and those after it, so rows of many steps have larger advantages. Rows without
    steps and steps without a score get 0 and are not in the pool; neither are rows that were not graded. A pool of one, or of
    equal rewards, gives 0. The reward of the whole row is not read. A KL in the reward comes off after the
    normalisation, as in :func:`after_baseline`.

    Raises:
        AlgorithmError: a step ends outside its row.
    """
    steps: StepTable = table.needed("steps", "the advantage 'process'")
    length = table.length.long()[steps.row]
    outside = (length > 0) & ((steps.end < 0) | (steps.end >= length))
    if bool(outside.any()):
        i = int(outside.nonzero()[0])
        raise AlgorithmError(
            f"step {i} ends at loss token {int(steps.end[i])} of row {int(steps.row[i])}, which has {int(length[i])}: "
            "StepTable.end counts the loss tokens of the step's own row, from 0"
        )
    value = steps.value.to(torch.float64)
    pool = RewardTable(value, table.valid[steps.row] & value.isfinite(), table.group[steps.row], torch.ones_like(value))
    advantage = group_norm.fn(pool, ddof=ddof, eps=eps)
    # A step of a row without loss tokens is in the pool and reaches no token.
    placed = length > 0
    first = (table.last + 1 - table.length.long())[steps.row]
    at_end = table.reward.new_zeros(len(table.row)).index_add(0, (first + steps.end)[placed], advantage[placed])
    earned = to_go(table, at_end)
    return earned + after_baseline(table, torch.zeros_like(table.reward))
