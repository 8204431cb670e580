"""The quadratic surrogate, rows and their mean, a reference that is reset, untrusted tokens: against worked cases."""

from __future__ import annotations

import math

import pytest
import torch

from surefoot.algorithms import advantages, aggregation, correction, kl, ratios, trust
from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.divergence import divergence_mask, divergence_topk
from surefoot.algorithms.loss import policy_loss
from surefoot.algorithms.part import REGISTRY, Part
from surefoot.algorithms.presets import PRESETS
from surefoot.errors import AlgorithmError
from tests.algorithms.harness import CASES, Rows, table, tensor
from tests.algorithms.test_algorithms_golden import check, clipped_tokens, close

kimi = Algorithm(
    advantage=advantages.group_mean(),
    ratio=ratios.sequence_log(),
    trust=trust.quadratic(tau=0.1),
    aggregation=aggregation.seq_mean_token_mean(),
)


# The quadratic surrogate.


def test_kimi_surrogate_and_the_squared_form_whose_gradient_it_has() -> None:
    case = CASES["kimi_surrogate"]
    inputs, expected, tau = case["inputs"], case["expected"], case["hyperparameters"]["tau"]
    advantage = kimi.advantage(table(inputs["rewards"]))
    close(advantage, tensor(expected["advantages"]))
    rows = Rows(inputs["mask"])
    tokens = rows.tokens(tensor(inputs["logp"]), advantage, logp_old=inputs["logp_old"])
    x = kimi.ratio(tokens)
    close(torch.stack([x[tokens.row == i][0] for i in range(3)]), tensor(expected["ell"]))
    check("kimi_surrogate", kimi.but(trust={"tau": tau}), advantage, expected["loss_surrogate"], expected["grad_logp"])

    mask, leaf = tensor(inputs["mask"]), tensor(inputs["logp"]).requires_grad_()
    log_ratio = ((leaf - tensor(inputs["logp_old"])) * mask).sum(1)
    squared = ((advantage - tau * log_ratio) ** 2).mean()
    close(squared.detach(), expected["loss_squared"])
    squared.backward()
    close(leaf.grad, 2 * tau * tensor(expected["grad_logp"]))


def test_kimi_on_policy_is_reinforce_with_the_mean_of_the_group_as_baseline() -> None:
    case = CASES["kimi_onpolicy"]
    inputs = case["inputs"]
    advantage = kimi.advantage(table(inputs["rewards"]))
    rows = Rows(inputs["mask"])
    logp = (-tensor(inputs["mask"])).tolist()
    _, gradient = rows.loss(kimi, logp, advantage)
    close(gradient, tensor(case["expected"]["grad_logp"]))
    _, score = rows.loss(Algorithm(aggregation=aggregation.seq_mean_token_sum()), logp, advantage)
    close(gradient, score)


