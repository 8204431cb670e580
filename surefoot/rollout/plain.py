"""The decode step of layers without anything in their projections: fewer and larger operations on the same weights.

Queries, keys and values come out of one product, rotated by one product with complex numbers, for which the features of a
head that are rotated against each other lie side by side. Keys in the cache lie so as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from surefoot.policy.blocks import Block, Blocks
from surefoot.policy.fused import inverse_rms
from surefoot.policy.own_decoder import joined, pairs, plain, turns_of


@dataclass(frozen=True)
class Plain:
    """What is made of the weights of a model for the decode steps of one call, since weights change between calls.

    Attributes:
        base: the decoder of Transformers.
        blocks: its layers.
        joined: for each layer, weight and bias of queries, keys and values.
        turns: [length, (H + K) D / 2] complex, by position.
    """

    base: Any
    blocks: Blocks
    joined: tuple[tuple[Tensor, Tensor | None], ...]
    turns: Tensor

    @classmethod
    def of(cls, base: Any, blocks: Blocks, length: int) -> Plain | None:
        """For sequences of this length; None where the layers are not plain, or have norms for their heads."""
        if not plain(base, blocks) or any(block.q_norm is not None for block in blocks.layers):
            return None
        return cls(base, blocks, tuple(joined(block) for block in blocks.layers), turns_of(blocks, length))

    def heads(self, layer: int, x: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [n, K, r, D], with the factor of the scores in them, keys and values [n, K, D] of tokens [n, d]."""
        block, (weight, bias) = self.blocks.layers[layer], self.joined[layer]
        made = functional.linear(_normed(block.before_attention, x), weight, bias)
        n, rotated = len(x), (block.heads + block.kv_heads) * block.width
        torch.view_as_complex(made[:, :rotated].unflatten(1, (-1, 2))).mul_(turns)
        every = made.view(n, -1, block.width)
        q, k, v = every.split([block.heads, block.kv_heads, block.kv_heads], dim=1)
        return q.unflatten(1, (block.kv_heads, -1)), k, v

    @staticmethod
    def feed_forward(block: Block, x: Tensor) -> Tensor:
        """x + what the feed-forward part makes of it."""
        normed, mlp = _normed(block.before_mlp, x), block.mlp
        gate = functional.silu(functional.linear(normed, mlp.gate_proj.weight), inplace=True)
        gate.mul_(functional.linear(normed, mlp.up_proj.weight))
        return torch.addmm(x, gate, mlp.down_proj.weight.t())

    @staticmethod
    def in_pairs(prompts: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
        """Keys and values [g, K, P, D] of prompts with their keys in pairs."""
        order = pairs(prompts[0][0].shape[-1], prompts[0][0].device)
        return [(keys.index_select(-1, order), values) for keys, values in prompts]


def _normed(norm: Any, x: Tensor) -> Tensor:
    return (x * inverse_rms(x, norm.variance_epsilon)).mul_(norm.weight)
