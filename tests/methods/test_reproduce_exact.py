"""Policies small enough for exact gradients, and the claims that are shown on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from surefoot.algorithms import kl
from surefoot.algorithms.presets import PRESETS
from surefoot.errors import AlgorithmError
from surefoot.methods.reproduce import lengths, rewards, variance
from surefoot.methods.reproduce.claim import CONTROL, judge
from surefoot.methods.reproduce.store import Bench
from surefoot.methods.reproduce.tabular import (
    Listed,
    bandit,
    draw,
    expected_gradient,
    group_gradients,
    lengthy,
    mean_length,
    pairs,
)

POLICIES = {
    "bandit": bandit([0.3, -1.0, 0.4], [1.0, 0.0, 0.0]),
    "pairs": pairs(np.array([-1.0, 0.5]), {"large": 1.0, "small": 0.1}),
    "lengthy": lengthy(np.array([0.2, -0.4, 0.9]), 5),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_the_list_is_complete_and_its_gradient_is_that_of_the_expected_reward(policy: Listed) -> None:
    theta = policy.logits.clone().requires_grad_(True)
    chance = policy.probability(theta)
    assert float(chance.sum()) == pytest.approx(1.0, abs=1e-12)
    (truth,) = torch.autograd.grad((chance * torch.from_numpy(policy.reward)).sum(), theta)
    for name in ("reinforce", "rloo"):
        found = expected_gradient(PRESETS[name].but(kl=kl.none()), policy, policy.logits, 2)
        assert torch.allclose(-found, truth, atol=1e-12), name


def test_the_mean_of_the_groups_is_the_expected_gradient() -> None:
    policy, algorithm = POLICIES["lengthy"], PRESETS["dr_grpo"]
    gradients, chance = group_gradients(algorithm, policy, policy.logits, 2)
    assert torch.allclose((chance[:, None] * gradients).sum(0), expected_gradient(algorithm, policy, policy.logits, 2))


def test_an_aggregation_that_mixes_groups_is_refused() -> None:
    with pytest.raises(AlgorithmError, match="mixes groups"):
        expected_gradient(PRESETS["dapo"].but(selection="keep"), POLICIES["bandit"], POLICIES["bandit"].logits, 2)


def test_draws_follow_the_probabilities() -> None:
    policy = POLICIES["lengthy"]
    drawn = draw(policy, policy.logits, np.random.default_rng(0), 4000, 5)
    found = np.bincount(drawn.ravel(), minlength=len(policy.length)) / drawn.size
    assert np.abs(found - policy.probability(policy.logits).numpy()).max() < 0.01


def test_lengths_of_the_policy_with_idle_tokens() -> None:
    """Going on with probability q after a wrong answer: 2 + q + q^2 + q^3 tokens of at most 5."""
    policy = POLICIES["lengthy"]
    q = float(torch.tensor(0.9, dtype=torch.float64).sigmoid())
    assert float(mean_length(policy, policy.logits, right=False)) == pytest.approx(2 + q + q**2 + q**3)


def test_baseline_exact_on_two_policies(tmp_path: Path) -> None:
    claim = variance.BASELINE_EXACT.but(seeds=(0, 1), group_size=3)
    for seed in claim.seeds:
        values = claim.measure(Bench(tmp_path), claim, seed)
        assert values["variance"] > 0 and values[CONTROL] < 1e-12


def test_wrong_length_comes_from_the_division_alone(tmp_path: Path) -> None:
    claim = lengths.WRONG_LENGTH.but(seeds=(0, 1, 2, 3), budget=5)
    measured = [claim.measure(Bench(tmp_path), claim, seed) for seed in claim.seeds]
    assert all(values["grpo"] > 0 for values in measured)
    finding = judge(claim, measured)
    assert finding.held and finding.verdicts["dr_grpo"] == "reproduced"


def test_two_rewards_of_one_size_are_learned_alike_and_of_two_sizes_are_not(tmp_path: Path) -> None:
    claim = rewards.GDPO_TWO.but(seeds=(0, 1), lr=1.0)
    measured = [claim.measure(Bench(tmp_path), claim, seed) for seed in claim.seeds]
    assert all(values["alive"] > values["summed"] + 0.1 for values in measured)
    assert judge(claim, measured).held


def test_the_weight_of_a_hard_prompt_is_that_of_the_formula(tmp_path: Path) -> None:
    """MaxRL of order N weighs the gradient of the success rate p by (1 - (1 - p)^N) / p."""
    claim = rewards.MAXRL_WEIGHT.but(seeds=(0, 1), hard=[0.1, 0.1 + 1e-12], group_size=5)
    values = claim.measure(Bench(tmp_path), claim, 0)
    assert values["maxrl"] == pytest.approx((1 - 0.9**5) / 0.1 / ((1 - 0.5**5) / 0.5), rel=1e-6)
    assert values[CONTROL] == pytest.approx(1, abs=1e-12) and values["weight"] > 0
