"""Weights in the order in which the processor's matrix products read them, for as long as one call generates.

A product reads its weight in blocks. Where it has few rows, putting the weight into blocks takes as long as multiplying,
and a decode step does it again for every token. oneDNN can do it once and multiply with the result, whatever the number of
rows. The values are the same; the order in which a product adds up is not, so results differ by rounding.

The blocks are a copy of the weights. It is made from the weights as they are when a call begins, and dropped at its end:
nothing is ever stale, and training does not have it in memory. A call that makes few tokens does not pay for it.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from surefoot.policy.head import Head, finish
from surefoot.policy.lora import Adapted
from surefoot.rollout.engine import Request

# Smaller products gain nothing: they are fast without, and calling the library takes 10 microseconds more. Measured with
# 4 to 512 rows on one thread: 1.1 to 1.6 times from here on, 0.7 to 1.1 at half of it.
LEAST_WEIGHTS = 2**17
# Repacking costs as much as 3 (a head of 49,152 tokens) to 12 decode steps gain, with 2 rows or more.
LEAST_STEPS = 16
LEAST_TOKENS = 64 * LEAST_STEPS
# The number of rows that the order is chosen for; others are as fast with it.
ROWS = 64


class RepackedLinear(nn.Module):
    """``x @ weight.T + bias``, [..., in] to [..., out] float32, without gradients.

    Args:
        weight: [out, in] float32, on the CPU. It is copied; later changes do not show.
        bias: [out] or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)
        self.bias = None if bias is None else bias.detach().contiguous()  # other strides are not looked at
        self.out_features, self.in_features = weight.shape

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return made


@dataclass(frozen=True)
class RepackedHead(Head):
    """A head whose module is a :class:`RepackedLinear`."""

    def logits(self, hidden: Tensor) -> Tensor:
        return finish(self.module(hidden), self.scale, self.softcap)


def repacked_head(head: Head, model: Any) -> Head:
    """The head on a copy of its model: on repacked weights where the copy has them."""
    module = model.get_output_embeddings()
    return RepackedHead(module, head.scale, head.softcap) if isinstance(module, RepackedLinear) else head


def large(weight: Tensor) -> bool:
    """Whether a product with this weight is faster repacked."""
    return weight.numel() >= LEAST_WEIGHTS and weight.dtype == torch.float32 and weight.device.type == "cpu"


def pays(requests: Sequence[Request]) -> bool:
    """Whether a call makes enough tokens, if it uses its budgets, for repacking to be worth its time."""
    rows = sum(len(request.seeds) for request in requests)
    steps = max((request.sampling.max_new_tokens for request in requests), default=0)
    tokens = sum(len(request.seeds) * request.sampling.max_new_tokens for request in requests)
    return rows > 1 and (steps >= LEAST_STEPS or tokens >= LEAST_TOKENS)


def gains(model: Any) -> bool:
    """Whether anything of the model would be repacked, on this machine and this build of PyTorch."""
    return any(_takes(module) for module in model.modules()) and available()


@cache
def available() -> bool:
    """Whether PyTorch has these products, and they are right."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    draw = torch.Generator().manual_seed(0)
    weight, x = torch.randn(96, 64, generator=draw), torch.randn(65, 64, generator=draw)
    try:
        with torch.inference_mode():
            made = RepackedLinear(weight, weight[:, 0])
            expected = functional.linear(x, weight, weight[:, 0])
            return all(torch.allclose(made(x[:n]), expected[:n], atol=1e-3) for n in (1, 2, 64, 65))
    except (RuntimeError, AttributeError, NotImplementedError):
        return False


def repacked(model: Any, leave: Collection[nn.Module] = ()) -> Any:
    """The model with its large linear layers, adapters within them and the head repacked; it shares everything else.

    The copy is for passes without gradients. Modules that are in training mode are so in the copy.

    Args:
        model: a Transformers model, which is left as it is.
        leave: modules that stay as they are.
    """
    if model in leave:
        return model
    if _takes(model):
        linear = model.merged() if isinstance(model, Adapted) else model
        return RepackedLinear(linear.weight, linear.bias)
    made = copy.copy(model)
    made._modules = {name: None if part is None else repacked(part, leave) for name, part in model._modules.items()}
    return made


def _takes(module: nn.Module) -> bool:
    """Layers that are nothing but a product. A hook must see its module, and wants it to be called."""
    if type(module) is not nn.Linear and not (isinstance(module, Adapted) and not module.transposed):
        return False
    return large(module.weight) and not module._forward_hooks and not module._forward_pre_hooks
