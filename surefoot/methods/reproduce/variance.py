"""Baselines: less variance and no bias; and RLOO and GRPO as one gradient with two factors."""

from __future__ import annotations

import math

import numpy as np
import torch

from surefoot.algorithms import kl
from surefoot.algorithms.presets import PRESETS
from surefoot.methods.reproduce.claim import CONTROL, Claim, Control, Criterion, Measured
from surefoot.methods.reproduce.rollouts import gradient, start
from surefoot.methods.reproduce.store import Bench
from surefoot.methods.reproduce.tabular import bandit, group_gradients
from surefoot.seeds import generator
from surefoot.types import Group

REINFORCE = PRESETS["reinforce"]
RLOO = PRESETS["rloo"].but(kl=kl.none())
PAPER = "Williams 1992 (REINFORCE); Ahmadian et al., Back to Basics: Revisiting REINFORCE Style Optimization (arXiv 2402.14740)"


def measure_exact(bench: Bench, claim: Claim, seed: int) -> Measured:
    """On a softmax over a few completions, every group of samples listed: expectation and variance without any noise."""
    rng = generator("reproduce", "baseline", seed)
    arms, size = claim.settings["arms"], claim.settings["group_size"]
    policy = bandit(rng.normal(size=arms), (np.arange(arms) < arms // 2).astype(float))
    theta = policy.logits.clone().requires_grad_(True)
    truth = torch.autograd.grad((policy.probability(theta) * torch.from_numpy(policy.reward)).sum(), theta)[0]
    variance, bias = {}, []
    for algorithm in (REINFORCE, RLOO):
        gradients, chance = group_gradients(algorithm, policy, policy.logits, size)
        mean = (chance[:, None] * gradients).sum(0)
        variance[algorithm.name] = float((chance * ((gradients - mean) ** 2).sum(1)).sum())
        bias.append(float((mean + truth).norm() / truth.norm()))
    return {"variance": variance["rloo"] / variance["reinforce"], CONTROL: max(bias)}


def measure_model(bench: Bench, claim: Claim, seed: int) -> Measured:
    """On the embedded model: the gradient of each group by itself, under both objectives, on the same samples.

    Both are unbiased, so the difference of the two has the mean 0. The mean of the products of different groups' differences
    estimates the square of that mean without bias; it is given in units of what chance makes of it.
    """
    begin = start(bench, claim, seed)
    budget = begin.parts.sampling.max_new_tokens
    of = {
        name: torch.stack([gradient(begin.policy, algorithm, [group], budget) for group in begin.groups])
        for name, algorithm in (("reinforce", REINFORCE), ("rloo", RLOO))
    }
    variance = {name: float(found.var(0).sum()) for name, found in of.items()}
    difference = of["rloo"] - of["reinforce"]
    number = len(difference)
    squares = float((difference**2).sum())
    products = (float((difference.sum(0) ** 2).sum()) - squares) / (number * (number - 1))
    return {
        "variance": variance["rloo"] / variance["reinforce"],
        CONTROL: products / (squares / number**2),
        "success": float(np.mean([score.total for group in begin.groups for score in group.scores])),
    }


BASELINE_EXACT = Claim(
    name="baseline-exact",
    title="a baseline reduces the variance of the gradient and adds no bias (exact)",
    paper=PAPER,
    hypothesis="The leave-one-out baseline lowers the variance of the policy gradient and leaves its expectation as it is.",
    criteria=(
        Criterion(
            "variance",
            "total variance of the gradient, RLOO over REINFORCE (softmax over 4 completions, all 256 groups of 4 listed)",
            "below",
            1.0,
            "any reduction is one; no noise that a margin would have to cover",
        ),
    ),
    control=Control("bias of either expected gradient over its length", 0.0, 1e-9),
    seeds=tuple(range(10)),
    seconds=5,
    measure=measure_exact,
    settings={"arms": 4, "group_size": 4},
)

BASELINE_MODEL = Claim(
    name="baseline-model",
    title="a baseline reduces the variance of the gradient and adds no bias (embedded model)",
    paper=PAPER,
    hypothesis="On a language model, too, RLOO's gradient varies less from prompt to prompt than REINFORCE's, at the same mean.",
    criteria=(
        Criterion(
            "variance",
            "variance of the gradient of a prompt's 8 samples, all 231,168 weights, RLOO over REINFORCE (64 prompts)",
            "below",
            1.0,
            "any reduction is one",
        ),
    ),
    control=Control(
        "square of the mean difference of both gradients, in units of what chance makes of it (0 where there is no bias)",
        -1.0,
        1.0,
    ),
    seeds=tuple(range(5)),
    seconds=30,
    measure=measure_model,
    settings={"prompts": 64, "group_size": 8},
)


def measure_factor(bench: Bench, claim: Claim, seed: int) -> Measured:
    """GRPO's gradient of each prompt against RLOO's times (G - 1) / (G (std + eps)), on the embedded model, on policy."""
    begin = start(bench, claim, seed)
    budget, size = begin.parts.sampling.max_new_tokens, claim.settings["group_size"]
    grpo = PRESETS["grpo"].but(kl=kl.none(), aggregation="seq_mean_token_sum")
    dr_grpo = PRESETS["dr_grpo"]
    errors, others, doctor = [], [], []
    mixed = [group for group in begin.groups if len({score.total for score in group.scores}) > 1]
    for group, other in zip(mixed, mixed[1:] + mixed[:1], strict=True):
        rewards = np.array([score.total for score in group.scores])
        factor = (size - 1) / size / (rewards.std(ddof=1) + 1e-6)
        rloo = gradient(begin.policy, RLOO, [group], budget)
        errors.append(_apart(gradient(begin.policy, grpo, [group], budget), factor * rloo))
        swapped = Group(group.prompt, group.samples, tuple(sorted(other.scores, key=lambda score: score.total)))
        others.append(_apart(gradient(begin.policy, grpo, [swapped], budget), factor * rloo))
        doctor.append(_apart(gradient(begin.policy, dr_grpo, [group], budget), (size - 1) / size / budget * rloo))
    if not mixed:  # no prompt has right and wrong answers
        return dict.fromkeys(("error", "dr_grpo", CONTROL), math.nan)
    return {"error": max(errors), "dr_grpo": max(doctor), CONTROL: float(np.mean(others))}


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


RLOO_GRPO = Claim(
    name="rloo-grpo",
    title="RLOO and GRPO agree up to their known factor",
    paper="Shao et al., DeepSeekMath (arXiv 2402.03300); Ahmadian et al. (arXiv 2402.14740); Liu et al. (arXiv 2503.20783)",
    hypothesis="On policy, a prompt's gradient under GRPO is RLOO's times (G-1)/(G std), under Dr. GRPO times (G-1)/(G L_max).",
    criteria=(
        Criterion(
            "error",
            "largest relative distance of GRPO's gradient (summed over tokens, no KL) from RLOO's times the factor, over prompts",
            "below",
            1e-3,
            "equality up to float32: gradients of 250 tokens are added in another order and scale, 1e-7 each",
        ),
        Criterion("dr_grpo", "the same for Dr. GRPO", "below", 1e-3, "as above"),
    ),
    control=Control(
        "the same distance when GRPO gets the rewards of another prompt: the check must be able to fail",
        0.1,
        float("inf"),
    ),
    seeds=tuple(range(3)),
    seconds=15,
    measure=measure_factor,
    settings={"prompts": 24, "group_size": 8},
)

CLAIMS = (BASELINE_EXACT, BASELINE_MODEL, RLOO_GRPO)
