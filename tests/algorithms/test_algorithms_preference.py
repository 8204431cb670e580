"""Losses of direct alignment: worked cases in value and gradient, and identities over random pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from surefoot.algorithms.part import Part
from surefoot.algorithms.preference import (
    apo_down,
    apo_zero,
    bco,
    cal_dpo,
    dpo,
    hinge,
    ipo,
    kto,
    nca,
    simpo,
    sppo_hard,
)
from surefoot.algorithms.preference_odds import asft, asft_align, orpo, orpo_align
from surefoot.algorithms.preference_pairs import Labelled, Pairs, long2short_pairs
from tests.algorithms.harness import CASES, tensor

# Worked gradients are finite differences, printed with 8 significant digits.
DTYPES = [(torch.float64, 1e-9, 5e-8), (torch.float32, 1e-5, 1e-5)]

METHODS: dict[str, Callable[[dict[str, Any]], Part]] = {
    "dpo": lambda case: dpo(beta=case["beta"]),
    "cdpo": lambda case: dpo(beta=case["beta"], label_smoothing=case["eps"]),
    "ipo": lambda case: ipo(beta=case["beta"]),
    "ipo_lennorm": lambda case: ipo(beta=case["beta"], length_normalise=True),
    "simpo": lambda case: simpo(beta=case["beta"], gamma=case["gamma"]),
    "hinge": lambda case: hinge(beta=case["beta"]),
    "nca": lambda case: nca(beta=case["beta"]),
    "caldpo": lambda case: cal_dpo(beta=case["beta"]),
    "apo_zero": lambda case: apo_zero(beta=case["beta"]),
    "apo_down": lambda case: apo_down(beta=case["beta"]),
    "bco_nodelta": lambda case: bco(beta=case["beta"]),
    "orpo": lambda case: orpo(weight=case["lam"]),
    "orpo_align": lambda case: orpo_align(beta=case["beta"]),
    "asft": lambda case: asft(weight=case["lam"]),
    "asft_align": lambda case: asft_align(beta=case["beta"]),
}
PAIRED = [dpo(), dpo(label_smoothing=0.2), ipo(), ipo(length_normalise=True), hinge(), simpo(), nca(), sppo_hard()]
PAIRED += [cal_dpo(), apo_zero(), apo_down(), bco(), bco(decay=0.9), orpo(), asft(), orpo_align(), asft_align()]


def golden_pair(case: str, dtype: torch.dtype = torch.float64) -> Pairs:
    inputs = CASES[case]["inputs"]

    def one(name: str, kind: torch.dtype = dtype) -> Tensor:
        return torch.tensor([inputs[name]], dtype=kind)

    return Pairs(
        one("logp_w").requires_grad_(),
        one("logp_l").requires_grad_(),
        one("ref_w"),
        one("ref_l"),
        one("len_w", torch.int64),
        one("len_l", torch.int64),
    )


def gradients(loss: Tensor, pairs: Pairs) -> Tensor:
    """[2, P], with respect to the chosen and to the rejected log-probabilities."""
    return torch.stack(torch.autograd.grad(loss.sum(), [pairs.logp_chosen, pairs.logp_rejected]))


@st.composite
def random_pairs(draw: Any, memory: float = 0.0) -> Pairs:
    """Up to 6 pairs with unequal lengths and a reference that differs from the policy."""
    count = draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    lengths = torch.randint(1, 20, (2, count), generator=generator)
    logp = -lengths * (0.01 + 2 * torch.rand(2, count, generator=generator, dtype=torch.float64))
    reference = logp + 3 * torch.randn(2, count, generator=generator, dtype=torch.float64)
    chosen, rejected = (row.clone().requires_grad_() for row in logp)
    return Pairs(chosen, rejected, *reference, *lengths, memory={"bco_shift": memory})


def unpaired(pairs: Pairs, point: float = 0.0) -> Labelled:
    """The completions of the pairs, first the chosen and then the rejected ones, with this reference point."""
    assert pairs.reference_chosen is not None and pairs.reference_rejected is not None
    count = len(pairs.logp_chosen)
    return Labelled(
        torch.cat([pairs.logp_chosen, pairs.logp_rejected]),
        torch.cat([pairs.reference_chosen, pairs.reference_rejected]),
        torch.arange(2 * count) < count,
        torch.tensor([point], dtype=torch.float64),
    )


def same(have: Tensor, want: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(have, want, rtol=tolerance, atol=tolerance)


BETAS = st.floats(1e-3, 5.0)
some = settings(max_examples=60, deadline=None)


def test_every_method_of_the_worked_pair_is_built_here() -> None:
    assert set(METHODS) == set(CASES["daa_pair"]["expected"])


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize(("dtype", "tolerance", "gradient_tolerance"), DTYPES)
def test_worked_pair(method: str, dtype: torch.dtype, tolerance: float, gradient_tolerance: float) -> None:
    case = CASES["daa_pair"]["expected"][method]
    pairs = golden_pair("daa_pair", dtype)
    loss = METHODS[method](case)(pairs)
    assert loss.shape == (1,) and loss.dtype == dtype
    same(loss.detach().double(), tensor([case["loss"]]), tolerance)
    want = tensor([[case["grad_logp_w"]], [case["grad_logp_l"]]])
    torch.testing.assert_close(gradients(loss, pairs).double(), want, rtol=gradient_tolerance, atol=1e-9)


def test_worked_identities() -> None:
    case = CASES["daa_identities"]
    expected, pairs = case["expected"], golden_pair("daa_identities")
    beta = case["hyperparameters"]["beta"]
    parts = {
        "asft_align": asft_align(beta=1.0),
        "orpo_align": orpo_align(beta=1.0),
        "sppo_hard": sppo_hard(beta=beta),
        "caldpo": cal_dpo(beta=beta),
        "dpo_beta1": dpo(beta=1.0),
        "simpo_gamma_convention_paper": simpo(beta=2.0, gamma=1.0),
        # A library whose gamma is the ratio to beta computes beta (delta - gamma).
        "simpo_gamma_convention_ratio": simpo(beta=2.0, gamma=2.0 * 1.0),
    }
    assert set(parts) == set(expected) - {"gap"}
    for name, part in parts.items():
        same(part(pairs).detach(), tensor([expected[name]]), 1e-9)
    gap = parts["asft_align"](pairs) - parts["orpo_align"](pairs)
    same(gap.detach(), tensor([expected["gap"]]), 1e-9)


@pytest.mark.parametrize(("dtype", "tolerance", "gradient_tolerance"), DTYPES)
def test_worked_kto(dtype: torch.dtype, tolerance: float, gradient_tolerance: float) -> None:
    case = CASES["kto"]
    inputs, numbers, expected = case["inputs"], case["hyperparameters"], case["expected"]
    ratios = tensor(inputs["logratio_desirable"] + inputs["logratio_undesirable"], dtype)
    logp = (ratios - 2).requires_grad_()
    mismatched = tensor(inputs["logratio_mismatched"], dtype)
    same(mismatched.mean().double(), tensor(expected["z0"]), tolerance)
    completions = Labelled(logp, torch.full_like(ratios, -2), torch.arange(5) < 2, mismatched)
    loss = kto(beta=numbers["beta"], weight_desirable=numbers["lambda_D"], weight_undesirable=numbers["lambda_U"])(
        completions
    ).mean()
    same(loss.detach().double(), tensor(expected["loss"]), tolerance)
    want = tensor(expected["grad_desirable"] + expected["grad_undesirable"])
    same(torch.autograd.grad(loss, logp)[0].double(), want, tolerance)


def test_worked_values_at_the_reference() -> None:
    expected, beta = CASES["daa_init"]["expected"], CASES["daa_init"]["hyperparameters"]["beta"]
    logp, lengths = tensor([-7.0]), torch.tensor([5])
    pairs = Pairs(logp, logp - 4, logp, logp - 4, lengths, lengths)
    parts = {"dpo": dpo, "ipo": ipo, "nca": nca, "apo_zero": apo_zero, "caldpo": cal_dpo}
    assert set(parts) == set(expected) - {"apo_zero_trl", "kto"}
    for name, kind in parts.items():
        same(kind(beta=beta)(pairs), tensor([expected[name]]), 1e-9)
    # The other convention adds a constant, so its gradient is the same.
    same(apo_zero(beta=beta)(pairs) + 1, tensor([expected["apo_zero_trl"]]), 1e-9)
    same(kto(beta=beta)(unpaired(pairs)).mean(), tensor(expected["kto"]), 1e-9)


def test_worked_limit_of_small_beta() -> None:
    expected, beta = CASES["daa_beta_to_zero"]["expected"], 1e-7
    pairs = golden_pair("daa_beta_to_zero")
    parts = {"dpo": dpo, "bco_nodelta": bco, "nca": nca, "apo_zero": apo_zero}
    assert {*parts, "orpo_align", "asft_align"} == set(expected["factor"])
    for name, kind in parts.items():
        factor = expected["factor"][name]
        same(gradients(kind(beta=beta)(pairs), pairs) / beta, tensor([[-factor], [factor]]), 1e-6)
    for odds in (orpo_align, asft_align):
        have = gradients(odds(beta=beta)(pairs), pairs)[:, 0] / beta
        same(have, tensor(expected["orpo_asft_grad_over_beta"]), 1e-6)


def test_worked_witnesses() -> None:
    """With a beta of 0.1: the chosen log-ratio that NCA is content with, and one pair (1.3, -0.4) under KTO and APO-zero."""
    expected, beta = CASES["identities"]["expected"], 0.1
    zero, one = tensor([0.0]), torch.tensor([1])
    chosen = tensor([expected["nca_chosen_optimum"]]).requires_grad_()
    pairs = Pairs(chosen, tensor([0.0]).requires_grad_(), zero, zero, one, one)
    same(gradients(nca(beta=beta)(pairs), pairs)[0], zero)
    pairs = Pairs(tensor([1.3]), tensor([-0.4]), zero, zero, one, one)
    sum_of_pair, value = expected["kto_z0_eq_apo_zero_plus_1"]
    same(kto(beta=beta)(unpaired(pairs)).sum(), tensor(sum_of_pair))
    same(apo_zero(beta=beta)(pairs), tensor([value]))


@some
@given(random_pairs())
def test_asft_is_a_cross_entropy_and_bounds_orpo_from_above(pairs: Pairs) -> None:
    chosen, rejected = pairs.mean_logps()
    p_chosen, p_rejected = chosen.exp(), rejected.exp()
    absolute, relative = asft_align(beta=1.0)(pairs), orpo_align(beta=1.0)(pairs)
    same(absolute, -chosen - (1 - p_rejected).log())
    same(relative, absolute + (p_chosen * (1 - p_rejected) + p_rejected * (1 - p_chosen)).log())
    assert (relative <= absolute + 1e-12).all()
    assert (orpo(weight=0.7)(pairs) <= asft(weight=0.7)(pairs) + 1e-12).all()
    same(orpo(weight=0.7)(pairs), -chosen + 0.7 * relative)
    same(asft(weight=0.7)(pairs), -chosen + 0.7 * absolute)


@some
@given(random_pairs(), BETAS)
def test_cal_dpo_is_dpo_with_slope_one_plus_sppo(pairs: Pairs, beta: float) -> None:
    want = dpo(beta=1.0)(pairs) + sppo_hard(beta=beta)(pairs)
    have = cal_dpo(beta=beta)(pairs)
    same(have, want)
    same(gradients(have, pairs), gradients(want, pairs))


@some
@given(random_pairs(), BETAS, st.floats(-5.0, 0.0))
def test_kto_of_both_completions_is_apo_zero_plus_one(pairs: Pairs, beta: float, mismatched: float) -> None:
    """A negative mean of mismatched log-ratios is a reference point of 0."""
    both = kto(beta=beta)(unpaired(pairs, mismatched)).view(2, -1).sum(0)
    want = apo_zero(beta=beta)(pairs) + 1
    same(both, want)
    same(gradients(both, pairs), gradients(want, pairs))


@some
@given(random_pairs(), BETAS)
def test_nca_holds_the_chosen_reward_at_log_2(pairs: Pairs, beta: float) -> None:
    assert pairs.reference_chosen is not None
    for offset in (0.0, 0.1, -0.1):
        reward = math.log(2) + offset
        chosen = (pairs.reference_chosen + reward / beta).detach().requires_grad_()
        at = Pairs(chosen, pairs.logp_rejected, *_rest(pairs))
        slope = gradients(nca(beta=beta)(at), at)[0] / beta
        # 3/2 s(z) - 1 is 0 where s(z) = 2/3, z = log 2, below it before and above it after: a minimum.
        same(slope, torch.full_like(slope, 1.5 / (1 + math.exp(-reward)) - 1), 1e-9)
        assert (slope * offset >= 0).all()


@some
@given(random_pairs(), BETAS, st.floats(0.1, 3.0), st.floats(0.1, 3.0))
def test_values_at_the_reference(pairs: Pairs, beta: float, desirable: float, undesirable: float) -> None:
    chosen, rejected = pairs.logp_chosen.detach(), pairs.logp_rejected.detach()
    at = Pairs(chosen, rejected, chosen, rejected, pairs.length_chosen, pairs.length_rejected)
    ones = torch.ones_like(chosen)
    same(dpo(beta=beta)(at), math.log(2) * ones)
    same(ipo(beta=beta)(at), ones / (4 * beta**2))
    same(nca(beta=beta)(at), 2 * math.log(2) * ones)
    same(apo_zero(beta=beta)(at), 0 * ones)
    same(apo_down(beta=beta)(at), 0 * ones)
    same(bco(beta=beta)(at), 2 * math.log(2) * ones)
    same(hinge(beta=beta)(at), ones)
    same(cal_dpo(beta=beta)(at), (math.log(2) + 1 / (2 * beta**2)) * ones)
    weighted = kto(beta=beta, weight_desirable=desirable, weight_undesirable=undesirable)(unpaired(at)).mean()
    same(weighted, tensor((desirable + undesirable) * len(chosen) / (2 * 2 * len(chosen))))


@some
@given(random_pairs(), BETAS, st.sampled_from([0.0, 0.1, 0.4]))
def test_swapping_a_pair_changes_dpo_by_its_margin(pairs: Pairs, beta: float, smoothing: float) -> None:
    swapped = Pairs(
        pairs.logp_rejected,
        pairs.logp_chosen,
        pairs.reference_rejected,
        pairs.reference_chosen,
        pairs.length_rejected,
        pairs.length_chosen,
    )
    chosen, rejected = pairs.log_ratios()
    part = dpo(beta=beta, label_smoothing=smoothing)
    same(part(pairs) - part(swapped), -(1 - 2 * smoothing) * beta * (chosen - rejected))


@some
@given(random_pairs())
def test_small_beta_leaves_a_scalar_between_losses_of_a_class(pairs: Pairs) -> None:
    beta = 1e-7
    chosen, rejected = pairs.log_ratios()
    margin = gradients(chosen - rejected, pairs)
    for part, factor in ((dpo, 1 / 2), (bco, 1 / 2), (nca, 1 / 4), (apo_zero, 1 / 4)):
        same(gradients(part(beta=beta)(pairs), pairs) / beta, -factor * margin, 1e-5)
    odds_chosen, odds_rejected = pairs.log_odds()
    margin = gradients(odds_chosen - odds_rejected, pairs)
    for part in (orpo_align, asft_align):
        same(gradients(part(beta=beta)(pairs), pairs) / beta, -margin / 2, 1e-5)


@some
@given(random_pairs(), BETAS, st.floats(-3.0, 3.0))
def test_the_classifier_bounds_dpo_from_above_whatever_the_shift(pairs: Pairs, beta: float, shift: float) -> None:
    pairs.memory["bco_shift"] = shift
    for decay in (1.0, 0.9):
        assert (bco(beta=beta, decay=decay)(pairs) >= dpo(beta=beta)(pairs) - 1e-12).all()


@pytest.mark.parametrize("part", PAIRED, ids=repr)
@settings(max_examples=15, deadline=None)
@given(random_pairs(memory=0.2))
def test_gradients_are_the_derivatives_of_the_values(part: Part, pairs: Pairs) -> None:
    def loss(chosen: Tensor, rejected: Tensor) -> Tensor:
        return part(Pairs(chosen, rejected, *_rest(pairs), memory=pairs.memory))

    # The kink of the hinge is where a difference quotient says nothing.
    chosen, rejected = pairs.log_ratios()
    if part.name != "hinge" or ((part.beta * (chosen - rejected) - 1).abs() > 1e-3).all():
        torch.autograd.gradcheck(loss, (pairs.logp_chosen, pairs.logp_rejected), atol=1e-6)


@some
@given(random_pairs(), BETAS)
def test_normalising_by_length_is_the_loss_of_ratios_per_token(pairs: Pairs, beta: float) -> None:
    lengths = pairs.lengths()
    chosen, rejected = (ratio / length for ratio, length in zip(pairs.log_ratios(), lengths, strict=True))
    zeros, ones = torch.zeros_like(chosen), torch.ones_like(pairs.length_chosen)
    per_token = Pairs(chosen, rejected, zeros, zeros, ones, ones)
    for kind in (dpo, ipo):
        same(kind(beta=beta, length_normalise=True)(pairs), kind(beta=beta)(per_token), 1e-9)


@pytest.mark.parametrize("part", PAIRED, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_from_the_reference_and_at_certainty_everything_stays_finite(part: Part, dtype: torch.dtype) -> None:
    logp = torch.tensor([[0.0, -1e4, -1e-9, -30.0], [-1e4, 0.0, 0.0, -1e-9]], dtype=dtype)
    reference = torch.tensor([[-1e4, 0.0, -5.0, -1e3], [0.0, -1e4, -5.0, -1e3]], dtype=dtype)
    chosen, rejected = (row.clone().requires_grad_() for row in logp)
    pairs = Pairs(chosen, rejected, *reference, *torch.full((2, 4), 3))
    loss = part(pairs)
    assert loss.isfinite().all()
    assert gradients(loss, pairs).isfinite().all()


def test_the_hinge_is_content_past_its_margin() -> None:
    ratios, zero, one = tensor([4.0, 9.0, -20.0]), torch.zeros(3), torch.ones(3)
    pairs = Pairs(ratios.requires_grad_(), tensor([-4.0, -3.0, 0.0]).requires_grad_(), zero, zero, one, one)
    loss = hinge(beta=0.1)(pairs)
    same(loss.detach(), tensor([0.2, 0.0, 3.0]))
    same(gradients(loss, pairs), tensor([[-0.1, 0.0, -0.1], [0.1, 0.0, 0.1]]))


def test_a_certain_rejected_completion_is_still_pushed_down() -> None:
    chosen, rejected = tensor([-3.0]).requires_grad_(), tensor([0.0]).requires_grad_()
    pairs = Pairs(chosen, rejected, None, None, torch.tensor([3]), torch.tensor([3]))
    for part in (orpo(), asft(), orpo_align(), asft_align()):
        assert gradients(part(pairs), pairs)[1] > 0
    # log(1 - p) of a certain token is that of p = 1 - 1e-7.
    same(pairs.log_odds()[1].detach(), tensor([-math.log(1e-7)]), 1e-6)


def _rest(pairs: Pairs) -> tuple[Any, ...]:
    return pairs.reference_chosen, pairs.reference_rejected, pairs.length_chosen, pairs.length_rejected


def test_worked_long2short() -> None:
    case = CASES["kimi_long2short_dpo"]
    found = long2short_pairs(**case["inputs"], factor=case["hyperparameters"]["factor"])
    assert found == (case["expected"]["positive"], tuple(case["expected"]["negatives"]))
