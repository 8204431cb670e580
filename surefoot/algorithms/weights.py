"""Token weights: how much the policy term of each token counts. A part sees a whole mini-batch and returns [M].

A weight multiplies the policy term alone. The denominators of the aggregation stay those of all loss tokens, and so does
the KL term, whatever the weights.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from surefoot.algorithms.finite import require_finite
from surefoot.algorithms.part import part
from surefoot.algorithms.tokens import Tokens
from surefoot.errors import AlgorithmError


@part("weights", "", "", "idle")
def all_tokens(tokens: Tokens) -> Tensor | None:
    """Every loss token counts alike."""
    return None


def _text(share: float, denominator: str, side: str) -> str:
    value = "N_tokens / N_selected" if denominator == "selected" else "1"
    sign, end = (">=", "highest") if side == "high" else ("<=", "lowest")
    rank = f"ceil({share:.3g} N_tokens)"
    return f"omega_it = {value} where H(pi_old)_it {sign} tau, else 0,  tau = the {rank}-th {end} entropy"


def _latex(share: float, denominator: str, side: str) -> str:
    value = r"\tfrac{N}{N_\tau}" if denominator == "selected" else ""
    sign, end = (r"\ge", "highest") if side == "high" else (r"\le", "lowest")
    rank = rf"\lceil {share:.3g}N\rceil"
    return (
        rf"\omega_{{it}} = {value}[H(\pi_{{\text{{old}}}})_{{it}} {sign} \tau],\;"
        rf"\tau = \text{{the }}{rank}\text{{-th {end} entropy}}"
    )


@part("weights", _text, _latex, "entropy")
def high_entropy(
    tokens: Tokens,
    *,
    share: Annotated[float, Field(gt=0, le=1)] = 0.2,
    denominator: Literal["selected", "all"] = "selected",
    side: Literal["high", "low"] = "high",
) -> Tensor:
    """Only the tokens at which the policy is most undecided have a policy term ("Beyond the 80/20 Rule", arXiv 2506.01939).

    The threshold is the entropy of the ceil(share N)-th of the N loss tokens of the mini-batch, from the highest down, so
    that ties at the threshold all stay and at least one token does. The entropy is that of the policy at the start of the
    update, over its full distribution.

    The paper divides by the number of selected tokens. With ``denominator`` "selected" their weight is therefore
    N / N_selected: under ``token_mean`` the loss is the mean over the selected tokens, and the denominators themselves, the
    KL term and the sum over micro-batches stay what they are. With "all" the weight is 1, and the gradient smaller by
    N_selected / N. ``side`` "low" keeps the most decided tokens instead (the paper's control, with a share of 0.8).

    Raises:
        AlgorithmError: tokens without entropies.
        NonFiniteError: an entropy that is not finite.
    """
    if tokens.entropy is None:
        raise AlgorithmError(
            "the weights 'high_entropy' read entropies, and the tokens have none: compute them with pi_old"
        )
    entropy = tokens.entropy.detach()
    require_finite({"the entropy of the policy": entropy}, tokens.row)
    if len(entropy) == 0:
        return torch.ones_like(entropy)
    rank = count_of(share, len(entropy))
    if side == "high":
        selected = entropy >= entropy.topk(rank).values[-1]
    else:
        selected = entropy <= entropy.topk(rank, largest=False).values[-1]
    weight = selected.to(tokens.logp.dtype)
    return weight * (len(weight) / weight.sum()) if denominator == "selected" else weight


def count_of(share: float, total: int) -> int:
    """ceil(share * total), at least 1; 0.07 of 100 is 7, although 0.07 * 100 is a little more in floating point."""
    return max(1, math.ceil(share * total - 1e-9))
