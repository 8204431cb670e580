"""Log-probabilities from the logits that a model makes itself, for the models whose head is not known.

A few rows at a time go through the model and are forgotten; the backward pass runs them again. The model thus runs
twice, and the logits of a few rows, not of the whole micro-batch, are in memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from surefoot.types import Packed


def own_logprobs(model: Any, packed: Packed, chunk: int, *, entropy: bool = True) -> tuple[Tensor, Tensor | None]:
    """Log-probability [M] of the loss tokens at their temperature, and the entropy [M] without gradient.

    Args:
        model: a causal language model of Transformers.
        packed: the micro-batch.
        chunk: input tokens that go through the model at once (one row at least).
        entropy: whether to compute entropies.
    """
    longest = int(packed.lengths.max())
    rows = max(1, chunk // longest)
    parts = []
    for begin in range(0, packed.sequences, rows):
        start, end = (int(packed.seq_start[index]) for index in (begin, min(begin + rows, packed.sequences)))
        if packed.mask[start:end].any():
            parts.append(checkpoint(row_logprobs, model, packed, start, end, use_reentrant=False))
    logp = torch.cat([part[0] for part in parts])
    return logp, torch.cat([part[1] for part in parts]) if entropy else None


def row_logprobs(model: Any, packed: Packed, start: int, end: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies of the loss tokens among tokens ``start`` to ``end`` (whole sequences)."""
    part = slice(start, end)
    row = packed.seq_index[part] - packed.seq_index[start]
    position, mask = packed.positions[part], packed.mask[part]
    ids = packed.ids.new_zeros(int(row[-1]) + 1, int(position.max()) + 1)
    ids[row, position] = packed.ids[part]
    logits = model(input_ids=ids, use_cache=False).logits[row[mask], position[mask] - 1]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / packed.temperature[part][mask, None]
    table = logits.log_softmax(-1)
    with torch.no_grad():
        entropy = torch.special.entr(table.exp()).sum(-1)
    return table.gather(1, packed.ids[part][mask, None]).squeeze(1), entropy
