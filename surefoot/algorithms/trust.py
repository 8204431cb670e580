"""Surrogates: what keeps an update near the policy that sampled. Each returns the loss of every token, [M].

A surrogate is a pure function of the tokens and their ratio; the sign is that of a loss (it is minimised).
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from surefoot.algorithms.part import part
from surefoot.algorithms.tokens import Tokens


@part("trust", "l_it = -A_it log pi(y_it)", r"\ell_{{it}} = -A_{{it}}\log\pi_\theta(y_{{it}})")
def score(tokens: Tokens, ratio: Tensor | None) -> Tensor:
    """The score function (REINFORCE, Williams 1992). Its value is no measure of progress; its gradient is the estimator."""
    return -tokens.advantage * tokens.logp


@part("trust", "l_it = -x_it A_it", r"\ell_{{it}} = -x_{{it}}A_{{it}}", "ratio")
def unclipped(tokens: Tokens, ratio: Tensor) -> Tensor:
    """The importance-weighted objective without a trust region. Leaves the region after a few updates on one batch."""
    return -ratio * tokens.advantage


@part(
    "trust",
    "l_it = -min(x_it A_it, clip(x_it, 1-{low:g}, 1+{high:g}) A_it)",
    r"\ell_{{it}} = -\min\big(x_{{it}}A_{{it}},\;\operatorname{{clip}}(x_{{it}},1-{low:g},1+{high:g})A_{{it}}\big)",
    "ratio",
)
def clip(
    tokens: Tokens,
    ratio: Tensor,
    *,
    low: Annotated[float, Field(gt=0, le=1)] = 0.2,
    high: Annotated[float, Field(gt=0)] = 0.2,
) -> Tensor:
    """The pessimistic bound of PPO (arXiv 1707.06347); DAPO raises ``high`` (arXiv 2503.14476).

    No gradient once the ratio has moved past the bound in the direction of the advantage. For A < 0 a large ratio is
    not bounded.
    """
    return -torch.minimum(ratio * tokens.advantage, ratio.clamp(1 - low, 1 + high) * tokens.advantage)


@clip.counts
def _clipped(tokens: Tokens, ratio: Tensor, *, low: float, high: float) -> dict[str, Tensor]:
    return {
        "clip_high": (tokens.advantage > 0) & (ratio > 1 + high),
        "clip_low": (tokens.advantage < 0) & (ratio < 1 - low),
    }


@part(
    "trust",
    "l_it = -min(x_it A_it, clip(x_it, 1-{low:g}, 1+{high:g}) A_it), at most {bound:g} |A_it| where A_it < 0",
    r"\ell_{{it}} = -\max\Big(\min\big(x_{{it}}A_{{it}},\operatorname{{clip}}(x_{{it}},1-{low:g},1+{high:g})A_{{it}}\big),"
    r"\;{bound:g}\,A_{{it}}\,[A_{{it}}<0]\Big)",
    "ratio",
)
def dual_clip(
    tokens: Tokens,
    ratio: Tensor,
    *,
    low: Annotated[float, Field(gt=0, le=1)] = 0.2,
    high: Annotated[float, Field(gt=0)] = 0.2,
    bound: Annotated[float, Field(gt=1)] = 3.0,
) -> Tensor:
    """PPO's clip with a second bound for negative advantages (arXiv 1912.09729): no gradient once the ratio is past it."""
    loss = clip.fn(tokens, ratio, low=low, high=high)
    return torch.where(tokens.advantage < 0, torch.minimum(loss, bound * tokens.advantage.abs()), loss)


@dual_clip.counts
def _clipped_twice(tokens: Tokens, ratio: Tensor, *, low: float, high: float, bound: float) -> dict[str, Tensor]:
    return {**_clipped(tokens, ratio, low=low, high=high), "clip_dual": (tokens.advantage < 0) & (ratio > bound)}


@part(
    "trust",
    "l_it = -sg(clip(x_it, {low:g}, {high:g})) A_it log pi(y_it)",
    r"\ell_{{it}} = "
    r"-\operatorname{{sg}}\big(\operatorname{{clip}}(x_{{it}},{low:g},{high:g})\big)A_{{it}}\log\pi_\theta(y_{{it}})",
    "ratio",
    "soft",
)
def truncated_score(
    tokens: Tokens,
    ratio: Tensor,
    *,
    low: Annotated[float, Field(ge=0)] = 0.0,
    high: Annotated[float, Field(gt=0)] = 5.0,
) -> Tensor:
    """The score function with a truncated importance weight (CISPO, arXiv 2506.13585): every token keeps a gradient.

    The bounds are absolute. Libraries that give them as distances from 1 call the default 4.
    """
    return -ratio.detach().clamp(low, high) * tokens.advantage * tokens.logp


@truncated_score.counts
def _truncated(tokens: Tokens, ratio: Tensor, *, low: float, high: float) -> dict[str, Tensor]:
    return {"truncated_high": ratio > high, "truncated_low": ratio < low}


# Keeps the divergence finite where float32 rounds a probability to 1.
_SMALLEST = 1e-8


def binary_divergence(measure: str, logp: Tensor, logp_behaviour: Tensor) -> Tensor:
    """[M], the divergence of "this token or another" under mu and pi: a lower bound of that of the full distributions."""
    pi, mu = logp.exp(), logp_behaviour.exp()
    if measure == "tv":
        return (pi - mu).abs()
    others = ((1 - mu + _SMALLEST) / (1 - pi + _SMALLEST)).log()
    return mu * (logp_behaviour - logp) + (1 - mu) * others


def _outside(tokens: Tokens, ratio: Tensor, measure: str, delta: float) -> Tensor:
    """Tokens that are past the threshold and would be pushed further away."""
    divergence = binary_divergence(measure, tokens.logp.detach(), tokens.logp_behaviour)
    away = ((tokens.advantage > 0) & (ratio.detach() > 1)) | ((tokens.advantage < 0) & (ratio.detach() < 1))
    return away & (divergence > delta)


@part(
    "trust",
    "l_it = -sg(M_it x_it) A_it log pi(y_it),  M_it = 0 where D_{measure}(mu, pi)_it > {delta:g} and the step leads further away",
    r"\ell_{{it}} = -\operatorname{{sg}}(M_{{it}}x_{{it}})A_{{it}}\log\pi_\theta(y_{{it}}),\;"
    r"M_{{it}} = 0 \text{{ where }} D_{{\mathrm{{{measure}}}}}(\mu,\pi_\theta)_{{it}} > {delta:g}"
    r"\text{{ and the step leads away}}",
    "ratio",
    "soft",
    "behaviour",
)
def divergence_mask(
    tokens: Tokens,
    ratio: Tensor,
    *,
    measure: Literal["tv", "kl"] = "tv",
    delta: Annotated[float, Field(gt=0)] = 0.15,
) -> Tensor:
    """A trust region in divergence instead of ratio (DPPO, arXiv 2602.04879), measured on the sampled token alone.

    Frees rare tokens, whose ratio moves far at little divergence, and holds dominant ones. A step back towards mu is never
    masked. Needs the ratio to the behaviour policy.
    """
    kept = ~_outside(tokens, ratio, measure, delta)
    return -(ratio.detach() * kept) * tokens.advantage * tokens.logp


@divergence_mask.counts
def _masked(tokens: Tokens, ratio: Tensor, *, measure: str, delta: float) -> dict[str, Tensor]:
    return {"masked": _outside(tokens, ratio, measure, delta)}
