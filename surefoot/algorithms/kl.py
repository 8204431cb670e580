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
from surefoot.algorithms.tokens import Tokens

Coefficient = Annotated[float, Field(ge=0)]


def estimate(estimator: str, logp: Tensor, logp_reference: Tensor) -> Tensor:
    """[M], the estimator of KL(pi || ref) at each token. Only the exponent is clamped, never the result."""
    x = logp - logp_reference
    if estimator == "k1":
        return x
    if estimator == "k2":
        return x * x / 2
    k3 = (-x).clamp(max=LOG_RATIO_LIMIT).exp() - 1 + x
    return k3 if estimator == "k3" else k3 * torch.exp(logp - logp.detach())


@part("kl", "", "")
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


@part(
    "kl",
    "r_i <- r_i - {coef:g} * sum_t {estimator}(pi_old || pi_ref)_it",
    r"r_i \leftarrow r_i - {coef:g}\sum_t\mathrm{{{estimator}}}(\pi_{{\text{{old}}}}\,\|\,\pi_{{\text{{ref}}}})_{{it}}",
    "reference",
    "reward",
)
def in_reward(tokens: Tokens, *, coef: Coefficient = 0.05, estimator: Literal["k1", "k2", "k3"] = "k1") -> Tensor:
    """Subtracted from the row's reward *before* the baseline, without a gradient (RLOO, arXiv 2402.14740). Returns [S]."""
    assert tokens.logp_reference is not None
    return tokens.row_sum(coef * estimate(estimator, tokens.logp_old, tokens.logp_reference).detach())
