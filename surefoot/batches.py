"""What an update computes on: micro-batches as flat streams of tokens, and the denominators of the whole step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Totals:
    """Denominators of one whole optimiser step, over all ranks and micro-batches, known before the first forward.

    Attributes:
        tokens: loss tokens.
        sequences: rows with at least one loss token.
        groups: groups with at least one loss token.
        constant: the constant length of ``seq_mean_token_sum_norm`` (the generation budget).
    """

    tokens: float
    sequences: float
    groups: float
    constant: float = 1.0


@dataclass(frozen=True)
class Packed:
    """A micro-batch as one flat stream of tokens. N tokens, S sequences.

    A token is *predicted* from its predecessor: entry n of the per-token fields speaks of ids[n] as a target.

    Attributes:
        ids: [N] int64.
        positions: [N] int64, restarting at 0 in every sequence.
        seq_start: [S + 1] int64, where each sequence begins (cumulative lengths).
        seq_index: [N] int64, which sequence a token belongs to.
        mask: [N] bool, the loss tokens. The first token of a sequence is never one.
        advantage: [N] float32, 0 outside the mask.
        logp_behaviour, temperature, kept_logmass: [N] float32, as in :class:`~surefoot.types.Sample`.
        loss_tokens: [S] float64, loss tokens of each sequence.
        group_tokens: [S] float64, loss tokens of the sequence's whole group in the optimiser step.
        sample_index: [S] int64, where each sequence stands in the batch it was packed from.
        weight: [N] float32, factor of the token in the objective; 1 where nothing else was said.
        top_ids: [N, K] int64, the behaviour policy's likeliest tokens at each place, as in :class:`~surefoot.types.Sample`;
            None where the engine was not asked for them.
        top_logp_behaviour: [N, K] float32, their log-probabilities under the behaviour policy; None with ``top_ids``.
    """

    ids: Tensor
    positions: Tensor
    seq_start: Tensor
    seq_index: Tensor
    mask: Tensor
    advantage: Tensor
    logp_behaviour: Tensor
    temperature: Tensor
    kept_logmass: Tensor
    loss_tokens: Tensor
    group_tokens: Tensor
    sample_index: Tensor
    weight: Tensor
    top_ids: Tensor | None = None
    top_logp_behaviour: Tensor | None = None

    @property
    def sequences(self) -> int:
        return len(self.seq_start) - 1

    @property
    def lengths(self) -> Tensor:
        """[S] int64, tokens of each sequence, prompt included."""
        return self.seq_start[1:] - self.seq_start[:-1]

    def to(self, device: torch.device | str) -> Packed:
        """The same micro-batch with its tensors on this device."""
        held = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return replace(self, **{name: value.to(device) for name, value in held.items() if value is not None})
