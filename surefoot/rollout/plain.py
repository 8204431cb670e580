"""The decode step of layers without anything in their projections: fewer and larger operations on the same weights.

Queries, keys and values come out of one product, rotated by one product with complex numbers, for which the features of a
head that are rotated against each other lie side by side. Keys in the cache lie so as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from surefoot.policy.blocks import Block, Blocks
from surefoot.policy.fused import inverse_rms
from surefoot.policy.own_decoder import joined, pairs, plain, turns_of
from surefoot.rollout.repack import RepackedLinear, large


@dataclass(frozen=True)
class Plain:
    """What is made of the weights of a model for the decode steps of one call, since weights change between calls.

    Attributes:
        base: the decoder of Transformers.
        blocks: its layers.
        joined: for each layer, the product that makes queries, keys and values.
        turns: [length, (H + K) D / 2] complex, by position.
    """

    base: Any
    blocks: Blocks
    joined: tuple[Callable[[Tensor], Tensor], ...]
    turns: Tensor

    @classmethod
    def of(cls, base: Any, blocks: Blocks, length: int, *, repack: bool = False) -> Plain | None:
        """For sequences of this length; None where the layers are not plain, or have norms for their heads.

        Args:
            base: the decoder of Transformers.
            blocks: its layers.
            length: of the longest sequence.
            repack: whether large products are repacked, see :mod:`surefoot.rollout.repack`.
        """
        if not cls.fits(base, blocks):
            return None
        return cls(base, blocks, tuple(_joined(block, repack) for block in blocks.layers), turns_of(blocks, length))

    @staticmethod
    def fits(base: Any, blocks: Blocks) -> bool:
        """Whether the layers are plain ones."""
        without_norms = all(block.q_norm is None for block in blocks.layers)
        return without_norms and plain(base, blocks, (nn.Linear, RepackedLinear))

    def heads(self, layer: int, x: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [n, K, r, D], with the factor of the scores in them, keys and values [n, K, D] of tokens [n, d]."""
        block = self.blocks.layers[layer]
        made = self.joined[layer](_normed(block.before_attention, x))
        n, rotated = len(x), (block.heads + block.kv_heads) * block.width
        torch.view_as_complex(made[:, :rotated].unflatten(1, (-1, 2))).mul_(turns)
        every = made.view(n, -1, block.width)
        q, k, v = every.split([block.heads, block.kv_heads, block.kv_heads], dim=1)
        return q.unflatten(1, (block.kv_heads, -1)), k, v

    @staticmethod
    def feed_forward(block: Block, x: Tensor) -> Tensor:
        """x + what the feed-forward part makes of it."""
        normed, mlp = _normed(block.before_mlp, x), block.mlp
        gate = functional.silu(mlp.gate_proj(normed), inplace=True).mul_(mlp.up_proj(normed))
        return added(x, gate, mlp.down_proj)

    @staticmethod
    def in_pairs(prompts: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
        """Keys and values [g, K, P, D] of prompts with their keys in pairs."""
        order = pairs(prompts[0][0].shape[-1], prompts[0][0].device)
        return [(keys.index_select(-1, order), values) for keys, values in prompts]


def added(x: Tensor, part: Tensor, linear: nn.Module) -> Tensor:
    """x + the product of ``part`` with the weight of a layer without bias."""
    if isinstance(linear, nn.Linear):
        return torch.addmm(x, part, linear.weight.t())
    made: Tensor = linear(part)
    return made.add_(x)


def _joined(block: Block, repack: bool) -> Callable[[Tensor], Tensor]:
    weight, bias = joined(block)
    if repack and large(weight):
        return RepackedLinear(weight, bias)
    return partial(functional.linear, weight=weight, bias=bias)


def _normed(norm: Any, x: Tensor) -> Tensor:
    return (x * inverse_rms(x, norm.variance_epsilon)).mul_(norm.weight)
