"""From the flat stream of a micro-batch to the rows that a Transformers model takes, and back to the loss tokens.

Four layouts that give the same states: rows padded on the right (nothing but the causal mask is needed, since padding
comes after everything that matters), rows padded on the left, one row that holds all sequences behind one another, and
such a row in which a prompt that several sequences share is there once. ``"auto"`` takes the one with the least to
compute.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from surefoot.batches import Packed
from surefoot.errors import ModelError
from surefoot.policy.checkpointing import checkpointed
from surefoot.policy.compile import compiled
from surefoot.policy.own_decoder import own_decoder
from surefoot.policy.stream import make_stream, shared_tokens
from surefoot.policy.stream_attention import run_stream, takes_streams, window

Layout = Literal["auto", "right", "left", "packed", "shared"]
GAIN = 0.95  # of the tokens: what a layout has to save to make up for moving them about


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
    base = decoder(model)
    layout = settle(model, packed, layout)
    if layout == "shared" or (layout == "packed" and streams(model, packed)):
        stream = make_stream(packed, model.dtype, share=layout == "shared")
        own = own_decoder(base, stream.longest)
        if own is not None:
            return own(stream)
        with checkpointed(base, stream), compiled(base):
            return run_stream(base, stream).index_select(0, stream.predicts)
    rows = arrange(model, packed, layout)
    with checkpointed(base), compiled(base):
        states: Tensor = base(**rows.inputs, use_cache=False).last_hidden_state
    return states.flatten(0, 1).index_select(0, rows.predicts)


def settle(model: Any, packed: Packed, layout: Layout) -> Layout:
    """The layout that is meant: ``"auto"`` becomes the one with the fewest tokens, padding included.

    Raises:
        ModelError: ``"shared"``, and the model cannot take it.
    """
    if layout == "shared" and not streams(model, packed):
        raise ModelError(
            f"the layout 'shared' needs attention in every layer that sees the whole sequence and can be replaced, which "
            f"{type(model).__name__} does not have here (a window shorter than the sequence, or model.attention = 'eager'): "
            f"set train.layout = 'auto'"
        )
    if layout != "auto":
        return layout
    if not streams(model, packed):
        return "right"
    lengths = packed.lengths - 1
    if own_decoder(decoder(model), int(lengths.max())) is not None:
        return "shared"
    padded, packed_tokens, shared = len(lengths) * int(lengths.max()), int(lengths.sum()), shared_tokens(packed)
    if shared <= GAIN * min(padded, packed_tokens):
        return "shared"
    return "packed" if packed_tokens <= GAIN * padded else "right"


def usable(model: Any, layout: Layout) -> Layout:
    """The layout, ``"right"`` in place of ``"auto"`` for a model that takes no other."""
    return "right" if layout == "auto" and not takes_streams(decoder(model)) else layout


def streams(model: Any, packed: Packed) -> bool:
    """Whether the model takes this micro-batch without padding and with prompts shared."""
    base = decoder(model)
    bound = window(base)
    return (bound is None or bound >= int(packed.lengths.max()) - 1) and takes_streams(base)


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
    if shift.any():  # padding on the left, or several sequences in the row
        owner = spread(packed.seq_index[keep] + 1)  # 0: padding
        inputs |= separation(model, owner, spread(position), layout)
    return Rows(inputs, predicts)


def separation(model: Any, owner: Tensor, position: Tensor, layout: Layout) -> dict[str, Tensor]:
    """What keeps the owners of the tokens of a row apart: positions, and an additive mask [B, 1, L, L].

    The mask is 0 where a token may look (its owner's tokens, up to itself) and the most negative number elsewhere;
    since padding looks at padding, no token looks at nothing, which would make NaNs. Where a sliding window is shorter
    than the row, masks differ from layer to layer; they are then left to Transformers, which derives them from the
    positions that restart.

    Args:
        model: a causal language model.
        owner: [B, L] int64, which sequence a token belongs to; 0 is padding.
        position: [B, L] int64, the token's position in its sequence; 0 for padding.
        layout: ``"left"`` or ``"packed"``.
    """
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    takes_positions = "position_ids" in inspect.signature(decoder(model).forward).parameters
    if not takes_positions or not kinds <= {"full_attention", "sliding_attention", "chunked_attention"}:
        if layout == "left":
            return {"attention_mask": (owner > 0).long()}
        raise ModelError(
            f"the layout 'packed' needs attention that takes positions in every layer, which "
            f"{type(model).__name__} does not have: set train.layout = 'right'"
        )
    windows = (getattr(config, "sliding_window", None), getattr(config, "attention_chunk_size", None))
    width = owner.shape[1]
    if any(window is not None and window < width for window in windows):
        return {"position_ids": position}
    order = torch.arange(width, device=owner.device)
    seen = (owner[:, :, None] == owner[:, None, :]) & (order[:, None] >= order[None, :])
    mask = torch.zeros(seen.shape, dtype=model.dtype, device=owner.device)
    mask = mask.masked_fill_(~seen, torch.finfo(model.dtype).min)[:, None]
    return {"position_ids": position, "attention_mask": mask}
