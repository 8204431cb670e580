"""verl's side of a comparison: its actor loss and its advantage estimators, on a batch of padded rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.parity.batches import Batch


def score_at_the_end(batch: Batch, reward: Tensor | None = None) -> Tensor:
    """[B, T], the reward on the last loss token of each row; at index -1, the last column, in a row without any."""
    scores = torch.zeros(batch.mask.shape, dtype=torch.float64)
    position = torch.arange(batch.mask.shape[1]).expand(batch.mask.shape)
    last = torch.where(batch.mask, position, -1).amax(1)
    scores[torch.arange(len(scores)), last] = batch.reward if reward is None else reward
    return scores


def advantage(estimator: str, batch: Batch, /, *, scores: Tensor | None = None, **options: Any) -> Tensor:
    """[B, T], what the registered estimator gives; 0 outside the mask."""
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    given: dict[str, Any] = {
        "token_level_rewards": score_at_the_end(batch) if scores is None else scores.clone(),
        "response_mask": batch.mask.long(),
        "index": batch.group.numpy(),
        **options,
    }
    return torch.where(batch.mask, get_adv_estimator_fn(estimator)(**given)[0], 0.0)


def actor_loss(
    batch: Batch,
    given: Tensor,
    mode: str = "vanilla",
    *,
    weights: Tensor | None = None,
    rows: int | None = None,
    old: Tensor | None = None,
    **config: Any,
) -> dict[str, Tensor]:
    """``ppo_loss`` of the actor (policy, KL and entropy terms), with the defaults of its configuration.

    ``rows``: the size of the mini-batch that the trainer passes on; None: it counts itself.
    """
    from verl.utils import tensordict_utils
    from verl.workers.config import ActorConfig
    from verl.workers.config.actor import PolicyLossConfig
    from verl.workers.utils.losses import ppo_loss

    actor = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        policy_loss=PolicyLossConfig(loss_mode=mode, **config.pop("policy_loss", {})),
        **config,
    )
    count, width = batch.mask.shape
    tensors = {
        "prompts": torch.ones(count, 1, dtype=torch.long),
        "responses": torch.ones(count, width, dtype=torch.long),
        "attention_mask": torch.ones(count, width + 1, dtype=torch.long),
        "response_mask": batch.mask.long(),
        "old_log_probs": batch.old if old is None else old,
        "ref_log_prob": batch.reference,
        "advantages": given,
    }
    if weights is not None:
        tensors["rollout_is_weights"] = weights
    sizes = {"dp_size": 1, "batch_num_tokens": None, "global_batch_size": rows}
    data = tensordict_utils.get_tensordict(tensor_dict=tensors, non_tensor_dict=sizes)
    leaf = batch.logp.clone().requires_grad_()
    # The model's output speaks of the next token: one entry more at the end of each row, which nothing reads.
    outputs = torch.cat([leaf, torch.zeros(count, 1, dtype=leaf.dtype)], 1).flatten()
    value, _ = ppo_loss(actor, {"log_probs": outputs}, data)
    value.backward()
    assert leaf.grad is not None
    return {"loss": value.detach(), "gradient": leaf.grad}


def rollout_weights(batch: Batch, **options: Any) -> tuple[Tensor, Tensor]:
    """Weights and response mask [B, T] of the rollout correction."""
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask

    weights, mask, _ = compute_rollout_correction_and_rejection_mask(
        old_log_prob=batch.old, rollout_log_prob=batch.behaviour, response_mask=batch.mask.long(), **options
    )
    ones = torch.ones(batch.mask.shape, dtype=torch.float64)
    return (ones if weights is None else weights.batch["rollout_is_weights"]), mask


def penalised(batch: Batch, coefficient: float, estimator: str = "k1") -> Tensor:
    """[B, T], the reward at the last loss token, less the KL term of each loss token."""
    from verl.trainer.ppo.core_algos import kl_penalty

    penalty = kl_penalty(batch.old, batch.reference, estimator)
    return score_at_the_end(batch) - coefficient * penalty * batch.mask


def kl_penalty(estimator: str, batch: Batch) -> dict[str, Tensor]:
    """The value of an estimator at each token, and its gradient."""
    from verl.trainer.ppo.core_algos import kl_penalty

    leaf = batch.logp.clone().requires_grad_()
    value = kl_penalty(leaf, batch.reference, estimator)
    value.sum().backward()
    assert leaf.grad is not None
    return {"value": value.detach(), "gradient": leaf.grad}
