"""The Kullback-Leibler term against a reference policy: none, in the loss, or in the reward.

With x = log pi - log pi_ref on tokens sampled from pi (Schulman, "Approximating KL divergence", 2020):
k1 = x, k2 = x^2/2, k3 = exp(-x) - 1 + x. As a *loss*, k2 has the gradient of KL(pi || ref) in expectation, k3 that of
the forward KL(ref || pi), and k1 has none at all: k1 belongs in the reward. ``k3_ratio`` multiplies k3 by pi / sg(pi),
which restores the reverse gradient.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from surefoot.algorithms.part import part
from surefoot.algorithms.ratios import LOG_RATIO_LIMIT
from surefoot.algorithms.table import RewardTable
from surefoot.algorithms.tokens import Tokens
from surefoot.errors import AlgorithmError

Coefficient = Annotated[float, Field(ge=0, allow_inf_nan=False)]
MEMORY = "kl_coef"  # under which the run state remembers an adaptive coefficient
ADAPTATION_LIMIT = 0.2


def estimate(estimator: str, logp: Tensor, logp_reference: Tensor) -> Tensor:
    """[M], the estimator of KL(pi || ref) at each token. Only the exponent is clamped, never the result."""
    x = logp - logp_reference
    if estimator == "k1":
        return x
    if estimator == "k2":
        return x * x / 2
    k3 = (-x).clamp(max=LOG_RATIO_LIMIT).exp() - 1 + x
    return k3 if estimator == "k3" else k3 * torch.exp(logp - logp.detach())


@part("kl", "", "", "idle")
def none(tokens: Tokens) -> Tensor | None:
    """No reference policy."""
    return None


@part(
    "kl",
    "{coef:g} * {estimator}(pi || pi_ref)_it",
    r"{coef:g}\,\mathrm{{{estimator}}}(\pi_\theta\,\|\,\pi_{{\text{{ref}}}})_{{it}}",
    "reference",
    "loss",
)
def in_loss(tokens: Tokens, *, coef: Coefficient = 0.04, estimator: Literal["k2", "k3", "k3_ratio"] = "k3") -> Tensor:
    """Added to the loss of every token, whatever its advantage."""
    assert tokens.logp_reference is not None
    return coef * estimate(estimator, tokens.logp, tokens.logp_reference)


def _penalty(coef: float, estimator: str, target: float) -> str:
    return f"{'beta' if target else f'{coef:g}'} {estimator}(pi_old || pi_ref)_it"


def _reward_text(*, coef: float, estimator: str, target: float, horizon: float, after_baseline: bool) -> str:
    penalty = _penalty(coef, estimator, target)
    taken = (
        f"A_it <- A_it - sum_(t' >= t) {penalty}'" if after_baseline else f"R_it <- R_it - {penalty},  r_i = sum_t R_it"
    )
    if not target:
        return taken
    return (
        f"{taken};  beta from {coef:g}, times 1 + clip(KL/{target:g} - 1, -0.2, 0.2) rows/{horizon:g} after each batch"
    )


def _reward_latex(*, coef: float, estimator: str, target: float, horizon: float, after_baseline: bool) -> str:
    factor = r"\beta" if target else f"{coef:g}"
    penalty = rf"{factor}\,\mathrm{{{estimator}}}(\pi_{{\text{{old}}}}\,\|\,\pi_{{\text{{ref}}}})"
    if after_baseline:
        taken = rf"A_{{it}} \leftarrow A_{{it}} - \sum_{{t'\ge t}}{penalty}_{{it'}}"
    else:
        taken = rf"R_{{it}} \leftarrow R_{{it}} - {penalty}_{{it}},\; r_i = \sum_t R_{{it}}"
    if not target:
        return taken
    return (
        rf"{taken},\; \beta_0 = {coef:g},\; \beta \leftarrow \beta\big(1 + \operatorname{{clip}}"
        rf"(\tfrac{{\mathrm{{KL}}}}{{{target:g}}} - 1, \pm 0.2)\tfrac{{\text{{rows}}}}{{{horizon:g}}}\big)"
    )


@part("kl", _reward_text, _reward_latex, "reference", "reward")
def in_reward(
    table: RewardTable,
    *,
    coef: Coefficient = 0.05,
    estimator: Literal["k1", "k2", "k3"] = "k1",
    target: Coefficient = 0.0,
    horizon: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10000.0,
    after_baseline: bool = False,
) -> Tensor:
    """Subtracted from the reward, token by token, without a gradient.

    Where a row has one advantage, its sum over the row comes off the reward *before* the baseline (RLOO, arXiv 2402.14740),
    or, with ``after_baseline``, token by token after it. An advantage per token takes it as part of each token's reward (PPO
    for language models, arXiv 2203.02155).

    ``target`` 0 keeps the coefficient. Above 0 it adapts (Ziegler et al., arXiv 1909.08593): from ``coef`` on it is multiplied
    after each batch by ``1 + clip(KL/target - 1, -0.2, 0.2) rows/horizon``, with KL the mean over rows of the summed k1, in
    nats. It is remembered in the run state.

    Returns:
        [M] float64. Exactly 0 for ``coef`` 0, which needs no reference.

    Raises:
        AlgorithmError: the horizon is so short that one batch could turn the sign of the coefficient.
    """
    if coef == 0:
        return table.reward.new_zeros(len(table.row))
    old, reference = (
        table.needed(name, "the KL in the reward").detach().to(torch.float64) for name in ("logp_old", "logp_reference")
    )
    coefficient = table.memory.get(MEMORY, coef) if target else coef
    if target:
        table.memory[MEMORY] = coefficient * _adapt(table, float((old - reference).sum()), target, horizon)
    return coefficient * estimate(estimator, old, reference)


def _adapt(table: RewardTable, total: float, target: float, horizon: float) -> float:
    """What the coefficient is multiplied with, from the KL of all tokens; rows without loss tokens tell nothing."""
    rows = int((table.length > 0).sum())
    if not rows:
        return 1.0
    if ADAPTATION_LIMIT * rows >= horizon:
        raise AlgorithmError(
            f"algorithm.kl.horizon = {horizon:g} is too short for batches of {rows} rows: the coefficient could become "
            f"negative; set it above {ADAPTATION_LIMIT * rows:g} (it counts rows; 10000 is usual)"
        )
    error = total / rows / target - 1
    return 1 + min(max(error, -ADAPTATION_LIMIT), ADAPTATION_LIMIT) * rows / horizon
