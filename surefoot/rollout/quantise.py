"""A model with its matrix products in 8-bit integers, for sampling alone.

Weights are rounded to int8 with one scale for each output. Activations have a few features far larger than the others,
so that 8 bits for the whole range lose the small ones: what rounding leaves over is rounded and multiplied again, which
makes 16 bits, and is still faster than float32. Each token has a scale of its own; one for the whole batch, as
PyTorch's dynamic quantisation has it, would make a sample depend on the samples beside it.

The copy shares everything but the weights of its linear layers with the model, and is made anew for every version of
them. What is sampled has the log-probabilities of the rounded model, so that the distance between engine and trainer
shows in the mismatch metrics, and ``algorithm.correction`` applies to it. The head and the embedding stay as they are.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.errors import ConfigError
from surefoot.policy.lora import Adapted


class Int8Linear(nn.Module):
    """``x @ weight.T + bias`` with rounded weights, [..., in] to [..., out] in float32."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        scale = (weight.abs().amax(dim=1) / 127).clamp_(min=1e-30)
        self.weight_t = (weight / scale[:, None]).round_().to(torch.int8).t()  # [in, out]
        self.scale, self.bias = scale, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        n, scale = len(rows), (rows.abs().amax(dim=-1, keepdim=True) / 127).clamp_(min=1e-30)
        rows = rows / scale
        first = rows.round()
        rest = rows.sub_(first).mul_(254).round_()  # what is left over of a step is within half of it
        product = torch._int_mm(torch.cat([first, rest]).to(torch.int8), self.weight_t).to(torch.float32)
        made = product[:n].add(product[n:], alpha=1 / 254).mul_(scale).mul_(self.scale)
        if self.bias is not None:
            made += self.bias
        return made.view(*x.shape[:-1], -1)


def quantised(model: Any) -> Any:
    """The model with the linear layers of its decoder rounded; the model itself is left as it is.

    Raises:
        ConfigError: the model is not a float32 one on the CPU, or has no linear layers but its head.
    """
    if model.device.type != "cpu" or model.dtype != torch.float32:
        raise ConfigError(
            f"rollout.quantise = 'int8' is for float32 models on the CPU, this one is {model.dtype} on {model.device}: "
            f"leave rollout.quantise at 'none'"
        )
    with torch.no_grad():
        made = _copy(model, model.get_output_embeddings())
    if not any(isinstance(module, Int8Linear) for module in made.modules()):
        raise ConfigError(
            f"rollout.quantise = 'int8' finds no linear layer in {type(model).__name__}: leave it at 'none'"
        )
    return made


def _copy(module: nn.Module, head: Any) -> nn.Module:
    if module is head:
        return module
    if isinstance(module, Adapted):
        module = module.merged()
    if type(module) is nn.Linear:
        return Int8Linear(module)
    made = copy.copy(module)
    made._modules = {name: None if part is None else _copy(part, head) for name, part in module._modules.items()}
    return made
