"""Autocast: float32 weights whose matrix products run in bfloat16.

Products and attention read roundings of weights and activations to bfloat16 and add up in float32; the residual stream,
norms, softmax, losses and the optimiser stay in float32 (Mixed Precision Training, arXiv 1710.03740, with a format whose
range needs no loss scaling). The trainer, the reference, the critic and the engine run under the same autocast: a token
whose log-probability came from a float32 engine would differ from the trainer's by the rounding.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch

from surefoot.errors import ModelError

Autocast = Literal["off", "bfloat16"]
# What a CPU calls its instructions for products of bfloat16 numbers: x86 vectors, x86 tiles, ARM.
INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")


def autocast(kind: Autocast, device: torch.device) -> AbstractContextManager[Any]:
    """A context in which the matrix products on ``device`` run in bfloat16; ``"off"`` leaves everything as it is."""
    if kind == "off":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def no_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """A context in which products run in the dtype of what is multiplied, inside an autocast as well."""
    return torch.autocast(device.type, enabled=False)


def fast_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 numbers itself. A CPU that does not emulates it, many times slower."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        able = torch.cpu.get_capabilities()
        return any(able.get(name, False) for name in INSTRUCTIONS)
    return True


def check_autocast(kind: Autocast, dtype: torch.dtype, device: torch.device) -> None:
    """Warn where bfloat16 products are slow.

    Raises:
        ModelError: the weights are kept in half precision, where autocast has nothing to turn.
    """
    if kind == "off":
        return
    if dtype != torch.float32:
        raise ModelError(
            f"model.autocast = '{kind}' is for weights that are kept in float32, and model.dtype = '{name_of(dtype)}': set "
            f"model.dtype = 'float32', or leave model.autocast out"
        )
    if not fast_bfloat16(device):
        warnings.warn(
            f"model.autocast = '{kind}': this {device.type} device has no instructions for products in bfloat16 and emulates "
            f"them, which can be 40 times slower: leave it out",
            stacklevel=3,
        )


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
