"""Objectives against worked cases, in value and gradient, to 1e-9 in float64 and 1e-5 in float32."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from surefoot.algorithms import advantages, aggregation, kl, ratios, trust
from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.presets import PRESETS
from surefoot.algorithms.table import RewardTable
from tests.algorithms.harness import CASES, Rows, table, tensor

DTYPES = [(torch.float64, 1e-9), (torch.float32, 1e-5)]
# Worked numbers are printed with 12 significant digits.
PRINTED = 1e-9

clipped_tokens = Algorithm(ratio=ratios.token(), trust=trust.clip(), aggregation=aggregation.token_mean())


def close(have: Any, want: Any, tolerance: float = PRINTED) -> None:
    torch.testing.assert_close(
        torch.as_tensor(have, dtype=torch.float64),
        torch.as_tensor(want, dtype=torch.float64),
        rtol=tolerance,
        atol=tolerance,
    )


def check(case: str, algorithm: Algorithm, advantage: Any, loss: float, grad: Any, **options: Any) -> None:
    inputs = CASES[case]["inputs"]
    streams = {
        name: inputs[key]
        for key, name in (("logp_old", "logp_old"), ("logp_ref", "logp_reference"), ("logp_roll", "logp_behaviour"))
        if key in inputs
    }
    for dtype, tolerance in DTYPES:
        rows = Rows(inputs["mask"], inputs.get("groups"), dtype=dtype, **options)
        have, gradient = rows.loss(algorithm, inputs["logp"], advantage, **streams)
        close(have, loss, tolerance)
        close(gradient.double(), tensor(grad), tolerance)


@pytest.mark.parametrize(
    ("case", "preset"), [("reinforce_nobaseline", "reinforce"), ("reinforce_meanbaseline", "reinforce_baseline")]
)
def test_reinforce(case: str, preset: str) -> None:
    expected = CASES[case]["expected"]
    have = PRESETS[preset].advantage(table(CASES[case]["inputs"]["rewards"]))
    close(have, tensor(expected["advantages"]))
    check(case, PRESETS[preset], have, expected["loss"], expected["grad_logp"])


def test_moving_average_subtracts_the_value_before_the_row_and_is_remembered() -> None:
    case = CASES["reinforce_ema"]
    rows = table(case["inputs"]["rewards"])
    part = advantages.moving_average(decay=case["hyperparameters"]["decay"])
    close(part(rows), tensor(case["expected"]["advantages"]))
    close(rows.memory["moving_average"], case["expected"]["final_baseline"])


def test_leave_one_out() -> None:
    case = CASES["rloo_adv"]
    close(advantages.leave_one_out()(table(case["inputs"]["rewards"])), tensor(case["expected"]["advantages"]))
    alone = CASES["rloo_g1"]
    close(advantages.leave_one_out()(table(alone["inputs"]["rewards"])), tensor(alone["expected"]["advantages"]))


def test_kl_is_subtracted_before_the_baseline() -> None:
    case = CASES["rloo_kl"]
    reward = tensor(case["inputs"]["rewards"]) - case["hyperparameters"]["beta"] * tensor(case["inputs"]["seq_kl"])
    close(PRESETS["rloo"].advantage(table(reward.tolist())), tensor(case["expected"]["advantages"]))


def test_kl_in_reward_sums_k1_over_the_row() -> None:
    case = CASES["kl_in_reward"]
    inputs = case["inputs"]
    mask = tensor(inputs["mask"]).bool()
    rows = replace(
        table(inputs["scores"], lengths=mask.sum(1).tolist()),
        logp_old=tensor(inputs["logp_old"])[mask],
        logp_reference=tensor(inputs["logp_ref"])[mask],
    )
    penalty = rows.row_sum(kl.in_reward(coef=case["hyperparameters"]["kl_coef"])(rows))
    close(penalty, case["hyperparameters"]["kl_coef"] * tensor(case["expected"]["k1_sum"]))
    close(tensor(inputs["scores"]) - penalty, tensor(case["expected"]["seq_return"]))


def test_rloo_loss() -> None:
    case = CASES["rloo_loss"]
    advantage = PRESETS["rloo"].advantage(table(case["inputs"]["rewards"]))
    close(advantage, tensor(case["expected"]["advantages"]))
    paper = PRESETS["rloo"].but(kl="none")
    check("rloo_loss", paper, advantage, case["expected"]["loss_reinforce"], case["expected"]["grad_reinforce"])


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("ddof1_eps1e4", advantages.group_norm(ddof=1, eps=1e-4)),
        ("ddof1_eps1e6", PRESETS["grpo"].advantage),
        ("ddof0_eps1e8", advantages.group_norm(ddof=0, eps=1e-8)),
        ("no_std", PRESETS["dr_grpo"].advantage),
    ],
)
def test_group_advantages(key: str, part: Any) -> None:
    case = CASES["grpo_adv"]
    close(
        part(table(case["inputs"]["rewards"])),
        tensor(case["expected"][key]),
        1e-8 if key == "ddof0_eps1e8" else PRINTED,
    )


@pytest.mark.parametrize(("key", "eps"), [("eps1e4", 1e-4), ("eps1e6", 1e-6), ("eps0", 0.0)])
def test_nearly_equal_rewards_depend_on_eps(key: str, eps: float) -> None:
    case = CASES["grpo_near_zero_std"]
    have = advantages.group_norm(eps=eps)(table(case["inputs"]["rewards"]))
    close(have, tensor(case["expected"][key]), 1e-8)


@pytest.mark.parametrize("case", ["grpo_zero_std", "grpo_g1"])
def test_no_signal_is_exactly_zero(case: str) -> None:
    have = PRESETS["grpo"].advantage(table(CASES[case]["inputs"]["rewards"]))
    assert (have == 0).all()
    close(have, tensor(CASES[case]["expected"]["advantages"]))


def test_grpo_loss_with_kl() -> None:
    case = CASES["grpo_loss"]
    expected = case["expected"]
    check("grpo_loss", PRESETS["grpo"], case["inputs"]["advantages"], expected["loss"], expected["grad_logp"])


def test_grpo_on_policy_is_the_policy_gradient() -> None:
    case = CASES["grpo_onpolicy"]
    expected = case["expected"]
    check(
        "grpo_onpolicy",
        PRESETS["grpo"].but(kl="none"),
        case["inputs"]["advantages"],
        expected["loss"],
        expected["grad_logp"],
    )


def test_dr_grpo_loss() -> None:
    case = CASES["drgrpo_loss"]
    expected = case["expected"]
    constant = case["hyperparameters"]["L_max"]
    check(
        "drgrpo_loss",
        PRESETS["dr_grpo"],
        case["inputs"]["advantages"],
        expected["loss"],
        expected["grad_logp"],
        constant=constant,
    )


def test_clipped_token_mean() -> None:
    case = CASES["ppo_clip"]
    check(
        "ppo_clip",
        clipped_tokens,
        case["inputs"]["advantages"],
        case["expected"]["loss"],
        case["expected"]["grad_logp"],
    )


@pytest.mark.parametrize("mode", ["token_mean", "prompt_mean"])
def test_clip_higher(mode: str) -> None:
    case = CASES["dapo_loss"]
    algorithm = clipped_tokens.but(trust={"high": 0.28}, aggregation=mode)
    expected = case["expected"]
    check("dapo_loss", algorithm, case["inputs"]["advantages"], expected[f"loss_{mode}"], expected[f"grad_{mode}"])


@pytest.mark.parametrize("case", ["aggregation", "aggregation_empty_row"])
@pytest.mark.parametrize(
    "mode",
    ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm", "prompt_mean", "token_sum"],
)
def test_aggregation(case: str, mode: str) -> None:
    expected = CASES[case]["expected"]
    if mode not in expected:
        assert (case, mode) == ("aggregation_empty_row", "token_sum")
        return
    inputs = CASES[case]["inputs"]
    rows = Rows(inputs["mask"], inputs["groups"], constant=8.0)
    # The score surrogate with advantage -1 makes the token loss equal to the log-probability.
    loss, gradient = rows.loss(
        Algorithm(aggregation=getattr(aggregation, mode)()), inputs["per_token_loss"], [-1.0] * 3
    )
    want = expected[mode]
    close(loss, want["loss"] if isinstance(want, dict) else want)
    if isinstance(want, dict):
        close(gradient, tensor(want["coef"]))


@pytest.mark.parametrize("mode", ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "prompt_mean"])
def test_everything_masked_is_zero_and_attached(mode: str) -> None:
    inputs = CASES["aggregation_all_masked"]["inputs"]
    loss, gradient = Rows(inputs["mask"]).loss(
        Algorithm(aggregation=getattr(aggregation, mode)()), inputs["per_token_loss"], [-1.0] * 3
    )
    assert loss == 0.0
    assert (gradient == 0).all()


def test_garbage_outside_the_mask_does_not_leak() -> None:
    case = CASES["aggregation_nan_in_padding"]
    loss, gradient = Rows(case["inputs"]["mask"]).loss(
        Algorithm(aggregation=aggregation.token_mean()), case["inputs"]["per_token_loss"], [-1.0] * 3
    )
    close(loss, case["expected"]["loss"])
    assert gradient.isfinite().all()


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_estimators(estimator: str) -> None:
    case = CASES["kl_estimators"]
    logp = tensor(case["inputs"]["logp"]).requires_grad_()
    value = kl.estimate(estimator, logp, tensor(case["inputs"]["logp_ref"]))
    close(value.detach(), tensor(case["expected"][estimator]))
    value.sum().backward()
    close(logp.grad, tensor(case["expected"][f"grad_{estimator}"]))


@pytest.mark.parametrize(
    ("estimator", "key"),
    [("k2", "expected_k2_grad"), ("k3", "expected_k3_grad"), ("k3_ratio", "expected_k3_times_ratio_grad")],
)
def test_expected_gradient_of_kl_losses_on_a_categorical(estimator: str, key: str) -> None:
    case = CASES["kl_gradient_bias"]
    logits = tensor(case["inputs"]["logits"]).requires_grad_()
    reference = tensor(case["inputs"]["ref"]).log()
    logp = logits.log_softmax(0)
    value = (logp.detach().exp() * kl.estimate(estimator, logp, reference)).sum()
    close(torch.autograd.grad(value, logits)[0], tensor(case["expected"][key]))
    if estimator != "k3":
        close(tensor(case["expected"][key]), tensor(case["expected"]["true_reverse_kl_grad"]))


def test_invalid_reward_leaves_the_statistics() -> None:
    case = CASES["edge_nan_reward"]
    rows: RewardTable = table(case["inputs"]["rewards"])
    close(PRESETS["grpo"].advantage(rows), tensor(case["expected"]["grpo"]))
    close(advantages.leave_one_out()(rows), tensor(case["expected"]["rloo"]))


def test_empty_completion_is_in_the_baseline_and_in_no_denominator() -> None:
    case = CASES["edge_zero_length"]
    advantage = PRESETS["dr_grpo"].advantage(table(case["inputs"]["rewards"]))
    close(advantage, tensor(case["expected"]["advantages"]))
    algorithm = PRESETS["grpo"].but(kl="none")
    check("edge_zero_length", algorithm, advantage, case["expected"]["loss"], case["expected"]["grad_logp"])


# The quadratic surrogate is a penalty on the log-ratio, whatever the advantage, and top-K needs whole distributions.
PLAIN = sorted(name for name, preset in PRESETS.items() if not {"log", "topk"} & preset.trust.kind.traits)


@pytest.mark.parametrize("preset", PLAIN)
def test_zero_advantage_has_no_gradient(preset: str) -> None:
    inputs = CASES["edge_zero_advantage"]["inputs"]
    algorithm = PRESETS[preset].but(kl="none", reset="never")
    loss, gradient = Rows(inputs["mask"]).loss(algorithm, inputs["logp"], [0.0] * 3, logp_old=inputs["logp_old"])
    assert loss == 0.0
    assert (gradient == 0).all()


def test_micro_batches_add_up() -> None:
    from surefoot.algorithms.loss import policy_loss

    case = CASES["edge_microbatch"]
    inputs = case["inputs"]
    rows = Rows(inputs["mask"])
    total = 0.0
    for part in case["hyperparameters"]["split"]:
        tokens = rows.tokens(tensor(inputs["logp"]), inputs["advantages"], rows=part, logp_old=inputs["logp_old"])
        total += float(policy_loss(clipped_tokens, tokens, rows.totals)[0])
    close(total, case["expected"]["global_loss"])


def test_log_ratio_is_clamped_before_the_exponential() -> None:
    case = CASES["logratio_clamp"]
    log_ratio = tensor(case["inputs"]["log_ratio"]).requires_grad_()
    ratio = ratios.bounded_exp(log_ratio)
    close(ratio.detach(), tensor(case["expected"]["ratio"]))
    ratio.sum().backward()
    assert log_ratio.grad is not None and log_ratio.grad[0] == 0 and log_ratio.grad[1] == 0
