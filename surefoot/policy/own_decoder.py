"""The forward and backward pass of a decoder of our own, for the architectures whose layers are known and plain.

It runs on the parameters of the model itself. Which models it takes is read from their parts (:mod:`surefoot.policy.blocks`)
and then proved on a few tokens; every other model, and one with adapters, hooks, half-precision weights or sequences that
are long, keeps the layers of Transformers.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from surefoot.policy.blocks import Block, Blocks, read_blocks
from surefoot.policy.compile import is_compiled
from surefoot.policy.fused import Attention, FeedForward, Places, Shape, inverse_rms, norm_backward
from surefoot.policy.pieces import cut
from surefoot.policy.stream import Stream, make_stream
from surefoot.policy.stream_attention import near, probe

# Attention weights are kept for the backward pass, which takes memory that grows with the square of the length.
LONGEST = 256
PLAIN = frozenset(
    {"llama", "mistral", "qwen2", "qwen3"}
)  # norms that multiply by their weight, SiLU, no bound of scores


@dataclass(frozen=True)
class OwnDecoder:
    """Runs streams through the layers of one model.

    Attributes:
        base: the decoder of Transformers.
        blocks: its layers.
    """

    base: Any
    blocks: Blocks

    def __call__(self, stream: Stream) -> Tensor:
        """[M, d], the last hidden state, after the final norm, of the tokens that ``stream.predicts`` names."""
        first = self.blocks.layers[0]
        shape = _shape(first)
        turns = turns_of(self.blocks, int(stream.positions.max()) + 1).index_select(0, stream.positions)
        places = Places(turns, cut(stream, shape.heads, shape.kv_heads))
        x = self.blocks.embedding(stream.ids)
        for block, layer in zip(self.blocks.layers, self.base.layers, strict=True):
            if torch.is_grad_enabled() and getattr(layer, "gradient_checkpointing", False):
                x = checkpoint(_layer, x, block, places, use_reentrant=False)
            else:
                x = _layer(x, block, places)
        return _Norm.apply(x.index_select(0, stream.predicts), self.blocks.norm.weight, _eps(self.blocks.norm))

    @torch.no_grad()
    def agrees(self) -> bool:
        """Whether it gives what the decoder of Transformers gives for each of a few sequences alone."""
        packed, expected = probe(self.base)
        return near(self(make_stream(packed, expected.dtype, share=True)), expected)


def turns_of(blocks: Blocks, length: int) -> Tensor:
    """[length, (H + K) D / 2] complex, the rotations of the heads of queries and keys in pairs, by position.

    The factor of the scores is in those of the queries.
    """
    block = blocks.layers[0]
    cos, sin = blocks.angles("", length)
    half = block.width // 2
    table = torch.complex(cos[:, half:], sin[:, half:]).to(_complex_of(blocks.embedding.weight))
    scale = table.new_ones(block.heads + block.kv_heads)
    scale[: block.heads] = block.scale
    return (table[:, None] * scale[:, None]).flatten(1)


_proved: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def own_decoder(base: Any, longest: int) -> OwnDecoder | None:
    """The own pass of a decoder of Transformers for sequences of this length, or None where it keeps its layers.

    It is proved once for each model; whether the parts of the model are still the plain ones is looked at every time. Under
    autocast and where the layers run compiled, those of Transformers are kept.
    """
    if longest > LONGEST or base.training or not _known(base) or torch.is_autocast_enabled("cpu") or is_compiled(base):
        return None
    blocks = read_blocks(base)
    if blocks is None or not plain(base, blocks):
        return None
    made = OwnDecoder(base, blocks)
    if base not in _proved:
        _proved[base] = made.agrees()
    return made if _proved[base] else None


def joined(block: Block) -> tuple[Tensor, Tensor | None]:
    """Weight [(H + 2 K) D, d] and bias of queries, keys and values, those of a rotated head in pairs (see :func:`pairs`)."""
    projections = block.projections
    order = _order(block, projections[0].weight.device)
    weight = torch.cat([projection.weight for projection in projections]).index_select(0, order)
    if projections[0].bias is None:
        return weight, None
    return weight, torch.cat([projection.bias for projection in projections]).index_select(0, order)


def _layer(x: Tensor, block: Block, places: Places) -> Tensor:
    mlp, attention = block.mlp, block.attention
    order = _order(block, x.device)
    weight, bias = joined(block)
    head_norm = None
    if block.q_norm is not None:
        weights = [block.q_norm.weight.repeat(block.heads), block.k_norm.weight.repeat(block.kv_heads)]
        head_norm = torch.cat(weights).index_select(0, order[: _shape(block).rotated])
    x = Attention.apply(
        x, _shape(block), places, block.before_attention.weight, weight, bias, head_norm, attention.o_proj.weight
    )
    made: Tensor = FeedForward.apply(
        x,
        _eps(block.before_mlp),
        block.before_mlp.weight,
        mlp.gate_proj.weight,
        mlp.up_proj.weight,
        mlp.down_proj.weight,
    )
    return made


def pairs(width: int, device: torch.device) -> Tensor:
    """[D] int64, features of a head such that those that are rotated against each other, i and i + D / 2, are adjacent."""
    return torch.arange(width, device=device).view(2, -1).t().flatten()


def _order(block: Block, device: torch.device) -> Tensor:
    """Rows of the three projections one below the other, rotated ones in pairs."""
    width, rotated = block.width, block.heads + block.kv_heads
    turned = (torch.arange(rotated, device=device)[:, None] * width + pairs(width, device)).flatten()
    rest = torch.arange(rotated * width, (rotated + block.kv_heads) * width, device=device)
    return torch.cat([turned, rest])


def _shape(block: Block) -> Shape:
    head_eps = 0.0 if block.q_norm is None else _eps(block.q_norm)
    return Shape(block.heads, block.kv_heads, block.width, _eps(block.before_attention), head_eps)


def _eps(norm: Any) -> float:
    return float(norm.variance_epsilon)


def _complex_of(weight: Tensor) -> torch.dtype:
    return torch.complex128 if weight.dtype == torch.float64 else torch.complex64


class _Norm(torch.autograd.Function):
    """The final norm, [M, d]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        rms = inverse_rms(x, eps)
        ctx.save_for_backward(x, rms, weight)
        return (x * rms).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        x, rms, weight = ctx.saved_tensors
        grad_weight = torch.zeros_like(weight)
        return norm_backward(grads[0].clone(), x * rms, rms, weight, grad_weight), grad_weight, None


