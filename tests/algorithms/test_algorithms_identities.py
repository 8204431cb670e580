"""Identities between objectives, over random shapes: rows of unequal length, empty rows, groups of unequal size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.algorithms import advantages, aggregation, ratios, trust
from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.loss import policy_loss
from surefoot.algorithms.presets import PRESETS
from surefoot.algorithms.tokens import RewardTable
from tests.algorithms.harness import Rows

AGGREGATIONS = [
    "token_mean",
    "seq_mean_token_mean",
    "seq_mean_token_sum",
    "seq_mean_token_sum_norm",
    "prompt_mean",
    "token_sum",
]


@st.composite
def batches(draw: Any) -> tuple[Rows, torch.Generator]:
    """Rows with holes in their masks, some of them empty, in groups of unequal size."""
    count, width = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    mask = (torch.rand(count, width, generator=generator) < 0.7).double()
    groups = torch.randint(0, 3, (count,), generator=generator)
    groups = torch.unique(groups, return_inverse=True)[1]
    return Rows(mask.tolist(), groups.tolist(), constant=float(width)), generator


def draw_logp(rows: Rows, generator: torch.Generator) -> torch.Tensor:
    return -3 * torch.rand(rows.mask.shape, generator=generator, dtype=torch.float64)


def table_of(rewards: torch.Tensor, group: torch.Tensor) -> RewardTable:
    return RewardTable(rewards, torch.ones_like(rewards, dtype=torch.bool), group, torch.ones_like(rewards))


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from(AGGREGATIONS), st.floats(0.01, 0.5))
def test_on_policy_gradient_of_every_surrogate_is_the_score_function(batch: Any, mode: str, bound: float) -> None:
    rows, generator = batch
    logp = draw_logp(rows, generator)
    advantage = torch.randn(len(rows.mask), generator=generator, dtype=torch.float64)
    base = Algorithm(aggregation=getattr(aggregation, mode)())
    _, want = rows.loss(base, logp.tolist(), advantage.tolist())
    for surrogate in (trust.clip(low=bound, high=bound), trust.unclipped()):
        _, have = rows.loss(base.but(ratio=ratios.token(), trust=surrogate), logp.tolist(), advantage.tolist())
        torch.testing.assert_close(have, want, rtol=1e-10, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from(sorted(PRESETS)), st.integers(1, 4))
def test_micro_batches_add_up_in_value_and_gradient(batch: Any, preset: str, parts: int) -> None:
    rows, generator = batch
    algorithm = PRESETS[preset].but(kl="none")
    advantage = torch.randn(len(rows.mask), generator=generator, dtype=torch.float64)
    logp, old = draw_logp(rows, generator), draw_logp(rows, generator)
    whole, want = rows.loss(algorithm, logp.tolist(), advantage.tolist(), logp_old=old)
    leaf = logp.clone().requires_grad_()
    order = torch.randperm(len(rows.mask), generator=generator).tolist()
    pieces = [order[i::parts] for i in range(parts) if order[i::parts]]
    losses = [
        policy_loss(algorithm, rows.tokens(leaf, advantage, rows=p, logp_old=old), rows.totals)[0] for p in pieces
    ]
    torch.stack(losses).sum().backward()
    torch.testing.assert_close(float(sum(losses).detach()), whole, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(leaf.grad, want, rtol=1e-10, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.integers(0, 2**31), st.floats(0.1, 5), st.floats(-3, 3))
def test_group_advantages_and_changes_of_the_rewards(size: int, seed: int, scale: float, shift: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.rand(2 * size, generator=generator, dtype=torch.float64)
    group = torch.tensor([0] * size + [1] * size)
    for part in (advantages.leave_one_out(), advantages.group_mean(), advantages.group_norm(eps=0.0)):
        torch.testing.assert_close(
            part(table_of(rewards + shift, group)), part(table_of(rewards, group)), atol=1e-9, rtol=1e-9
        )
    norm = advantages.group_norm(eps=0.0)
    torch.testing.assert_close(
        norm(table_of(scale * rewards, group)), norm(table_of(rewards, group)), atol=1e-8, rtol=1e-8
    )
    factor = size / (size - 1)
    torch.testing.assert_close(
        advantages.leave_one_out()(table_of(rewards, group)), factor * advantages.group_mean()(table_of(rewards, group))
    )


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e6 + 0.1, -7.7, 0.0])
@pytest.mark.parametrize("name", ["leave_one_out", "group_mean", "group_norm"])
def test_equal_rewards_give_exactly_zero_whatever_the_float_noise(value: float, name: str) -> None:
    rewards = torch.tensor(
        [value * 3 / 3, value, value + abs(value) * 2e-16, value - abs(value) * 2e-16] * 2, dtype=torch.float64
    )
    have = getattr(advantages, name)()(table_of(rewards, torch.tensor([0] * 8)))
    assert (have == 0).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(2, 5), st.integers(0, 2**31))
def test_group_norm_of_two_is_one_over_root_two(pairs: int, width: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.rand(2 * pairs, generator=generator, dtype=torch.float64)
    group = torch.arange(pairs).repeat_interleave(2)
    have = advantages.group_norm(ddof=1, eps=0.0)(table_of(rewards, group)).abs()
    torch.testing.assert_close(have, torch.full_like(have, 0.5**0.5))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(2, 4), st.integers(1, 5), st.integers(0, 2**31))
def test_aggregations_coincide_for_equal_lengths_and_groups(groups: int, size: int, width: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    count = groups * size
    rows = Rows([[1.0] * width] * count, [i // size for i in range(count)], constant=float(width))
    logp, advantage = draw_logp(rows, generator), torch.randn(count, generator=generator, dtype=torch.float64)
    modes = ["token_mean", "seq_mean_token_mean", "prompt_mean", "seq_mean_token_sum_norm"]
    results = [
        rows.loss(Algorithm(aggregation=getattr(aggregation, mode)()), logp.tolist(), advantage.tolist())
        for mode in modes
    ]
    for loss, gradient in results[1:]:
        torch.testing.assert_close(loss, results[0][0], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(gradient, results[0][1], rtol=1e-10, atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(batches())
def test_dr_grpo_on_policy_is_rloo_over_the_budget(batch: Any) -> None:
    rows, generator = batch
    logp = draw_logp(rows, generator)
    rewards = torch.rand(len(rows.mask), generator=generator, dtype=torch.float64)
    table = table_of(rewards, torch.zeros(len(rewards), dtype=torch.int64))
    size = len(rewards)
    rloo = PRESETS["rloo"].but(kl="none")
    _, one = rows.loss(rloo, logp.tolist(), rloo.advantage(table).tolist())
    _, other = rows.loss(PRESETS["dr_grpo"], logp.tolist(), PRESETS["dr_grpo"].advantage(table).tolist())
    torch.testing.assert_close(other, (size - 1) / size / rows.totals.constant * one, rtol=1e-10, atol=1e-10)
