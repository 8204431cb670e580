"""GSPO: the ratio of a whole row on a mixture of experts, whose routing an update changes.

The variance is measured on random weights, which need no warm start: text of any length, a few updates, and their ratios.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from surefoot.algorithms import kl
from surefoot.algorithms.presets import PRESETS
from surefoot.config import validate
from surefoot.methods.reproduce import materials
from surefoot.methods.reproduce.arms import COIN, COIN_CONTROL, EXPERTS, preparing, trained
from surefoot.methods.reproduce.claim import CONTROL, Claim, Control, Criterion, Measured
from surefoot.methods.reproduce.rollouts import Start, behaviour, logprobs, updated
from surefoot.methods.reproduce.store import Bench
from surefoot.policy.packing import loss_mask
from surefoot.policy.policy import Policy
from surefoot.rollout.engine import Request
from surefoot.seeds import derive
from surefoot.training.assemble import assemble
from surefoot.training.config import RunConfig
from surefoot.types import Group, Sample, Score

ZHENG = "Zheng et al., Group Sequence Policy Optimization (arXiv 2507.18071)"
GRPO = PRESETS["grpo"].but(kl=kl.none())


def written(begin: Start, seed: int, length: int, prompts: int, size: int) -> list[Group]:
    """Groups of completions of exactly this many tokens, with rewards by the toss of a coin."""
    sampling = replace(begin.parts.sampling, max_new_tokens=length, stop_ids=())
    chosen = begin.parts.task.train[:prompts]
    requests = [
        Request(
            begin.parts.renderer.ids(prompt),
            prompt.prompt_id,
            tuple(derive(seed, "text", prompt.prompt_id, i) for i in range(size)),
            sampling,
        )
        for prompt in chosen
    ]
    return [
        Group(prompt, samples, tuple(Score(float(derive(seed, "coin", sample.seed) % 2)) for sample in samples))
        for prompt, samples in zip(chosen, begin.parts.engine.generate(requests), strict=True)
    ]


def spread_of_ratios(log_ratio: Tensor, length: int) -> tuple[float, float]:
    """Variance of the token ratios, and of the rows' geometric means, of rows of one length."""
    rows = log_ratio.double().reshape(-1, length)
    return float(rows.exp().var()), float(rows.mean(1).exp().var())


@torch.no_grad()
def routes(policy: Policy, samples: list[Sample]) -> Tensor:
    """[layers, tokens, k] int64, the experts of every token of rows of one length."""
    ids = torch.from_numpy(np.stack([sample.ids for sample in samples]))
    found = policy.model(input_ids=ids, output_router_logits=True).router_logits
    k = policy.model.config.num_experts_per_tok
    return torch.stack([layer.reshape(-1, layer.shape[-1]).topk(k).indices.sort().values for layer in found])


def measure_variance(bench: Bench, claim: Claim, seed: int) -> Measured:
    numbers = claim.settings
    path = materials.experts_model(bench.runs / "materials", seed)
    task = {"name": "addition", "options": {"digits": 2}, "train_size": numbers["prompts"], "heldout_size": 1}
    keys = {"seed": seed, "model": {"path": str(path)}, "task": {**task, "template": "plain"}}
    config = validate(RunConfig, {**keys, "train": {"group_size": numbers["group_size"]}})
    begin = Start(config, assemble(config), [])
    batches = {
        length: written(begin, seed, length, numbers["prompts"], numbers["group_size"]) for length in numbers["lengths"]
    }
    trained_on = batches[numbers["trained"]]
    policy = updated(begin, GRPO, epochs=1, updates=numbers["updates"], lr=numbers["lr"], groups=trained_on)
    shares, same = [], 0.0
    for length, groups in batches.items():
        samples = [sample for group in groups for sample in group.samples]
        old = logprobs(begin.policy, samples)
        same = max(same, float((old - behaviour(samples)).abs().max()))
        token, row = spread_of_ratios(logprobs(policy, samples) - old, length)
        shares.append(row / token)
    samples = [sample for group in trained_on for sample in group.samples]
    rerouted = (routes(begin.policy, samples) != routes(policy, samples)).any(2).any(0)
    mask = torch.from_numpy(np.concatenate([np.append(loss_mask(sample)[1:], False) for sample in samples]))
    drift = (logprobs(policy, samples) - logprobs(begin.policy, samples)).abs()
    where = rerouted[mask]
    slope = float(np.polyfit(np.log(numbers["lengths"]), np.log(shares), 1)[0])
    return {
        "slope": slope,
        "longest": shares[-1],
        "rerouted": float(where.double().mean()),
        "drift_rerouted": float(drift[where].mean()) if where.any() else math.nan,
        "drift_others": float(drift[~where].mean()) if (~where).any() else math.nan,
        CONTROL: same,
    }


GSPO_VARIANCE = Claim(
    name="gspo-variance",
    title="the sequence ratio varies less than the token ratio, the more so the longer the sequence (mixture of experts)",
    paper=ZHENG,
    hypothesis="After an update that changes the routing, GSPO's ratio varies less, against the token ratio, the longer the row.",
    criteria=(
        Criterion(
            "slope",
            "slope of log(variance of the sequence ratio / variance of the token ratio) over log(length), lengths 16, 48, 144",
            "below",
            -0.5,
            "-1 if the tokens of a row moved independently, 0 if they moved together: at least half of the way",
        ),
        Criterion("longest", "that variance ratio at 144 tokens", "below", 0.1, "an order of magnitude"),
    ),
    control=Control(
        "largest difference of a log-probability of engine and trainer on the same weights, nats", 0.0, 1e-3
    ),
    seeds=tuple(range(5)),
    seconds=10,
    measure=measure_variance,
    settings={"prompts": 8, "group_size": 8, "lengths": [16, 48, 144], "trained": 48, "updates": 4, "lr": 1e-3},
)


def fall(values: np.ndarray, window: int = 5) -> float:
    """How far the mean of the last ``window`` values lies below the best such mean."""
    means = np.convolve(values, np.full(window, 1 / window), mode="valid")
    return float(means.max() - means[-1])


def measure_stable(bench: Bench, claim: Claim, seed: int) -> Measured:
    runs = trained(bench, claim, seed, EXPERTS, "token_ratio", "sequence_ratio")
    falls = {arm: fall(runs.course(arm, "reward/correct")) for arm in ("token_ratio", "sequence_ratio")}
    return {
        "fall": falls["sequence_ratio"],
        "gain": runs.gain("sequence_ratio"),
        "fall_token": falls["token_ratio"],
        "against_token": runs.against("sequence_ratio", "token_ratio"),
        CONTROL: runs.gain(COIN),
    }


GSPO_EXPERTS = Claim(
    name="gspo-experts",
    title="GSPO trains a small mixture of experts without collapse",
    paper=ZHENG,
    hypothesis="With GSPO a mixture-of-experts model learns steadily, without fixing its routing.",
    criteria=(
        Criterion(
            "fall",
            "sampled accuracy, best mean of 5 steps minus mean of the last 5 (24 steps, GSPO)",
            "below",
            0.05,
            "noise of a mean of 5 steps of 256 samples is about 2 points; a collapse loses far more than 5",
        ),
        Criterion("gain", "held-out accuracy gained", "above", 0.0, "a model that stands still is stable too"),
    ),
    control=COIN_CONTROL,
    seeds=tuple(range(3)),
    seconds=700,
    measure=measure_stable,
    prepare=preparing(EXPERTS, "token_ratio", "sequence_ratio"),
)

CLAIMS = (GSPO_VARIANCE, GSPO_EXPERTS)
