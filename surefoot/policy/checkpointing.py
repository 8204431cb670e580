"""Activation checkpointing: layers keep their input and compute the rest again in the backward pass.

Memory for activations falls to one hidden state per layer and token, for one more forward pass of time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from surefoot.errors import ModelError
from surefoot.policy.stream import Stream
from surefoot.policy.stream_attention import AttentionOf


def set_checkpointing(model: Any, path: str) -> None:
    """Mark the layers of a model; :func:`checkpointed` obeys.

    Raises:
        ModelError: the model has no layers that can be checkpointed.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ModelError(
            f"model.checkpointing = true, but {type(model).__name__} (model.path = '{path}') has no layers that can be "
            f"computed again: leave it out, and lower train.micro_batch_tokens instead"
        )
    for layer in layers:
        layer.gradient_checkpointing = True


@contextmanager
def checkpointed(base: Any, stream: Stream | None = None) -> Iterator[None]:
    """Within, marked layers of the decoder ``base`` are checkpointed, where there is a gradient.

    Transformers checkpoints layers in training mode alone. This is a flag of the layer itself here: its parts, and with
    them whatever training mode means to them, stay as they are.

    Args:
        base: the decoder.
        stream: whose attention the layers need when they are computed again.
    """
    layers: list[Any] = []
    if torch.is_grad_enabled():
        layers = [m for m in base.modules() if isinstance(m, GradientCheckpointingLayer) and m.gradient_checkpointing]

    def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        return nullcontext(), AttentionOf(base, stream)

    for layer in layers:
        layer.training = True
        layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False, context_fn=contexts)
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False
            del layer._gradient_checkpointing_func
