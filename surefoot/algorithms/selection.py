"""Selection: which rows of the batch stay. Rows that leave are in no baseline, no loss and no denominator."""

from __future__ import annotations

import torch
from torch import Tensor

from surefoot.algorithms.part import part
from surefoot.algorithms.tokens import RewardTable


@part("selection", "all groups", r"\text{{all groups}}")
def keep(table: RewardTable) -> Tensor:
    """Every row stays: a group with equal rewards has advantage 0 and still counts in the denominators."""
    return torch.ones_like(table.valid)


@part("selection", "groups whose rewards are not all equal", r"\text{{groups with }}\operatorname{{std}}_g(r) > 0")
def drop_no_signal(table: RewardTable) -> Tensor:
    """Groups without signal leave the batch, which shrinks (ScaleRL's zero-variance filter, arXiv 2510.13786)."""
    return table.signal()[table.group]