def test_a_log_ratio_at_its_limit_has_no_gradient_and_is_counted_by_rows() -> None:
    rows = Rows([[1.0] * 3, [1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    old = tensor([[-20.0] * 3, [-1.0] * 3, [-30.0] * 3])
    leaf = tensor([[-1.0] * 3, [-1.5] * 3, [-1.0] * 3]).requires_grad_()  # sums of 57, -1 and 29
    tokens = rows.tokens(leaf, [1.0, 1.0, -1.0], logp_old=old)
    loss, report = policy_loss(kimi, tokens, rows.totals)
    loss.backward()
    limit, tau = ratios.LOG_RATIO_LIMIT, 0.1
    want = (-limit + tau / 2 * limit**2) + (1.0 + tau / 2) + (limit + tau / 2 * limit**2)
    close(loss.detach(), want / 3)
    assert leaf.grad is not None and leaf.grad[0].eq(0).all() and leaf.grad[2].eq(0).all()
    close(leaf.grad[1], tensor([-(1 + tau) / 3, -(1 + tau) / 3, 0.0]))
    means = report.means()
    close(means["policy/log_ratio_clamped_rows"], 2 / 3)
    assert all(math.isfinite(value) for value in means.values())


def test_the_mean_of_the_log_ratio_does_not_grow_with_the_row() -> None:
    algorithm = kimi.but(ratio={"length_normalise": True})
    for width in (1, 10, 1000):
        rows = Rows([[1.0] * width])
        loss, _ = rows.loss(algorithm, [[-0.5] * width], [1.0], logp_old=tensor([[-1.0] * width]))
        close(loss, -0.5 + 0.05 * 0.25)
    assert "mean_t log" in algorithm.explain() and "sum_t log" in kimi.explain()


def test_a_log_ratio_and_its_surrogate_need_each_other() -> None:
    with pytest.raises(AlgorithmError, match="sequence_log"):
        kimi.but(ratio="sequence")
    for part in (trust.clip(), trust.unclipped(), trust.truncated_score(), divergence_mask(), divergence_topk()):
        with pytest.raises(AlgorithmError, match="logarithm"):
            kimi.but(trust=part)
    with pytest.raises(AlgorithmError, match="weigh rows by their length"):
        kimi.but(aggregation="token_mean")


# A row ratio with a mean over tokens.


def test_gspo_with_a_mean_over_tokens_would_weigh_rows_by_their_length_and_is_refused() -> None:
    case = CASES["gspo_wrong_agg"]
    inputs, numbers, expected = case["inputs"], case["hyperparameters"], case["expected"]
    gspo = PRESETS["gspo"].but(trust={"low": numbers["eps_low"], "high": numbers["eps_high"]})
    rows = Rows(inputs["mask"])
    right, _ = rows.loss(gspo, inputs["logp"], inputs["advantages"], logp_old=inputs["logp_old"])
    close(right, expected["loss_gspo"])
    tokens = rows.tokens(tensor(inputs["logp"]), inputs["advantages"], logp_old=inputs["logp_old"])
    wrong = gspo.trust(tokens, gspo.ratio(tokens)).sum() / len(tokens.logp)
    close(wrong, expected["loss_token_mean"])
    assert abs(float(wrong) - right) > 0.1
    with pytest.raises(AlgorithmError, match="seq_mean_token_mean"):
        gspo.but(aggregation="token_mean")


# A reference that is reset.


def prorl(beta: float) -> Algorithm:
    return PRESETS["grpo_token"].but(trust={"low": 0.2, "high": 0.4}, kl=kl.in_loss(coef=beta, estimator="k3"))


def test_prorl_loss() -> None:
    case = CASES["prorl_loss"]
    algorithm = prorl(case["hyperparameters"]["beta"])
    check(
        "prorl_loss", algorithm, case["inputs"]["advantages"], case["expected"]["loss"], case["expected"]["grad_logp"]
    )


def test_prorl_right_after_a_reset_has_no_kl() -> None:
    case = CASES["prorl_reset"]
    inputs, expected = case["inputs"], case["expected"]
    algorithm = prorl(case["hyperparameters"]["beta"])
    check("prorl_reset", algorithm, inputs["advantages"], expected["loss"], expected["grad_logp"])
    rows = Rows(inputs["mask"])
    tokens = rows.tokens(
        tensor(inputs["logp"]), inputs["advantages"], logp_old=inputs["logp_old"], logp_reference=inputs["logp_ref"]
    )
    _, report = policy_loss(algorithm, tokens, rows.totals)
    assert report.means()["policy/kl_reference"] == expected["kl"] == 0.0


# Tokens whose behaviour log-probability is not a number.

CORRECTIONS = [kind() for name, kind in REGISTRY["correction"].items() if name != "none"]


def test_a_token_without_a_behaviour_logprob_is_not_trusted() -> None:
    case = CASES["edge_nonfinite_rollout_logp"]
    inputs, expected = case["inputs"], case["expected"]
    algorithm = clipped_tokens.but(correction=correction.token_truncate(cap=case["hyperparameters"]["C"]))
    check("edge_nonfinite_rollout_logp", algorithm, inputs["advantages"], expected["loss"], expected["grad_logp"])
    rows = Rows(inputs["mask"])
    tokens = rows.tokens(
        tensor(inputs["logp"]), inputs["advantages"], logp_old=inputs["logp_old"], logp_behaviour=inputs["logp_roll"]
    )
    weight = algorithm.correction(tokens)
    close(weight, tensor(expected["weight"])[rows.mask])
    assert float(weight[2]) == 0.0  # exactly
    # Another denominator would be noticed: nine tokens, not eight.
    counted, _ = rows.loss(
        algorithm, inputs["logp"], inputs["advantages"], logp_old=inputs["logp_old"], logp_behaviour=inputs["logp_roll"]
    )
    close(counted, expected["loss"])
    assert rows.totals.tokens == 9.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("part", CORRECTIONS, ids=lambda part: part.name)
def test_no_correction_lets_a_value_that_is_not_finite_through(part: Part, value: float) -> None:
    rows = Rows([[1.0] * 4, [1.0, 1.0, 0.0, 0.0]])
    old = tensor([[-1.0, -0.5, -2.0, -0.7], [-0.3, -0.9, 0.0, 0.0]])
    behaviour = old.clone()
    behaviour[0, 2] = value
    tokens = rows.tokens(old - 0.1, [1.0, -1.0], logp_old=old, logp_behaviour=behaviour)
    weight = part(tokens)
    assert weight.isfinite().all() and float(weight[2]) == 0.0
    # The rest of the row, and other rows, are weighed as if the token were not there: engine and trainer agree on them.
    others = [0, 1, 3, 4, 5]
    close(weight[others], torch.ones(5))
    loss, gradient = rows.loss(
        clipped_tokens.but(correction=part), (old - 0.1).tolist(), [1.0, -1.0], logp_old=old, logp_behaviour=behaviour
    )
    assert math.isfinite(loss) and gradient.isfinite().all()
    assert float(gradient[0, 2]) == 0.0 and float(gradient[0, 1]) != 0.0
