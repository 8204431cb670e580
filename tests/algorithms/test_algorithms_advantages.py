"""Advantages of rows: worked cases, and identities over random batches with unequal groups and rows without a grade."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from surefoot.algorithms import advantages
from surefoot.algorithms.decoupled import decoupled
from surefoot.algorithms.likelihood import maximum_likelihood
from surefoot.algorithms.part import REGISTRY, Part
from surefoot.algorithms.presets import PRESETS
from surefoot.algorithms.table import RewardTable
from surefoot.errors import AlgorithmError
from tests.algorithms.harness import CASES, table, tensor
from tests.algorithms.tables import masked, tables
from tests.algorithms.test_algorithms_golden import close

assert PRESETS  # imported, so that every part is registered


def test_group_mean_whitened_over_the_tokens_of_the_batch() -> None:
    case = CASES["reinforce_pp_baseline"]
    inputs, expected = case["inputs"], case["expected"]
    rows = masked(inputs["rewards"], inputs["mask"], inputs["groups"])
    mask = tensor(inputs["mask"]).bool()
    close(advantages.group_mean()(rows), tensor(expected["centred"]))
    for ddof in (0, 1):
        have = advantages.whitened_group_mean(ddof=ddof)(rows)
        close(have[rows.row], tensor(expected[f"advantages_ddof{ddof}"])[mask])
    by_rows = advantages.whitened_group_mean(weighting="rows")(rows)
    close(by_rows, tensor(expected["sequence_weighted_ddof1"]))


@settings(max_examples=80, deadline=None)
@given(tables(), st.sampled_from(["tokens", "rows"]), st.sampled_from([0, 1]))
def test_whitening_is_that_of_the_expanded_batch(rows: RewardTable, weighting: Any, ddof: Any) -> None:
    have = advantages.whitened_group_mean(weighting=weighting, ddof=ddof)(rows)
    centred = advantages.group_mean()(rows)
    copies = torch.where(rows.valid, rows.length.long() if weighting == "tokens" else 1, 0)
    expanded = centred.repeat_interleave(copies)
    if len(expanded) < 2 or (expanded == expanded[0]).all():
        assert (have == 0).all()
        return
    want = (expanded - expanded.mean()) / (expanded.var(correction=ddof) + 1e-8).sqrt()
    close(have.repeat_interleave(copies), want, 1e-9)
    assert (have[copies == 0] == 0).all()
    # Over rows nothing is shifted: a group without signal stays exactly without.
    if weighting == "rows":
        assert (have[~rows.signal()[rows.group]] == 0).all()


def test_greedy_baseline() -> None:
    case = CASES["remax"]
    inputs = case["inputs"]
    rows = replace(table(inputs["rewards"], [0, 1, 2]), greedy=tensor(inputs["greedy_rewards"]))
    close(advantages.greedy_baseline()(rows), tensor(case["expected"]["advantages"]))
    same_prompt = replace(table([1.0, 0.25, float("nan"), 1.0], [0, 0, 0, 1]), greedy=tensor([0.25, float("nan")]))
    assert advantages.greedy_baseline()(same_prompt).tolist() == [0.75, 0.0, 0.0, 0.0]
    with pytest.raises(AlgorithmError, match=r"'greedy_baseline' reads RewardTable\.greedy"):
        advantages.greedy_baseline()(table([1.0]))


def test_soft_mean_is_the_normaliser_of_the_optimal_policy() -> None:
    case = CASES["kimi_baseline"]
    rows = table(case["inputs"]["rewards"])
    for tau, want in zip(case["hyperparameters"]["tau"], case["expected"]["tau_logZ"], strict=True):
        close(rows.reward - advantages.soft_mean(tau=tau)(rows), torch.full_like(rows.reward, want))
    close(rows.reward - advantages.soft_mean(tau=1e9)(rows), torch.full_like(rows.reward, case["expected"]["mean"]))
    huge = table([1e4, -1e4, 0.0])
    close(advantages.soft_mean(tau=0.01)(huge), huge.reward - 1e4 + 0.01 * math.log(3), 1e-12)
    equal = table([0.3, 0.1 * 3, 0.3 + 1e-16, 0.7], [0, 0, 0, 1])
    assert (advantages.soft_mean(tau=0.1)(equal) == 0).all()


@settings(max_examples=60, deadline=None)
@given(tables(), st.floats(0.05, 50))
def test_soft_mean_lies_between_the_mean_and_the_maximum(rows: RewardTable, tau: float) -> None:
    soft, hard = advantages.soft_mean(tau=tau)(rows), advantages.group_mean()(rows)
    _, high = rows.group_extremes(rows.reward)
    assert (soft <= hard + 1e-12).all()
    below_best = (rows.reward - high[rows.group])[rows.valid]
    assert (soft[rows.valid] >= below_best - 1e-12).all()
    close(advantages.soft_mean(tau=1e7)(rows), hard, 1e-6)
    sharper = advantages.soft_mean(tau=tau / 2)(rows)
    assert (sharper <= soft + 1e-12).all()


KINDS = sorted(REGISTRY["advantage"])


@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("name", KINDS)
@given(rows=tables(binary=True))
def test_rows_without_a_grade_get_nothing_and_change_nothing(name: str, rows: RewardTable) -> None:
    part = REGISTRY["advantage"][name]()
    alone = part(replace(rows.take(rows.valid), memory={}))
    found = part(replace(rows, memory={}))
    inside = rows.valid
    if "values" in part.kind.traits:
        (found, returns), (alone, rest) = found, alone
        close(returns[rows.valid[rows.row]], rest, 1e-12)
        outside = ~rows.valid[rows.row]
        assert torch.equal(returns[outside], rows.values[outside]), "the critic has no gradient there"
    if "token" in part.kind.traits:
        inside = rows.valid[rows.row]
    assert found.dtype == torch.float64 and found.shape == inside.shape
    assert (found[~inside] == 0).all()
    close(found[inside], alone, 1e-9)
    garbage = replace(rows, memory={}, reward=torch.where(rows.valid, rows.reward, 1e9))
    again = part(garbage)
    close(again[0] if "values" in part.kind.traits else again, found, 1e-12)


def graded(rows: RewardTable, group: int) -> torch.Tensor:
    """[B] bool, the graded rows of a group."""
    return (rows.group == group) & rows.valid


@settings(max_examples=80, deadline=None)
@given(tables())
def test_leave_one_out_subtracts_the_mean_of_the_others(rows: RewardTable) -> None:
    have, centred = advantages.leave_one_out()(rows), advantages.group_mean()(rows)
    for group in range(rows.groups):
        here = graded(rows, group)
        count = int(here.sum())
        if count < 2:
            assert (have[rows.group == group] == 0).all()
            continue
        reward = rows.reward[here]
        close(have[here], reward - (reward.sum() - reward) / (count - 1), 1e-12)
        close(have[here], count / (count - 1) * centred[here], 1e-12)


@settings(max_examples=80, deadline=None)
@given(tables(), st.floats(0.1, 20), st.floats(-5, 5))
def test_changes_of_the_rewards_that_change_no_advantage(rows: RewardTable, scale: float, shift: float) -> None:
    shifted = replace(rows, reward=rows.reward + shift)
    affine = replace(rows, reward=scale * rows.reward + shift)
    for part in (advantages.leave_one_out(), advantages.group_mean(), advantages.soft_mean()):
        close(part(shifted), part(rows), 1e-9)
    for ddof in (0, 1):
        part = advantages.group_norm(ddof=ddof, eps=0.0)
        close(part(affine), part(rows), 1e-7)


@settings(max_examples=60, deadline=None)
@given(tables(binary=True), st.floats(0.1, 20), st.sampled_from(["mean_normalised", "control_variate", "conditional"]))
def test_maximum_likelihood_does_not_see_the_scale(rows: RewardTable, scale: float, form: Any) -> None:
    part = maximum_likelihood(form=form)
    have = part(replace(rows, reward=scale * rows.reward))
    close(have, part(rows), 1e-9)


@settings(max_examples=60, deadline=None)
@given(tables(binary=True))
def test_maximum_likelihood_is_a_reweighted_group_norm(rows: RewardTable) -> None:
    normed = advantages.group_norm(ddof=0, eps=0.0)(rows)
    success = rows.success_rate()
    factor = torch.where(success > 0, ((1 - success) / success.clamp(min=1e-9)).sqrt(), 0.0)[rows.group]
    have = maximum_likelihood(form="mean_normalised")(rows)
    mixed = rows.signal()[rows.group]
    close(have[mixed], (normed * factor)[mixed], 1e-9)
    assert (have[~mixed] == 0).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=5), st.booleans())
def test_maximum_likelihood_of_two_is_leave_one_out(pairs: list[tuple[bool, bool]], third: bool) -> None:
    """Each prompt has two graded answers, and on demand a third that could not be graded."""
    rewards = [float(right) for pair in pairs for right in (*pair, *([float("nan")] if third else []))]
    rows = table(rewards, [i // (3 if third else 2) for i in range(len(rewards))])
    close(maximum_likelihood(form="mean_normalised")(rows), advantages.leave_one_out()(rows), 1e-12)


@settings(max_examples=60, deadline=None)
@given(tables(binary=True), st.sampled_from(["subset", "maclaurin"]))
def test_maximum_likelihood_of_order_one_is_the_reward(rows: RewardTable, form: Any) -> None:
    several = rows.group_count()[rows.group] > 1
    want = torch.where(several & rows.valid, rows.right.double(), 0.0)
    close(maximum_likelihood(form=form, order=1)(rows), want, 1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=5), st.sampled_from([0, 1]))
def test_a_group_of_two_has_the_same_advantages_whatever_the_gap(gaps: list[tuple[float, float]], ddof: Any) -> None:
    assume(all(abs(a - b) > 1e-6 for a, b in gaps))
    rewards = [reward for a, b in gaps for reward in (a, b, float("nan"))]
    rows = table(rewards, [i // 3 for i in range(len(rewards))])
    size = 1.0 if ddof == 0 else 0.5**0.5
    want = [sign * size for a, b in gaps for sign in ((1, -1, 0) if a > b else (-1, 1, 0))]
    close(advantages.group_norm(ddof=ddof, eps=0.0)(rows), tensor(want), 1e-9)


@settings(max_examples=60, deadline=None)
@given(tables())
def test_one_decoupled_reward_is_a_multiple_of_group_norm(rows: RewardTable) -> None:
    one = replace(rows, components={"a": rows.reward})
    normed = advantages.group_norm(eps=0.0)(rows)
    have = decoupled(eps=0.0)(one)
    if not rows.signal().any():
        assert (have == 0).all()
        return
    close(have, normed / normed[rows.valid].std(), 1e-9)


@settings(max_examples=60, deadline=None)
@given(tables(), st.floats(0.1, 20), st.floats(-5, 5))
def test_decoupled_rewards_may_each_have_their_own_scale(rows: RewardTable, scale: float, shift: float) -> None:
    part = decoupled(weights={"a": 1.0, "b": 0.5}, eps=0.0)
    other = replace(rows, components={"a": scale * rows.components["a"] + shift, "b": 3 * rows.components["b"] - 1})
    close(part(other), part(rows), 1e-7)


@settings(max_examples=60, deadline=None)
@given(tables(binary=True), st.floats(0, 10), st.integers(1, 64), st.data())
def test_difficulty_weights(rows: RewardTable, sharpness: float, size: int, data: Any) -> None:
    assert torch.equal(advantages.entropy_weighted(sharpness=0.0)(rows), advantages.group_norm()(rows))
    success = torch.arange(size + 1, dtype=torch.float64) / size
    weight = advantages.difficulty_weight(success, sharpness)
    close(weight, weight.flip(0), 1e-12)
    assert (weight <= 1).all() and float(advantages.difficulty_weight(tensor([0.5]), sharpness)) == 1
    close(weight[0], 2.0**-sharpness, 1e-12)
    weighted = advantages.entropy_weighted(sharpness=sharpness)(rows)
    want = advantages.difficulty_weight(rows.success_rate(), sharpness)[rows.group] * advantages.group_norm()(rows)
    close(weighted, want, 1e-12)


@pytest.mark.parametrize(
    ("kind", "numbers", "says"),
    [
        (advantages.soft_mean, {"tau": 0.0}, "greater than 0"),
        (advantages.soft_mean, {"tau": float("inf")}, "finite"),
        (advantages.whitened_group_mean, {"weighting": "sequences"}, "'tokens' or 'rows'"),
        (advantages.whitened_group_mean, {"ddof": 2}, "0 or 1"),
    ],
)
def test_bad_numbers_are_refused(kind: Any, numbers: dict[str, Any], says: str) -> None:
    with pytest.raises(AlgorithmError, match=says):
        kind(**numbers)


def test_every_advantage_has_an_equation_in_which_its_numbers_are_filled_in() -> None:
    for name in KINDS:
        part: Part = REGISTRY["advantage"][name]()
        assert "A_i" in part.text and "{" not in part.text
        assert "A_" in part.latex
