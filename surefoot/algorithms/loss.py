"""The loss of a micro-batch: one composition for every objective, every path and every machine."""

from __future__ import annotations

import torch
from torch import Tensor

from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.tokens import Tokens
from surefoot.metrics import StepReport
from surefoot.types import Totals


def policy_loss(algorithm: Algorithm, tokens: Tokens, totals: Totals) -> tuple[Tensor, StepReport]:
    """``sum_it C_i (w_it l_it + kl_it)`` over the loss tokens of a micro-batch, and its metrics.

    The losses of the micro-batches of a step add up to the loss of the step, since ``C`` is made from ``totals``.
    A micro-batch without loss tokens gives exactly 0, attached to the graph.

    Returns:
        The scalar loss, and its metrics; ``loss/*`` are sums that add up to the loss of the step.
    """
    ratio = algorithm.ratio(tokens)
    token_loss = algorithm.trust(tokens, ratio)
    weight = algorithm.correction(tokens)
    if weight is not None:
        token_loss = weight * token_loss
    coefficient = algorithm.aggregation(tokens, totals).to(token_loss.dtype)[tokens.row]
    report = StepReport()
    kl_loss = algorithm.kl(tokens) if "loss" in algorithm.kl.kind.traits and algorithm.needs_reference else None
    _measure(algorithm, tokens, ratio, coefficient * token_loss, report)
    if weight is not None:
        _measure_weights(weight.detach(), report)
    if kl_loss is not None:
        report.total("loss/kl", (coefficient * kl_loss).detach().sum())
        token_loss = token_loss + kl_loss
    # Adding 0 * sum keeps an empty micro-batch attached to the graph, so that a distributed backward does not hang.
    return (coefficient * token_loss).sum() + 0.0 * tokens.logp.sum(), report


@torch.no_grad()
def _measure(algorithm: Algorithm, tokens: Tokens, ratio: Tensor | None, weighted: Tensor, report: StepReport) -> None:
    count = float(len(tokens.logp))
    report.total("loss/policy", weighted.sum())
    if count == 0:
        return
    drift = tokens.logp - tokens.logp_behaviour
    drift = drift[drift.isfinite()].clamp(-20, 20)
    report.add("policy/kl_behaviour", (drift.exp() - 1 - drift).sum(), len(drift))
    if tokens.entropy is not None:
        report.add("policy/entropy", tokens.entropy.sum(), count)
    if tokens.logp_reference is not None:
        x = tokens.logp - tokens.logp_reference
        report.add("policy/kl_reference", ((-x).clamp(max=20).exp() - 1 + x).sum(), count)
    if ratio is not None:
        report.maximum("policy/ratio_max", ratio.max())
        report.maximum("policy/ratio_inverse_max", 1 / ratio.min())
    if ratio is not None and algorithm.trust.kind.shares is not None:
        for name, mask in algorithm.trust.kind.shares(tokens, ratio, **algorithm.trust.numbers).items():
            report.add(f"policy/{name}", mask.sum(), count)


def _measure_weights(weight: Tensor, report: StepReport) -> None:
    """Mean weight, share switched off, largest weight; and what the effective sample size is made of."""
    report.add("correction/weight", weight.sum(), len(weight))
    report.add("correction/zero", (weight == 0).sum(), len(weight))
    if len(weight):
        report.maximum("correction/weight_max", weight.max())
    # The effective sample size is the square of the mean weight over this mean of squares.
    report.add("correction/weight_squared", (weight * weight).sum(), len(weight))
