"""What the parts of a loss see: flat tensors over loss tokens.

Only loss tokens are here: prompts, padding, tool output and injected text were left out when the batch was packed, so
no function below this line masks, pads or compares ids. M tokens, S rows of a micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

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

    def row_sum(self, value: Tensor) -> Tensor:
        """[M] -> [S], the sum over each row."""
        return torch.zeros_like(self.loss_tokens, dtype=value.dtype).index_add(0, self.row, value)

    def row_mean(self, value: Tensor) -> Tensor:
        """[M] -> [S], the mean over each row; 0 for a row without loss tokens."""
        return self.row_sum(value) / self.loss_tokens.clamp(min=1).to(value.dtype)
