"""Losses and their gradients against verl's ``ppo_loss``, which adds the policy and the KL term of the actor."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from surefoot.algorithms import kl
from surefoot.algorithms.algorithm import Algorithm
from tests.parity import surefoot_side as ours
from tests.parity import verl_side as verl
from tests.parity.batches import Batch, drawn, drawn_per_token, random_batch
from tests.parity.registry import Outcome, compare

# verl always clips twice; with a bound beyond every ratio it does not show.
NO_DUAL_CLIP = 1e9
BUDGET = 32.0
ESTIMATORS = {"k1": "kl", "k2": "mse", "k3": "low_var_kl", "k3_ratio": "k3+"}
VANILLA = "ppo_loss compute_policy_loss_vanilla agg_loss"


def settings(algorithm: Algorithm) -> dict[str, Any]:
    """verl's configuration of the same clipping, aggregation and KL term."""
    options: dict[str, Any] = {"loss_agg_mode": algorithm.aggregation.name.replace("_", "-")}
    if algorithm.aggregation.name == "seq_mean_token_sum_norm":
        options["loss_scale_factor"] = int(BUDGET)
    if algorithm.trust.name == "clip":
        options |= {"clip_ratio_low": algorithm.trust.low, "clip_ratio_high": algorithm.trust.high}
    if "loss" in algorithm.kl.kind.traits:
        options |= {"use_kl_loss": True, "kl_loss_coef": algorithm.kl.coef}
        options["kl_loss_type"] = ESTIMATORS[algorithm.kl.estimator]
    return options


CLIPPED = "grpo grpo_token dr_grpo ppo reinforce_pp reinforce_pp_baseline dapo prorl"


@compare("verl", CLIPPED, "loss with its KL term, `clip_ratio_c` out of reach", VANILLA)
def clipped(name: str, seed: int) -> Outcome:
    batch, given = drawn_per_token(seed, empty=2)
    algorithm = ours.without_kl_in_reward(name)
    theirs = verl.actor_loss(batch, given, clip_ratio_c=NO_DUAL_CLIP, **settings(algorithm))
    return Outcome(ours.loss(algorithm, batch, given, constant=BUDGET), theirs)


@compare(
    "verl",
    CLIPPED,
    "loss with ratios above 3",
    VANILLA,
    differs="verl always clips twice, `clip_ratio_c` 3 (`trust='dual_clip'`); Surefoot only where asked",
)
def dual_clip(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed, drift=2.0)
    algorithm = ours.preset(name)
    twice = algorithm.but(trust={"kind": "dual_clip", **algorithm.trust.numbers, "bound": 3.0})
    return Outcome(
        ours.loss(algorithm, batch, given, constant=BUDGET),
        verl.actor_loss(batch, given, **settings(algorithm)),
        ours.loss(twice, batch, given, constant=BUDGET),
    )


@compare(
    "verl",
    "grpo dr_grpo",
    "loss with empty rows in a live run",
    VANILLA,
    differs="verl's trainer divides by the configured number of rows, empty ones included; Surefoot by rows with a loss "
    "token",
)
def empty_rows(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed, empty=2)
    algorithm, rows = ours.preset(name), len(batch.mask)
    return Outcome(
        ours.loss(algorithm, batch, given, constant=BUDGET),
        verl.actor_loss(batch, given, rows=rows, clip_ratio_c=NO_DUAL_CLIP, **settings(algorithm)),
        ours.loss(algorithm, batch, given, constant=BUDGET, totals={"sequences": float(rows)}),
    )


@compare(
    "verl",
    "dr_grpo",
    "loss, `seq-mean-token-sum-norm` without `loss_scale_factor`",
    VANILLA,
    differs="verl divides by the padded width of the batch, Surefoot by the generation budget",
)
def padded_length(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed)
    algorithm, width = ours.preset(name), float(batch.mask.shape[1])
    options = {**settings(algorithm), "loss_scale_factor": None, "clip_ratio_c": NO_DUAL_CLIP}
    return Outcome(
        ours.loss(algorithm, batch, given, constant=BUDGET),
        verl.actor_loss(batch, given, **options),
        ours.loss(algorithm, batch, given, constant=width),
    )


# Row ratios near the bounds of GSPO, so that some rows are clipped and some are not.
NARROW = 5e-4


@compare("verl", "gspo gspo_token", "loss", "ppo_loss compute_policy_loss_gspo agg_loss")
def sequence_ratio(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed, drift=NARROW)
    algorithm = ours.preset(name)
    return Outcome(ours.loss(algorithm, batch, given), verl.actor_loss(batch, given, "gspo", **settings(algorithm)))


@compare("verl", "gspo_token", "loss with an advantage per token", "ppo_loss compute_policy_loss_gspo agg_loss")
def sequence_ratio_per_token(name: str, seed: int) -> Outcome:
    batch, given = drawn_per_token(seed, drift=NARROW)
    algorithm = ours.preset(name)
    return Outcome(ours.loss(algorithm, batch, given), verl.actor_loss(batch, given, "gspo", **settings(algorithm)))


