"""Advantages of single tokens, the critic's loss and the KL in the reward: worked cases, oracles and edges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.algorithms import advantages, kl, value
from surefoot.algorithms.presets import PRESETS
from surefoot.algorithms.returns import after_baseline, gae, process, reward_to_go, to_go, token_rewards
from surefoot.algorithms.table import RewardTable, StepTable
from surefoot.errors import AlgorithmError
from tests.algorithms.harness import CASES, Rows, table, tensor
from tests.algorithms.tables import masked, rows_of, tables
from tests.algorithms.test_algorithms_golden import DTYPES, close


def case_of_gae(name: str) -> tuple[RewardTable, torch.Tensor, dict[str, Any]]:
    """The table, the mask and the expected values of a case that gives a reward to every token."""
    inputs = CASES[name]["inputs"]
    mask = tensor(inputs["mask"]).bool()
    rows = masked([0.0] * len(mask), inputs["mask"], values=inputs["values"])
    return replace(rows, token_penalty=-tensor(inputs["rewards"])[mask]), mask, CASES[name]["expected"]


@pytest.mark.parametrize(("ddof", "key"), [(1, "whitened_ddof1"), (0, "whitened_ddof0")])
def test_gae(ddof: int, key: str) -> None:
    rows, mask, expected = case_of_gae("gae_basic")
    part = gae(**CASES["gae_basic"]["hyperparameters"], whiten=False)
    advantage, returns = part(rows)
    close(advantage, tensor(expected["advantages"])[mask])
    close(returns, tensor(expected["returns"])[mask])
    white, same = part.but(whiten=True, ddof=ddof)(rows)
    close(white, tensor(expected[key])[mask])
    assert torch.equal(same, returns), "what the critic learns is not whitened"


def test_gae_carries_values_over_a_hole_in_the_mask() -> None:
    rows, mask, expected = case_of_gae("gae_hole")
    part = gae(**CASES["gae_hole"]["hyperparameters"], whiten=False)
    close(part(rows)[0], tensor(expected["advantages_skip_masked"])[mask])
    # Taking the arithmetic neighbour instead, as if tool output were tokens of the policy, is what others do.
    inputs = CASES["gae_hole"]["inputs"]
    naive = masked(inputs["rewards"][0][-1:], [[1.0] * 4], values=inputs["values"])
    close(part(naive)[0], tensor(expected["advantages_naive"]).flatten())
    assert abs(float(part(naive)[0][0] - part(rows)[0][0])) > 0.1


def test_the_reward_stands_on_the_last_loss_token_and_the_kl_on_every_one() -> None:
    case = CASES["kl_in_reward"]
    inputs = case["inputs"]
    rows = masked(inputs["scores"], inputs["mask"], logp_old=inputs["logp_old"], logp_reference=inputs["logp_ref"])
    penalty = kl.in_reward(coef=case["hyperparameters"]["kl_coef"], estimator="k1")(rows)
    have = token_rewards(replace(rows, token_penalty=penalty))
    close(have, tensor(case["expected"]["token_rewards"])[tensor(inputs["mask"]).bool()])


def test_reinforce_plus_plus() -> None:
    case = CASES["reinforce_pp"]
    inputs, expected = case["inputs"], case["expected"]
    mask = tensor(inputs["mask"]).bool()
    rows = masked(inputs["scores"], inputs["mask"], logp_old=inputs["logp_old"], logp_reference=inputs["logp_ref"])
    rows = replace(rows, token_penalty=kl.in_reward(coef=case["hyperparameters"]["kl_coef"])(rows))
    part = reward_to_go(gamma=case["hyperparameters"]["gamma"])
    close(part.but(whiten=False)(rows), tensor(expected["returns"])[mask])
    for ddof in (0, 1):
        close(part.but(ddof=ddof)(rows), tensor(expected[f"advantages_ddof{ddof}"])[mask])


def test_process_supervision() -> None:
    case = CASES["grpo_process"]
    inputs, expected = case["inputs"], case["expected"]
    rows = masked([0.0] * 3, expected["mask"], [0, 0, 0])
    steps = [
        (i, end, reward)
        for i, (ends, rewards) in enumerate(zip(inputs["step_end_index"], inputs["step_rewards"], strict=True))
        for end, reward in zip(ends, rewards, strict=True)
    ]
    row, end, reward = zip(*steps, strict=True)
    rows = replace(rows, steps=StepTable(torch.tensor(row), torch.tensor(end), tensor(list(reward))))
    close(process(**case["hyperparameters"])(rows), tensor(expected["advantages"])[tensor(expected["mask"]).bool()])
    pool = tensor(list(reward))
    close(pool.mean(), expected["mean"])
    close(pool.std(), expected["std"])


def test_kl_after_the_baseline_is_not_in_the_baseline_of_the_others() -> None:
    case = CASES["rloo_kl"]
    rewards, beta = case["inputs"]["rewards"], case["hyperparameters"]["beta"]
    # Each row's KL, spread unevenly over three tokens.
    spread = tensor(case["inputs"]["seq_kl"])[:, None] * tensor([0.5, -0.2, 0.7])
    rows = replace(table(rewards, lengths=[3.0] * 4), token_penalty=beta * spread.flatten())
    baseline = advantages.leave_one_out()
    after = after_baseline(rows, baseline(rows)).view(4, 3)
    close(after[:, 0], tensor(case["expected"]["advantages_if_kl_after_baseline"]))
    close(after[:, 2], baseline(rows) - 0.7 * beta * tensor(case["inputs"]["seq_kl"]))
    before = replace(rows, reward=rows.reward - rows.row_sum(rows.token_penalty))
    close(baseline(before), tensor(case["expected"]["advantages"]))


def test_the_critics_loss_in_value_and_gradient() -> None:
    case = CASES["ppo_value"]
    inputs, expected = case["inputs"], case["expected"]
    for dtype, tolerance in DTYPES:
        rows = Rows(inputs["mask"], dtype=dtype)
        leaf = tensor(inputs["values"], dtype).requires_grad_()
        old, returns = rows.flat(inputs["old_values"]), rows.flat(inputs["returns"])
        part = value.squared(clip=case["hyperparameters"]["cliprange_value"])
        loss = part(rows.flat(leaf), old, returns).mean()
        loss.backward()
        close(loss.detach(), expected["loss"], tolerance)
        close(leaf.grad, tensor(expected["grad_values"]), tolerance)
        close(
            part.but(clip=0.0)(rows.flat(leaf.detach()), old, returns).mean(), expected["loss_without_clip"], tolerance
        )


def test_a_clipped_value_has_no_gradient_towards_its_return_and_the_whole_one_at_a_tie() -> None:
    values = tensor([0.5, -0.5, 0.125, 0.75]).requires_grad_()
    old, returns = tensor([0.0] * 4), tensor([1.0, 1.0, 1.0, 0.5])
    value.squared(clip=0.25)(values, old, returns).sum().backward()
    # Past the band towards the return; past it the other way; inside it; and as far beyond the return as the band's edge.
    close(values.grad, tensor([0.0, -1.5, -0.875, 0.25]))


@settings(max_examples=80, deadline=None)
@given(tables(), st.floats(0, 1), st.floats(0, 1), st.booleans())
def test_gae_and_returns_against_a_loop(rows: RewardTable, gamma: float, lam: float, bootstrap: bool) -> None:
    advantage, returns = gae(gamma=gamma, lam=lam, whiten=False, bootstrap_truncated=bootstrap)(rows)
    values, penalty = rows_of(rows, rows.values), rows_of(rows, rows.token_penalty)
    want: list[float] = []
    togo: list[float] = []
    for i, row in enumerate(values):
        ahead, after = 0.0, row[-1] if row and bootstrap and rows.truncated[i] else 0.0
        earned = 0.0
        reversed_a, reversed_r = [], []
        for t in reversed(range(len(row))):
            reward = (float(rows.reward[i]) if t == len(row) - 1 else 0.0) - penalty[i][t]
            ahead = reward + gamma * after - row[t] + gamma * lam * ahead
            earned = reward + gamma * earned
            after = row[t]
            reversed_a.append(ahead if rows.valid[i] else 0.0)
            reversed_r.append(earned if rows.valid[i] else 0.0)
        want += reversed_a[::-1]
        togo += reversed_r[::-1]
    close(advantage, tensor(want), 1e-10)
    close(returns, tensor(want) + rows.values, 1e-10)
    close(reward_to_go(gamma=gamma, whiten=False)(rows), tensor(togo), 1e-10)


@settings(max_examples=60, deadline=None)
@given(tables())
def test_gae_without_discounts_is_the_return_to_go_minus_the_value(rows: RewardTable) -> None:
    advantage, returns = gae(gamma=1.0, lam=1.0, whiten=False)(rows)
    togo = reward_to_go(gamma=1.0, whiten=False)(rows)
    inside = rows.valid[rows.row]
    close(advantage[inside], (togo - rows.values)[inside], 1e-10)
    close(returns[inside], togo[inside], 1e-10)


@settings(max_examples=60, deadline=None)
@given(tables(), st.sampled_from([0, 1]))
def test_whitening_is_over_the_loss_tokens_of_graded_rows(rows: RewardTable, ddof: int) -> None:
    raw = reward_to_go(whiten=False)(rows)
    white = reward_to_go(ddof=ddof)(rows)
    inside = rows.valid[rows.row]
    assert (white[~inside] == 0).all() and (raw[~inside] == 0).all()
    chosen = raw[inside]
    if len(chosen) < 2:
        assert (white == 0).all()
    elif float(chosen.max() - chosen.min()) > 1e-6:
        close(white[inside], (chosen - chosen.mean()) / (chosen.var(correction=ddof) + 1e-8).sqrt(), 1e-10)


@settings(max_examples=80, deadline=None)
@given(tables(), st.sampled_from([0, 1]))
def test_process_supervision_against_a_loop(rows: RewardTable, ddof: int) -> None:
    have = process(ddof=ddof, eps=0.01)(replace(rows, token_penalty=None))
    steps = list(zip(rows.steps.row.tolist(), rows.steps.end.tolist(), rows.steps.value.tolist(), strict=True))
    want: list[float] = []
    for i, length in enumerate(rows.length.long().tolist()):
        pool = tensor([v for row, _, v in steps if rows.group[row] == rows.group[i] and rows.valid[row]])
        std = float(pool.std(correction=ddof)) if len(pool) > 1 else 1.0
        mine = [(end, (v - float(pool.mean())) / (std + 0.01)) for row, end, v in steps if row == i and rows.valid[i]]
        want += [sum(v for end, v in mine if end >= t) if len(pool) > 1 else 0.0 for t in range(length)]
    close(have, tensor(want), 1e-9)
    close(process(ddof=ddof, eps=0.01)(rows), have + after_baseline(rows, torch.zeros_like(rows.reward)), 1e-12)


def test_process_supervision_has_edges() -> None:
    rows = table([0.0] * 4, [0, 0, 1, 1], [2.0, 2.0, 0.0, 3.0])

    def steps(*given: tuple[int, int, float]) -> RewardTable:
        row, end, reward = zip(*given, strict=True)
        return replace(rows, steps=StepTable(torch.tensor(row), torch.tensor(end), tensor(list(reward))))

    one_step = process()(steps((0, 1, 1.0)))
    assert (one_step == 0).all()
    equal = process()(steps((0, 0, 0.1 * 3), (0, 1, 0.3), (1, 1, 0.3 + 1e-16)))
    assert (equal == 0).all()
    # The row without loss tokens is in the pool of its group; a step without a score is in none.
    pooled = process(eps=0.0)(steps((2, 0, 0.0), (3, 2, 1.0), (3, 1, float("nan"))))
    close(pooled, tensor([0.0] * 4 + [0.5**0.5] * 3))
    none = StepTable(torch.zeros(0).long(), torch.zeros(0).long(), torch.zeros(0).double())
    assert (process()(replace(rows, steps=none)) == 0).all()
    with pytest.raises(AlgorithmError, match="step 1 ends at loss token 2 of row 1, which has 2"):
        process()(steps((0, 1, 1.0), (1, 2, 0.0)))
    with pytest.raises(AlgorithmError, match=r"'process' reads RewardTable\.steps"):
        process()(rows)


def test_a_single_token_equal_rewards_and_an_exact_critic_give_zero() -> None:
    alone = replace(table([1.0], lengths=[1.0]), values=tensor([0.3]))
    advantage, returns = gae()(alone)
    assert advantage.tolist() == [0.0]
    close(returns, tensor([1.0]))
    equal = table([0.1 * 3, 0.3, 0.3 + 5e-17], lengths=[4.0, 2.0, 3.0])
    assert (reward_to_go()(equal) == 0).all()
    exact = replace(table([0.0, 0.0], lengths=[3.0, 2.0]), values=tensor([0.0] * 5))
    assert (gae()(exact)[0] == 0).all()
    empty = replace(table([1.0, 0.0], lengths=[0.0, 0.0]), values=tensor([]))
    assert [len(part) for part in gae()(empty)] == [0, 0] and len(reward_to_go()(empty)) == 0


def test_long_rows_are_summed_as_exactly_as_short_ones() -> None:
    rows = table([1.0, 1.0], lengths=[5000.0, 3.0])
    ones = torch.ones(5003, dtype=torch.float64)
    have = to_go(rows, ones, 0.99)
    left = torch.cat([torch.arange(5000.0, 0, -1), torch.arange(3.0, 0, -1)]).double()
    close(have, (1 - 0.99**left) / 0.01, 1e-12)
    assert torch.equal(to_go(rows, ones), left)


def kl_table(rows: int, per_row: float) -> RewardTable:
    base = table([1.0] * rows, lengths=[2.0] * rows)
    old = torch.full((2 * rows,), -1.0, dtype=torch.float64)
    return replace(base, logp_old=old, logp_reference=old - per_row / 2)


def test_an_adaptive_coefficient_is_remembered_and_follows_the_kl() -> None:
    part = kl.in_reward(coef=0.1, target=6.0, horizon=100.0)
    # KL per row, and the factor of 10 rows and a horizon of 100: 1 + clip(KL/6 - 1, -0.2, 0.2) / 10.
    expected, memory = 0.1, {}
    for per_row, factor in ((6.6, 1.01), (60.0, 1.02), (-3.0, 0.98), (6.0, 1.0)):
        rows = replace(kl_table(10, per_row), memory=memory)
        close(part(rows), torch.full((20,), expected * per_row / 2, dtype=torch.float64))
        expected *= factor
        close(memory["kl_coef"], expected)
    fixed = replace(kl_table(10, 60.0), memory={"kl_coef": 7.0})
    close(part.but(target=0.0)(fixed), torch.full((20,), 3.0, dtype=torch.float64))
    assert fixed.memory == {"kl_coef": 7.0}
    empty = replace(table([1.0], lengths=[0.0]), logp_old=tensor([]), logp_reference=tensor([]))
    assert len(part(empty)) == 0 and empty.memory["kl_coef"] == 0.1
    with pytest.raises(AlgorithmError, match="too short for batches of 500 rows"):
        part(kl_table(500, 1.0))


def test_no_coefficient_is_exactly_off() -> None:
    rows = replace(kl_table(2, 1.0), logp_reference=None)
    off = kl.in_reward(coef=0.0, target=6.0)(rows)
    assert off.tolist() == [0.0] * 4 and not rows.memory
    assert not PRESETS["rloo"].but(kl={"coef": 0.0}).needs_reference
    with pytest.raises(AlgorithmError, match=r"reads RewardTable\.logp_reference"):
        kl.in_reward()(rows)


@pytest.mark.parametrize(
    ("kind", "numbers", "says"),
    [
        (gae, {"gamma": 1.1}, "less than or equal to 1"),
        (gae, {"lam": -0.1}, "greater than or equal to 0"),
        (gae, {"gamma": float("nan")}, "gamma"),
        (gae, {"ddof": 2}, "0 or 1"),
        (reward_to_go, {"gamma": 2.0}, "less than or equal to 1"),
        (process, {"eps": -1.0}, "greater than or equal to 0"),
        (kl.in_reward, {"horizon": -1.0}, "greater than 0"),
        (kl.in_reward, {"horizon": 0.0}, "greater than 0"),
        (kl.in_reward, {"target": -6.0}, "greater than or equal to 0"),
        (kl.in_reward, {"coef": float("inf")}, "finite"),
        (value.squared, {"clip": -0.2}, "greater than or equal to 0"),
        (value.squared, {"coef": 0.0}, "greater than 0"),
    ],
)
def test_bad_numbers_are_refused(kind: Any, numbers: dict[str, Any], says: str) -> None:
    with pytest.raises(AlgorithmError, match=says):
        kind(**numbers)


def test_equations_say_what_the_numbers_change() -> None:
    assert "whiten" in gae().text and "whiten" not in gae(whiten=False).text
    assert "0.855^k" in gae(gamma=0.9).text and "0.9V_{i,t+1}" in gae(gamma=0.9).latex
    assert "cut" in gae(bootstrap_truncated=True).text and "cut" not in gae().text
    assert "max" in value.squared().text and "max" not in value.squared(clip=0.0).latex
    assert "A_it" in kl.in_reward(after_baseline=True).text and "R_{it}" in kl.in_reward().latex
    assert "KL/6" in kl.in_reward(target=6.0).text and "10000" in kl.in_reward(target=6.0).latex
