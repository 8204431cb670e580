"""What the parts of an objective see: flat tensors over loss tokens, and tables over rows.

Only loss tokens are here: prompts, padding, tool output and injected text were left out when the batch was packed, so
no function below this line masks, pads or compares ids. M tokens, S rows of a micro-batch, B rows of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from surefoot.types import Packed


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


@dataclass(frozen=True)
class RewardTable:
    """The rewards of a batch, a row per sample; rows need not form complete groups.

    Attributes:
        reward: [B] float64, after shaping; NaN where not valid.
        valid: [B] bool, rows that were graded.
        group: [B] int64, 0 .. number of groups - 1.
        length: [B] float64, loss tokens.
        components: named parts of the reward, each [B], NaN where a row has none.
        correct: [B] bool, rows whose answer is right, before any shaping; None: rows whose reward is at least 1.
        memory: numbers that a part remembers from step to step (a moving average), kept in the run state.
    """

    reward: Tensor
    valid: Tensor
    group: Tensor
    length: Tensor
    components: Mapping[str, Tensor] = field(default_factory=dict)
    correct: Tensor | None = None
    memory: dict[str, float] = field(default_factory=dict)

    @property
    def groups(self) -> int:
        return int(self.group.max()) + 1 if len(self.group) else 0

    def success_rate(self) -> Tensor:
        """[groups] float64, the share of right answers among the valid rows of each group."""
        right = self.reward >= 1 if self.correct is None else self.correct
        return self.group_sum(right.to(self.reward.dtype)) / self.group_count().clamp(min=1)

    def group_sum(self, value: Tensor) -> Tensor:
        """[B] -> [groups], over valid rows."""
        zero = torch.zeros(self.groups, dtype=value.dtype, device=value.device)
        return zero.index_add(0, self.group, torch.where(self.valid, value, torch.zeros_like(value)))

    def group_count(self) -> Tensor:
        """[groups] float64, valid rows of each group."""
        return self.group_sum(torch.ones_like(self.reward))

    def signal(self) -> Tensor:
        """[groups] bool: the valid rewards of the group are not all the same.

        Differences below 1e-9 of the largest magnitude are float noise: a residue of 1e-17 divided by a standard
        deviation of 0 and an epsilon of 1e-6 would otherwise become an advantage.
        """
        infinity = torch.full((self.groups,), torch.inf, dtype=self.reward.dtype, device=self.reward.device)
        safe = torch.where(self.valid, self.reward, torch.zeros_like(self.reward))
        high = (-infinity).scatter_reduce(0, self.group, torch.where(self.valid, safe, -torch.inf), "amax")
        low = infinity.scatter_reduce(0, self.group, torch.where(self.valid, safe, torch.inf), "amin")
        scale = torch.maximum(high.abs(), low.abs()).clamp(min=1e-300)
        return (high - low) > 1e-9 * torch.where(scale.isfinite(), scale, torch.ones_like(scale))
