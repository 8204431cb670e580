"""Shaping, truncated completions and selection: worked cases, properties and edges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.algorithms import advantages, selection, shaping, truncated
from surefoot.algorithms.part import Part
from surefoot.algorithms.presets import PRESETS
from surefoot.algorithms.table import RewardTable
from surefoot.errors import AlgorithmError
from tests.algorithms.harness import CASES, table, tensor
from tests.algorithms.tables import tables
from tests.algorithms.test_algorithms_golden import check, close


def added(part: Part, rows: RewardTable) -> torch.Tensor:
    """What a shaping adds to the rewards."""
    return part(rows) - rows.reward


def test_the_overlong_penalty_grows_over_the_cache_and_stops_at_the_budget() -> None:
    case = CASES["dapo_soft_overlong"]
    budget, cache = case["hyperparameters"]["L_max"], case["hyperparameters"]["L_cache"]
    lengths, expected = tensor(case["inputs"]["lengths"]), case["expected"]
    rows = replace(table([0.5] * len(lengths), lengths=lengths.tolist()), budget=float(budget))
    close(added(shaping.soft_overlong(tokens=cache), rows), tensor(expected["penalty"]))
    close(added(shaping.soft_overlong(share=cache / budget), rows), tensor(expected["penalty"]))
    close(added(shaping.soft_overlong(), rows), tensor(expected["penalty"]))
    close(added(shaping.soft_overlong(tokens=cache, factor=0.3), rows), 0.3 * tensor(expected["penalty"]))
    # Without the floor, as some implementations have it, a row past the budget would lose ever more.
    unclamped = ((budget - cache - lengths) / cache).clamp(max=0)
    close(unclamped, tensor(expected["verl_unclamped"]))
    assert (tensor(expected["penalty"]) - unclamped)[-1] > 2


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20000), st.floats(0.001, 1), st.integers(0, 2**31))
def test_the_overlong_penalty_is_continuous_bounded_and_never_rises(budget: int, share: float, seed: int) -> None:
    cache = share * budget
    generator = torch.Generator().manual_seed(seed)
    length = (2.0 * budget * torch.rand(50, generator=generator, dtype=torch.float64)).sort().values
    penalty = shaping.overlong_penalty(length, budget, cache)
    assert (penalty >= -1).all() and (penalty <= 0).all()
    assert (penalty.diff() <= 0).all()
    step = 1e-7 * cache
    knots = tensor([budget - cache, budget])
    for side in (-step, step):
        close(shaping.overlong_penalty(knots + side, budget, cache), tensor([0.0, -1.0]), 1e-6)
    assert float(shaping.overlong_penalty(tensor([0.0]), budget, cache)) == 0


def test_a_small_budget_has_a_penalty_by_default_and_a_cache_beyond_it_is_refused() -> None:
    rows = replace(table([1.0] * 4, lengths=[0.0, 32.0, 36.0, 40.0]), budget=40.0)
    close(shaping.soft_overlong()(rows), tensor([1.0, 1.0, 0.5, 0.0]))
    with pytest.raises(AlgorithmError, match=r"4096 is more than the generation budget of 40 tokens"):
        shaping.soft_overlong(tokens=4096)(rows)


def test_length_reward() -> None:
    case = CASES["kimi_length"]
    correct = tensor(case["inputs"]["correct"])
    rows = table(correct.tolist(), lengths=case["inputs"]["lengths"])
    close(added(shaping.length_reward(), rows), tensor(case["expected"]["len_reward"]))
    close(added(shaping.length_reward(weight=0.2), rows), 0.2 * tensor(case["expected"]["len_reward"]))
    equal = table([1.0, 0.0], lengths=[300.0, 300.0])
    close(added(shaping.length_reward(), equal), tensor(case["expected"]["all_equal"]))
    # Right is what the answer says, not what the reward has become.
    shaped = replace(rows, correct=correct.bool(), reward=rows.reward - 0.7)
    close(added(shaping.length_reward(), shaped), tensor(case["expected"]["len_reward"]))


def test_length_reward_waits_for_its_warm_up() -> None:
    rows = table([1.0, 1.0], lengths=[1.0, 2.0])
    part = shaping.length_reward(warmup_steps=3)
    for step, gain in ((1, 0.0), (3, 0.0), (4, 0.5)):
        close(added(part, replace(rows, step=step)), tensor([gain, -gain]))


@settings(max_examples=80, deadline=None)
@given(tables(binary=True))
def test_length_reward_against_a_loop(rows: RewardTable) -> None:
    have = shaping.length_reward()(rows)
    for i in range(len(rows.reward)):
        if not rows.valid[i]:
            assert have[i].isnan()
            continue
        lengths = [
            float(rows.length[j])
            for j in range(len(rows.reward))
            if rows.valid[j] and int(rows.group[j]) == int(rows.group[i])
        ]
        spread = max(lengths) - min(lengths)
        gain = 0.5 - (float(rows.length[i]) - min(lengths)) / spread if spread else 0.0
        close(have[i] - rows.reward[i], gain if rows.right[i] else min(0.0, gain))


def test_a_completion_that_did_not_stop_keeps_a_share_of_its_reward_or_gets_another() -> None:
    rows = replace(
        table([1.0, 1.0, -1.0, float("nan")]), truncated=torch.tensor([False, True, True, True]), correct=None
    )
    for coef, want in ((0.25, [1.0, 0.25, -0.25]), (0.0, [1.0, 0.0, 0.0]), (-0.5, [1.0, -0.5, -0.5])):
        have = shaping.stop_properly(coef=coef)(rows)
        assert have[:3].tolist() == want and have[3].isnan()
    unknown = replace(rows, truncated=None)
    assert shaping.stop_properly()(unknown)[:3].tolist() == [1.0, 1.0, -1.0]


def test_cut_completions_stay_in_the_baseline_or_leave_it() -> None:
    case = CASES["edge_zero_length"]
    expected = case["expected"]
    rows = replace(table(case["inputs"]["rewards"]), truncated=torch.tensor([False, False, True]))
    have = {}
    for part in (truncated.keep(), truncated.mask_loss(), truncated.drop()):
        in_baseline, in_loss = part(rows)
        table_of_baseline = replace(rows, valid=rows.valid & in_baseline)
        have[part.name] = (advantages.group_mean()(table_of_baseline), in_loss.tolist())
    close(have["keep"][0], tensor(expected["advantages"]))
    assert have["keep"][1] == [True] * 3
    close(have["mask_loss"][0], tensor(expected["advantages"]))
    assert have["mask_loss"][1] == [True, True, False]
    close(have["drop"][0], tensor([*expected["advantages_if_row_excluded_from_baseline"], 0.0]))
    assert have["drop"][1] == [True, True, False]
    # The row that is masked has no loss tokens in this case.
    check(
        "edge_zero_length",
        PRESETS["grpo"].but(kl="none"),
        have["mask_loss"][0],
        expected["loss"],
        expected["grad_logp"],
    )
    everything = truncated.drop()(replace(rows, truncated=None))
    assert all(mask.all() for mask in everything)


def test_groups_are_kept_by_their_answers_and_not_by_their_rewards() -> None:
    case = CASES["dapo_dynamic_sampling"]
    accuracy = tensor(case["inputs"]["acc"])
    group = [i for i, row in enumerate(accuracy) for _ in row]
    rows = table(tensor(case["inputs"]["rewards"]).flatten().tolist(), group)
    rows = replace(rows, correct=accuracy.flatten().bool())
    for part in (selection.mixed(), selection.refill(), selection.refill(measure="accuracy")):
        kept = part(rows).view(accuracy.shape)
        assert kept.any(1).nonzero().flatten().tolist() == case["expected"]["kept"]
        assert torch.equal(kept.any(1), kept.all(1))
    # A penalty for length makes rewards differ where every answer is right.
    penalised = replace(rows, reward=rows.reward - 0.1 * torch.arange(len(group)).remainder(4))
    assert torch.equal(selection.refill()(penalised), selection.refill()(rows))
    assert selection.refill(measure="reward")(penalised).all()


def test_a_group_of_one_row_is_kept_and_a_group_with_one_graded_row_is_not() -> None:
    rows = table([1.0, 1.0, float("nan"), float("nan"), float("nan")], [0, 1, 1, 2, 2])
    for part in (selection.mixed(), selection.refill(), selection.refill(measure="reward")):
        assert part(rows).tolist() == [True, False, False, False, False]


@settings(max_examples=80, deadline=None)
@given(tables(binary=True))
def test_mixed_groups_are_those_with_a_group_advantage(rows: RewardTable) -> None:
    advantage = advantages.group_norm()(rows)
    alone = torch.bincount(rows.group)[rows.group] == 1
    kept = selection.mixed()(rows)
    for group in range(rows.groups):
        here = (rows.group == group) & ~alone
        if here.any():
            assert bool(kept[here].all()) == bool(kept[here].any()) == bool((advantage[here] != 0).any())
    assert kept[alone].all()
    assert torch.equal(kept, selection.refill()(rows))
    assert torch.equal(kept, selection.refill(measure="reward")(rows))


@settings(max_examples=60, deadline=None)
@given(tables())
def test_rows_without_a_grade_stay_so_and_change_nothing(rows: RewardTable) -> None:
    for part in (shaping.soft_overlong(), shaping.length_reward(), shaping.stop_properly()):
        have = part(rows)
        assert torch.equal(have.isnan(), ~rows.valid)
        close(part(rows.take(rows.valid)), have[rows.valid], 1e-12)


@pytest.mark.parametrize(
    ("kind", "numbers", "says"),
    [
        (shaping.soft_overlong, {"share": 0.0}, "greater than 0"),
        (shaping.soft_overlong, {"share": 1.5}, "less than or equal to 1"),
        (shaping.soft_overlong, {"tokens": -1}, "greater than or equal to 0"),
        (shaping.soft_overlong, {"factor": -1.0}, "greater than or equal to 0"),
        (shaping.length_reward, {"weight": -0.1}, "greater than or equal to 0"),
        (shaping.length_reward, {"warmup_steps": -1}, "greater than or equal to 0"),
        (shaping.stop_properly, {"coef": 1.5}, "less than or equal to 1"),
        (shaping.stop_properly, {"coef": float("-inf")}, "finite"),
        (selection.refill, {"rounds": 0}, "greater than or equal to 1"),
        (selection.refill, {"measure": "acc"}, "'accuracy' or 'reward'"),
    ],
)
def test_bad_numbers_are_refused(kind: Any, numbers: dict[str, Any], says: str) -> None:
    with pytest.raises(AlgorithmError, match=says):
        kind(**numbers)


def test_equations_say_what_the_numbers_change() -> None:
    assert "c = 0.2 L_max" in shaping.soft_overlong().text and "c = 4096" in shaping.soft_overlong(tokens=4096).latex
    assert "0.5 clip" in shaping.soft_overlong(factor=0.5).text
    assert "from step 6" in shaping.length_reward(warmup_steps=5).text and "step" not in shaping.length_reward().text
    assert "0.5 r_i" in shaping.stop_properly(coef=0.5).text and "<- -0.5" in shaping.stop_properly(coef=-0.5).text
    assert (
        "at most 3 rollout" in selection.refill(rounds=3).text and "equal" in selection.refill(measure="reward").latex
    )
