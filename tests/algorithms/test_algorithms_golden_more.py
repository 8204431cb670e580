"""Sequence ratios, surrogates beyond the clip, corrections and further advantages, against worked cases."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from surefoot.algorithms import advantages, aggregation, correction, ratios, trust
from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.decoupled import conditioned, decoupled
from surefoot.algorithms.divergence import binary_divergence, divergence_mask
from surefoot.algorithms.likelihood import maximum_likelihood
from surefoot.algorithms.presets import PRESETS
from surefoot.algorithms.selection import drop_no_signal
from surefoot.algorithms.table import RewardTable
from surefoot.errors import AlgorithmError
from surefoot.policy.packing import loss_mask
from surefoot.types import Sample
from tests.algorithms.harness import CASES, Rows, table, tensor
from tests.algorithms.test_algorithms_golden import check, clipped_tokens, close


def test_dual_clip_bounds_the_loss_of_negative_advantages() -> None:
    case = CASES["dual_clip"]
    inputs, expected = case["inputs"], case["expected"]
    rows = Rows(inputs["mask"])
    advantage = tensor(inputs["advantages_token"])
    for part, key in ((trust.clip(), "no_dual"), (trust.dual_clip(bound=3.0), "dual")):
        loss, gradient = rows.loss(
            clipped_tokens.but(trust=part), inputs["logp"], advantage, logp_old=inputs["logp_old"]
        )
        close(loss, expected[f"loss_{key}"])
        close(gradient, tensor(expected[f"grad_{key}"]))


def test_gspo() -> None:
    case = CASES["gspo_loss"]
    check(
        "gspo_loss",
        PRESETS["gspo"],
        case["inputs"]["advantages"],
        case["expected"]["loss"],
        case["expected"]["grad_logp"],
    )


def test_gspo_token_equals_gspo_for_one_advantage_per_row_and_differs_otherwise() -> None:
    case = CASES["gspo_token"]
    inputs, expected = case["inputs"], case["expected"]
    wide = {"trust": {"low": 0.2, "high": 0.28}}
    gspo, token = PRESETS["gspo"].but(**wide), PRESETS["gspo_token"].but(**wide)
    check("gspo_token", gspo, inputs["advantages"], expected["loss_gspo"], expected["grad_gspo"])
    check("gspo_token", token, inputs["advantages"], expected["loss_token_const"], expected["grad_gspo"])
    check(
        "gspo_token", token, tensor(inputs["token_advantages"]), expected["loss_token_adv"], expected["grad_token_adv"]
    )


def test_gspo_of_length_one_is_grpo() -> None:
    case = CASES["gspo_len1"]
    wide = {"trust": {"low": 0.2, "high": 0.28}, "kl": "none"}
    losses = []
    for preset in ("grpo", "gspo"):
        loss, gradient = Rows(case["inputs"]["mask"]).loss(
            PRESETS[preset].but(**wide),
            case["inputs"]["logp"],
            case["inputs"]["advantages"],
            logp_old=case["inputs"]["logp_old"],
        )
        close(loss, case["expected"]["loss_grpo"])
        losses.append(gradient)
    close(losses[0], losses[1])


def test_a_row_ratio_with_an_aggregation_over_tokens_is_refused() -> None:
    for mode in ("token_mean", "prompt_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm", "token_sum"):
        with pytest.raises(AlgorithmError, match="weigh rows by their length"):
            PRESETS["gspo"].but(aggregation=mode)


def test_sequence_sum_is_the_product_of_the_token_ratios() -> None:
    case = CASES["rloo_loss"]
    inputs, expected = case["inputs"], case["expected"]
    part = ratios.sequence_sum()
    rows = Rows(inputs["mask"])
    tokens = rows.tokens(tensor(inputs["logp"]), [0.0] * 3, logp_old=inputs["logp_old"])
    close(torch.stack([part(tokens)[tokens.row == i][0] for i in range(3)]), tensor(expected["seq_ratio"]))
    trl = PRESETS["grpo"].but(kl="none", ratio=part)
    check("rloo_loss", trl, tensor(expected["advantages"]), expected["loss_trl"], expected["grad_trl"])


@pytest.mark.parametrize(
    ("case", "low", "high"), [("cispo_abs5", 0.0, 5.0), ("cispo_abs2", 0.0, 2.0), ("cispo_delta", 0.8, 1.28)]
)
def test_cispo(case: str, low: float, high: float) -> None:
    algorithm = PRESETS["cispo"].but(trust={"low": low, "high": high})
    expected = CASES[case]["expected"]
    check(case, algorithm, CASES[case]["inputs"]["advantages"], expected["loss"], expected["grad_logp"])


def test_cispo_anchored_on_the_generator_with_prompt_mean() -> None:
    case = CASES["scalerl_loss"]
    algorithm = PRESETS["cispo"].but(ratio={"anchor": "behaviour"}, aggregation="prompt_mean")
    check(
        "scalerl_loss", algorithm, case["inputs"]["advantages"], case["expected"]["loss"], case["expected"]["grad_logp"]
    )


@pytest.mark.parametrize(("preset", "key"), [("dppo_tv", "tv_0.15"), ("dppo_kl", "kl_0.05")])
def test_dppo(preset: str, key: str) -> None:
    case = CASES["dppo_binary"]
    expected = case["expected"][key]
    rows = Rows(case["inputs"]["mask"])
    tokens = rows.tokens(tensor(case["inputs"]["logp"]), [0.0] * 3, logp_behaviour=case["inputs"]["logp_roll"])
    measure = PRESETS[preset].trust.measure
    close(binary_divergence(measure, tokens.logp, tokens.logp_behaviour), tensor(expected["divergence"])[rows.mask])
    check(
        "dppo_binary",
        PRESETS[preset],
        case["inputs"]["advantages"],
        expected["loss_logp_form"],
        expected["grad_logp"],
        constant=case["hyperparameters"]["L_max"],
    )


def test_divergence_frees_rare_tokens_and_holds_dominant_ones() -> None:
    case = CASES["dppo_vs_ratio"]
    mu, pi = tensor(case["inputs"]["pairs"]).T
    expected = tensor([row[2:] for row in case["expected"]["table"]])
    close(pi / mu, expected[:, 0])
    close(binary_divergence("tv", pi.log(), mu.log()), expected[:, 1])
    close(binary_divergence("kl", pi.log(), mu.log()), expected[:, 2])
    rows = Rows([[1.0]] * 4)
    for sign, key in ((1.0, "pos"), (-1.0, "neg")):
        tokens = rows.tokens(pi.log()[:, None], [sign] * 4, logp_behaviour=mu.log()[:, None])
        shares = divergence_mask.shares
        assert shares is not None
        masked = shares(tokens, pi / mu, measure="tv", delta=0.15)["masked"]
        assert masked.tolist() == case["expected"][f"dppo_masked_if_A_{key}"]


def weight_of(part: Any, rows: Rows, inputs: dict[str, Any], advantage: Any = None) -> torch.Tensor:
    tokens = rows.tokens(
        tensor(inputs["logp"]),
        inputs["advantages"] if advantage is None else advantage,
        logp_old=inputs.get("logp_old", inputs["logp"]),
        logp_behaviour=inputs["logp_roll"],
    )
    full = torch.zeros(rows.mask.shape, dtype=torch.float64)
    full[rows.mask] = part(tokens).double()
    return full


CORRECTIONS = {
    "token_truncate_C2": correction.token_truncate(cap=2.0),
    "token_truncate_C1.2": correction.token_truncate(cap=1.2),
    "seq_truncate_C2": correction.seq_truncate(cap=2.0),
    "token_mask_0.8_1.25": correction.token_mask(low=0.8, high=1.25),
    "seq_mask_0.5_2": correction.seq_mask(low=0.5, high=2.0),
    "geo_mask_0.9_1.1_keep_token_is": correction.geo_mask(low=0.9, high=1.1),
    "geo_mask_0.9_1.1_binary": correction.geo_mask(low=0.9, high=1.1, binary=True),
}


def test_corrections() -> None:
    case = CASES["tis_mis"]
    inputs, variants = case["inputs"], case["expected"]["variants"]
    parts = {**CORRECTIONS, "none": correction.none()}
    assert set(parts) == set(variants)
    for name, part in parts.items():
        if name != "none":
            close(weight_of(part, Rows(inputs["mask"]), inputs), tensor(variants[name]["weight"]))
        algorithm = clipped_tokens.but(correction=part)
        check("tis_mis", algorithm, inputs["advantages"], variants[name]["loss"], variants[name]["grad_logp"])


def test_decoupled_ppo_and_the_bypass() -> None:
    case = CASES["decoupled_ppo"]
    inputs, expected = case["inputs"], case["expected"]
    check(
        "decoupled_ppo",
        PRESETS["decoupled_ppo"],
        inputs["advantages"],
        expected["loss_decoupled"],
        expected["grad_decoupled"],
    )
    bypass = PRESETS["grpo_token"].but(ratio={"anchor": "behaviour"})
    check("decoupled_ppo", bypass, inputs["advantages"], expected["loss_bypass"], expected["grad_bypass"])
    capped = CASES["decoupled_ppo_capped"]
    masked = PRESETS["decoupled_ppo"].but(
        correction=correction.token_mask(low=0.0, high=capped["hyperparameters"]["cap"])
    )
    loss, _ = Rows(capped["inputs"]["mask"]).loss(
        masked,
        capped["inputs"]["logp"],
        capped["inputs"]["advantages"],
        logp_old=capped["inputs"]["logp_old"],
        logp_behaviour=capped["inputs"]["logp_roll"],
    )
    close(loss, capped["expected"]["loss"])


def test_off_policy_rows_with_negative_advantage_are_dropped() -> None:
    case = CASES["opsm"]
    inputs = case["inputs"]
    part = correction.off_policy_mask(delta=case["hyperparameters"]["delta"])
    rows = Rows(inputs["mask"])
    weight = weight_of(part, rows, inputs)
    assert [float(weight[i][rows.mask[i]][0]) for i in range(4)] == case["expected"]["keep"]
    algorithm = clipped_tokens.but(correction=part)
    # The case clips around the behaviour policy, which is here also the old one.
    loss, _ = rows.loss(
        algorithm,
        inputs["logp"],
        inputs["advantages"],
        logp_old=inputs["logp_roll"],
        logp_behaviour=inputs["logp_roll"],
    )
    close(loss, case["expected"]["loss"])
    loss, _ = rows.loss(clipped_tokens, inputs["logp"], inputs["advantages"], logp_old=inputs["logp_roll"])
    close(loss, case["expected"]["loss_without"])


def test_correcting_twice_is_refused() -> None:
    for part in CORRECTIONS.values():
        with pytest.raises(AlgorithmError, match="correct a second time"):
            PRESETS["dppo_tv"].but(correction=part)
    with pytest.raises(AlgorithmError, match="anchor = 'behaviour'"):
        PRESETS["dppo_tv"].but(ratio={"anchor": "old"})


@pytest.mark.parametrize("case", ["maxrl_K0", "maxrl_K1", "maxrl_K2", "maxrl_K4"])
def test_maximum_likelihood(case: str) -> None:
    rewards, expected = CASES[case]["inputs"]["rewards"], CASES[case]["expected"]
    for form in ("conditional", "mean_normalised", "control_variate"):
        close(maximum_likelihood(form=form)(table(rewards)), tensor(expected[form]))
    for form, order in (("subset", 2), ("maclaurin", 2), ("maclaurin", 4)):
        close(maximum_likelihood(form=form, order=order)(table(rewards)), tensor(expected[f"{form}_T{order}"]))


def test_maximum_likelihood_reaches_its_order() -> None:
    case = CASES["maxrl_expectation"]
    p, size, expected = case["inputs"]["p"], case["inputs"]["N"], case["expected"]

    def expectation(form: str, order: int) -> float:
        """E[mean a_i s_i] / grad p with the score s = 1/p on success and -1/q on failure, over all outcomes."""
        total = 0.0
        for outcome in itertools.product([1.0, 0.0], repeat=size):
            a = maximum_likelihood(form=form, order=order)(table(list(outcome)))
            score = torch.tensor([1 / p if r else -1 / (1 - p) for r in outcome], dtype=torch.float64)
            probability = math.prod(p if r else 1 - p for r in outcome)
            total += probability * float((a * score).mean())
        return total

    close(expectation("conditional", 0), expected["conditional"])
    close(expectation("control_variate", 0), expected["control_variate"])
    close(expectation("mean_normalised", 0), expected["mean_normalised"])
    for order in range(1, 5):
        close(expectation("subset", order), expected["subset"][f"T{order}"])
        close(expectation("maclaurin", order), expected["maclaurin"][f"T{order}"])


def test_maximum_likelihood_subset_coefficients_and_edges() -> None:
    case = CASES["maxrl_subset"]
    size, order = case["inputs"]["N"], case["inputs"]["T"]
    for successes, coefficient, _ in case["expected"]["table"]:
        rewards = [1.0] * successes + [0.0] * (size - successes)
        have = maximum_likelihood(form="subset", order=order)(table(rewards))
        close(have, tensor([size * coefficient] * successes + [0.0] * (size - successes)))
    for form in ("conditional", "control_variate", "mean_normalised", "maclaurin"):
        assert maximum_likelihood(form=form)(table([1.0])).tolist() == CASES["maxrl_g1"]["expected"]["advantages"]
    with pytest.raises(AlgorithmError, match="negative reward"):
        maximum_likelihood()(table([1.0, -1.0]))


def test_scalerl_divides_by_the_deviation_of_the_advantages_of_the_kept_prompts() -> None:
    case = CASES["scalerl_adv"]
    rewards = tensor(case["inputs"]["rewards"])
    group = [i for i in range(len(rewards)) for _ in rewards[i]]
    whole = table(rewards.flatten().tolist(), group)
    kept = drop_no_signal()(whole)
    assert sorted({group[i] for i in torch.nonzero(kept).flatten().tolist()}) == case["expected"]["kept_prompts"]
    rest = table(rewards.flatten()[kept].tolist(), [0] * 4 + [1] * 4)
    have = advantages.batch_scaled(ddof=0, eps=0.0)(rest)
    close(have.view(2, 4), tensor(case["expected"]["advantages"]))


def components(rewards: torch.Tensor, group: list[int], lengths: Any = None) -> RewardTable:
    """[B, N] rewards as named components a, b ..."""
    base = table([0.0] * len(rewards), group, lengths)
    names = "abcdef"[: rewards.shape[1]]
    return RewardTable(
        base.reward, base.valid, base.group, base.length, {n: rewards[:, k] for k, n in enumerate(names)}
    )


def test_gdpo() -> None:
    case = CASES["gdpo"]
    inputs, expected = case["inputs"], case["expected"]
    rewards = tensor(inputs["rewards"]).flatten(0, 1)
    have = components(rewards, [0] * 4 + [1] * 4, tensor(inputs["lengths"]).flatten().tolist())
    weights = dict(zip("ab", case["hyperparameters"]["weights"], strict=True))
    part = decoupled(weights=weights, eps=case["hyperparameters"]["eps"])
    close(part(have).view(2, 4), tensor(expected["advantages_sequence_bn"]))
    # The token-weighted form is that of an implementation whose epsilon is 1e-6.
    by_tokens = part.but(weighting="tokens", eps=1e-6)(have).view(2, 4)
    close(by_tokens, tensor(expected["advantages_token_bn_rowvalue"]))


def test_gdpo_of_one_reward_is_grpo_times_a_number() -> None:
    case = CASES["gdpo_single"]
    rewards = tensor(case["inputs"]["rewards"]).flatten(0, 1)
    have = components(rewards, [0] * 4 + [1] * 4)
    close(decoupled(eps=0.0)(have), tensor(case["expected"]["gdpo"]).flatten())
    plain = table(rewards[:, 0].tolist(), [0] * 4 + [1] * 4)
    close(
        advantages.group_norm(eps=0.0)(plain) * case["expected"]["scalar"], tensor(case["expected"]["gdpo"]).flatten()
    )


def test_gdpo_keeps_apart_what_the_sum_merges() -> None:
    case = CASES["gdpo_collapse"]
    rewards = torch.cat([tensor(case["inputs"][name]) for name in ("group1", "group2")])
    have = decoupled(eps=0.0)(components(rewards, [0, 0, 1, 1]))
    before = tensor(case["expected"]["gdpo1_pre_bn"] + case["expected"]["gdpo2_pre_bn"])
    close(have, before / before.std())
    total = table(rewards.sum(1).tolist(), [0, 0, 1, 1])
    close(advantages.group_norm(eps=0.0)(total), tensor(case["expected"]["grpo1"] + case["expected"]["grpo2"]))


def test_gdpo_conditions_and_missing_rewards() -> None:
    case = CASES["gdpo_conditioned"]
    rewards = torch.stack([tensor(case["inputs"]["r_hard"]), tensor(case["inputs"]["r_easy"])], 1)
    have = components(rewards, [0] * 4)
    close(conditioned(have, "b", "a", case["hyperparameters"]["t"]), tensor(case["expected"]["r_easy_conditioned"]))
    with pytest.raises(AlgorithmError, match="names the reward 'format', and the rewards have: a, b"):
        decoupled(weights={"format": 1.0})(have)
    rewards[1, 1] = float("nan")
    broken = decoupled()(components(rewards, [0] * 4))
    assert broken.isfinite().all()


def test_mgpo() -> None:
    case = CASES["mgpo_weight"]
    success = tensor(case["inputs"]["p"])
    for sharpness in (0, 1, 4):
        close(advantages.difficulty_weight(success, float(sharpness)), tensor(case["expected"][f"lambda_{sharpness}"]))
    case = CASES["mgpo_adv"]
    close(PRESETS["mgpo"].advantage(table(case["inputs"]["rewards"])), tensor(case["expected"]["advantages"]))
    plain = advantages.entropy_weighted(sharpness=0.0)(table(case["inputs"]["rewards"]))
    assert torch.equal(plain, PRESETS["grpo"].advantage(table(case["inputs"]["rewards"])))


def test_an_uncapped_truncation_is_the_unclipped_objective_and_full_trust_masks_nothing() -> None:
    inputs = CASES["ppo_clip"]["inputs"]
    streams = {"logp_old": inputs["logp_old"], "logp_behaviour": inputs["logp_old"]}
    rows, arguments = Rows(inputs["mask"], constant=8.0), (inputs["logp"], inputs["advantages"])
    base = Algorithm(
        ratio=ratios.token(anchor="behaviour"), trust=trust.unclipped(), aggregation=aggregation.token_mean()
    )
    _, want = rows.loss(base, *arguments, **streams)
    for part in (trust.truncated_score(high=math.inf), divergence_mask(measure="tv", delta=1.0)):
        _, have = rows.loss(base.but(trust=part), *arguments, **streams)
        close(have, want)
    _, same = rows.loss(
        clipped_tokens.but(correction=correction.token_truncate(cap=math.inf)), *arguments, logp_old=inputs["logp_old"]
    )
    _, plain = rows.loss(clipped_tokens, *arguments, logp_old=inputs["logp_old"])
    close(same, plain)


def test_injected_tokens_are_no_loss_tokens() -> None:
    case = CASES["scalerl_interruption_mask"]
    segments = case["inputs"]["segments"]
    injected = np.repeat([name == "injected" for name, _ in segments], [count for _, count in segments])
    sample = Sample.of(np.array([1, 2]), np.arange(3, 3 + len(injected)), prompt_id="p", injected=injected)
    assert loss_mask(sample)[2:].tolist() == [bool(value) for value in case["expected"]["mask"]]


def test_every_worked_case_has_a_test() -> None:
    tests = "".join(file.read_text(encoding="utf-8") for file in sorted(Path(__file__).parents[1].rglob("test_*.py")))
    assert [name for name in CASES if f'"{name}"' not in tests] == []
