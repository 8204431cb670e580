"""Length: what GRPO's normalisation rewards, the overlong penalty, and Kimi's reward for being short.

The training runs are on two-digit additions after 0 to 12 idle characters (:mod:`surefoot.methods.reproduce.materials`): length
is free there, and the demonstrations draw it apart from whether the answer is right.
"""

from __future__ import annotations

import torch

from surefoot.algorithms import kl
from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.presets import PRESETS
from surefoot.methods.reproduce.arms import COIN, COIN_CONTROL, ENDS, FILLER, preparing, trained
from surefoot.methods.reproduce.claim import CONTROL, Claim, Control, Criterion, Measured
from surefoot.methods.reproduce.store import Bench
from surefoot.methods.reproduce.tabular import expected_gradient, lengthy, mean_length
from surefoot.seeds import generator

GRPO = PRESETS["grpo"].but(kl=kl.none())
DR_GRPO = PRESETS["dr_grpo"]
LIU = "Liu et al., Understanding R1-Zero-Like Training: A Critical Perspective (arXiv 2503.20783)"


def measure_drift(bench: Bench, claim: Claim, seed: int) -> Measured:
    """Along the expected gradient: how fast the log of the mean length of wrong answers grows. The reward ignores length."""
    rng = generator("reproduce", "length", seed)
    policy = lengthy(rng.normal(size=3), claim.settings["budget"])

    def drift(algorithm: Algorithm) -> float:
        step = -expected_gradient(algorithm, policy, policy.logits, claim.settings["group_size"])
        theta = policy.logits.clone().requires_grad_(True)
        (length,) = torch.autograd.grad(mean_length(policy, theta, right=False).log(), theta)
        return float(length @ step / step.norm())

    constant = GRPO.but(aggregation="seq_mean_token_sum_norm", name="grpo over a constant")
    return {"grpo": drift(GRPO), "dr_grpo": abs(drift(DR_GRPO)), CONTROL: abs(drift(constant))}


WRONG_LENGTH = Claim(
    name="wrong-length",
    title="GRPO's division by length makes wrong answers longer, Dr. GRPO's constant does not (exact)",
    paper=LIU,
    hypothesis="With a reward that ignores length, GRPO's expected gradient lengthens wrong answers, and Dr. GRPO's leaves them.",
    criteria=(
        Criterion(
            "grpo",
            "growth of the mean length of wrong answers along GRPO's expected gradient (relative, for a step of length 1)",
            "above",
            0.0,
            "the claim is about the sign, and the gradient is exact",
        ),
        Criterion("dr_grpo", "the same under Dr. GRPO, without sign", "below", 1e-9, "exactly none, up to float64"),
    ),
    control=Control("the same under GRPO with nothing but the division by the row's length taken out", 0.0, 1e-9),
    seeds=tuple(range(10)),
    seconds=1,
    measure=measure_drift,
    settings={"budget": 6, "group_size": 3},
)


def measure_growth(bench: Bench, claim: Claim, seed: int) -> Measured:
    runs = trained(bench, claim, seed, FILLER, "grpo", "dr_grpo")
    growth = {
        arm: runs.metric(arm, "length/wrong") - runs.metric(arm, "length/wrong", first=ENDS)
        for arm in ("grpo", "dr_grpo")
    }
    return {"grpo": growth["grpo"], "difference": growth["grpo"] - growth["dr_grpo"], CONTROL: runs.gain(COIN)}


WRONG_LENGTH_TRAINED = Claim(
    name="wrong-length-trained",
    title="wrong answers grow under GRPO and not under Dr. GRPO (training)",
    paper=LIU,
    hypothesis="In training, wrong answers become longer under GRPO, and less so under Dr. GRPO.",
    criteria=(
        Criterion(
            "grpo",
            "growth of wrong answers under GRPO, last 5 steps minus first 5",
            "above",
            0.0,
            "the sign is the claim",
        ),
        Criterion("difference", "that growth minus Dr. GRPO's", "above", 0.0, "the sign is the claim"),
    ),
    control=COIN_CONTROL,
    seeds=tuple(range(5)),
    seconds=330,
    measure=measure_growth,
    prepare=preparing(FILLER, "grpo", "dr_grpo"),
)


def measure_overlong(bench: Bench, claim: Claim, seed: int) -> Measured:
    runs = trained(bench, claim, seed, FILLER, "grpo", "overlong")
    cut = {arm: runs.metric(arm, "length/truncated") for arm in ("grpo", "overlong")}
    return {
        "truncated": cut["grpo"] - cut["overlong"],
        "accuracy": runs.against("overlong", "grpo"),
        "truncated_before": runs.metric("grpo", "length/truncated", first=1),
        "truncated_plain": cut["grpo"],
        CONTROL: runs.gain(COIN),
    }


OVERLONG = Claim(
    name="overlong",
    title="the soft overlong penalty reduces truncation",
    paper="Yu et al., DAPO (arXiv 2503.14476)",
    hypothesis="With the penalty fewer completions are cut by the budget than without it, at no cost in accuracy.",
    criteria=(
        Criterion(
            "truncated",
            "share of completions cut by the budget over the last 5 steps, GRPO minus GRPO with the penalty",
            "above",
            0.02,
            "two completions in a hundred: below that nobody would set the penalty",
        ),
        Criterion(
            "accuracy", "held-out accuracy with the penalty minus without", "above", -0.03, "not worse by 3 points"
        ),
    ),
    control=COIN_CONTROL,
    seeds=tuple(range(5)),
    seconds=330,
    measure=measure_overlong,
    prepare=preparing(FILLER, "grpo", "overlong"),
)


def measure_short(bench: Bench, claim: Claim, seed: int) -> Measured:
    runs = trained(bench, claim, seed, FILLER, "grpo", "length_reward")
    length = {arm: runs.metric(arm, "length/mean") for arm in ("grpo", "length_reward")}
    return {
        "length": length["length_reward"] / length["grpo"],
        "accuracy": runs.against("length_reward", "grpo"),
        CONTROL: runs.gain(COIN),
    }


KIMI_LENGTH = Claim(
    name="kimi-length",
    title="Kimi's length reward shortens at equal accuracy",
    paper="Kimi Team, Kimi k1.5: Scaling Reinforcement Learning with LLMs (arXiv 2501.12599)",
    hypothesis="With the length reward completions become shorter than without it, and accuracy does not fall.",
    criteria=(
        Criterion(
            "length",
            "mean length over the last 5 steps, GRPO with the length reward over GRPO",
            "below",
            0.95,
            "5 % of the tokens; a quarter of the warm start's are idle",
        ),
        Criterion(
            "accuracy",
            "held-out accuracy with the length reward minus without",
            "above",
            -0.03,
            "not worse by 3 points",
        ),
    ),
    control=COIN_CONTROL,
    seeds=tuple(range(5)),
    seconds=330,
    measure=measure_short,
    prepare=preparing(FILLER, "grpo", "length_reward"),
)

CLAIMS = (WRONG_LENGTH, WRONG_LENGTH_TRAINED, OVERLONG, KIMI_LENGTH)
