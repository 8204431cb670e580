"""Advantages of single tokens, critics and recipes against verl."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import torch
from torch import Tensor

from tests.parity import surefoot_side as ours
from tests.parity import verl_side as verl
from tests.parity.batches import Batch, random_batch
from tests.parity.registry import FLOAT32, Outcome, compare

# Numbers that verl's estimators read from its configuration.
UNDISCOUNTED = SimpleNamespace(gamma=1.0)


@compare(
    "verl",
    "ppo",
    "KL in the reward, GAE across holes, whitening; returns",
    "kl_penalty compute_gae_advantage_return masked_whiten",
)
def gae(name: str, seed: int) -> Outcome:
    from verl.trainer.ppo.core_algos import compute_gae_advantage_return

    batch, algorithm = random_batch(seed), ours.PRESETS[name]
    made = ours.scored(algorithm, batch)
    assert made.token_advantage is not None and made.returns is not None
    scores = verl.penalised(batch, algorithm.kl.coef)
    theirs = compute_gae_advantage_return(scores, batch.values, batch.mask.long(), gamma=1.0, lam=0.95)
    return Outcome(
        {"advantage": ours.spread(batch, made.token_advantage), "returns": ours.spread(batch, made.returns)},
        {key: torch.where(batch.mask, value, 0.0) for key, value in zip(("advantage", "returns"), theirs, strict=True)},
    )


@compare("verl", "ppo", "value loss with clipping", "compute_value_loss agg_loss")
def value_loss(name: str, seed: int) -> Outcome:
    from verl.trainer.ppo.core_algos import compute_value_loss

    batch, part = random_batch(seed), ours.PRESETS[name].value
    start = batch.values + 0.5 * batch.entropy
    mine, other = (start.clone().requires_grad_() for _ in range(2))
    tokens = part(mine[batch.mask], batch.values[batch.mask], batch.logp[batch.mask])
    have = tokens.mean()
    want, _ = compute_value_loss(other, batch.logp, batch.values, batch.mask, cliprange_value=part.clip)
    have.backward()
    want.backward()
    assert mine.grad is not None and other.grad is not None
    return Outcome({"loss": have.detach(), "gradient": mine.grad}, {"loss": want.detach(), "gradient": other.grad})


@compare(
    "verl",
    "reinforce_pp",
    "KL in the reward, reward to go, whitening",
    "kl_penalty compute_reinforce_plus_plus_outcome_advantage masked_whiten",
)
def reward_to_go(name: str, seed: int) -> Outcome:
    batch, algorithm = random_batch(seed), ours.PRESETS[name]
    scores = verl.penalised(batch, algorithm.kl.coef)
    theirs = verl.advantage("reinforce_plus_plus", batch, scores=scores, config=UNDISCOUNTED)
    return Outcome({"advantage": ours.advantage(algorithm, batch)}, {"advantage": theirs})


@compare(
    "verl", "reinforce_pp_baseline", "advantage", "compute_reinforce_plus_plus_baseline_outcome_advantage masked_whiten"
)
def whitened_group_mean(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, sizes=(2, 5, 3))
    theirs = verl.advantage("reinforce_plus_plus_baseline", batch)
    return Outcome({"advantage": ours.advantage(ours.PRESETS[name], batch)}, {"advantage": theirs})


@compare(
    "verl",
    "reinforce_pp_baseline",
    "advantage with a group of one",
    "compute_reinforce_plus_plus_baseline_outcome_advantage",
    differs="verl's baseline of a group of one is 0, so that its reward enters the whitening; Surefoot's is the reward itself",
)
def whitened_group_mean_alone(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, sizes=(4, 5, 1))
    algorithm = ours.PRESETS[name]
    # A second row of reward -r without tokens leaves the row's centred reward at r and the statistics alone.
    doubled = replace(
        batch,
        **{
            name: torch.cat([value, value[-1:]])
            for name in ("components", "logp", "old", "behaviour", "reference", "entropy", "values")
            for value in (getattr(batch, name),)
        },
        mask=torch.cat([batch.mask, torch.zeros_like(batch.mask[-1:])]),
        group=torch.cat([batch.group, batch.group[-1:]]),
        reward=torch.cat([batch.reward, -batch.reward[-1:]]),
    )
    return Outcome(
        {"advantage": ours.advantage(algorithm, batch)},
        {"advantage": verl.advantage("reinforce_plus_plus_baseline", batch)},
        {"advantage": ours.advantage(algorithm, doubled)[:-1]},
    )


@compare("verl", "remax", "advantage", "compute_remax_outcome_advantage")
def greedy_baseline(name: str, seed: int) -> Outcome:
    batch = random_batch(seed)
    greedy = torch.rand(batch.groups, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    theirs = verl.advantage("remax", batch, reward_baselines=greedy[batch.group])
    return Outcome({"advantage": ours.advantage(ours.PRESETS[name], batch, greedy=greedy)}, {"advantage": theirs})


@compare("verl", "ppo", "adaptive KL coefficient over five batches", "AdaptiveKLController")
def adaptive_kl(name: str, seed: int) -> Outcome:
    from verl.trainer.ppo.core_algos import AdaptiveKLController

    part = ours.PRESETS[name].kl.but(target=0.5, horizon=200.0)
    controller = AdaptiveKLController(part.coef, part.target, part.horizon)
    have, want, memory = [], [], {}
    for step in range(5):
        batch = random_batch(100 * seed + step)
        want.append(controller.value)
        k1 = ((batch.old - batch.reference) * batch.mask).sum(1)
        controller.update(float(k1.mean()), len(batch.mask))
        have.append(ours.coefficient(part, batch, memory))
    return Outcome({"coefficient": torch.tensor(have)}, {"coefficient": torch.tensor(want)})


def overlong(batch: Batch, budget: int, cache: int) -> Tensor:
    """[B], rewards as verl's DAPO reward manager adds them up."""
    from verl import DataProto
    from verl.workers.reward_manager.dapo import DAPORewardManager

    count, width = batch.mask.shape
    position = torch.arange(1, width + 1).expand(count, width)
    lengths = torch.where(batch.mask, position, 0).amax(1)
    responses = torch.arange(width) < lengths[:, None]
    prompts = torch.ones(count, 1, dtype=torch.long)
    data = DataProto.from_dict(
        {
            "prompts": prompts,
            "responses": torch.full((count, width), 7),
            "attention_mask": torch.cat([prompts, responses.long()], 1),
        },
        non_tensors={
            "data_source": ["x"] * count,
            "reward_model": [{"ground_truth": i} for i in range(count)],
            "extra_info": [{} for _ in range(count)],
        },
    )
    manager = DAPORewardManager(
        SimpleNamespace(decode=lambda *_, **__: "", eos_token="</s>"),
        0,
        compute_score=lambda ground_truth, **_: float(batch.reward[ground_truth]),
        max_resp_len=budget,
        overlong_buffer_cfg=SimpleNamespace(enable=True, len=cache, penalty_factor=1.0, log=False),
    )
    return manager(data).sum(1)


