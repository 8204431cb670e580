"""Claims shown on one batch of rollouts, at a size that takes seconds: what must be exact is exact, the rest is a number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from surefoot.algorithms.presets import PRESETS
from surefoot.methods.reproduce import clipping, mismatch, sequence_ratio, variance
from surefoot.methods.reproduce.claim import CONTROL, Claim, Measured
from surefoot.methods.reproduce.rollouts import (
    Start,
    behaviour,
    coefficients,
    gradient,
    logprobs,
    noisy,
    start,
    token_advantage,
    updated,
)
from surefoot.methods.reproduce.store import Bench

SMALL: dict[str, Any] = {
    "base_keys": {
        "task": {"options": {"digits": 1}, "train_size": 40, "heldout_size": 8},
        "rollout": {"max_new_tokens": 14},
    },
    "warm_keys": {
        "steps": 80,
        "batch": 16,
        "check_every": 80,
        "rollout": {"max_new_tokens": 14},
        "evaluation": {"problems": 8},
        "target_accuracy": 2.0,
    },
    "prompts": 6,
    "group_size": 4,
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("reproduce"), 1)


@pytest.fixture(scope="module")
def begin(bench: Bench) -> Start:
    return start(bench, variance.RLOO_GRPO.but(seeds=(0, 1), **SMALL), 0)


def measured(bench: Bench, claim: Claim, **settings: Any) -> Measured:
    claim = claim.but(seeds=(0, 1), **SMALL, **settings)
    return claim.measure(bench, claim, 0)


def test_the_warm_start_is_made_once(bench: Bench, begin: Start) -> None:
    again = start(bench, variance.RLOO_GRPO.but(seeds=(0, 1), **SMALL), 0)
    assert again.policy.checksum() == begin.policy.checksum()
    assert [sample.ids.tolist() for sample in again.samples] == [sample.ids.tolist() for sample in begin.samples]


def test_coefficients_on_policy_are_advantage_over_denominator(begin: Start) -> None:
    """Dr. GRPO on policy: -A_i / (rows L_max) at every token of row i."""
    budget, algorithm = begin.parts.sampling.max_new_tokens, PRESETS["dr_grpo"]
    now = logprobs(begin.policy, begin.samples)
    push = coefficients(algorithm, begin.groups, now=now, old=now, mu=now, budget=budget)
    wanted = -token_advantage(algorithm, begin.groups, budget) / (len(begin.samples) * budget)
    assert (wanted != 0).any() and torch.allclose(push, wanted, atol=1e-12)


def test_gradients_of_groups_add_up_to_that_of_the_batch(begin: Start) -> None:
    budget, algorithm = begin.parts.sampling.max_new_tokens, PRESETS["dr_grpo"]
    whole = gradient(begin.policy, algorithm, begin.groups, budget)
    parts = [gradient(begin.policy, algorithm, [group], budget) for group in begin.groups]
    assert float(whole.norm()) > 0
    assert float((torch.stack(parts).mean(0) - whole).norm() / whole.norm()) < 1e-4


def test_an_update_leaves_the_start_as_it_is(begin: Start) -> None:
    before = begin.policy.checksum()
    policy = updated(begin, PRESETS["grpo_token"], epochs=1, updates=2, lr=1e-3)
    assert begin.policy.checksum() == before != policy.checksum()


def test_noise_is_of_the_size_that_was_asked_for(begin: Start) -> None:
    name, one = next((n, p) for n, p in begin.policy.model.named_parameters() if p.dim() >= 2)
    other = dict(noisy(begin.policy, 0.05, 0).model.named_parameters())[name]
    assert float((other - one).std() / one.std()) == pytest.approx(0.05, rel=0.05)


def test_the_engine_says_what_the_trainer_computes(begin: Start) -> None:
    assert float((behaviour(begin.samples) - logprobs(begin.policy, begin.samples)).abs().max()) < 1e-4


def test_rloo_and_grpo_are_one_gradient_up_to_the_factor(bench: Bench) -> None:
    values = measured(bench, variance.RLOO_GRPO)
    assert values["error"] < 1e-3 and values["dr_grpo"] < 1e-3 and values[CONTROL] > 0.1


def test_the_variance_of_both_gradients(bench: Bench) -> None:
    values = measured(bench, variance.BASELINE_MODEL)
    assert 0 < values["variance"] < 2 and 0 < values["success"] < 1
    assert math.isfinite(values[CONTROL])


def test_the_clip_cannot_act_in_the_first_update_and_does_later(bench: Bench) -> None:
    values = measured(bench, clipping.CLIP_REGION, epochs=6, updates=2, lr=3e-3)
    assert values[CONTROL] < 1e-6
    assert values["distance"] > 0 and values["outside"] < values["outside_unclipped"]


def test_what_is_left_of_the_push_on_rare_tokens(bench: Bench) -> None:
    values = measured(bench, clipping.CISPO_RARE, epochs=4, updates=2, lr=3e-3, rare=0.5, common=0.9)
    assert values["rare_tokens"] > 0 and 0 <= values["clip"] <= values["cispo"] <= 1 + 1e-9
    push = torch.tensor([1.0, 0.0, 3.0])
    assert clipping.kept(push, torch.tensor([1.0, 1.0, 4.0]), torch.tensor([True, True, False])) == 0.5
    assert math.isnan(clipping.kept(push, push, torch.tensor([False] * 3)))


def test_nothing_is_masked_without_a_mismatch(bench: Bench) -> None:
    values = measured(bench, mismatch.DPPO_MASKS, noise=0.2, rare=0.5)
    assert values[CONTROL] == 0 and values["mismatch"] > 0
    assert values["clip"] + values["dppo"] > 0, "with noise of a fifth the clip masks something"


def test_the_float32_head_changes_half_precision_alone(bench: Bench) -> None:
    values = measured(bench, mismatch.FLOAT32_HEAD)
    assert values[CONTROL] == 0 and values["half"] != values["wide"] and math.isfinite(values["mismatch"])


def test_ratios_of_a_mixture_of_experts(bench: Bench) -> None:
    claim = sequence_ratio.GSPO_VARIANCE.but(
        seeds=(0, 1), prompts=2, group_size=4, lengths=[4, 12], trained=12, updates=1, lr=3e-3
    )
    values = claim.measure(bench, claim, 0)
    assert 0 < values["longest"] < 1 and values[CONTROL] < 1e-3
    assert 0 <= values["rerouted"] <= 1 and math.isfinite(values["slope"])


def test_variances_of_ratios_of_independent_tokens() -> None:
    """The mean of L independent log-ratios has 1 / L of their variance."""
    rng = np.random.default_rng(0)
    log_ratio = torch.from_numpy(rng.normal(0, 0.05, size=4000 * 16))
    token, row = sequence_ratio.spread_of_ratios(log_ratio, 16)
    assert row / token == pytest.approx(1 / 16, rel=0.1)


def test_a_fall_is_measured_from_the_best_mean() -> None:
    assert sequence_ratio.fall(np.array([0.0, 0, 1, 1, 1, 0, 0]), window=3) == pytest.approx(1 - 1 / 3)
    assert sequence_ratio.fall(np.arange(10.0)) == 0
