"""Recipes against TRL: punishing length, masking what was cut, tokens of high entropy, scaling over the batch."""

from __future__ import annotations

from dataclasses import replace

import torch

from tests.parity import surefoot_side as ours
from tests.parity import trl_side as trl
from tests.parity.batches import drawn, random_batch
from tests.parity.registry import FLOAT32, Outcome, compare
from tests.parity.trl_policy import LOSS, SCORE


@compare("trl", "dapo", "soft overlong penalty", "get_soft_overlong_punishment")
def soft_overlong(name: str, seed: int) -> Outcome:
    from trl.rewards import get_soft_overlong_punishment

    batch = random_batch(seed, sizes=(8, 8), width=25, holes=False)
    penalty = get_soft_overlong_punishment(max_completion_len=20, soft_punish_cache=4)
    theirs = penalty([[7] * length for length in batch.lengths.tolist()])
    made = ours.scored(ours.PRESETS[name], batch, budget=20)
    have = torch.as_tensor(made.reward) - batch.reward
    return Outcome({"penalty": have}, {"penalty": torch.tensor(theirs, dtype=torch.float64)})


@compare(
    "trl",
    "high_entropy",
    "loss, `top_entropy_quantile=0.2`, `epsilon_high=0.28`",
    f"{LOSS} GRPOTrainer.get_high_entropy_mask",
    differs="TRL selects the same tokens and divides by all tokens (`denominator='all'`), Surefoot by those selected",
)
def high_entropy(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed)
    batch = replace(batch, entropy=batch.entropy.float().double())  # TRL compares with a quantile in float32
    algorithm = ours.preset(name)
    return Outcome(
        ours.loss(algorithm, batch, given),
        trl.policy_loss(batch, given[:, 0], top_entropy_quantile=0.2, epsilon_high=0.28),
        ours.loss(algorithm.but(weights={"denominator": "all"}), batch, given),
    )


@compare(
    "trl",
    "scalerl",
    "advantage, `scale_rewards='batch'`",
    SCORE,
    differs="TRL divides by the standard deviation of the rewards of the batch, Surefoot by that of the centred rewards",
)
def batch_scaled(name: str, seed: int) -> Outcome:
    batch = random_batch(seed)
    centred = ours.advantage(ours.preset("dr_grpo"), batch)
    return Outcome(
        {"advantage": ours.advantage(ours.preset(name), batch)},
        {"advantage": trl.advantage(batch, scale_rewards="batch")},
        {"advantage": centred / (batch.reward.std() + 1e-4)},
    )


@compare(
    "trl",
    "truncated.mask_loss",
    "advantage and loss, `mask_truncated_completions=True`, `scale_rewards='none'`",
    f"{SCORE} {LOSS}",
)
def mask_truncated(name: str, seed: int) -> Outcome:
    batch = random_batch(seed)
    cut = torch.rand(len(batch.mask), generator=torch.Generator().manual_seed(seed)) < 0.3
    algorithm = ours.preset("grpo_token", advantage="group_mean", truncated="mask_loss")
    made = ours.scored(algorithm, batch, cut=cut)
    options = {"mask_truncated_completions": True, "scale_rewards": "none"}
    trainer = trl.policy_trainer("GRPO", batch, batch.old, **options)
    result = trl.generated(trainer, batch, batch.reward[:, None], cut=cut)
    kept = (result["completion_mask"] * result["tool_mask"]).bool()
    trained = batch.mask & torch.as_tensor(made.trained)[:, None]
    have = torch.as_tensor(made.advantage)[:, None].expand(batch.mask.shape)
    want = result["advantages"]
    return Outcome(
        {"advantage": have[:, 0], "mask": trained, **ours.loss(algorithm, replace(batch, mask=trained), have)},
        {"advantage": want, "mask": kept, **trl.policy_loss(replace(batch, mask=kept), want)},
    )


@compare("trl", "trl_grpo", "advantage and loss of TRL's defaults", f"{SCORE} {LOSS}")
def trl_grpo(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, drift=1.0)
    algorithm = ours.PRESETS[name]
    have, want = ours.advantage(algorithm, batch), trl.advantage(batch)
    return Outcome(
        {"advantage": have, **ours.loss(algorithm, batch, have)}, {"advantage": want, **trl.policy_loss(batch, want)}
    )


@compare(
    "trl",
    "trl_grpo",
    "weights of TRL's defaults with vLLM, in the correction that the card names",
    f"{SCORE} {LOSS}",
    tolerance=FLOAT32,
)
def trl_grpo_with_vllm(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed, drift=0.3)
    options = {"use_vllm": True}
    made = trl.policy_trainer("GRPO", batch, batch.old, **options)
    weights = trl.generated(made, batch, batch.reward[:, None])["importance_sampling_ratio"]
    algorithm = ours.PRESETS[name].but(correction={"kind": "seq_mask", "low": 0.0, "high": 3.0})
    return Outcome(ours.loss(algorithm, batch, given), trl.policy_loss(batch, given[:, 0], weights=weights, **options))
