"""Identities in expectation over random distributions, and the numeric witnesses of identities between methods."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from surefoot.algorithms import advantages, aggregation, kl, ratios, trust
from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.divergence import divergence_mask
from surefoot.algorithms.likelihood import maximum_likelihood
from surefoot.algorithms.presets import PRESETS
from tests.algorithms.harness import CASES, Rows, table, tensor
from tests.algorithms.test_algorithms_golden import clipped_tokens, close


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 9), st.floats(0.05, 0.95))
def test_identity_13_maximum_likelihood_reaches_its_order(size: int, p: float) -> None:
    q = 1 - p

    def expectation(form: str, order: int = 0) -> float:
        """E[mean_i a_i s_i] / grad p, with the score s = 1/p of a success and -1/q of a failure."""
        total = 0.0
        for right in range(size + 1):
            outcome = [1.0] * right + [0.0] * (size - right)
            a = maximum_likelihood(form=form, order=order)(table(outcome))
            score = torch.tensor([1 / p] * right + [-1 / q] * (size - right), dtype=torch.float64)
            total += math.comb(size, right) * p**right * q ** (size - right) * float((a * score).mean())
        return total

    def target(order: int) -> float:
        return sum(q**k for k in range(order))

    assert expectation("conditional") == pytest.approx(target(size), rel=1e-9)
    assert expectation("control_variate") == pytest.approx(target(size), rel=1e-9)
    assert expectation("mean_normalised") == pytest.approx(target(size - 1), rel=1e-9)
    for order in range(1, size + 1):
        assert expectation("subset", order) == pytest.approx(target(order), rel=1e-9)
        assert expectation("maclaurin", order) == pytest.approx(target(order), rel=1e-8)
    # Order 1 is the policy gradient, order infinity that of log p, whose factor is 1 / p.
    assert target(1) == 1.0
    assert target(size) == pytest.approx((1 - q**size) / p)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.integers(0, 2**31))
def test_identity_33_expected_gradients_of_kl_estimators(vocabulary: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits, other = torch.randn(2, vocabulary, generator=generator, dtype=torch.float64)
    logits.requires_grad_()
    logp, reference = logits.log_softmax(0), other.log_softmax(0)

    def slope(value: Tensor) -> Tensor:
        return torch.autograd.grad(value, logits, retain_graph=True)[0]

    def expected(estimator: str) -> Tensor:
        return slope((logp.detach().exp() * kl.estimate(estimator, logp, reference)).sum())

    reverse = slope((logp.exp() * (logp - reference)).sum())
    forward = slope((reference.exp() * (reference - logp)).sum())
    for estimator, want in (("k1", torch.zeros(vocabulary)), ("k2", reverse), ("k3_ratio", reverse), ("k3", forward)):
        torch.testing.assert_close(expected(estimator), want.double(), rtol=1e-9, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 30), st.integers(0, 2**31), st.floats(0.1, 20))
def test_identity_34_entropy(vocabulary: int, seed: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(vocabulary, generator=generator, dtype=torch.float64)

    def of(z: Tensor) -> tuple[Tensor, Tensor]:
        z = z.clone().requires_grad_()
        entropy = z.logsumexp(0) - (z.softmax(0) * z).sum()
        return entropy.detach(), torch.autograd.grad(entropy, z)[0]

    entropy, slope = of(logits)
    p = logits.softmax(0)
    torch.testing.assert_close(slope, -p * (p.log() + entropy), rtol=1e-9, atol=1e-9)
    assert abs(float(slope.sum())) < 1e-10
    assert -1e-12 <= float(entropy) <= math.log(vocabulary) + 1e-12
    uniform, flat = of(torch.full((vocabulary,), 3.0, dtype=torch.float64))
    assert float(uniform) == pytest.approx(math.log(vocabulary))
    assert float(flat.abs().max()) < 1e-12


def witnesses() -> Any:
    return CASES["identities"]["expected"]


def test_identities_of_advantages() -> None:
    expected = witnesses()
    pair, one_of_four = table([1.0, 0.0]), table([1.0, 0.0, 0.0, 0.0])
    assert expected["maxrl_g2_eq_rloo_g2"]
    close(maximum_likelihood()(pair), advantages.leave_one_out()(pair))
    close(advantages.group_norm(ddof=1, eps=0.0)(pair), tensor(expected["grpo_g2_ddof1"]))
    close(advantages.group_norm(ddof=0, eps=0.0)(pair), tensor(expected["grpo_g2_ddof0"]))
    binary = advantages.group_norm(ddof=0, eps=0.0)(one_of_four)
    close(binary, tensor(expected["grpo_binary_G4_K1_ddof0"]))
    close(binary * math.sqrt(0.75 / 0.25), tensor(expected["maxrl_eq_grpo_times_sqrt_odds"]))
    close(maximum_likelihood(form="mean_normalised")(one_of_four), tensor(expected["maxrl_eq_grpo_times_sqrt_odds"]))


def test_identities_of_trust_regions() -> None:
    expected = witnesses()
    inputs = CASES["dual_clip"]["inputs"]
    ratio = tensor(CASES["dual_clip"]["expected"]["ratio"])[0]
    rows = Rows(inputs["mask"])
    tokens = rows.tokens(tensor(inputs["logp"]), tensor(inputs["advantages_token"]), logp_old=inputs["logp_old"])
    delta = -torch.minimum(ratio.clamp(max=3.0) * tokens.advantage, ratio.clamp(0.8, 1.2) * tokens.advantage)
    difference = (trust.dual_clip(bound=3.0)(tokens, ratio) - delta).abs().max()
    close(difference, expected["dual_clip_eq_trl_delta_maxdiff"])

    # TV > delta says that the ratio is further than delta / mu from 1: a clip whose width depends on the token.
    assert expected["dppo_tv_is_token_adaptive_ppo"]
    inputs = CASES["dppo_binary"]["inputs"]
    tokens = Rows(inputs["mask"]).tokens(
        tensor(inputs["logp"]), inputs["advantages"], logp_behaviour=inputs["logp_roll"]
    )
    ratio = ratios.token(anchor="behaviour")(tokens)
    width = 0.15 / tokens.logp_behaviour.exp()
    adaptive = ((tokens.advantage > 0) & (ratio > 1 + width)) | ((tokens.advantage < 0) & (ratio < 1 - width))
    shares = divergence_mask.shares
    assert shares is not None
    outside = shares(tokens, ratio, measure="tv", delta=0.15)["masked"]
    assert adaptive.tolist() == outside.tolist() and adaptive.any()


def test_identities_of_gradients() -> None:
    expected = witnesses()
    inputs = CASES["ppo_clip"]["inputs"]
    rows = Rows(inputs["mask"], constant=8.0)
    rewards = table([1.0, 0.0, 0.5])
    rloo, dr_grpo = (
        rows.loss(PRESETS[name].but(kl="none"), inputs["logp"], PRESETS[name].advantage(rewards))[1]
        for name in ("rloo", "dr_grpo")
    )
    close(dr_grpo, expected["drgrpo_onpolicy_eq_rloo_times"] * rloo)

    assert expected["cispo_grad_eq_ppo_grad_on_unclipped_tokens"]
    _, soft = rows.loss(PRESETS["cispo"], inputs["logp"], inputs["advantages"], logp_old=inputs["logp_old"])
    _, hard = rows.loss(clipped_tokens, inputs["logp"], inputs["advantages"], logp_old=inputs["logp_old"])
    unclipped = hard != 0
    assert int(unclipped.sum()) == 7  # of nine
    close(soft[unclipped], hard[unclipped])

    assert expected["aggregations_agree_for_equal_lengths"]
    equal = Rows([[1.0] * 3] * 4, [0, 0, 1, 1], constant=3.0)
    logp = [[-0.1, -0.2, -0.3], [-1.1, -0.7, -0.4], [-0.6, -0.9, -2.0], [-0.2, -0.8, -1.3]]
    losses = [
        equal.loss(Algorithm(aggregation=getattr(aggregation, mode)()), logp, [1.0, -1.0, 0.5, 2.0])[0]
        for mode in ("token_mean", "seq_mean_token_mean", "prompt_mean", "seq_mean_token_sum_norm")
    ]
    close(losses, [losses[0]] * 4)
