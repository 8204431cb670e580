"""Advantages against verl's registered estimators."""

from __future__ import annotations

import torch

from tests.parity import surefoot_side as ours
from tests.parity import verl_side as verl
from tests.parity.batches import random_batch
from tests.parity.registry import FLOAT32, Outcome, compare

GROUP_NORM = "grpo grpo_token gspo gspo_token cispo decoupled_ppo dapo high_entropy prorl"
GROUP_MEAN = "dr_grpo dppo_tv dppo_kl dppo_topk kimi_k15"


@compare("verl", GROUP_NORM, "advantage", "compute_grpo_outcome_advantage")
def group_norm(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, sizes=(2, 5, 3), empty=1)
    return Outcome(
        {"advantage": ours.advantage(ours.preset(name), batch)}, {"advantage": verl.advantage("grpo", batch)}
    )


@compare(
    "verl",
    GROUP_NORM,
    "advantage, vectorised",
    "compute_grpo_vectorized_outcome_advantage",
    tolerance=FLOAT32,
)
def group_norm_vectorised(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, sizes=(2, 5, 3))
    return Outcome(
        {"advantage": ours.advantage(ours.preset(name), batch)},
        {"advantage": verl.advantage("grpo_vectorized", batch)},
    )


@compare(
    "verl",
    GROUP_NORM,
    "advantage of a group of one",
    "compute_grpo_outcome_advantage",
    differs="verl gives r / (1 + eps), Surefoot 0",
)
def group_norm_alone(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, sizes=(3, 1))
    have = ours.advantage(ours.preset(name), batch)
    changed = have.clone()
    changed[-1] = torch.where(batch.mask[-1], batch.reward[-1] / (1 + 1e-6), 0.0)
    return Outcome({"advantage": have}, {"advantage": verl.advantage("grpo", batch)}, {"advantage": changed})


@compare("verl", GROUP_MEAN, "advantage, `norm_adv_by_std_in_grpo=False`", "compute_grpo_outcome_advantage")
def group_mean(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, sizes=(2, 5, 3))
    return Outcome(
        {"advantage": ours.advantage(ours.preset(name), batch)},
        {"advantage": verl.advantage("grpo", batch, norm_adv_by_std_in_grpo=False)},
    )


@compare("verl", "rloo", "advantage", "compute_rloo_outcome_advantage")
def leave_one_out(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, sizes=(2, 5, 3))
    return Outcome(
        {"advantage": ours.advantage(ours.preset(name), batch)}, {"advantage": verl.advantage("rloo", batch)}
    )


@compare("verl", "rloo", "advantage with a group of one, vectorised", "compute_rloo_vectorized_outcome_advantage")
def leave_one_out_vectorised(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, sizes=(2, 5, 1))
    return Outcome(
        {"advantage": ours.advantage(ours.preset(name), batch)},
        {"advantage": verl.advantage("rloo_vectorized", batch)},
    )


@compare(
    "verl",
    "rloo",
    "advantage of a group of one",
    "compute_rloo_outcome_advantage",
    differs="verl gives the reward itself, Surefoot 0",
)
def leave_one_out_alone(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, sizes=(3, 1))
    have = ours.advantage(ours.preset(name), batch)
    changed = have.clone()
    changed[-1] = torch.where(batch.mask[-1], batch.reward[-1], 0.0)
    return Outcome({"advantage": have}, {"advantage": verl.advantage("rloo", batch)}, {"advantage": changed})


@compare("verl", "rloo", "KL in the reward, then the advantage", "kl_penalty compute_rloo_outcome_advantage")
def leave_one_out_kl(name: str, seed: int) -> Outcome:
    batch = random_batch(seed)
    have = ours.advantage(ours.PRESETS[name], batch)
    scores = verl.penalised(batch, ours.PRESETS[name].kl.coef)
    return Outcome({"advantage": have}, {"advantage": verl.advantage("rloo", batch, scores=scores)})


@compare(
    "verl",
    "gdpo",
    "advantage",
    "compute_gdpo_outcome_advantage masked_whiten",
    differs="verl normalises over the tokens of the batch (`weighting='tokens'`), Surefoot over its rows",
    tolerance=FLOAT32,
)
def decoupled(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, holes=False)
    count = len(batch.mask)
    extras = {
        "config": {"gdpo_reward_keys": ["first", "second"], "gdpo_reward_weights": [1.0, 0.5]},
        "non_tensor_batch": {"first": batch.components[:, 0].numpy(), "second": batch.components[:, 1].numpy()},
        "batch": {
            "prompts": torch.ones(count, 1, dtype=torch.long),
            "attention_mask": torch.cat([torch.ones(count, 1, dtype=torch.long), batch.mask.long()], 1),
        },
    }
    weighted = ours.preset(name, advantage={"weights": {"first": 1.0, "second": 0.5}})
    return Outcome(
        {"advantage": ours.advantage(weighted, batch)},
        {"advantage": verl.advantage("gdpo", batch, **extras)},
        {"advantage": ours.advantage(weighted.but(advantage={"weighting": "tokens"}), batch)},
    )
