"""Compiled layers: ``torch.compile`` of the decoder layers in the passes of the trainer.

The layers of a model have the same code, so that one of them is compiled and all run the result. Lengths are symbols in
it: micro-batches of any shape share the graphs. Attention of a stream (:mod:`surefoot.policy.stream_attention`) has tables that
differ from one micro-batch to the next, and stays as it is, between two graphs. The engine is not compiled.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from surefoot.errors import ModelError
from surefoot.policy.stream_attention import NAME, attend

BACKEND = "inductor"
# Graphs that one piece of code may have. It has one for each combination of: a single row or several, with a gradient or
# without, weights that learn or frozen ones, kinds of layers (two at most). Past the limit something that should not be
# is part of what a graph was made for, and compiling again and again costs more than it gives.
GRAPHS = 32


def set_compile(model: Any, path: str, device: torch.device) -> None:
    """Mark the layers of a model; :func:`compiled` obeys. Copies of the model are marked as well.

    Raises:
        ModelError: the model has no layers that can be compiled, or there is no compiler.
    """
    layers: list[Any] = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    if not layers:
        raise ModelError(
            f"model.compile = true, but {type(model).__name__} (model.path = '{path}') has no layers that can be compiled one "
            f"by one: leave it out"
        )
    refuse_without_compiler(device)
    import torch._functorch.config as functorch

    # Where the policy term is measured apart, a graph has two backward passes: the first must not give its memory away. It is
    # asked for when a backward pass is compiled, which may be at any time.
    functorch.donated_buffer = False
    for layer in layers:
        layer.surefoot_compile = True


def refuse_without_compiler(device: torch.device) -> None:
    """Raise ModelError where nothing can turn graphs into programs for the device."""
    if device.type == "cuda":
        if importlib.util.find_spec("triton") is None:
            raise ModelError("model.compile = true on CUDA needs Triton, which is not installed: leave it out")
        return
    name = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(name.split()[0]) is None:
        raise ModelError(
            f"model.compile = true needs a C++ compiler, and '{name}' is not found: install one, name it in the environment "
            f"variable CXX, or leave model.compile out"
        )


def is_compiled(base: Any) -> bool:
    """Whether layers of the decoder ``base`` run compiled."""
    return any(getattr(layer, "surefoot_compile", False) for layer in base.modules())


@contextmanager
def compiled(base: Any) -> Iterator[None]:
    """Within, marked layers of the decoder ``base`` run compiled. A checkpointed layer is computed again compiled, too."""
    layers = [module for module in base.modules() if getattr(module, "surefoot_compile", False)]
    if not layers:
        yield
        return
    import torch._dynamo.config as dynamo

    with dynamo.patch(recompile_limit=GRAPHS, fail_on_recompile_limit_hit=True):
        for layer in layers:
            layer.forward = partial(_forward, layer, layers)
        try:
            yield
        finally:
            for layer in layers:
                del layer.forward


def _forward(layer: Any, layers: list[Any], *args: Any, **options: Any) -> Any:
    run = partial(_compiled_or_plain, layer, layers, **options)
    if layer.gradient_checkpointing and layer.training and torch.is_grad_enabled():
        return layer._gradient_checkpointing_func(run, *args)
    return run(*args)


def _compiled_or_plain(layer: Any, layers: list[Any], *args: Any, **options: Any) -> Any:
    from torch._dynamo.exc import FailOnRecompileLimitHit

    if layer.surefoot_compile:
        try:
            return _runner(BACKEND)(layer, *args, **options)
        except FailOnRecompileLimitHit:
            warnings.warn(
                f"model.compile: the layers of {type(layer).__name__} were compiled {GRAPHS} times and still do not fit what "
                f"they are given: they run uncompiled from here on",
                stacklevel=2,
            )
            for each in layers:
                each.surefoot_compile = False
    return _plain(layer, *args, **options)


def _plain(layer: Any, *args: Any, **options: Any) -> Any:
    """The layer's own forward. The one of its class looks for checkpointing first, which is seen to above."""
    return type(layer).forward.__wrapped__(layer, *args, **options)


@cache
def _runner(backend: str) -> Callable[..., Any]:
    ALL_ATTENTION_FUNCTIONS.register(NAME, torch.compiler.disable(attend))
    # The layer is an argument: its weights then are inputs of the graph, which all layers and copies of a model share.
    run: Callable[..., Any] = torch.compile(_plain, dynamic=True, backend=backend)
    return run
