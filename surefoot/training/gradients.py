"""Gradients of an optimiser step, with that of the policy term kept apart where it is measured."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Gradients:
    """Adds up the gradients of micro-batches.

    The sum of all terms lands in ``.grad``. Where the policy term is measured and there are others, these go into buffers
    of their own until :meth:`join`, at the price of a second backward pass and one more copy of the gradient.

    Args:
        model: whose parameters learn.
        apart: whether to keep the other terms apart.
    """

    def __init__(self, model: nn.Module, *, apart: bool) -> None:
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.apart = apart
        self.others: list[Tensor | None] = []
        self.mixed = False

    def add(self, policy: Tensor, others: Sequence[Tensor]) -> None:
        """Backward of a micro-batch: the policy term, and the other terms of its loss; all scalars of one graph."""
        if not others:
            policy.backward()
            return
        rest = torch.stack([term.to(policy.dtype) for term in others]).sum()
        if not self.apart:
            self.mixed = True
            (policy + rest).backward()
            return
        policy.backward(retain_graph=True)
        kept = [parameter.grad for parameter in self.parameters]
        for parameter, other in zip(self.parameters, self.others or [None] * len(kept), strict=True):
            parameter.grad = other
        rest.backward()
        self.others = [parameter.grad for parameter in self.parameters]
        for parameter, mine in zip(self.parameters, kept, strict=True):
            parameter.grad = mine

    def policy_norm(self) -> float | None:
        """Global norm of the policy term's gradient; None where it is mixed with others and cannot be told."""
        if self.mixed:
            return None
        norms = [p.grad.norm() for p in self.parameters if p.grad is not None]
        return float(torch.stack(norms).norm()) if norms else 0.0

    def join(self) -> None:
        """Add what was kept apart to ``.grad``."""
        for parameter, other in zip(self.parameters, self.others, strict=False):
            if other is not None:
                parameter.grad = other if parameter.grad is None else parameter.grad.add_(other)
        self.others = []
