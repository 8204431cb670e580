"""An engine that differs from the trainer: DPPO's mask against the ratio clip, and the float32 head."""

from __future__ import annotations

import math
from dataclasses import replace

from torch import Tensor

from surefoot.algorithms import ratios
from surefoot.algorithms.presets import PRESETS
from surefoot.methods.reproduce.arms import ADDITION, COIN, COIN_CONTROL, preparing, trained
from surefoot.methods.reproduce.claim import CONTROL, Claim, Control, Criterion, Measured
from surefoot.methods.reproduce.rollouts import (
    Start,
    behaviour,
    coefficients,
    logprobs,
    noisy,
    start,
    token_advantage,
)
from surefoot.methods.reproduce.store import Bench
from surefoot.rollout.local import LocalEngine
from surefoot.training.clock import Clock
from surefoot.training.collect import rollout

QI = "Qi et al., Rethinking the Trust Region in LLM Reinforcement Learning (arXiv 2602.04879)"
DPPO = PRESETS["dppo_tv"]
CLIPPED = PRESETS["dr_grpo"].but(ratio=ratios.token(anchor="behaviour"), name="clip on the behaviour ratio")


def sampled_by_another(begin: Start, noise: float, seed: int) -> Start:
    """The same prompts, sampled by an engine whose weights have noise."""
    policy = noisy(begin.policy, noise, seed)
    limit = begin.config.rollout.max_batch_tokens
    parts = replace(begin.parts, engine=LocalEngine(policy.model, max_batch_tokens=limit))
    prompts = [group.prompt for group in begin.groups]
    return replace(begin, groups=rollout(begin.config, parts, begin.config.algorithm.build(), prompts, 1, Clock(), {}))


def masked(begin: Start, algorithm_now: Tensor, rare: float) -> dict[str, float]:
    """The share of rare tokens with an advantage whose gradient each objective takes away, before any update."""
    budget, mu = begin.parts.sampling.max_new_tokens, behaviour(begin.samples)
    chosen = (mu.exp() < rare) & (token_advantage(DPPO, begin.groups, budget) != 0)
    found = {}
    for name, algorithm in (("clip", CLIPPED), ("dppo", DPPO)):
        push = coefficients(algorithm, begin.groups, now=algorithm_now, old=algorithm_now, mu=mu, budget=budget)
        found[name] = float((push[chosen] == 0).double().mean()) if chosen.any() else math.nan
    return found


def measure_masks(bench: Bench, claim: Claim, seed: int) -> Measured:
    begin = start(bench, claim, seed)
    same = masked(begin, logprobs(begin.policy, begin.samples), claim.settings["rare"])
    other = sampled_by_another(begin, claim.settings["noise"], seed)
    now = logprobs(begin.policy, other.samples)
    apart = masked(other, now, claim.settings["rare"])
    return {
        "clip": apart["clip"] - apart["dppo"],
        "dppo": apart["dppo"],
        "mismatch": float((now - behaviour(other.samples)).abs().mean()),
        CONTROL: max(same.values()),
    }


DPPO_MASKS = Claim(
    name="dppo-masks",
    title="under an engine mismatch the ratio clip masks rare tokens that DPPO keeps",
    paper=QI,
    hypothesis="If the engine's weights differ a little, the clip drops many rare tokens before any update, and DPPO hardly any.",
    criteria=(
        Criterion(
            "clip",
            "share of rare tokens (engine's probability below 0.1) without gradient before any update, clip minus DPPO; "
            "the engine's matrices have noise of 5 % of their standard deviation",
            "above",
            0.1,
            "one rare token in ten",
        ),
        Criterion("dppo", "that share under DPPO", "below", 0.02, "hardly any"),
    ),
    control=Control("the largest such share when the engine has the trainer's weights", 0.0, 0.0),
    seeds=tuple(range(5)),
    seconds=15,
    measure=measure_masks,
    settings={"prompts": 32, "group_size": 8, "noise": 0.05, "rare": 0.1},
)


def measure_stable(bench: Bench, claim: Claim, seed: int) -> Measured:
    runs = trained(bench, claim, seed, ADDITION, "dppo", "dppo_rounded", "clip_rounded")
    return {
        "stable": runs.against("dppo_rounded", "dppo"),
        "better": runs.against("dppo_rounded", "clip_rounded"),
        "mismatch": runs.metric("dppo_rounded", "policy/mismatch", first=1),
        CONTROL: runs.gain(COIN),
    }


DPPO_STABLE = Claim(
    name="dppo-stable",
    title="DPPO stays stable when the engine rounds its weights to 8 bits (training)",
    paper=QI,
    hypothesis="Sampling from weights rounded to 8 bits costs DPPO no accuracy, and it ends no worse than the ratio clip.",
    criteria=(
        Criterion(
            "stable",
            "held-out accuracy of DPPO with the rounded engine minus that with the exact one (each evaluated by its own engine)",
            "above",
            -0.05,
            "not worse by 5 points, of about 25 that training gains",
        ),
        Criterion(
            "better",
            "accuracy with the rounded engine, DPPO minus the clip on the same ratio",
            "above",
            -0.03,
            "not worse",
        ),
    ),
    control=COIN_CONTROL,
    seeds=tuple(range(5)),
    seconds=500,
    measure=measure_stable,
    prepare=preparing(ADDITION, "dppo", "dppo_rounded", "clip_rounded"),
)


def measure_head(bench: Bench, claim: Claim, seed: int) -> Measured:
    """Mean absolute difference of engine's and trainer's log-probabilities, with and without the float32 head."""

    def apart(dtype: str, wide: bool) -> float:
        begin = start(bench, claim, seed, dtype=dtype, head_float32=wide)
        return float((logprobs(begin.policy, begin.samples) - behaviour(begin.samples)).abs().mean())

    half, wide = apart("bfloat16", False), apart("bfloat16", True)
    return {
        "mismatch": math.log2(half / wide),
        "half": half,
        "wide": wide,
        CONTROL: apart("float32", False) - apart("float32", True),
    }


FLOAT32_HEAD = Claim(
    name="float32-head",
    title="a float32 head lowers the mismatch of engine and trainer",
    paper="MiniMax, MiniMax-M1 (arXiv 2506.13585); Khatri et al., ScaleRL (arXiv 2510.13786)",
    hypothesis="In bfloat16, computing the logits in float32 on both sides brings engine and trainer closer together.",
    criteria=(
        Criterion(
            "mismatch",
            "log2 of the mean absolute difference of log-probabilities, bfloat16 head over float32 head (bfloat16 model)",
            "above",
            0.0,
            "any reduction",
        ),
    ),
    control=Control("difference of the mismatch with and without the option for a float32 model, nats", -1e-6, 1e-6),
    seeds=tuple(range(5)),
    seconds=30,
    measure=measure_head,
    settings={"prompts": 16, "group_size": 8},
)

CLAIMS = (DPPO_MASKS, DPPO_STABLE, FLOAT32_HEAD)
