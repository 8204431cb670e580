"""The passes of a model on repacked weights (:mod:`surefoot.rollout.repack`), proved before they are used."""

from __future__ import annotations

from typing import Any

import torch

from surefoot.policy.head import agrees, probe
from surefoot.policy.layout import decoder
from surefoot.rollout.decode import PROBE_LENGTH, Decoder, proved
from surefoot.rollout.plain import Plain
from surefoot.rollout.repack import gains, repacked


def repacked_passes(model: Any, made: Decoder | None) -> tuple[Any, Decoder | None]:
    """A copy of the model, for prompts, and a decoder on it; both are of use as long as the weights stay as they are.

    Args:
        model: a Transformers causal language model.
        made: its decoder, if it has one.
    """
    # Queries, keys and values that are joined to one product are repacked as that one.
    joins = made is not None and Plain.fits(decoder(model), made.blocks)
    leave = {part for block in made.blocks.layers for part in block.projections} if made is not None and joins else ()
    copied = repacked(model, leave)
    return copied, None if made is None else made.on(copied, repack=True)


def repacking_agrees(model: Any, made: Decoder | None) -> bool:
    """Whether anything would be repacked, and gives on a few tokens what the model gives itself."""
    if not gains(model):
        return False
    with torch.inference_mode():
        try:
            copied, own = repacked_passes(model, made)
            (_, ours), (_, theirs) = probe(copied), probe(model)
        except AttributeError:  # a model that reads the weight of a layer
            return False
        if own is None or not agrees(ours, theirs):
            return own is None and agrees(ours, theirs)
        own.begin(decoder(copied), PROBE_LENGTH)
        return proved(model, own)
