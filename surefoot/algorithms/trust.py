"""Surrogates: what keeps an update near the policy that sampled. Each returns the loss of every token, [M].

A surrogate is a pure function of the tokens and their ratio; the sign is that of a loss (it is minimised).
"""

from __future__ import annotations

from typing import Annotated

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
