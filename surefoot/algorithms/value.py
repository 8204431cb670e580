"""The critic's loss, per token: [M] from its predictions, what it predicted before the update, and the returns."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from surefoot.algorithms.part import part


@part("value", "", "", "idle")
def none(values: Tensor, old: Tensor, returns: Tensor) -> Tensor | None:
    """No critic."""
    return None


def _text(*, coef: float, clip: float) -> str:
    if clip == 0:
        return "v_it = 1/2 (V_it - Ret_it)^2"
    return f"v_it = 1/2 max((V_it - Ret_it)^2, (clip(V_it, V_old-{clip:g}, V_old+{clip:g}) - Ret_it)^2)"


def _latex(*, coef: float, clip: float) -> str:
    if clip == 0:
        return r"v_{it} = \tfrac12 (V_{it} - \mathrm{Ret}_{it})^2"
    return (
        r"v_{it} = \tfrac12 \max\big((V_{it} - \mathrm{Ret}_{it})^2,\; "
        rf"(\operatorname{{clip}}(V_{{it}}, V^{{\text{{old}}}}_{{it}} \mp {clip:g}) - \mathrm{{Ret}}_{{it}})^2\big)"
    )


@part("value", _text, _latex)
def squared(
    values: Tensor,
    old: Tensor,
    returns: Tensor,
    *,
    coef: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.1,
    clip: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.2,
) -> Tensor:
    """Half the squared error of the returns, in the pessimistic form of PPO's authors (their code for arXiv 1909.08593).

    A value that has moved by more than ``clip`` since the update began, towards its return, has no gradient; 0 does not
    clip. ``clip`` is in units of the reward. ``coef`` weighs this loss beside that of the policy, and matters where the two
    share weights; the loss [M] that is returned does not contain it.
    """
    loss = (values - returns).square()
    if clip:
        clipped = (torch.clamp(values, old - clip, old + clip) - returns).square()
        # Inside the band both are the same; a maximum would split the gradient between them at a tie outside it.
        loss = torch.where(loss >= clipped, loss, clipped)
    return 0.5 * loss
