"""Advantages: from the rewards of a batch to one number per row, detached. Invalid rows get 0 and enter no statistic.

Those that give one number per token are in ``returns.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from surefoot.algorithms.part import part
from surefoot.algorithms.table import RewardTable

WHITENING_EPS = 1e-8  # what whitening adds to the variance


def _centred(table: RewardTable) -> Tensor:
    """[B], r - mean of its group over valid rows; exactly 0 in a group without signal."""
    reward = table.where_valid(table.reward)
    mean = table.group_sum(reward) / table.group_count().clamp(min=1)
    centred = torch.where(table.signal()[table.group], reward - mean[table.group], torch.zeros_like(reward))
    return table.where_valid(centred)


@part("advantage", "A_i = r_i", r"A_i = r_i")
def reward(table: RewardTable) -> Tensor:
    """The reward itself (REINFORCE without a baseline; Williams 1992). Unbiased, of high variance."""
    return table.where_valid(table.reward)


@part("advantage", "A_i = r_i - mean_batch(r)", r"A_i = r_i - \bar r_{{\text{{batch}}}}")
def batch_mean(table: RewardTable) -> Tensor:
    """r minus the mean of the batch. The row's own reward is in the mean, which shrinks the gradient by 1 - 1/B."""
    return _centred(replace(table, group=torch.zeros_like(table.group)))


@part(
    "advantage",
    "A_i = r_i - b;  b <- {decay:g} b + (1-{decay:g}) r_i",
    r"A_i = r_i - b,\; b \leftarrow {decay:g}b+(1-{decay:g})r_i",
)
def moving_average(table: RewardTable, *, decay: Annotated[float, Field(ge=0, lt=1)] = 0.9) -> Tensor:
    """r minus an exponential moving average of all rewards before it; the average starts at 0 and lives in the run state."""
    baseline = table.memory.get("moving_average", 0.0)
    advantage = torch.zeros_like(table.reward)
    for i in torch.nonzero(table.valid).flatten().tolist():
        value = float(table.reward[i])
        advantage[i] = value - baseline
        baseline = decay * baseline + (1 - decay) * value
    table.memory["moving_average"] = baseline
    return advantage


@part("advantage", "A_i = r_i - mean_(j != i)(r_j)", r"A_i = r_i - \tfrac{{1}}{{G-1}}\sum_{{j\ne i}} r_j", "group")
def leave_one_out(table: RewardTable) -> Tensor:
    """r minus the mean of the *other* samples of the prompt (RLOO, arXiv 2402.14740): G/(G-1) (r - mean). Unbiased."""
    count = table.group_count()[table.group]
    return _centred(table) * torch.where(count > 1, count / (count - 1).clamp(min=1), torch.zeros_like(count))


@part("advantage", "A_i = r_i - mean_group(r)", r"A_i = r_i - \bar r_g", "group")
def group_mean(table: RewardTable) -> Tensor:
    """r minus the mean of the group (Dr. GRPO, arXiv 2503.20783)."""
    return _centred(table)


@part(
    "advantage",
    "A_i = (r_i - mean_group(r)) / (std_group(r; ddof {ddof}) + {eps:g})",
    r"A_i = \frac{{r_i - \bar r_g}}{{\operatorname{{std}}_g(r;\,\text{{ddof }}{ddof}) + {eps:g}}}",
    "group",
)
def group_norm(table: RewardTable, *, ddof: Literal[0, 1] = 1, eps: Annotated[float, Field(ge=0)] = 1e-6) -> Tensor:
    """r standardised in its group (GRPO, arXiv 2402.03300). Its size diverges as the success rate nears 0 or 1."""
    centred = _centred(table)
    count = table.group_count()
    std = (table.group_sum(centred * centred) / (count - ddof).clamp(min=1)).sqrt()
    scale = torch.where(table.signal(), std + eps, torch.ones_like(std))
    return centred / scale[table.group]


@part(
    "advantage",
    "A_i = (r_i - mean_group(r)) / (std_batch(r - mean_group(r); ddof {ddof}) + {eps:g})",
    r"A_i = \frac{{r_i - \bar r_g}}{{\operatorname{{std}}_{{\text{{batch}}}}(r - \bar r_g;\,\text{{ddof }}{ddof}) + {eps:g}}}",
    "group",
)
def batch_scaled(table: RewardTable, *, ddof: Literal[0, 1] = 1, eps: Annotated[float, Field(ge=0)] = 1e-6) -> Tensor:
    """r centred in its group, over the standard deviation of all centred rewards of the batch (ScaleRL, arXiv 2510.13786).

    The deviation is taken after the selection. It is that of the advantages, not of the rewards.
    """
    return _over_std(_centred(table), table.valid, ddof, eps)


def _over_std(value: Tensor, valid: Tensor, ddof: int, eps: float) -> Tensor:
    """Divided by the standard deviation of the valid entries; 0 where they do not differ."""
    chosen = value[valid]
    if len(chosen) <= ddof or bool((chosen == chosen[0]).all()):
        return torch.zeros_like(value)
    return value / (chosen.std(correction=ddof) + eps)