def shaped(batch: Batch, budget: int) -> dict[str, Tensor]:
    return {"reward": torch.as_tensor(ours.scored(ours.PRESETS["dapo"], batch, budget=budget).reward)}


@compare(
    "verl", "dapo", "reward with the soft overlong penalty, within the budget", "DAPORewardManager", tolerance=FLOAT32
)
def soft_overlong(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, width=20, holes=False)
    return Outcome(shaped(batch, 20), {"reward": overlong(batch, 20, 4)})


@compare(
    "verl",
    "dapo",
    "reward with the soft overlong penalty, beyond the budget",
    "DAPORewardManager",
    differs="verl's penalty has no floor; Surefoot's is -1 from the budget on",
    tolerance=FLOAT32,
)
def soft_overlong_beyond(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, sizes=(8, 8), width=20, holes=False)
    beyond = (batch.lengths - 10).clamp(min=0) / 2.0
    have = shaped(batch, 10)
    return Outcome(have, {"reward": overlong(batch, 10, 2)}, {"reward": have["reward"] - beyond})


@compare(
    "verl",
    "verl_grpo",
    "advantage and loss of verl's defaults",
    "compute_grpo_outcome_advantage ppo_loss compute_policy_loss_vanilla",
)
def verl_grpo(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, sizes=(3, 5, 4), empty=1, drift=2.0)
    algorithm = ours.PRESETS[name]
    have, want = ours.advantage(algorithm, batch), verl.advantage("grpo", batch)
    return Outcome(
        {"advantage": have, **ours.loss(algorithm, batch, have)}, {"advantage": want, **verl.actor_loss(batch, want)}
    )
