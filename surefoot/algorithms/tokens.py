"""What the parts of a loss see: flat tensors over loss tokens.

Only loss tokens are here: prompts, padding, tool output and injected text were left out when the batch was packed, so
no function below this line masks, pads or compares ids. M tokens, S rows of a micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from surefoot.algorithms.finite import require_finite
from surefoot.batches import Packed


@dataclass(frozen=True)
class Tokens:
    """The loss tokens of a micro-batch, row after row.

    Attributes:
        logp: [M], log-probability under the current weights; the only field with a gradient.
        logp_old: [M], under the weights at the start of the update (pi_old, the proximal policy).
        logp_behaviour: [M], what the engine sampled with (mu).
        advantage: [M].
        row: [M] int64, the row of each token, non-decreasing.
        loss_tokens: [S], loss tokens of each row (0 for a row without).
        group_tokens: [S], loss tokens of the row's whole group in the optimiser step.
        logp_reference: [M], under the reference policy, where one is used.
        entropy: [M], of the full next-token distribution, in nats, without a gradient.
        weight: [M], weight of the token's policy term, where tokens do not count alike.
        kept_logmass: [M], log of the mass that top-p or top-k kept when the token was sampled.
        top_logp, top_logp_behaviour: [M, K], log-probabilities of the K tokens that the behaviour policy found
            likeliest, under the current weights (without a gradient) and under the behaviour policy, before top-p or
            top-k cut anything; where the algorithm compares whole distributions.
        top_is_target: [M, K] bool, which of the K is the sampled token.
    """

    logp: Tensor
    logp_old: Tensor
    logp_behaviour: Tensor
    advantage: Tensor
    row: Tensor
    loss_tokens: Tensor
    group_tokens: Tensor
    logp_reference: Tensor | None = None
    entropy: Tensor | None = None
    weight: Tensor | None = None
    kept_logmass: Tensor | None = None
    top_logp: Tensor | None = None
    top_logp_behaviour: Tensor | None = None
    top_is_target: Tensor | None = None

    @classmethod
    def on_policy(cls, packed: Packed, logp: Tensor, entropy: Tensor | None = None) -> Tokens:
        """The loss tokens of a micro-batch whose sampling weights are the current ones."""
        return cls(
            logp=logp,
            logp_old=logp.detach(),
            logp_behaviour=logp.detach(),
            advantage=packed.advantage[packed.mask],
            row=packed.seq_index[packed.mask],
            loss_tokens=packed.loss_tokens,
            group_tokens=packed.group_tokens,
            entropy=entropy,
        )

    @property
    def trusted(self) -> Tensor:
        """[M] bool, tokens of which it is known how likely the behaviour policy found them.

        Among the likeliest tokens a log-probability of -inf is a number like others: that token could not be sampled.
        """
        trusted, top = self.logp_behaviour.isfinite(), self.top_logp_behaviour
        return trusted if top is None else trusted & ~_unknown(top).any(1)

    def require_finite(self) -> None:
        """Refuse a number of the trainer's side that is not finite; those of the engine's make a token untrusted.

        Raises:
            NonFiniteError: naming the field and the token.
        """
        top = self.top_logp
        known = {
            "the policy's log-probability (logp)": self.logp,
            "the log-probability at the start of the update (logp_old)": self.logp_old,
            "the reference's log-probability (logp_reference)": self.logp_reference,
            "the advantage": self.advantage,
            "the entropy of the policy": self.entropy,
            "the token weight": self.weight,
            "the kept mass (kept_logmass)": self.kept_logmass,
            "the policy's log-probability of a likely token (top_logp)": None if top is None else _mark(top),
        }
        require_finite(known, self.row)

    def row_sum(self, value: Tensor) -> Tensor:
        """[M] -> [S], the sum over each row."""
        return torch.zeros_like(self.loss_tokens, dtype=value.dtype).index_add(0, self.row, value)

    def row_mean(self, value: Tensor) -> Tensor:
        """[M] -> [S], the mean over each row; 0 for a row without loss tokens."""
        return self.row_sum(value) / self.loss_tokens.clamp(min=1).to(value.dtype)


def _unknown(top: Tensor) -> Tensor:
    """[M, K] bool, entries that are no log-probability: NaN or +inf."""
    return top.isnan() | top.isposinf()


def _mark(top: Tensor) -> Tensor:
    """[M], 0, or a number of the token's that is no log-probability."""
    wrong = torch.where(_unknown(top), top, torch.zeros_like(top))
    return wrong.sum(1)