@part(
    "advantage",
    "A_i = w_g (r_i - mean_group(r)) / (std_group(r; ddof {ddof}) + {eps:g}),  "
    "w_g = exp(-{sharpness:g} KL(Bern(p_g) || Bern(1/2)))",
    r"A_i = w_g\frac{{r_i - \bar r_g}}{{\operatorname{{std}}_g(r;\,\text{{ddof }}{ddof}) + {eps:g}}},\;"
    r"w_g = e^{{-{sharpness:g}\,\mathrm{{KL}}(\mathrm{{Bern}}(p_g)\,\|\,\mathrm{{Bern}}(1/2))}}",
    "group",
)
def entropy_weighted(
    table: RewardTable,
    *,
    sharpness: Annotated[float, Field(ge=0)] = 4.0,
    ddof: Literal[0, 1] = 1,
    eps: Annotated[float, Field(ge=0)] = 1e-6,
) -> Tensor:
    """GRPO's advantage, weighted towards prompts that are solved half of the time (MGPO, VibeThinker, arXiv 2511.06221).

    p is the share of right answers in the group. The paper does not print the sharpness; 4 is what others use.
    """
    return difficulty_weight(table.success_rate(), sharpness)[table.group] * group_norm.fn(table, ddof=ddof, eps=eps)


def difficulty_weight(success: Tensor, sharpness: float) -> Tensor:
    """exp(-sharpness KL(Bern(p) || Bern(1/2))): 1 at p = 1/2, 2^-sharpness at 0 and 1."""
    divergence = torch.xlogy(success, 2 * success) + torch.xlogy(1 - success, 2 * (1 - success))
    return (-sharpness * divergence).exp()


@part(
    "advantage",
    "A_i = r_i - r_greedy(prompt)",
    r"A_i = r_i - r(\hat y_g),\; \hat y_g \text{{ the greedy completion}}",
    "greedy",
)
def greedy_baseline(table: RewardTable) -> Tensor:
    """r minus the reward of the prompt's greedy completion (ReMax, arXiv 2310.10505).

    Costs one more completion per prompt, which is not trained on. 0 where the greedy completion could not be graded.
    """
    greedy = table.needed("greedy", "the advantage 'greedy_baseline'").to(table.reward.dtype)[table.group]
    return torch.where(table.valid & greedy.isfinite(), table.reward - greedy, torch.zeros_like(greedy))


@part(
    "advantage",
    "A_i = r_i - {tau:g} log mean_group(exp(r / {tau:g}))",
    r"A_i = r_i - {tau:g}\log\tfrac{{1}}{{G}}\sum_j e^{{r_j/{tau:g}}}",
    "group",
)
def soft_mean(table: RewardTable, *, tau: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0) -> Tensor:
    """r minus the normaliser of the optimal policy of KL-regularised RL at temperature tau (Kimi k1.5, arXiv 2501.12599).

    Between the mean of the group (tau large), which the paper uses in its place, and its largest reward (tau small).
    """
    reward = table.where_valid(table.reward)
    _, high = table.group_extremes(reward)
    # The largest reward is taken out, so that nothing overflows; expm1 and log1p keep the digits where tau is large.
    below = torch.expm1((reward - high[table.group]) / tau)
    mean = table.group_sum(below) / table.group_count().clamp(min=1)
    advantage = reward - (high + tau * torch.log1p(mean))[table.group]
    return torch.where(table.valid & table.signal()[table.group], advantage, torch.zeros_like(reward))


@part(
    "advantage",
    "A_i = (c_i - mean(c)) / std(c; ddof {ddof}),  c_i = r_i - mean_group(r), over the {weighting} of the batch",
    r"A_i = \frac{{c_i - \bar c}}{{\operatorname{{std}}(c;\,\text{{ddof }}{ddof})}},\; c_i = r_i - \bar r_g,"
    r"\;\text{{over the {weighting} of the batch}}",
    "group",
)
def whitened_group_mean(
    table: RewardTable, *, weighting: Literal["tokens", "rows"] = "tokens", ddof: Literal[0, 1] = 1
) -> Tensor:
    """r minus the mean of the group, whitened over the whole batch (REINFORCE++-baseline, arXiv 2501.03262).

    Over tokens, a row counts once for each of its loss tokens: long rows pull the mean, which is then not 0 within a
    group, and a group without signal gets an advantage too. 1e-8 is added to the variance.
    """
    count = table.length if weighting == "tokens" else torch.ones_like(table.reward)
    return whitened(_centred(table), table.where_valid(count.to(table.reward.dtype)), ddof)


def whitened(value: Tensor, weight: Tensor, ddof: int) -> Tensor:
    """``(value - mean) / sqrt(variance + 1e-8)`` with both over entries that count ``weight`` times.

    0 where the weight is 0, and everywhere if less than two count or if those that count are equal up to float noise.
    """
    counted, total = weight > 0, weight.sum()
    value = torch.where(counted, value, torch.zeros_like(value))
    chosen = value[counted]
    if total < 2 or bool(chosen.max() - chosen.min() <= 1e-9 * chosen.abs().max()):
        return torch.zeros_like(value)
    mean = (weight * value).sum() / total
    # Where each group sums to 0, what is left of the mean is float noise and would make a signal out of exact zeros.
    mean = torch.where(mean.abs() <= 1e-12 * value.abs().max(), torch.zeros_like(mean), mean)
    centred = torch.where(counted, value - mean, torch.zeros_like(value))
    variance = (weight * centred * centred).sum() / (total - ddof)
    return centred / (variance + WHITENING_EPS).sqrt()
