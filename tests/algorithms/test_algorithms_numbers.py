"""Every number of every part changes what the part computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from surefoot.algorithms.part import REGISTRY, Part
from surefoot.algorithms.tokens import RewardTable, Tokens
from surefoot.types import Totals

# Another value for each number, and the base that it acts on where the default hides it.
CHANGES: dict[tuple[str, str, str], tuple[Any, dict[str, Any]]] = {
    ("advantage", "moving_average", "decay"): (0.5, {}),
    ("advantage", "group_norm", "ddof"): (0, {}),
    ("advantage", "group_norm", "eps"): (0.1, {}),
    ("advantage", "batch_scaled", "ddof"): (0, {}),
    ("advantage", "batch_scaled", "eps"): (0.1, {}),
    ("advantage", "entropy_weighted", "sharpness"): (1.0, {}),
    ("advantage", "entropy_weighted", "ddof"): (0, {}),
    ("advantage", "entropy_weighted", "eps"): (0.1, {}),
    ("advantage", "decoupled", "weights"): ({"a": 1.0, "b": 3.0}, {}),
    ("advantage", "decoupled", "conditions"): ({"b": "a"}, {}),
    ("advantage", "decoupled", "threshold"): (0.1, {"conditions": {"b": "a"}}),
    ("advantage", "decoupled", "ddof"): (0, {}),
    ("advantage", "decoupled", "eps"): (0.1, {}),
    ("advantage", "decoupled", "weighting"): ("tokens", {}),
    ("advantage", "maximum_likelihood", "form"): ("conditional", {}),
    ("advantage", "maximum_likelihood", "order"): (2, {"form": "subset"}),
    ("ratio", "token", "anchor"): ("behaviour", {}),
    ("ratio", "sequence", "anchor"): ("behaviour", {}),
    ("ratio", "sequence_token", "anchor"): ("behaviour", {}),
    ("ratio", "sequence_sum", "anchor"): ("behaviour", {}),
    ("trust", "clip", "low"): (0.5, {}),
    ("trust", "clip", "high"): (0.5, {}),
    ("trust", "dual_clip", "low"): (0.5, {}),
    ("trust", "dual_clip", "high"): (0.5, {}),
    ("trust", "dual_clip", "bound"): (1.1, {}),
    ("trust", "truncated_score", "low"): (0.9, {}),
    ("trust", "truncated_score", "high"): (1.1, {}),
    ("trust", "divergence_mask", "measure"): ("kl", {"delta": 0.05}),
    ("trust", "divergence_mask", "delta"): (0.9, {"delta": 0.01}),
    ("correction", "token_truncate", "cap"): (1.01, {}),
    ("correction", "seq_truncate", "cap"): (1.01, {}),
    ("correction", "token_mask", "low"): (0.95, {}),
    ("correction", "token_mask", "high"): (1.05, {}),
    ("correction", "token_mask", "binary"): (True, {}),
    ("correction", "seq_mask", "low"): (1.01, {"low": 0.0, "high": 9.0}),
    ("correction", "seq_mask", "high"): (1.01, {"low": 0.0, "high": 9.0}),
    ("correction", "seq_mask", "binary"): (True, {"low": 0.0, "high": 9.0}),
    ("correction", "geo_mask", "low"): (1.01, {"low": 0.0, "high": 9.0}),
    ("correction", "geo_mask", "high"): (1.01, {"low": 0.0, "high": 9.0}),
    ("correction", "geo_mask", "binary"): (True, {"low": 0.0, "high": 9.0}),
    ("correction", "off_policy_mask", "delta"): (9.0, {"delta": 0.0}),
    ("kl", "in_loss", "coef"): (0.5, {}),
    ("kl", "in_loss", "estimator"): ("k2", {}),
    ("kl", "in_reward", "coef"): (0.5, {}),
    ("kl", "in_reward", "estimator"): ("k3", {}),
}


def all_numbers() -> set[tuple[str, str, str]]:
    return {
        (slot, kind.name, number)
        for slot, kinds in REGISTRY.items()
        for kind in kinds.values()
        if not kind.name.startswith("example")
        for number in kind.schema.model_fields
    }


def test_every_number_has_a_row() -> None:
    assert set(CHANGES) == all_numbers()


def table() -> RewardTable:
    reward = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    other = torch.tensor([0.2, 0.9, 0.4, 0.1, 0.8, 0.3, 0.6, 0.5], dtype=torch.float64)
    group = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    length = torch.tensor([4.0, 2.0, 3.0, 1.0, 2.0, 4.0, 4.0, 3.0], dtype=torch.float64)
    # The hard part is between 0.1 and 1 in some rows, so that the threshold of a condition matters.
    hard = torch.where(reward > 0, reward, 0.5 * (other > 0.5))
    return RewardTable(reward, torch.ones(8, dtype=torch.bool), group, length, {"a": hard, "b": other})


def tokens() -> Tokens:
    generator = torch.Generator().manual_seed(3)

    def draw(scale: float) -> torch.Tensor:
        return scale * torch.randn(24, generator=generator, dtype=torch.float64)

    base = -1.0 - draw(0.3).abs()
    lengths = torch.full((6,), 4.0, dtype=torch.float64)
    return Tokens(
        logp=(base + draw(0.5)).clamp(max=-0.01),
        logp_old=base,
        logp_behaviour=base + draw(0.2),
        advantage=torch.tensor([1.0, -1.0, 0.5, -0.5, 2.0, -2.0], dtype=torch.float64).repeat_interleave(4),
        row=torch.arange(6).repeat_interleave(4),
        loss_tokens=lengths,
        group_tokens=2 * lengths,
        logp_reference=base + draw(0.4),
    )


def result(part: Part) -> torch.Tensor:
    if part.slot == "advantage":
        return part(table())
    given = tokens()
    if part.slot == "trust":
        return part(given, (given.logp - given.logp_behaviour).exp())
    return part(given)


@pytest.mark.parametrize("row", sorted(CHANGES), ids=".".join)
def test_the_number_changes_the_result(row: tuple[str, str, str]) -> None:
    slot, name, number = row
    value, base = CHANGES[row]
    before = REGISTRY[slot][name](**base)
    after = before.but(**{number: value})
    assert before.numbers[number] != after.numbers[number]
    one, other = result(before), result(after)
    assert one.isfinite().all() and other.isfinite().all()
    assert not torch.allclose(one, other, rtol=1e-9, atol=1e-12)


def test_every_part_stands_in_an_algorithm_and_its_loss_is_finite() -> None:
    from surefoot.algorithms.loss import policy_loss
    from surefoot.algorithms.presets import PRESETS

    totals = Totals(24.0, 6.0, 3.0, 8.0)
    for preset in PRESETS.values():
        loss, report = policy_loss(preset, tokens(), totals)
        assert loss.isfinite()
        assert all(torch.isfinite(torch.tensor(value)) for value in report.means().values())
