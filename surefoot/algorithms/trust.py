"""Surrogates: what keeps an update near the policy that sampled. Each returns the loss of every token, [M].

A surrogate is a pure function of the tokens and their ratio; the sign is that of a loss (it is minimised).
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from surefoot.algorithms.part import part
from surefoot.algorithms.ratios import LOG_RATIO_LIMIT
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
    "bounds",
)
def truncated_score(
    tokens: Tokens,
    ratio: Tensor,
    *,
    low: Annotated[float, Field(ge=0)] = 0.0,
    high: Annotated[float, Field(gt=0, allow_inf_nan=True)] = 5.0,
) -> Tensor:
    """The score function with a truncated importance weight (CISPO, arXiv 2506.13585): every token keeps a gradient.

    The bounds are absolute. Libraries that give them as distances from 1 call the default 4.
    """
    return -ratio.detach().clamp(low, high) * tokens.advantage * tokens.logp


@truncated_score.counts
def _truncated(tokens: Tokens, ratio: Tensor, *, low: float, high: float) -> dict[str, Tensor]:
    return {"truncated_high": ratio > high, "truncated_low": ratio < low}


@part(
    "trust",
    "l_it = -A_it x_i + {tau:g}/2 x_i^2",
    r"\ell_{{it}} = -A_{{it}}x_i + \tfrac{{{tau:g}}}{{2}}x_i^2",
    "ratio",
    "log",
)
def quadratic(
    tokens: Tokens, ratio: Tensor, *, tau: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
) -> Tensor:
    """A penalty on the square of the row's log-ratio instead of a bound (Kimi k1.5, arXiv 2501.12599).

    The paper's squared loss (A - tau x)^2 has 2 tau times this gradient. The penalty pulls each row to x = A / tau, which
    should lie within the limit of the log-ratio (20): tau well above |A| / 20. It holds where A = 0 too, as the only
    regulariser of the method. The paper does not give tau. With tau = 0, or on policy, the gradient is that of the score
    function, summed over the row.
    """
    return -tokens.advantage * ratio + tau / 2 * ratio * ratio


@quadratic.counts
def _stopped(tokens: Tokens, ratio: Tensor, *, tau: float) -> dict[str, Tensor]:
    """Tokens of rows whose log-ratio is at its limit, and which have no gradient for that reason."""
    return {"log_ratio_clamped": ratio.abs() >= LOG_RATIO_LIMIT}
