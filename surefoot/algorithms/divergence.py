"""Trust regions in divergence instead of ratio (DPPO, arXiv 2602.04879).

A token whose distribution has moved too far from the behaviour policy mu, and that the step would push further, has no
gradient; a step back towards mu is never masked, however large the ratio. The divergence at a token is measured after
merging the vocabulary into few classes: merging never increases it, so every measure here is a lower bound of that of the
full distributions, and more classes give a larger one.

Probabilities are those before top-p or top-k cut the distribution: the mass that they kept is put back.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from surefoot.algorithms.part import part
from surefoot.algorithms.tokens import Tokens
from surefoot.errors import AlgorithmError

# Keeps the divergence finite where float32 rounds a probability to 1.
_SMALLEST = 1e-8
# What is left of the mass outside the listed tokens can come out as 0 or a negative residue of rounding.
_SMALLEST_REST = 1e-12


def binary_divergence(measure: str, logp: Tensor, logp_behaviour: Tensor) -> Tensor:
    """[M], the divergence D(mu, pi) of "this token or another", total variation or KL(mu || pi)."""
    pi, mu = logp.exp(), logp_behaviour.exp()
    if measure == "tv":
        return (pi - mu).abs()
    others = ((1 - mu + _SMALLEST) / (1 - pi + _SMALLEST)).log()
    return mu * (logp_behaviour - logp) + (1 - mu) * others


def class_divergence(measure: str, pi: Tensor, mu: Tensor) -> Tensor:
    """[M], the divergence D(mu, pi) of probabilities [M, C] over classes, the last of which is made of all the rest."""
    pi, mu = (torch.cat([p, (1 - p.sum(1, keepdim=True)).clamp(min=_SMALLEST_REST)], 1) for p in (pi, mu))
    if measure == "tv":
        return (pi - mu).abs().sum(1) / 2
    # mu == 0, not mu > 0: NaN must come out as NaN.
    return torch.where(mu == 0, torch.zeros_like(mu), mu * (mu.log() - pi.clamp(min=_SMALLEST_REST).log())).sum(1)


def topk_divergence(tokens: Tokens, measure: str, k: int, sampled: str) -> Tensor:
    """[M], the divergence of {the k likeliest tokens under mu, the sampled token, all others}."""
    if tokens.top_logp is None or tokens.top_logp_behaviour is None or tokens.top_is_target is None:
        raise AlgorithmError(
            "the surrogate 'divergence_topk' compares the likeliest tokens, and the batch has only the sampled ones: "
            "sample with an engine that reports top_logprobs, or set algorithm.trust = 'divergence_mask'"
        )
    target, behaviour = _whole(tokens)
    among = tokens.top_is_target[:, :k]
    absent = ~among.any(1)

    def classes(top: Tensor, own: Tensor) -> Tensor:
        listed = top[:, :k].to(own.dtype).exp()
        if sampled == "replace":
            last = torch.where(absent, own.exp(), listed[:, -1])
            return torch.cat([listed[:, :-1], last[:, None]], 1)
        return torch.cat([listed, torch.where(absent, own.exp(), torch.zeros_like(own))[:, None]], 1)

    return class_divergence(measure, classes(tokens.top_logp, target), classes(tokens.top_logp_behaviour, behaviour))


def _whole(tokens: Tokens) -> tuple[Tensor, Tensor]:
    """[M] each, log-probabilities of the sampled token under pi and mu, before top-p or top-k cut anything."""
    kept = 0.0 if tokens.kept_logmass is None else tokens.kept_logmass
    return tokens.logp.detach() + kept, tokens.logp_behaviour + kept


def _outside(tokens: Tokens, ratio: Tensor, divergence: Tensor, delta: float) -> Tensor:
    """Tokens that are past the threshold and would be pushed further, and those whose divergence is not known."""
    away = ((tokens.advantage > 0) & (ratio.detach() > 1)) | ((tokens.advantage < 0) & (ratio.detach() < 1))
    return (away & (divergence > delta)) | divergence.isnan() | ~tokens.trusted


def _masked_score(tokens: Tokens, ratio: Tensor, outside: Tensor) -> Tensor:
    # where, not a product: the ratio to a behaviour policy that is not finite may be NaN.
    weight = torch.where(outside, torch.zeros_like(ratio), ratio.detach())
    return -weight * tokens.advantage * tokens.logp


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
    delta: Annotated[float, Field(gt=0, allow_inf_nan=True)] = 0.15,
) -> Tensor:
    """A trust region in divergence instead of ratio (DPPO, arXiv 2602.04879), measured on the sampled token alone.

    Frees rare tokens, whose ratio moves far at little divergence, and holds dominant ones. A step back towards mu is never
    masked. Needs the ratio to the behaviour policy. A token whose behaviour log-probability is not finite is masked.
    """
    divergence = binary_divergence(measure, *_whole(tokens))
    return _masked_score(tokens, ratio, _outside(tokens, ratio, divergence, delta))


@divergence_mask.counts
def _masked(tokens: Tokens, ratio: Tensor, *, measure: str, delta: float) -> dict[str, Tensor]:
    return {"masked": _outside(tokens, ratio, binary_divergence(measure, *_whole(tokens)), delta)}


def _topk_text(measure: str, delta: float, k: int, sampled: str) -> str:
    own = "y" if sampled == "union" else "y in place of the last"
    return (
        "l_it = -sg(M_it x_it) A_it log pi(y_it),  "
        f"M_it = 0 where D_{measure}(mu, pi)_it > {delta:g} and the step leads further away,  "
        f"D over (top {k} of mu; {own}; all others)"
    )


def _topk_latex(measure: str, delta: float, k: int, sampled: str) -> str:
    own = r"\cup\{y_{it}\}" if sampled == "union" else r"\text{ (the last replaced by }y_{it})"
    return (
        r"\ell_{it} = -\operatorname{sg}(M_{it}x_{it})A_{it}\log\pi_\theta(y_{it}),\;"
        rf"M_{{it}} = 0 \text{{ where }} D_{{\mathrm{{{measure}}}}}(\mu,\pi_\theta)_{{it}} > {delta:g}"
        rf"\text{{ and the step leads away}},\; D \text{{ over }} \operatorname{{top}}_{{{k}}}(\mu){own}\text{{ and the rest}}"
    )


@part("trust", _topk_text, _topk_latex, "ratio", "soft", "behaviour", "topk")
def divergence_topk(
    tokens: Tokens,
    ratio: Tensor,
    *,
    measure: Literal["tv", "kl"] = "tv",
    delta: Annotated[float, Field(gt=0, allow_inf_nan=True)] = 0.15,
    k: Annotated[int, Field(ge=1)] = 20,
    sampled: Literal["union", "replace"] = "union",
) -> Tensor:
    """``divergence_mask`` over the ``k`` likeliest tokens of the behaviour policy, the sampled one, and all others.

    Sees what the sampled token alone does not: mass that moved among the other tokens (DPPO, arXiv 2602.04879, top-K).
    The engine reports the ``k`` tokens and their log-probabilities, likeliest first, and the policy is asked for the same
    ones. ``sampled`` says what happens where the sampled token is not among them: it is added, or (as the authors' code
    does) takes the place of the last. With k = 1 and "replace" this can be the binary measure; with the whole
    vocabulary it is exact.

    Raises:
        AlgorithmError: a batch without the likeliest tokens.
    """
    divergence = topk_divergence(tokens, measure, k, sampled)
    return _masked_score(tokens, ratio, _outside(tokens, ratio, divergence, delta))


@divergence_topk.counts
def _masked_topk(
    tokens: Tokens, ratio: Tensor, *, measure: str, delta: float, k: int, sampled: str
) -> dict[str, Tensor]:
    return {"masked": _outside(tokens, ratio, topk_divergence(tokens, measure, k, sampled), delta)}
