"""Attention of a stream in the layers of Transformers: in padded rows of starts and of rests.

It is registered under a name of its own; a decoder is told the name for the length of a forward pass, and the stream lies in
a context variable meanwhile.
"""

from __future__ import annotations

import weakref
from contextvars import ContextVar, Token
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from surefoot.batches import Packed
from surefoot.policy.stream import Stream, make_stream

NAME = "surefoot_stream"  # of the attention, in the register of Transformers
KINDS = {"full_attention", "sliding_attention", "chunked_attention"}


class _IntoRows(torch.autograd.Function):
    """[N, ...] to [slots, ...]; padding holds some token or other, and its gradient is dropped."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, stream: Stream) -> Tensor:
        ctx.stream = stream
        return flat.index_select(0, stream.slots)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0].index_select(0, ctx.stream.place), None


class _OutOfRows(torch.autograd.Function):
    """[slots, ...] to [N, ...]; the gradient of padding is zero."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, stream: Stream) -> Tensor:
        ctx.stream = stream
        return rows.index_select(0, stream.place)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,) = grads
        rows = grad.new_zeros(len(ctx.stream.slots), *grad.shape[1:])
        return rows.index_copy_(0, ctx.stream.place, grad), None


_current: ContextVar[Stream | None] = ContextVar("stream", default=None)


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of the current stream, as Transformers calls it.

    Args:
        module: the attention layer.
        query: [1, H, N, D]. ``key``, ``value`` [1, K, N, D], where K divides H.
        attention_mask: not looked at: the stream says what may look at what.
        scaling: factor of the products.

    Returns:
        [1, N, H, D].
    """
    stream = _current.get()
    assert stream is not None, "attention of a stream outside of one"
    (starts, before), (rests, _) = stream.starts, stream.rests
    cut, grouped = starts * before, query.shape[1] != key.shape[1]
    q, k, v = (_IntoRows.apply(part[0].transpose(0, 1), stream) for part in (query, key, value))

    def first(part: Tensor) -> Tensor:
        """[U, H, P, D]"""
        return part[:cut].unflatten(0, (starts, before)).transpose(1, 2)

    def last(part: Tensor) -> Tensor:
        """[R, H, A, D]"""
        return part[cut:].unflatten(0, (rests, -1)).transpose(1, 2)

    def both(part: Tensor) -> Tensor:
        """[R, H, P + A, D]"""
        whole = torch.cat([first(part).index_select(0, stream.continues), last(part)], dim=2)
        # With a mask, only the kernel for the CPU shares keys among heads without falling back to a slow path.
        return whole if whole.device.type == "cpu" else whole.repeat_interleave(query.shape[1] // key.shape[1], dim=1)

    out = functional.scaled_dot_product_attention(
        first(q), first(k), first(v), is_causal=True, scale=scaling, enable_gqa=grouped
    )
    out = out.transpose(1, 2).flatten(0, 1)
    if rests:
        mask = stream.mask.to(q.dtype)
        more = functional.scaled_dot_product_attention(
            last(q), both(k), both(v), attn_mask=mask, scale=scaling, enable_gqa=grouped and q.device.type == "cpu"
        )
        out = torch.cat([out, more.transpose(1, 2).flatten(0, 1)])
    return _OutOfRows.apply(out, stream)[None], None


ALL_ATTENTION_FUNCTIONS.register(NAME, attend)


class AttentionOf:
    """A context in which the decoder ``base`` attends in the rows of the stream (None: as it always does).

    It can be entered again: layers that are computed again are so in every backward pass through them.
    """

    def __init__(self, base: Any, stream: Stream | None) -> None:
        self.base, self.stream = base, stream
        self.before: list[tuple[str, Token[Stream | None]]] = []

    def __enter__(self) -> None:
        if self.stream is not None:
            self.before.append((self.base.config._attn_implementation, _current.set(self.stream)))
            self.base.config._attn_implementation = NAME

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            self.base.config._attn_implementation, token = self.before.pop()
            _current.reset(token)


def run_stream(base: Any, stream: Stream) -> Tensor:
    """[N, d], the last hidden state of every token of the stream."""
    with AttentionOf(base, stream):
        states: Tensor = base(
            input_ids=stream.ids[None], position_ids=stream.positions[None], use_cache=False
        ).last_hidden_state
    return states[0]


_proved: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def takes_streams(base: Any) -> bool:
    """Whether a decoder gives in a stream what it gives for each sequence alone: proved once, on a few tokens."""
    if not _might(base):
        return False
    if base not in _proved:
        _proved[base] = _does(base)
    return _proved[base]


def window(base: Any) -> int | None:
    """The longest sequence in which every token sees all that came before it; None: there is no bound."""
    config = base.config.get_text_config()
    sizes = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    return min((size for size in sizes if size is not None), default=None)


def _might(base: Any) -> bool:
    config = base.config.get_text_config()
    return (
        getattr(base, "_supports_attention_backend", False)
        and base.config._attn_implementation == "sdpa"
        and set(getattr(config, "layer_types", None) or ()) <= KINDS
    )


@torch.no_grad()
def _does(base: Any) -> bool:
    packed, expected = probe(base)
    try:
        stream = make_stream(packed, expected.dtype, share=True)
        found = run_stream(base, stream).index_select(0, stream.predicts)
    except (RuntimeError, TypeError, ValueError, KeyError):
        return False  # an attention with arguments of its own
    return near(found, expected)


@torch.no_grad()
def probe(base: Any) -> tuple[Packed, Tensor]:
    """Two sequences that share two tokens, and one that shares nothing; and the states [M, d] of each alone that predict
    its loss tokens."""
    embedding = base.get_input_embeddings().weight
    ids = torch.linspace(0, embedding.shape[0] - 1, 9, device=embedding.device).long()
    rows = [ids[[0, 1, 2, 3, 8]], ids[[0, 1, 4, 8]], ids[[5, 6, 7, 8]]]
    loss = [2, 2, 1]  # the first loss token of each
    lengths = torch.tensor([len(row) for row in rows], device=ids.device)
    index = torch.repeat_interleave(torch.arange(3, device=ids.device), lengths)
    positions = torch.cat([torch.arange(len(row), device=ids.device) for row in rows])
    mask = torch.cat([torch.arange(len(row), device=ids.device) >= at for row, at in zip(rows, loss, strict=True)])
    nothing = torch.zeros(len(index), device=ids.device)
    packed = Packed(
        ids=torch.cat(rows),
        positions=positions,
        seq_start=torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]),
        seq_index=index,
        mask=mask,
        loss_tokens=lengths.double(),
        group_tokens=lengths.double(),
        sample_index=lengths,
        **dict.fromkeys(("advantage", "logp_behaviour", "temperature", "kept_logmass", "weight"), nothing),
    )
    alone = []
    for row, at in zip(rows, loss, strict=True):
        alone.append(base(input_ids=row[None, :-1], use_cache=False).last_hidden_state[0, at - 1 :])
    return packed, torch.cat(alone)


def near(found: Tensor, expected: Tensor) -> bool:
    """Whether states are equal up to rounding."""
    bound = 2e-2 if expected.dtype in (torch.float16, torch.bfloat16) else 1e-4
    return bool((found - expected).abs().max() <= bound * expected.abs().max().clamp(min=1.0))
