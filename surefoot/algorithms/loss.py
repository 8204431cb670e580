"""The loss of a micro-batch: one composition for every objective, every path and every machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.finite import require_finite
from surefoot.algorithms.kl import estimate
from surefoot.algorithms.tokens import Tokens
from surefoot.batches import Totals
from surefoot.errors import AlgorithmError
from surefoot.metrics import StepReport


@dataclass(frozen=True)
class Terms:
    """The parts of the loss of a micro-batch.

    Attributes:
        policy: scalar, the surrogate with its weights and corrections.
        kl: scalar, the KL term, or None where the loss has none.
        coefficient: [M], what the aggregation multiplies each token's loss with.
        report: metrics; ``loss/*`` are sums that add up to the loss of the optimiser step.
    """

    policy: Tensor
    kl: Tensor | None
    coefficient: Tensor
    report: StepReport


def policy_loss(algorithm: Algorithm, tokens: Tokens, totals: Totals) -> tuple[Tensor, StepReport]:
    """The sum of the :func:`loss_terms`, a scalar, and the metrics."""
    terms = loss_terms(algorithm, tokens, totals)
    return terms.policy if terms.kl is None else terms.policy + terms.kl, terms.report


def loss_terms(algorithm: Algorithm, tokens: Tokens, totals: Totals) -> Terms:
    """``sum_it C_i (omega_it w_it l_it + kl_it)`` over the loss tokens of a micro-batch, term by term.

    The losses of the micro-batches of a step add up to the loss of the step, since ``C`` is made from ``totals``.
    A micro-batch without loss tokens gives exactly 0, attached to the graph. A token whose behaviour log-probability is
    not finite has no policy term; it still counts in the denominators, and in ``policy/untrusted_tokens``. It is taken as
    exactly as likely under the behaviour policy as it is now, without a gradient, so that it moves no ratio of its row.

    Raises:
        NonFiniteError: an input of the trainer's side, or a term of the loss, is not finite.
    """
    tokens.require_finite()
    trusted, given = tokens.trusted, tokens
    still = tokens.logp.detach()
    tokens = replace(
        tokens,
        logp=torch.where(trusted, tokens.logp, still),
        logp_behaviour=torch.where(trusted, tokens.logp_behaviour, still),
    )
    ratio = algorithm.ratio(tokens)
    token_loss = algorithm.trust(tokens, ratio)
    if token_loss.shape != tokens.logp.shape:
        raise AlgorithmError(
            f"the surrogate '{algorithm.trust.name}' gave a loss of shape {tuple(token_loss.shape)} for {len(tokens.logp)} "
            "tokens: return one number per token; the aggregation adds them up"
        )
    report = StepReport()
    weight = algorithm.correction(given)  # which knows what to do with tokens that are not trusted
    if weight is not None:
        _measure_weights(weight.detach()[trusted], report)
        token_loss = weight * token_loss
    if tokens.weight is not None:
        report.add("policy/token_weight", tokens.weight.sum(), len(tokens.weight))
        report.add("policy/weighted_tokens", (tokens.weight != 0).sum(), len(tokens.weight))
        token_loss = tokens.weight * token_loss
    token_loss = torch.where(trusted, token_loss, torch.zeros_like(token_loss))
    coefficient = algorithm.aggregation(tokens, totals).to(token_loss.dtype)[tokens.row]
    # Adding 0 * sum keeps an empty micro-batch attached to the graph, so that a distributed backward does not hang.
    policy = (coefficient * token_loss).sum() + 0.0 * given.logp.sum()
    report.total("loss/policy", policy.detach())
    report.add("policy/untrusted_tokens", (~trusted).sum(), len(trusted))
    kl = None
    if algorithm.kl_in_loss:
        kl = (coefficient * algorithm.kl(given)).sum()
        report.total("loss/kl", kl.detach())
    require_finite({"the policy term of the loss": policy, "the KL term of the loss": kl})
    _measure(algorithm, tokens, ratio, trusted, report)
    return Terms(policy, kl, coefficient, report)


@torch.no_grad()
def _measure(algorithm: Algorithm, tokens: Tokens, ratio: Tensor | None, trusted: Tensor, report: StepReport) -> None:
    """Divergences (k3), entropy and ratio over loss tokens; what was clipped over tokens, or over rows for row ratios."""
    count = float(len(tokens.logp))
    if count == 0:
        return
    logp = tokens.logp.detach()
    report.add(
        "policy/kl_behaviour",
        estimate("k3", logp[trusted], tokens.logp_behaviour[trusted]).sum(),
        trusted.sum(),
    )
    report.add("policy/kl_old", estimate("k3", logp, tokens.logp_old).sum(), count)
    if tokens.entropy is not None:
        report.add("policy/entropy", tokens.entropy.sum(), count)
    if tokens.logp_reference is not None:
        report.add("policy/kl_reference", estimate("k3", logp, tokens.logp_reference).sum(), count)
    if ratio is None:
        return
    if "log" not in algorithm.ratio.kind.traits:
        report.maximum("policy/ratio_max", ratio.max())
        report.maximum("policy/ratio_inverse_max", 1 / ratio.min())
    if algorithm.trust.kind.shares is None:
        return
    rows = "row" in algorithm.ratio.kind.traits and "tokens" not in algorithm.ratio.kind.traits
    share = 1 / tokens.loss_tokens.clamp(min=1)[tokens.row] if rows else torch.ones_like(logp)
    for name, mask in algorithm.trust.kind.shares(tokens, ratio, **algorithm.trust.numbers).items():
        report.add(f"policy/{name}_rows" if rows else f"policy/{name}", (share * mask).sum(), share.sum())


def _measure_weights(weight: Tensor, report: StepReport) -> None:
    """Of the correction's weights: mean, share switched off, largest, and effective sample size as a share of all."""
    report.add("correction/weight", weight.sum(), len(weight))
    report.add("correction/zero", (weight == 0).sum(), len(weight))
    if len(weight):
        report.maximum("correction/weight_max", weight.max())
    report.effective("correction/effective_share", weight)
