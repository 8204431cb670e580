"""What becomes of completions that the budget cut. A part returns two masks [B]: in the baseline, in the loss."""

from __future__ import annotations

import torch
from torch import Tensor

from surefoot.algorithms.part import part
from surefoot.algorithms.table import RewardTable


@part("truncated", "", "", "idle")
def keep(table: RewardTable) -> tuple[Tensor, Tensor]:
    """Cut completions are treated like all others."""
    everything = torch.ones_like(table.valid)
    return everything, everything


@part(
    "truncated",
    "completions that the budget cut: in the baseline, in no loss and no denominator",
    r"\text{{completions that the budget cut: in the baseline, in no loss and no denominator}}",
)
def mask_loss(table: RewardTable) -> tuple[Tensor, Tensor]:
    """The tokens of cut completions leave the loss, their rewards stay in the baseline of the prompt's other samples.

    DAPO's overlong filtering (arXiv 2503.14476), which its final recipe replaces by a penalty (``soft_overlong``).
    """
    return torch.ones_like(table.valid), _whole(table)


@part(
    "truncated",
    "completions that the budget cut: left out",
    r"\text{{completions that the budget cut: left out}}",
)
def drop(table: RewardTable) -> tuple[Tensor, Tensor]:
    """Cut completions are in no baseline, no loss and no denominator, as if they had not been sampled.

    The baseline is then that of the completions that end in time: nothing teaches the policy to end.
    """
    return _whole(table), _whole(table)


def _whole(table: RewardTable) -> Tensor:
    """[B] bool, rows that the budget did not cut."""
    return torch.ones_like(table.valid) if table.truncated is None else ~table.truncated
