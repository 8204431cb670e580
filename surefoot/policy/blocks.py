"""A decoder read as blocks: the model's own modules and parameters, in the order in which a token needs them.

Nothing is copied. The projections, norms and feed-forward parts are the model's modules and are called as such, so
that weights which change at every step, tied weights and adapters inside a projection need no further care; what is
our own is the order of the calls, the rotation of queries and keys, the cache and the attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# Architectures whose attention is written down here, as Transformers calls them. Others may look the same and differ
# in a place that a few tokens do not show (a window, a position that is left out), so that they are not taken.
KNOWN = frozenset({"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"})
# Kinds of rotary embedding whose angles depend on the position alone, not on the length of the sequence.
FIXED_ROTATIONS = frozenset({"default", "linear", "llama3", "yarn"})


@dataclass(frozen=True)
class Block:
    """One decoder layer.

    Attributes:
        attention: the module with ``q_proj``, ``k_proj``, ``v_proj``, ``o_proj``.
        mlp: the feed-forward part.
        before_attention: norm of what the attention reads.
        before_mlp: norm of what the feed-forward part reads.
        after_attention: norm of what the attention gives (Gemma 2 and 3), or None.
        after_mlp: norm of what the feed-forward part gives (Gemma 2 and 3), or None.
        q_norm: norm of each head's query (Qwen 3, Gemma 3), or None.
        k_norm: norm of each head's key, or None.
        heads: query heads.
        kv_heads: heads of keys and values; each serves ``heads / kv_heads`` query heads.
        width: features of a head.
        scale: factor of the scores.
        softcap: bound of the scores (Gemma 2), or None.
        window: how far back a token looks, itself included; None: to the beginning.
        rotation: which table of angles it uses.
    """

    attention: Any
    mlp: Any
    before_attention: Any
    before_mlp: Any
    after_attention: Any
    after_mlp: Any
    q_norm: Any
    k_norm: Any
    heads: int
    kv_heads: int
    width: int
    scale: float
    softcap: float | None
    window: int | None
    rotation: str

    @property
    def projections(self) -> tuple[Any, Any, Any]:
        """Of queries, keys and values."""
        return self.attention.q_proj, self.attention.k_proj, self.attention.v_proj


@dataclass(frozen=True)
class Blocks:
    """What lies between token ids and the last hidden state."""

    embedding: Any
    layers: tuple[Block, ...]
    norm: Any
    rotary: Any

    @property
    def windows(self) -> set[int | None]:
        return {block.window for block in self.layers}

    def angles(self, rotation: str, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines [length, width] of the positions from 0 on, in the dtype of the weights.

        ``x * cos + x.roll(width / 2) * sin`` then rotates the two halves of a head against each other.
        """
        weight = self.embedding.weight
        positions = torch.arange(length, device=weight.device)[None]
        named = () if rotation == "" else (rotation,)
        cos, sin = self.rotary(weight.new_empty(1), positions, *named)
        sin = sin[0].clone()
        sin[:, : sin.shape[-1] // 2].neg_()
        return cos[0], sin


def read_blocks(base: Any) -> Blocks | None:
    """The blocks of a decoder of Transformers (without its head), or None where it is not of a known architecture."""
    config = base.config.get_text_config(decoder=True)
    if config.model_type not in KNOWN or getattr(config, "use_bidirectional_attention", None):
        return None
    rotary = getattr(base, "rotary_emb", None)
    kinds = getattr(rotary, "rope_type", None)
    if not {*(kinds.values() if isinstance(kinds, dict) else [kinds])} <= FIXED_ROTATIONS:
        return None
    try:
        layers = tuple(_block(layer, config) for layer in base.layers)
        return Blocks(base.embed_tokens, layers, base.norm, rotary)
    except AttributeError:  # a variant of the architecture with other parts
        return None


def _block(layer: Any, config: Any) -> Block:
    attention = layer.self_attn
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        getattr(attention, name)
    sandwich = hasattr(layer, "pre_feedforward_layernorm")
    # Mistral keeps the window of all its layers in the configuration, the others each layer's own.
    window = config.sliding_window if config.model_type == "mistral" else getattr(attention, "sliding_window", None)
    by_kind = isinstance(getattr(layer.self_attn, "layer_type", None), str) and config.model_type == "gemma3_text"
    return Block(
        attention=attention,
        mlp=layer.mlp,
        before_attention=layer.input_layernorm,
        before_mlp=layer.pre_feedforward_layernorm if sandwich else layer.post_attention_layernorm,
        after_attention=layer.post_attention_layernorm if sandwich else None,
        after_mlp=layer.post_feedforward_layernorm if sandwich else None,
        q_norm=getattr(attention, "q_norm", None),
        k_norm=getattr(attention, "k_norm", None),
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        width=attention.head_dim,
        scale=float(attention.scaling),
        softcap=getattr(attention, "attn_logit_softcapping", None),
        window=window,
        rotation=attention.layer_type if by_kind else "",
    )