def _known(base: Any) -> bool:
    return base.config.get_text_config(decoder=True).model_type in PLAIN


def plain(base: Any, blocks: Blocks, linear: tuple[type[nn.Module], ...] = (nn.Linear,)) -> bool:
    """Whether all parts are what they are called: linear maps and norms without adapters or hooks.

    Args:
        base: the decoder of Transformers.
        blocks: its layers.
        linear: classes of linear maps that may stand behind the attention and in the feed-forward part.
    """
    if not _known(base):
        return False
    weight = blocks.embedding.weight
    if weight.dtype not in (torch.float32, torch.float64) or weight.device.type != "cpu":
        return False
    if type(blocks.embedding) is not nn.Embedding or blocks.windows != {None}:
        return False
    for block in blocks.layers:
        attention, mlp = block.attention, block.mlp
        with_bias = block.projections
        without = (attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        if any(type(part) is not nn.Linear for part in with_bias) or any(type(part) not in linear for part in without):
            return False
        if any(part.bias is not None for part in without) or len({part.bias is None for part in with_bias}) > 1:
            return False
        if type(mlp.act_fn).__name__ not in ("SiLU", "SiLUActivation") or block.softcap is not None:
            return False
    return not any(_hooked(module) for module in base.modules())


def _hooked(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )
