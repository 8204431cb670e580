"""Log-probabilities from the logits that a model makes itself, for the models whose head is not known.

A few rows at a time go through the model and are forgotten; the backward pass runs them again. The model thus runs
twice, and the logits of a few rows, not of the whole micro-batch, are in memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from surefoot.batches import Packed


def own_logprobs(
    model: Any, packed: Packed, chunk: int, *, entropy: bool = True, top_ids: Tensor | None = None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Log-probability [M] of the loss tokens at their temperature, and what else is wanted, without gradient.

    Args:
        model: a causal language model of Transformers.
        packed: the micro-batch.
        chunk: input tokens that go through the model at once (one row at least).
        entropy: whether to compute entropies.
        top_ids: [M, K] int64, further tokens whose log-probabilities are wanted at each place.

    Returns:
        Log-probabilities [M] with gradient, entropies [M], log-probabilities [M, K] of ``top_ids``.
    """
    longest = int(packed.lengths.max())
    rows = max(1, chunk // longest)
    parts: list[tuple[Tensor, Tensor, Tensor | None]] = []
    done = 0
    for begin in range(0, packed.sequences, rows):
        start, end = (int(packed.seq_start[index]) for index in (begin, min(begin + rows, packed.sequences)))
        if count := int(packed.mask[start:end].sum()):
            wanted = None if top_ids is None else top_ids[done : done + count]
            parts.append(checkpoint(row_logprobs, model, packed, start, end, wanted, use_reentrant=False))
            done += count
    logp = torch.cat([part[0] for part in parts])
    top = [part[2] for part in parts if part[2] is not None]
    return logp, torch.cat([part[1] for part in parts]) if entropy else None, torch.cat(top) if top else None


def row_logprobs(
    model: Any, packed: Packed, start: int, end: int, top_ids: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Log-probabilities and entropies of the loss tokens among tokens ``start`` to ``end`` (whole sequences).

    ``top_ids`` [m, K] names further tokens for each of these m loss tokens.
    """
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
        top = None if top_ids is None else table.gather(1, top_ids)
    return table.gather(1, packed.ids[part][mask, None]).squeeze(1), entropy, top
