"""Resets during a run: the reference becomes the policy, the optimiser starts afresh (ProRL, arXiv 2505.24864)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from surefoot.algorithms.reset import Course
from surefoot.policy.lora import own_parameters
from surefoot.training.learner import Learner
from surefoot.training.state import RunState


def reset_if_due(learner: Learner, state: RunState, evaluations: Sequence[Mapping[str, Any]]) -> bool:
    """Reset what the algorithm says, where it says that now is the time. Returns whether it did.

    Args:
        learner: whose reference and optimiser are reset.
        state: of the run; it remembers when.
        evaluations: records of the held-out evaluations so far, with ``step`` and ``accuracy``.
    """
    part = learner.algorithm.reset
    if "idle" in part.kind.traits:
        return False
    course = Course(state.step, state.reset_step, [(record["step"], record["accuracy"]) for record in evaluations])
    if not part(course):
        return False
    if part.reference and learner.reference is not None:
        _mix(learner.reference.model, learner.policy.model, part.alpha)
        state.reference_step = state.step
    if part.optimiser:
        for optimiser in learner.optimisers().values():
            optimiser.state.clear()
    state.reset_step = state.step
    state.resets += 1
    return True


@torch.no_grad()
def _mix(reference: torch.nn.Module, policy: torch.nn.Module, alpha: float) -> None:
    """reference <- alpha policy + (1 - alpha) reference; with adapters alpha is 1, and the base is common to both."""
    ours, theirs = own_parameters(reference), own_parameters(policy)
    for name, old in ours.items():
        new = theirs[name]
        old.copy_(new if alpha == 1 else alpha * new + (1 - alpha) * old)