@compare("verl", "cispo", "loss, `clip_ratio_low=1`, `clip_ratio_high=4`", "ppo_loss compute_policy_loss_cispo")
def truncated_weight(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed, drift=1.5)
    theirs = verl.actor_loss(batch, given, "cispo", clip_ratio_low=1.0, clip_ratio_high=4.0)
    return Outcome(ours.loss(ours.preset(name), batch, given), theirs)


@compare(
    "verl",
    "cispo",
    "loss with verl's default bounds",
    "ppo_loss compute_policy_loss_cispo",
    differs="verl's bounds are distances from 1 and 0.2 by default (weights in [0.8, 1.2]), Surefoot's are absolute, 0 and 5",
)
def truncated_weight_default(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed)
    changed = ours.preset(name, trust={"low": 0.8, "high": 1.2})
    return Outcome(
        ours.loss(ours.preset(name), batch, given),
        verl.actor_loss(batch, given, "cispo"),
        ours.loss(changed, batch, given),
    )


def divergence(name: str, seed: int, **config: Any) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """Surefoot, verl, and Surefoot with verl's cap of 3 on the ratio; both are anchored on the behaviour policy."""
    batch, given = drawn(seed, drift=2.0, sizes=(8, 8, 8))
    algorithm = ours.preset(name)
    options = {**settings(algorithm), **config}
    options |= {"clip_ratio_low": algorithm.trust.delta, "clip_ratio_high": algorithm.trust.delta}
    ratio = (batch.logp - batch.behaviour).exp()
    capped = given * ratio.clamp(max=3.0) / ratio
    return (
        ours.loss(algorithm, batch, given, constant=BUDGET),
        verl.actor_loss(batch, given, name, old=batch.behaviour, **options),
        ours.loss(algorithm, batch, capped, constant=BUDGET),
    )


@compare("verl", "dppo_tv", "loss, `clip_ratio_c` out of reach", "ppo_loss compute_policy_loss_dppo_tv")
def total_variation(name: str, seed: int) -> Outcome:
    return Outcome(*divergence(name, seed, clip_ratio_c=NO_DUAL_CLIP)[:2])


@compare("verl", "dppo_kl", "loss, `clip_ratio_c` out of reach", "ppo_loss compute_policy_loss_dppo_kl")
def binary_kl(name: str, seed: int) -> Outcome:
    return Outcome(*divergence(name, seed, clip_ratio_c=NO_DUAL_CLIP)[:2])


@compare(
    "verl",
    "dppo_tv dppo_kl",
    "loss with ratios above 3",
    "ppo_loss",
    differs="verl caps the ratio at `clip_ratio_c`, 3 by default; Surefoot does not",
)
def capped_divergence(name: str, seed: int) -> Outcome:
    return Outcome(*divergence(name, seed))


SCORE_FUNCTION = "reinforce reinforce_baseline remax rloo maxrl"


@compare(
    "verl",
    SCORE_FUNCTION,
    "loss, bypass mode",
    "ppo_loss compute_policy_loss_bypass_mode compute_policy_loss_reinforce",
)
def score_function(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed, empty=1)
    algorithm = ours.preset(name)
    bypass = {"rollout_correction": {"loss_type": "reinforce", "rollout_is": None}}
    theirs = verl.actor_loss(batch, given, "bypass_mode", policy_loss=bypass, **settings(algorithm))
    return Outcome(ours.loss(algorithm, batch, given), theirs)


@compare(
    "verl",
    SCORE_FUNCTION,
    "loss of the default mode",
    VANILLA,
    differs="verl's default clips the token ratio, clips twice and averages over tokens, whatever the advantage",
)
def score_function_default(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed, drift=2.0)
    changed = ours.preset(name, ratio="token", trust="dual_clip", aggregation="token_mean")
    return Outcome(
        ours.loss(ours.preset(name), batch, given), verl.actor_loss(batch, given), ours.loss(changed, batch, given)
    )


def estimated(estimator: str, batch: Batch, limit: float = math.inf) -> dict[str, Tensor]:
    leaf = batch.logp.clone().requires_grad_()
    value = kl.estimate(estimator, leaf, batch.reference).clamp(max=limit)
    value.sum().backward()
    assert leaf.grad is not None
    return {"value": value.detach(), "gradient": leaf.grad}


@compare(
    "verl",
    "kl.in_loss",
    "estimators k1, k2, k3, and k3 with the gradient of k2 (`k3+`)",
    "kl_penalty kl_penalty_forward",
)
def estimators(name: str, seed: int) -> Outcome:
    batch = random_batch(seed)
    have = {f"{own} {key}": v for own in ESTIMATORS for key, v in estimated(own, batch).items()}
    want = {f"{own} {key}": v for own, other in ESTIMATORS.items() for key, v in verl.kl_penalty(other, batch).items()}
    return Outcome(have, want)


@compare(
    "verl",
    "kl.in_loss",
    "k3 far from the reference",
    "kl_penalty kl_penalty_forward",
    differs="verl clamps the value of k3 at 10, where its gradient vanishes; Surefoot bounds the exponent only",
)
def far_from_the_reference(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, drift=3.0)
    return Outcome(estimated("k3", batch), verl.kl_penalty("low_var_kl", batch), estimated("k3", batch, limit=10.0))
