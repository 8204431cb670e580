"""AdamW, its parameter groups and its schedule."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.errors import NonFiniteError
from surefoot.training.config import OptimiserConfig
from surefoot.training.offload import OffloadedAdamW


def make_optimiser(model: nn.Module, config: OptimiserConfig) -> torch.optim.AdamW:
    """AdamW (arXiv 1711.05101) over the trainable parameters; matrices decay, vectors (biases, norms) do not.

    The fused one is the fastest on a CPU as well: it goes through the memory once. With ``optimiser.offload`` a model that is
    not on the CPU has its moments there.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    options: dict[str, Any] = {"lr": config.lr, "betas": (config.beta1, config.beta2), "eps": config.eps, "fused": True}
    if config.offload and all(parameter.device.type == "cpu" for parameter in parameters):
        warnings.warn(
            "optimiser.offload = true changes nothing: the model is on the CPU, and its moments are there already",
            stacklevel=2,
        )
    elif config.offload:
        return OffloadedAdamW(groups, **options)
    return torch.optim.AdamW(groups, **options)


def learning_rate(config: OptimiserConfig, step: int, steps: int) -> float:
    """The rate of a step (1 .. steps): a linear rise over the warm-up, then the schedule down to 0 after the last step."""
    if step <= config.warmup_steps:
        return config.lr * step / config.warmup_steps
    if config.schedule == "constant":
        return config.lr
    progress = (step - 1 - config.warmup_steps) / max(1, steps - config.warmup_steps)
    return config.lr * (1 - progress if config.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * progress)))


def take_step(optimiser: torch.optim.Optimizer, model: nn.Module, *, lr: float, max_grad_norm: float) -> float:
    """Clip the gradient, set the rate, step, and clear. Returns the norm before clipping.

    Raises:
        NonFiniteError: the norm is not finite; neither the weights nor the moments were touched. Or the weights are no
            longer finite after the step, which must not be saved.
    """
    total = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    norm = float(total)
    if not math.isfinite(norm):  # before clipping, which would spread it over all parameters
        where = next(
            (name for name, p in model.named_parameters() if p.grad is not None and not _all_finite(p.grad)), ""
        )
        optimiser.zero_grad(set_to_none=True)
        raise NonFiniteError(
            f"the gradient norm is {norm}{f' (the gradient of {where})' if where else ''}; no step was taken: lower "
            "optimiser.lr or look at the last samples"
        )
    nn.utils.clip_grads_with_norm_(model.parameters(), max_grad_norm, total)
    for group in optimiser.param_groups:
        group["lr"] = lr
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    if not finite(model):
        where = next(name for name, p in model.named_parameters() if not _all_finite(p))
        raise NonFiniteError(
            f"the weights are not finite ({where}) after a step at the learning rate {lr:g}, and nothing of this step is saved: "
            "lower optimiser.lr"
        )
    return norm


@torch.no_grad()
def finite(model: nn.Module) -> bool:
    """Whether all weights are. Their norm tells it many times faster than a look at each, unless it overflows itself."""
    parameters = list(model.parameters())
    if bool(nn.utils.get_total_norm(parameters).isfinite()):
        return True
    return all(_all_finite(parameter) for parameter in parameters)


def _all_finite(value: Tensor) -> bool:
    return bool(value.detach().isfinite().all())
