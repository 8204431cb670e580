"""Identities between objectives, over random shapes: rows of unequal length, empty rows, groups of unequal size.

Here: what holds for every objective. Identities of single methods are in the files with ``identities`` in their names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.algorithms import advantages, aggregation, ratios, trust
from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.divergence import divergence_mask
from surefoot.algorithms.loss import policy_loss
from surefoot.algorithms.part import REGISTRY
from surefoot.algorithms.presets import PRESETS
from tests.algorithms.batches import (
    AGGREGATIONS,
    PER_TOKEN,
    batches,
    draw_logp,
    full,
    policy_only,
    table_of,
    take,
    weighed,
)
from tests.algorithms.harness import Rows


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from(AGGREGATIONS), st.floats(0.01, 0.5))
def test_identity_01_on_policy_every_surrogate_has_the_gradient_of_the_score_function(
    batch: Any, mode: str, bound: float
) -> None:
    rows, generator = batch
    logp = draw_logp(rows, generator)
    advantage = torch.randn(len(rows.mask), generator=generator, dtype=torch.float64)
    base = Algorithm(aggregation=getattr(aggregation, mode)())
    _, want = rows.loss(base, logp.tolist(), advantage.tolist())
    # -sum C A is what the score function gives where every log-probability is 1.
    value, _ = rows.loss(base, torch.ones_like(logp).tolist(), advantage.tolist())
    ratio, mine = ratios.token(), trust.clip(low=bound, high=bound)
    for surrogate in (mine, trust.unclipped(), trust.dual_clip(low=bound, high=bound)):
        loss, have = rows.loss(base.but(ratio=ratio, trust=surrogate), logp.tolist(), advantage.tolist())
        torch.testing.assert_close(have, want, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(loss, value, rtol=1e-10, atol=1e-10)
    for surrogate in (trust.truncated_score(), divergence_mask()):
        anchored = base.but(ratio=ratios.token(anchor="behaviour"), trust=surrogate)
        _, have = rows.loss(anchored, logp.tolist(), advantage.tolist())
        torch.testing.assert_close(have, want, rtol=1e-10, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from(AGGREGATIONS), st.floats(0.001, 1), st.floats(0.001, 1))
def test_identity_02_on_policy_no_bound_matters(batch: Any, mode: str, one: float, other: float) -> None:
    rows, generator = batch
    logp, tokens = draw_logp(rows, generator), {}
    advantage = torch.randn(len(rows.mask), generator=generator, dtype=torch.float64)
    base = Algorithm(aggregation=getattr(aggregation, mode)(), ratio=ratios.token(), trust=trust.unclipped())
    kinds = [trust.clip, trust.dual_clip]
    for kind in kinds:
        for bound in (one, other):
            algorithm = base.but(trust=kind(low=bound, high=2 * bound))
            tokens[kind.name, bound] = rows.loss(algorithm, logp.tolist(), advantage.tolist())
    row = base.but(ratio="sequence", aggregation="seq_mean_token_mean")
    for bound in (one, other):
        tokens["sequence", bound] = rows.loss(row.but(trust=trust.clip(low=bound)), logp.tolist(), advantage.tolist())
    for name in ("clip", "dual_clip", "sequence"):
        assert tokens[name, one][0] == tokens[name, other][0]
        torch.testing.assert_close(tokens[name, one][1], tokens[name, other][1], rtol=1e-12, atol=1e-12)


@settings(max_examples=80, deadline=None)
@given(batches(), st.sampled_from(sorted(PRESETS)), st.integers(1, 4))
def test_identity_25_micro_batches_add_up_in_value_and_gradient(batch: Any, preset: str, parts: int) -> None:
    rows, generator = batch
    algorithm = PRESETS[preset]
    leaf = draw_logp(rows, generator).requires_grad_()
    tokens = weighed(algorithm, full(rows, generator, leaf))
    whole, _ = policy_loss(algorithm, tokens, rows.totals)
    (want,) = torch.autograd.grad(whole, leaf, retain_graph=True)
    order = torch.randperm(len(rows.mask), generator=generator).tolist()
    pieces = [order[i::parts] for i in range(parts) if order[i::parts]]
    losses = [policy_loss(algorithm, take(tokens, piece), rows.totals)[0] for piece in pieces]
    total = torch.stack(losses).sum()
    torch.testing.assert_close(total, whole, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(torch.autograd.grad(total, leaf)[0], want, rtol=1e-10, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from(sorted(PRESETS)), st.integers(1, 3))
def test_identity_25_padding_order_and_garbage_do_not_matter(batch: Any, preset: str, extra: int) -> None:
    rows, generator = batch
    algorithm = PRESETS[preset]
    leaf = draw_logp(rows, generator).requires_grad_()
    streams = {name: draw_logp(rows, generator) for name in ("logp_old", "logp_behaviour", "logp_reference")}
    streams["advantage"] = torch.randn(len(rows.mask), generator=generator, dtype=torch.float64)
    tokens = weighed(algorithm, full(rows, generator, leaf, **streams))
    whole, _ = policy_loss(algorithm, tokens, rows.totals)
    (want,) = torch.autograd.grad(whole, leaf)

    order = torch.randperm(len(rows.mask), generator=generator)
    outside = torch.full((len(order), extra), torch.nan, dtype=torch.float64)

    def moved(value: torch.Tensor) -> torch.Tensor:
        if value.dim() == 1:
            return value[order]
        return torch.cat([torch.where(rows.mask, value, torch.nan)[order], outside], 1)

    mask = torch.cat([rows.mask[order].double(), torch.zeros_like(outside)], 1)
    wide = Rows(mask.tolist(), rows.group[order].tolist(), constant=rows.totals.constant)
    again = moved(leaf.detach()).requires_grad_()
    other = full(wide, generator, again, **{name: moved(value) for name, value in streams.items()})
    kept = {
        name: getattr(take(tokens, order.tolist()), name) for name in PER_TOKEN if "top" in name or name == "weight"
    }
    loss, _ = policy_loss(algorithm, replace(other, **kept), wide.totals)
    torch.testing.assert_close(loss, whole, rtol=1e-10, atol=1e-10)
    (have,) = torch.autograd.grad(loss, again)
    torch.testing.assert_close(have[:, :-extra], want[order], rtol=1e-10, atol=1e-10)
    assert (have[:, -extra:] == 0).all()


# The quadratic surrogate is a penalty on the log-ratio, which has nothing to do with the advantage.
BOUNDS = sorted(name for name in REGISTRY["trust"] if name not in ("quadratic",) and not name.startswith("example"))


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from(BOUNDS), st.sampled_from(AGGREGATIONS))
def test_identity_26_without_an_advantage_there_is_no_gradient(batch: Any, name: str, mode: str) -> None:
    rows, generator = batch
    leaf = draw_logp(rows, generator).requires_grad_()
    kind = REGISTRY["trust"][name]
    ratio = ratios.token(anchor="behaviour") if "ratio" in kind.traits else ratios.none()
    algorithm = Algorithm(ratio=ratio, trust=kind(), aggregation=getattr(aggregation, mode)())
    tokens = full(rows, generator, leaf, advantage=torch.zeros(len(rows.mask)))
    loss, _ = policy_loss(algorithm, tokens, rows.totals)
    assert float(loss.detach()) == 0.0
    assert (torch.autograd.grad(loss, leaf)[0] == 0).all()


@settings(max_examples=40, deadline=None)
@given(batches(), st.floats(0, 1))
def test_identity_26_without_an_advantage_the_quadratic_surrogate_is_its_penalty(batch: Any, tau: float) -> None:
    rows, generator = batch
    logp, old = draw_logp(rows, generator), draw_logp(rows, generator)
    algorithm = Algorithm(
        ratio=ratios.sequence_log(), trust=trust.quadratic(tau=tau), aggregation=aggregation.seq_mean_token_mean()
    )
    nothing = [0.0] * len(rows.mask)
    assert (rows.loss(algorithm, logp.tolist(), nothing)[1] == 0).all()  # on policy
    _, gradient = rows.loss(algorithm, logp.tolist(), nothing, logp_old=old)
    x = ((logp - old) * rows.mask).sum(1, keepdim=True)
    want = tau * x * rows.mask / max(1.0, rows.totals.sequences)
    torch.testing.assert_close(gradient, want, rtol=1e-10, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from(["sequence", "sequence_sum", "sequence_log"]))
def test_identity_40_a_loss_per_row_is_averaged_over_rows(batch: Any, name: str) -> None:
    rows, generator = batch
    logp, old = draw_logp(rows, generator), draw_logp(rows, generator)
    advantage = torch.randn(len(rows.mask), generator=generator, dtype=torch.float64)
    surrogate = trust.quadratic() if name == "sequence_log" else trust.clip()
    algorithm = Algorithm(
        ratio=REGISTRY["ratio"][name](), trust=surrogate, aggregation=aggregation.seq_mean_token_mean()
    )
    loss, gradient = rows.loss(algorithm, logp.tolist(), advantage.tolist(), logp_old=old)

    leaf = logp.clone().requires_grad_()
    x = ((leaf - old) * rows.mask).sum(1)
    if name == "sequence_log":
        row_loss = -advantage * x + 0.05 * x * x
    else:
        ratio = (x / rows.lengths.clamp(min=1) if name == "sequence" else x).exp()
        row_loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    filled = rows.lengths > 0
    want = row_loss[filled].sum() / max(1, int(filled.sum()))
    torch.testing.assert_close(loss, float(want.detach()), rtol=1e-10, atol=1e-10)
    (slope,) = torch.autograd.grad(want, leaf)
    torch.testing.assert_close(gradient, slope, rtol=1e-10, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.integers(0, 2**31), st.floats(0.1, 5), st.floats(-3, 3))
def test_identities_03_and_16_group_advantages_and_changes_of_the_rewards(
    size: int, seed: int, scale: float, shift: float
) -> None:
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
def test_identity_17_group_norm_of_two_is_one_over_root_two(pairs: int, width: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.rand(2 * pairs, generator=generator, dtype=torch.float64)
    group = torch.arange(pairs).repeat_interleave(2)
    have = advantages.group_norm(ddof=1, eps=0.0)(table_of(rewards, group)).abs()
    torch.testing.assert_close(have, torch.full_like(have, 0.5**0.5))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(2, 4), st.integers(1, 5), st.integers(0, 2**31))
def test_identity_24_aggregations_coincide_for_equal_lengths_and_groups(
    groups: int, size: int, width: int, seed: int
) -> None:
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
def test_identity_05_dr_grpo_on_policy_is_rloo_over_the_budget(batch: Any) -> None:
    rows, generator = batch
    logp = draw_logp(rows, generator)
    rewards = torch.rand(len(rows.mask), generator=generator, dtype=torch.float64)
    table = table_of(rewards, torch.zeros(len(rewards), dtype=torch.int64))
    size = len(rewards)
    rloo = policy_only(PRESETS["rloo"])
    _, one = rows.loss(rloo, logp.tolist(), rloo.advantage(table).tolist())
    _, other = rows.loss(PRESETS["dr_grpo"], logp.tolist(), PRESETS["dr_grpo"].advantage(table).tolist())
    torch.testing.assert_close(other, (size - 1) / size / rows.totals.constant * one, rtol=1e-10, atol=1e-10)
