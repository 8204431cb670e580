"""Rewards and weights of prompts: GDPO keeps two rewards apart, MaxRL goes to hard prompts."""

from __future__ import annotations

import math

import numpy as np
import torch

from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.presets import PRESETS
from surefoot.methods.reproduce.arms import ADDITION, COIN, COIN_CONTROL, preparing, trained
from surefoot.methods.reproduce.claim import CONTROL, Claim, Control, Criterion, Measured
from surefoot.methods.reproduce.store import Bench
from surefoot.methods.reproduce.tabular import bandit, draw, expected_gradient, pairs, surrogate
from surefoot.seeds import generator

SUM, APART = PRESETS["gdpo"].but(advantage="group_norm", name="grpo on the sum"), PRESETS["gdpo"]
MAXRL = PRESETS["maxrl"]
STANDARDISED = MAXRL.but(advantage="group_norm", name="grpo, summed over tokens")
TAJWAR = "Tajwar et al., Maximum Likelihood Reinforcement Learning (arXiv 2602.02710)"


def learned(algorithm: Algorithm, rewards: dict[str, float], claim: Claim, seed: int) -> tuple[float, float]:
    """How often each of two independent answers is right once the first one is right 9 times in 10 (or the steps are over)."""
    numbers = claim.settings
    policy = pairs(np.array([numbers["start"]] * 2), rewards)
    theta = policy.logits.clone()
    for step in range(numbers["steps"]):
        if float(theta[0].sigmoid()) >= numbers["until"]:
            break
        rng = generator("reproduce", "two rewards", seed, step)
        chosen = draw(policy, theta, rng, numbers["groups"], numbers["group_size"])
        leaf = theta.clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(surrogate(algorithm, policy, leaf, chosen), leaf)
        theta = theta - numbers["lr"] * gradient
    first, second = theta.sigmoid().tolist()
    return first, second


def measure_two(bench: Bench, claim: Claim, seed: int) -> Measured:
    """Rewards of 1 and 0.1 for two independent answers; and, as the control, of 1 and 1."""
    unequal, equal = {"large": 1.0, "small": claim.settings["small"]}, {"large": 1.0, "small": 1.0}
    apart, summed = (learned(algorithm, unequal, claim, seed) for algorithm in (APART, SUM))
    alike = [learned(algorithm, equal, claim, seed)[1] for algorithm in (APART, SUM)]
    return {"second": apart[1] - summed[1], "alive": apart[1], "summed": summed[1], CONTROL: alike[0] - alike[1]}


GDPO_TWO = Claim(
    name="gdpo-two-rewards",
    title="GDPO keeps two rewards alive where GRPO on their sum loses one",
    paper="Liu et al., GDPO: Group reward-Decoupled Normalization Policy Optimization (arXiv 2601.05242)",
    hypothesis="Of two rewards that differ tenfold in size, GRPO on the sum learns the large one alone, and GDPO learns both.",
    criteria=(
        Criterion(
            "second",
            "how often the second answer is right when the first has come to 90 %, GDPO minus GRPO on the sum (from 27 %)",
            "above",
            0.2,
            "a third of the way from 27 to 90 %: less is a delay, not a loss",
        ),
        Criterion(
            "alive",
            "how often the second answer is right then under GDPO",
            "above",
            0.8,
            "nearly as often as the first",
        ),
    ),
    control=Control("the same difference when both rewards have the size 1", -0.1, 0.1),
    seeds=tuple(range(10)),
    seconds=5,
    measure=measure_two,
    settings={"small": 0.1, "start": -1.0, "steps": 600, "until": 0.9, "groups": 8, "group_size": 8, "lr": 0.5},
)


def measure_weight(bench: Bench, claim: Claim, seed: int) -> Measured:
    """The length of the expected gradient of a hard prompt over that of an easy one, each over that of its success rate."""
    size = claim.settings["group_size"]
    hard = float(generator("reproduce", "hard prompt", seed).uniform(*claim.settings["hard"]))

    def weight(algorithm: Algorithm, chance: float) -> float:
        policy = bandit([math.log(chance), math.log(1 - chance)], [1.0, 0.0])
        return float(expected_gradient(algorithm, policy, policy.logits, size).norm()) / (chance * (1 - chance))

    def favour(algorithm: Algorithm, chance: float) -> float:
        return weight(algorithm, chance) / weight(algorithm, claim.settings["easy"])

    plain = favour(MAXRL.but(advantage="leave_one_out"), hard)
    return {
        "weight": math.log2(favour(MAXRL, hard) / favour(STANDARDISED, hard)),
        "maxrl": favour(MAXRL, hard),
        "grpo": favour(STANDARDISED, hard),
        CONTROL: plain,
    }


MAXRL_WEIGHT = Claim(
    name="maxrl-weight",
    title="MaxRL gives hard prompts more weight than GRPO does (exact)",
    paper=TAJWAR,
    hypothesis="Relative to a prompt that is solved half of the time, MaxRL's expected gradient weighs a rarely solved one more.",
    criteria=(
        Criterion(
            "weight",
            "log2 of the weight of a prompt solved 2 to 10 % of the time relative to one solved half of it, MaxRL over GRPO "
            "(8 samples, exact)",
            "above",
            0.0,
            "any larger weight; the gradient is exact",
        ),
    ),
    control=Control("that relative weight under RLOO, whose gradient is that of the success rate", 1 - 1e-9, 1 + 1e-9),
    seeds=tuple(range(10)),
    seconds=1,
    measure=measure_weight,
    settings={"group_size": 8, "hard": [0.02, 0.1], "easy": 0.5},
)


def measure_passk(bench: Bench, claim: Claim, seed: int) -> Measured:
    runs = trained(bench, claim, seed, ADDITION, "grpo_once", "maxrl_once")
    hard = runs.right("grpo_once", 0) <= claim.settings["hard"]
    difference = np.asarray(runs.against("maxrl_once", "grpo_once"))
    most = runs.runs["grpo_once"].samples
    return {
        "passed": (runs.passed("maxrl_once", most) - runs.passed("grpo_once", most)).tolist(),
        "hard": float(difference[hard].mean()) if hard.any() else math.nan,
        "accuracy": difference.tolist(),
        CONTROL: runs.gain(COIN),
    }


MAXRL_PASSK = Claim(
    name="maxrl-passk",
    title="MaxRL moves hard prompts and pass@k more than GRPO (training)",
    paper=TAJWAR,
    hypothesis="After the same training MaxRL solves more problems at least once in 8, and more of those that were hard before.",
    criteria=(
        Criterion("passed", "held-out pass@8, MaxRL minus GRPO", "above", 0.0, "the sign is the claim"),
        Criterion(
            "hard",
            "accuracy on held-out problems of which at most 1 sample in 8 was right before, MaxRL minus GRPO",
            "above",
            0.0,
            "the sign is the claim",
        ),
    ),
    control=COIN_CONTROL,
    seeds=tuple(range(5)),
    seconds=400,
    measure=measure_passk,
    settings={"hard": 0.125},
    prepare=preparing(ADDITION, "grpo_once", "maxrl_once"),
)

CLAIMS = (GDPO_TWO, MAXRL_WEIGHT, MAXRL_PASSK)
