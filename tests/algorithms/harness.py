"""Worked cases (rows [B, T] with a mask) as the flat tokens that the objectives take, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.loss import policy_loss
from surefoot.algorithms.table import RewardTable
from surefoot.algorithms.tokens import Tokens
from surefoot.batches import Totals

CASES: dict[str, dict[str, Any]] = {
    case["id"]: case for case in json.loads((Path(__file__).parent / "golden.json").read_text(encoding="utf-8"))
}


def number(value: Any) -> Any:
    if isinstance(value, str):
        return float(value)
    return [number(item) for item in value] if isinstance(value, list) else value


def tensor(value: Any, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(number(value), dtype=dtype)


def table(rewards: Any, group: list[int] | None = None, lengths: Any = None, **memory: float) -> RewardTable:
    reward = tensor(rewards)
    return RewardTable(
        reward=reward,
        valid=reward.isfinite(),
        group=torch.tensor(group if group is not None else [0] * len(reward)),
        length=torch.ones_like(reward) if lengths is None else tensor(lengths),
        memory=dict(memory),
    )


class Rows:
    """Rows [B, T] of log-probabilities with a mask; everything outside the mask is garbage that must not matter."""

    def __init__(
        self, mask: Any, groups: list[int] | None = None, constant: float = 1.0, dtype: torch.dtype = torch.float64
    ):
        self.mask = tensor(mask).bool()
        self.dtype = dtype
        self.group = torch.tensor(groups if groups is not None else list(range(len(self.mask))))
        self.lengths = self.mask.sum(1).double()
        self.group_tokens = torch.zeros(int(self.group.max()) + 1, dtype=torch.float64).index_add(
            0, self.group, self.lengths
        )
        filled = self.lengths > 0
        self.totals = Totals(
            tokens=float(self.lengths.sum()),
            sequences=float(filled.sum()),
            groups=float(len(self.group[filled].unique())),
            constant=constant,
        )

    def flat(self, value: Any, rows: list[int] | None = None) -> Tensor:
        value = value if isinstance(value, Tensor) else tensor(value)
        value = value.to(self.dtype)
        if value.dim() == 1:
            value = value[:, None].expand(self.mask.shape)
        return value[rows][self.mask[rows]] if rows is not None else value[self.mask]

    def tokens(self, logp: Tensor, advantage: Any, rows: list[int] | None = None, **streams: Any) -> Tokens:
        mask = self.mask if rows is None else self.mask[rows]
        row = torch.arange(len(mask))[:, None].expand(mask.shape)[mask]
        flat_logp = self.flat(logp, rows)
        values = {name: self.flat(value, rows) for name, value in streams.items()}
        index = slice(None) if rows is None else rows
        return Tokens(
            logp=flat_logp,
            logp_old=values.get("logp_old", flat_logp.detach()),
            logp_behaviour=values.get("logp_behaviour", values.get("logp_old", flat_logp.detach())),
            advantage=self.flat(advantage, rows),
            row=row,
            loss_tokens=self.lengths[index],
            group_tokens=self.group_tokens[self.group][index],
            logp_reference=values.get("logp_reference"),
        )

    def loss(self, algorithm: Algorithm, logp: Any, advantage: Any, **streams: Any) -> tuple[float, Tensor]:
        """The loss and its gradient [B, T] with respect to the log-probabilities."""
        leaf = tensor(logp).to(self.dtype).requires_grad_()
        value, _ = policy_loss(algorithm, self.tokens(leaf, advantage, **streams), self.totals)
        value.backward()
        assert leaf.grad is not None
        return float(value.detach()), leaf.grad
