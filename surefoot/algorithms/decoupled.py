"""Several rewards, normalised apart before they are added (GDPO, arXiv 2601.05242)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from surefoot.algorithms.advantages import _over_std, group_norm, whitened
from surefoot.algorithms.notation import typed
from surefoot.algorithms.part import part
from surefoot.algorithms.table import RewardTable
from surefoot.errors import AlgorithmError


def _text(
    weights: dict[str, float] | None,
    conditions: dict[str, str] | None,
    threshold: float | dict[str, float],
    ddof: int,
    eps: float,
    weighting: str,
) -> str:
    told = [f"{name}: {weight:g}" for name, weight in (weights or {}).items()]
    counted = [
        f"{name} counts where {other} >= {_threshold(threshold, name):g}" for name, other in (conditions or {}).items()
    ]
    return ",  ".join(
        [
            f"A_i = norm(sum_k w_k (r^k_i - mean_group(r^k)) / (std_group(r^k; ddof {ddof}) + {eps:g}); over {weighting})",
            f"w = ({', '.join(told)})" if told else "w_k = 1",
            *counted,
        ]
    )


def _latex(
    weights: dict[str, float] | None,
    conditions: dict[str, str] | None,
    threshold: float | dict[str, float],
    ddof: int,
    eps: float,
    weighting: str,
) -> str:
    told = [rf"w_{{{typed(name)}}} = {weight:g}" for name, weight in (weights or {}).items()]
    counted = [
        rf"{typed(name)}\text{{ counts where }}{typed(other)}\ge {_threshold(threshold, name):g}"
        for name, other in (conditions or {}).items()
    ]
    return r",\;".join(
        [
            rf"A_i = \operatorname{{norm}}_{{\text{{{weighting}}}}}"
            rf"\Big(\sum_k w_k\frac{{r^k_i - \bar r^k_g}}{{\operatorname{{std}}_g(r^k;\,\text{{ddof }}{ddof}) + {eps:g}}}\Big)",
            *(told or ["w_k = 1"]),
            *counted,
        ]
    )


@part("advantage", _text, _latex, "group")
def decoupled(
    table: RewardTable,
    *,
    weights: dict[str, float] | None = None,
    conditions: dict[str, str] | None = None,
    threshold: float | dict[str, float] = 1.0,
    ddof: Literal[0, 1] = 1,
    eps: Annotated[float, Field(ge=0)] = 1e-6,
    weighting: Literal["rows", "tokens"] = "rows",
) -> Tensor:
    """Each named reward is standardised in its group, then they are added with weights and normalised over the batch.

    ``weights`` names the components of the reward that count (None: all, with weight 1). ``conditions`` maps a component to
    another that must reach ``threshold`` (a number, or one for each conditioned component) for it to count: an easy reward
    then cannot be had without the hard one.
    ``weighting`` says what the batch normalisation averages over.

    Raises:
        AlgorithmError: a component that the reward does not have.
    """
    weights = weights or dict.fromkeys(table.components, 1.0)
    if not weights and bool(table.valid.any()):
        raise AlgorithmError(
            "the advantage 'decoupled' standardises the named parts of the reward, and the rewards have none: return "
            "Score(total, components={...}) from the reward, or set algorithm.advantage = 'group_norm'"
        )
    for name in (*weights, *(conditions or {}), *(conditions or {}).values()):
        if name not in table.components:
            raise AlgorithmError(
                f"the advantage 'decoupled' names the reward '{name}', and the rewards have: "
                f"{', '.join(sorted(table.components)) or 'no components'}"
            )
    total = torch.zeros_like(table.reward)
    for name, weight in weights.items():
        value = conditioned(table, name, (conditions or {}).get(name), _threshold(threshold, name))
        part_of = replace(table, reward=value, valid=table.valid & value.isfinite())
        total = total + weight * group_norm.fn(part_of, ddof=ddof, eps=eps)
    return _batch_norm(total, table, ddof, eps, weighting)


def _threshold(threshold: float | dict[str, float], name: str) -> float:
    """That of one component; 1 where a table of thresholds does not name it."""
    return threshold.get(name, 1.0) if isinstance(threshold, dict) else threshold


def conditioned(table: RewardTable, name: str, condition: str | None, threshold: float) -> Tensor:
    """[B], a component, 0 where the one that it depends on stays below the threshold."""
    value = table.components[name].to(table.reward.dtype)
    if condition is None:
        return value
    return torch.where(table.components[condition] >= threshold, value, torch.zeros_like(value))


def _batch_norm(value: Tensor, table: RewardTable, ddof: int, eps: float, weighting: str) -> Tensor:
    if weighting == "tokens":
        return whitened(value, table.where_valid(table.length.to(value.dtype)), ddof)
    total = table.valid.sum()
    if total <= ddof:
        return torch.zeros_like(value)
    mean = table.where_valid(value).sum() / total
    # Each group sums to 0: what is left is float noise, and would be a signal.
    mean = torch.where(mean.abs() <= 1e-12 * value.abs().max(), torch.zeros_like(mean), mean)
    return _over_std(table.where_valid(value - mean), table.valid, ddof, eps)
