"""Several rewards, normalised apart before they are added (GDPO, arXiv 2601.05242)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from surefoot.algorithms.advantages import _over_std, group_norm
from surefoot.algorithms.part import part
from surefoot.algorithms.tokens import RewardTable
from surefoot.errors import AlgorithmError

WHITENING_EPS = 1e-8  # what token-weighted whitening adds to the variance, here and elsewhere


@part(
    "advantage",
    "A_i = batch_norm(sum_k w_k (r^k_i - mean_group(r^k)) / (std_group(r^k) + {eps:g}))",
    r"A_i = \operatorname{{norm}}_{{\text{{batch}}}}"
    r"\Big(\sum_k w_k\frac{{r^k_i - \bar r^k_g}}{{\operatorname{{std}}_g(r^k) + {eps:g}}}\Big)",
    "group",
)
def decoupled(
    table: RewardTable,
    *,
    weights: dict[str, float] | None = None,
    conditions: dict[str, str] | None = None,
    threshold: float = 1.0,
    ddof: Literal[0, 1] = 1,
    eps: Annotated[float, Field(ge=0)] = 1e-6,
    weighting: Literal["rows", "tokens"] = "rows",
) -> Tensor:
    """Each named reward is standardised in its group, then they are added with weights and normalised over the batch.

    ``weights`` names the components of the reward that count (None: all, with weight 1). ``conditions`` maps a component to
    another that must reach ``threshold`` for it to count: an easy reward then cannot be had without the hard one.
    ``weighting`` says what the batch normalisation averages over.

    Raises:
        AlgorithmError: a component that the reward does not have.
    """
    weights = weights or dict.fromkeys(table.components, 1.0)
    for name in (*weights, *(conditions or {}), *(conditions or {}).values()):
        if name not in table.components:
            raise AlgorithmError(
                f"the advantage 'decoupled' names the reward '{name}', and the rewards have: "
                f"{', '.join(sorted(table.components)) or 'no components'}"
            )
    total = torch.zeros_like(table.reward)
    for name, weight in weights.items():
        value = conditioned(table, name, (conditions or {}).get(name), threshold)
        part_of = replace(table, reward=value, valid=table.valid & value.isfinite())
        total = total + weight * group_norm.fn(part_of, ddof=ddof, eps=eps)
    return _batch_norm(total, table, ddof, eps, weighting)


def conditioned(table: RewardTable, name: str, condition: str | None, threshold: float) -> Tensor:
    """[B], a component, 0 where the one that it depends on stays below the threshold."""
    value = table.components[name].to(table.reward.dtype)
    if condition is None:
        return value
    return torch.where(table.components[condition] >= threshold, value, torch.zeros_like(value))


def _batch_norm(value: Tensor, table: RewardTable, ddof: int, eps: float, weighting: str) -> Tensor:
    count = table.length if weighting == "tokens" else torch.ones_like(value)
    count = torch.where(table.valid, count, torch.zeros_like(count))
    total = count.sum()
    if total <= ddof:
        return torch.zeros_like(value)
    mean = (count * value).sum() / total
    if (
        mean.abs() <= 1e-12 * value.abs().max()
    ):  # each group sums to 0: what is left is float noise, and would be a signal
        mean = torch.zeros_like(mean)
    centred = torch.where(table.valid, value - mean, torch.zeros_like(value))
    if weighting == "rows":
        return _over_std(centred, table.valid, ddof, eps)
    variance = (count * centred * centred).sum() / (total - ddof)
    return centred / (variance + WHITENING_EPS).sqrt() if variance > 0 else torch.zeros_like(value)
