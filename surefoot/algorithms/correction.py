"""Corrections for an engine that is not the trainer: weights or masks from pi_old / mu, without a gradient.

They multiply the policy term and nothing else (no KL, no entropy), and the denominators do not change. With a ratio that
is already anchored on the behaviour policy they would correct twice, which is refused.

A token whose behaviour log-probability is not finite cannot be weighed: its weight is 0 in every mode, and it adds nothing
to the weight of its row.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from surefoot.algorithms.part import part
from surefoot.algorithms.ratios import bounded_exp
from surefoot.algorithms.tokens import Tokens

Upper = Annotated[float, Field(gt=0, allow_inf_nan=True)]  # infinite: no bound


def mismatch(tokens: Tokens) -> Tensor:
    """[M], log pi_old - log mu; 0 where mu is not known."""
    return _known(tokens, (tokens.logp_old - tokens.logp_behaviour).detach())


def _known(tokens: Tokens, value: Tensor) -> Tensor:
    """[M], the value, and 0 for tokens whose behaviour log-probability is not finite."""
    return torch.where(tokens.logp_behaviour.isfinite(), value, torch.zeros_like(value))


def _between(value: Tensor, low: float, high: float) -> Tensor:
    return (value >= low) & (value <= high)


_MISMATCH = r"\tfrac{\pi_{\text{old}}}{\mu}"


@part("correction", "", "", "idle")
def none(tokens: Tokens) -> Tensor | None:
    """No correction: right where engine and trainer agree."""
    return None


@part(
    "correction",
    "w_it = min(pi_old / mu, {cap:g})",
    r"w_{{it}} = \min\big(\tfrac{{\pi_{{\text{{old}}}}}}{{\mu}},{cap:g}\big)",
)
def token_truncate(tokens: Tokens, *, cap: Upper = 2.0) -> Tensor:
    """Truncated importance sampling per token (TIS). An infinite cap is the weight of decoupled PPO (arXiv 2110.00641)."""
    return _known(tokens, bounded_exp(mismatch(tokens)).clamp(max=cap))


@part(
    "correction",
    "w_i = min(prod_t pi_old / mu, {cap:g})",
    r"w_i = \min\big(\prod_t\tfrac{{\pi_{{\text{{old}}}}}}{{\mu}},{cap:g}\big)",
)
def seq_truncate(tokens: Tokens, *, cap: Upper = 2.0) -> Tensor:
    """The truncated weight of a whole row. The product strays far from 1 in long rows, in either direction."""
    return _known(tokens, bounded_exp(tokens.row_sum(mismatch(tokens))).clamp(max=cap)[tokens.row])


def _token_text(low: float, high: float, binary: bool) -> str:
    kept = "1 where pi_old / mu" if binary else "pi_old / mu where it"
    return f"w_it = {kept} lies in [{low:g}, {high:g}], else 0"


def _token_latex(low: float, high: float, binary: bool) -> str:
    weight = "" if binary else rf"{_MISMATCH}\,"
    return rf"w_{{it}} = {weight}\big[{low:g}\le{_MISMATCH}\le{high:g}\big]"


@part("correction", _token_text, _token_latex, "bounds")
def token_mask(
    tokens: Tokens, *, low: Annotated[float, Field(ge=0)] = 0.5, high: Upper = 5.0, binary: bool = False
) -> Tensor:
    """Tokens outside the band have no gradient (MIS, IcePop); ``binary`` keeps the others at weight 1."""
    ratio = bounded_exp(mismatch(tokens))
    kept = _between(ratio, low, high).to(ratio.dtype)
    return _known(tokens, kept if binary else kept * ratio)


def _seq_text(low: float, high: float, binary: bool) -> str:
    kept = "1 where prod_t pi_old / mu" if binary else "prod_t pi_old / mu where it"
    return f"w_i = {kept} lies in [{low:g}, {high:g}], else 0"


def _seq_latex(low: float, high: float, binary: bool) -> str:
    weight = "" if binary else r"\rho_i\,"
    return rf"w_i = {weight}[{low:g}\le\rho_i\le{high:g}],\;\rho_i = \prod_t{_MISMATCH}"


@part("correction", _seq_text, _seq_latex, "bounds")
def seq_mask(
    tokens: Tokens, *, low: Annotated[float, Field(ge=0)] = 0.5, high: Upper = 2.0, binary: bool = False
) -> Tensor:
    """Rows whose weight lies outside the band have no gradient."""
    ratio = bounded_exp(tokens.row_sum(mismatch(tokens)))
    kept = _between(ratio, low, high).to(ratio.dtype)
    return _known(tokens, (kept if binary else kept * ratio)[tokens.row])


def _geo_text(low: float, high: float, binary: bool) -> str:
    weight = "1" if binary else "pi_old / mu"
    return f"w_it = {weight} in rows whose geometric mean of pi_old / mu lies in [{low:g}, {high:g}], else 0"


def _geo_latex(low: float, high: float, binary: bool) -> str:
    weight = "" if binary else rf"{_MISMATCH}\,"
    return (
        rf"w_{{it}} = {weight}[{low:g}\le\bar\rho_i\le{high:g}],\;"
        rf"\bar\rho_i = \exp\tfrac{{1}}{{L_i}}\sum_t\log{_MISMATCH}"
    )


@part("correction", _geo_text, _geo_latex, "bounds")
def geo_mask(
    tokens: Tokens, *, low: Annotated[float, Field(ge=0)] = 0.99, high: Upper = 1.01, binary: bool = False
) -> Tensor:
    """Rows that drifted on average have no gradient; the others keep the weights of their tokens."""
    log_ratio = mismatch(tokens)
    kept = _between(bounded_exp(tokens.row_mean(log_ratio)), low, high)[tokens.row].to(log_ratio.dtype)
    return _known(tokens, kept if binary else kept * bounded_exp(log_ratio))


@part(
    "correction",
    "w_i = 0 where A_i < 0 and mean_t(log mu - log pi) > {delta:g}, else 1",
    r"w_i = 1 - \big[A_i<0\wedge\tfrac{{1}}{{L_i}}\sum_t\log\tfrac{{\mu}}{{\pi_\theta}}>{delta:g}\big]",
)
def off_policy_mask(tokens: Tokens, *, delta: Annotated[float, Field(ge=0, allow_inf_nan=True)] = 0.1) -> Tensor:
    """Rows with a negative advantage that the policy has already left are dropped (DeepSeek-V3.2, arXiv 2512.02556)."""
    drift = tokens.row_mean(_known(tokens, (tokens.logp_behaviour - tokens.logp).detach()))
    dropped = (tokens.row_mean(tokens.advantage) < 0) & (drift > delta)
    return _known(tokens, torch.where(dropped, 0.0, 1.0).to(tokens.logp.dtype)[tokens.row])
