"""Several rewards, normalised apart before they are added (GDPO, arXiv 2601.05242)."""

from __future__ import annotations

from collections.abc import Sequence
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

SEEN = "component:"  # with the name of a component: that it was there is remembered in the run state


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

    A row in which a component, or what conditions it, has no value is left out of that component. A component that no row
    of the batch has adds nothing, if an earlier batch had it or nothing could be graded.

    Raises:
        AlgorithmError: a component that the reward never had.
    """
    missing = _missing(table, [*(weights or {}), *(conditions or {}), *(conditions or {}).values()])
    chosen = weights or dict.fromkeys(table.components, 1.0)
    total = torch.zeros_like(table.reward)
    for name, weight in chosen.items():
        condition = (conditions or {}).get(name)
        if name in missing or condition in missing:
            continue
        value = conditioned(table, name, condition, _threshold(threshold, name))
        part_of = replace(table, reward=value, valid=table.valid & value.isfinite())
        total = total + weight * group_norm.fn(part_of, ddof=ddof, eps=eps)
    return _batch_norm(total, table, ddof, eps, weighting)


def _missing(table: RewardTable, names: Sequence[str]) -> set[str]:
    """Components that are named and that no row of this batch has, remembering which ones there were.

    Raises:
        AlgorithmError: rows were graded, and one of the components was in none of them so far.
    """
    seen = {key.removeprefix(SEEN) for key in table.memory if key.startswith(SEEN)} | set(table.components)
    table.memory.update({f"{SEEN}{name}": 1.0 for name in table.components})
    if not bool(table.valid.any()):
        return set(names) - set(table.components)
    if not seen:
        raise AlgorithmError(
            "the advantage 'decoupled' standardises the named parts of the reward, and the rewards have none: return "
            "Score(total, components={...}) from the reward, or set algorithm.advantage = 'group_norm'"
        )
    for name in names:
        if name not in seen:
            raise AlgorithmError(
                f"the advantage 'decoupled' names the reward '{name}', and the rewards have: "
                f"{', '.join(sorted(seen))}: return Score(total, components={{'{name}': ...}}) from the reward, or change "
                "algorithm.advantage.weights and conditions"
            )
    return set(names) - set(table.components)


def _threshold(threshold: float | dict[str, float], name: str) -> float:
    """That of one component; 1 where a table of thresholds does not name it."""
    return threshold.get(name, 1.0) if isinstance(threshold, dict) else threshold


def conditioned(table: RewardTable, name: str, condition: str | None, threshold: float) -> Tensor:
    """[B], a component, 0 where the one that it depends on stays below the threshold; NaN where either has no value."""
    value = table.components[name].to(table.reward.dtype)
    if condition is None:
        return value
    other = table.components[condition]
    counted = torch.where(other >= threshold, value, torch.zeros_like(value))
    return torch.where(value.isfinite() & other.isfinite(), counted, torch.nan)


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
