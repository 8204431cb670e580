"""AdamW with its state in the memory of the host, for models whose device has none to spare.

Two moments of float32 take twice the memory of float32 weights. Here they never are on the device: gradients go to the
host, the step is taken there, and the new weights come back (ZeRO-Offload, arXiv 2101.06840). A step moves three numbers
for each weight, whatever the moments take, and computes what the same AdamW computes on the host. On the host lie the
two moments, a copy of the weights and one of the gradients; the copies are in pinned memory, which the device reads and
writes by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class OffloadedAdamW(torch.optim.AdamW):
    """AdamW that steps on copies of the weights.

    Its state is that of AdamW over weights on the host: a run state made with it can be resumed without it, and the other
    way round. The weights themselves are read anew at every step, so that whoever else changes them (a resume, a reset) need
    not know of the copies.

    Args:
        groups: parameter groups; the parameters stay where they are and keep their gradients there.
        host: device of the copies and the moments.
        options: of ``torch.optim.AdamW``.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], *, host: torch.device | str = "cpu", **options: Any) -> None:
        self.learning: list[Tensor] = [parameter for group in groups for parameter in group["params"]]
        copied = [group | {"params": [copy_on(parameter, host) for parameter in group["params"]]} for group in groups]
        super().__init__(copied, **options)

    @property
    def copies(self) -> list[Tensor]:
        return [copy for group in self.param_groups for copy in group["params"]]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Gradients to the host, AdamW there, weights back. Gradients are left to :meth:`zero_grad`."""
        if closure is not None:
            raise ValueError("an offloaded step takes no closure: the gradients are computed beforehand")
        for parameter, copy in zip(self.learning, self.copies, strict=True):
            if parameter.grad is None:
                copy.grad = None
                continue
            copy.copy_(parameter, non_blocking=True)
            if copy.grad is None:
                copy.grad = copy_on(parameter.grad, copy.device)
            copy.grad.copy_(parameter.grad, non_blocking=True)
        self._wait()
        super().step()
        for parameter, copy in zip(self.learning, self.copies, strict=True):
            if copy.grad is not None:
                parameter.copy_(copy, non_blocking=True)
        # The next step writes into the copies, and until then somebody may read the weights on another stream.
        self._wait()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients on the device; the memory of those on the host is kept for the next step."""
        for parameter in self.learning:
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()

    def _wait(self) -> None:
        for device in {parameter.device for parameter in self.learning if parameter.device.type == "cuda"}:
            torch.cuda.synchronize(device)


def copy_on(tensor: Tensor, host: torch.device | str) -> Tensor:
    """Memory for a copy on the host, pinned where the tensor is on CUDA; its values are not copied."""
    pinned = tensor.device.type == "cuda" and torch.device(host).type == "cpu"
    made = torch.empty(tensor.shape, dtype=tensor.dtype, device=host, pin_memory=pinned)
    return nn.Parameter(made) if isinstance(tensor, nn.Parameter) else made
