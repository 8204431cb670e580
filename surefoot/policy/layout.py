"""From the flat stream of a micro-batch to the rows that a Transformers model takes, and back to the loss tokens.

Three layouts that give the same states: rows padded on the right (nothing but the causal mask is needed, since padding
comes after everything that matters), rows padded on the left, and one row that holds all sequences behind one another.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from surefoot.errors import ModelError
from surefoot.types import Packed

Layout = Literal["right", "left", "packed"]


@dataclass(frozen=True)
class Rows:
    """What a model is given, and where to find its answers.

    Attributes:
        inputs: keyword arguments of the model: ``input_ids`` [B, L] and what the layout needs besides.
        predicts: [M] int64, for each loss token the place b * L + l of the input that predicts it, in stream order.
    """

    inputs: dict[str, Tensor]
    predicts: Tensor


def hidden_states(model: Any, packed: Packed, layout: Layout = "right") -> Tensor:
    """The last hidden state that predicts each loss token; no logits are made.

    Args:
        model: a causal language model of Transformers.
        packed: the micro-batch, on the model's device.
        layout: how the sequences lie in the forward pass; every layout gives the same states.

    Returns:
        [M, d] in the model's dtype, M = ``packed.mask.sum()``, in stream order.

    Raises:
        ModelError: when the model cannot take the layout.
    """
    rows = arrange(model, packed, layout)
    states: Tensor = decoder(model)(**rows.inputs, use_cache=False).last_hidden_state
    return states.flatten(0, 1).index_select(0, rows.predicts)


def decoder(model: Any) -> Any:
    """The part of a causal language model that makes hidden states; the model itself where it cannot be told apart."""
    base = model.base_model
    return getattr(model, "model", model) if base is model else base


def arrange(model: Any, packed: Packed, layout: Layout = "right") -> Rows:
    """Lay the sequences out. The last token of a sequence predicts nothing and is left out."""
    lengths = packed.lengths - 1
    keep = packed.positions < lengths[packed.seq_index]
    row, position = packed.seq_index[keep], packed.positions[keep]
    count, width = len(lengths), int(lengths.max())
    shift = torch.zeros_like(lengths)
    if layout == "packed":
        count, width = 1, len(row)
        row, shift = torch.zeros_like(row), torch.cumsum(lengths, 0) - lengths
    elif layout == "left":
        shift = width - lengths
    target = packed.mask.nonzero().squeeze(1)
    target_row = packed.seq_index[target]
    place = row * width + position + shift[packed.seq_index[keep]]
    predicts = packed.positions[target] - 1 + shift[target_row] + (0 if layout == "packed" else target_row * width)

    def spread(values: Tensor) -> Tensor:
        return values.new_zeros(count * width).index_copy_(0, place, values).view(count, width)

    inputs = {"input_ids": spread(packed.ids[keep])}
    if layout == "left" and bool((shift > 0).any()):
        inputs |= {"attention_mask": spread(torch.ones_like(position)), "position_ids": spread(position)}
    elif layout == "packed" and len(lengths) > 1:
        inputs |= {"position_ids": position[None], **block_mask(model, packed.seq_index[keep], width)}
    return Rows(inputs, predicts)


def block_mask(model: Any, sequence: Tensor, width: int) -> dict[str, Tensor]:
    """The mask that lets a token of the single packed row see its own sequence up to itself, and nothing else.

    An additive mask [1, 1, L, L]: 0 where a token may look, the most negative number elsewhere. Where a sliding window
    is shorter than the row, the mask differs from layer to layer; it is then left to Transformers, which derives it
    from the positions that restart.
    """
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    if not kinds <= {"full_attention", "sliding_attention", "chunked_attention"} or not takes_positions(model):
        raise ModelError(
            f"the layout 'packed' needs attention that takes positions in every layer, which "
            f"{type(model).__name__} does not have: set train.layout = 'right'"
        )
    windows = (getattr(config, "sliding_window", None), getattr(config, "attention_chunk_size", None))
    if any(window is not None and window < width for window in windows):
        return {}
    order = torch.arange(width, device=sequence.device)
    seen = (sequence[:, None] == sequence[None, :]) & (order[:, None] >= order[None, :])
    dtype = model.dtype
    mask = torch.zeros((width, width), dtype=dtype, device=sequence.device)
    return {"attention_mask": mask.masked_fill_(~seen, torch.finfo(dtype).min)[None, None]}


def takes_positions(model: Any) -> bool:
    return "position_ids" in inspect.signature(decoder(model).forward).parameters
