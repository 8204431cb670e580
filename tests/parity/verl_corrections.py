"""Corrections for an engine that is not the trainer, against verl's rollout correction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from surefoot.algorithms import correction
from surefoot.algorithms.part import Part
from tests.parity import surefoot_side as ours
from tests.parity import verl_side as verl
from tests.parity.batches import Batch, drawn, random_batch
from tests.parity.registry import Outcome, compare
from tests.parity.verl_losses import NO_DUAL_CLIP


def corrected(seed: int, part: Part, **options: Any) -> Outcome:
    """Weights, loss and gradient of a token mean with a correction; the weights leave the denominators alone."""
    batch, given = drawn(seed)
    weights, mask = verl.rollout_weights(batch, **options)
    assert bool((mask == batch.mask).all())
    theirs = verl.actor_loss(batch, given, weights=weights, clip_ratio_c=NO_DUAL_CLIP)
    have = ours.loss(ours.preset("grpo_token", correction=part), batch, given)
    return Outcome(
        {"weight": ours.weight(part, batch), **have}, {"weight": torch.where(batch.mask, weights, 0.0), **theirs}
    )


COMMON = "compute_rollout_correction_and_rejection_mask ppo_loss"


@compare("verl", "decoupled_ppo", "weights and loss, threshold out of reach", COMMON)
def no_cap(name: str, seed: int) -> Outcome:
    return corrected(seed, ours.PRESETS["decoupled_ppo"].correction, rollout_is="token", rollout_is_threshold=1e9)


@compare("verl", "correction.token_truncate", "weights and loss, `rollout_is=token`", COMMON)
def token_truncate(name: str, seed: int) -> Outcome:
    return corrected(seed, correction.token_truncate(cap=1.5), rollout_is="token", rollout_is_threshold=1.5)


@compare("verl", "correction.seq_truncate", "weights and loss, `rollout_is=sequence`", COMMON)
def seq_truncate(name: str, seed: int) -> Outcome:
    return corrected(seed, correction.seq_truncate(cap=1.5), rollout_is="sequence", rollout_is_threshold=1.5)


@compare("verl", "correction.token_mask", "weights and loss, `rollout_is=token` with a band (IcePop)", COMMON)
def token_mask(name: str, seed: int) -> Outcome:
    part = correction.token_mask(low=0.7, high=1.4)
    return corrected(seed, part, rollout_is="token", rollout_is_threshold="0.7_1.4")


@compare("verl", "correction.seq_mask", "weights and loss, `rollout_is=sequence` with a band", COMMON)
def seq_mask(name: str, seed: int) -> Outcome:
    part = correction.seq_mask(low=0.5, high=2.0)
    return corrected(seed, part, rollout_is="sequence", rollout_is_threshold="0.5_2.0")


def kept_mask(batch: Batch, option: str, low: float, high: float) -> dict[str, torch.Tensor]:
    _, mask = verl.rollout_weights(batch, rollout_rs=option, rollout_rs_threshold=f"{low}_{high}")
    return {"kept": mask.double() * batch.mask}


@compare(
    "verl",
    "correction.geo_mask",
    "rows kept by `rollout_rs=seq_mean_k1`, an asymmetric band",
    "compute_rollout_rejection_mask",
    differs="verl's k1 is log(mu / pi_old), so that its band bounds the inverse ratio",
)
def geo_mask(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, sizes=(16, 16))
    part = correction.geo_mask(low=0.95, high=1.4, binary=True)
    inverse = correction.geo_mask(low=1 / 1.4, high=1 / 0.95, binary=True)
    return Outcome(
        {"kept": ours.weight(part, batch)},
        kept_mask(batch, "seq_mean_k1", 0.95, 1.4),
        {"kept": ours.weight(inverse, batch)},
    )


@compare(
    "verl",
    "correction.seq_mask",
    "rows kept by `rollout_rs=seq_sum_k1`, a symmetric band",
    "compute_rollout_rejection_mask",
)
def seq_mask_binary(name: str, seed: int) -> Outcome:
    batch = random_batch(seed)
    part = correction.seq_mask(low=0.5, high=2.0, binary=True)
    return Outcome({"kept": ours.weight(part, batch)}, kept_mask(batch, "seq_sum_k1", 0.5, 2.0))


@compare(
    "verl",
    "correction.token_mask correction.seq_mask correction.geo_mask",
    "loss after a rejection",
    "compute_rollout_rejection_mask ppo_loss agg_loss",
    differs="verl takes rejected tokens out of the loss mask and so out of the denominators; Surefoot leaves them there",
)
def rejected_denominators(name: str, seed: int) -> Outcome:
    low, high, slot = 0.8, 1.25, name.removeprefix("correction.")
    batch, given = drawn(seed, sizes=(8, 8), drift=0.3)
    option = {"token_mask": "token_k1", "seq_mask": "seq_sum_k1", "geo_mask": "seq_mean_k1"}[slot]
    kept = kept_mask(batch, option, low, high)["kept"].bool()
    algorithm = ours.preset("grpo_token", correction={"kind": slot, "low": low, "high": high, "binary": True})
    theirs = verl.actor_loss(replace(batch, mask=kept), given, clip_ratio_c=NO_DUAL_CLIP)
    return Outcome(
        ours.loss(algorithm, batch, given),
        theirs,
        ours.loss(algorithm, batch, given, totals={"tokens": float(kept.sum())}),
    )
