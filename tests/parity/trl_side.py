"""TRL's side of a comparison: its trainers' own methods, on trainers that have no model.

A trainer is made without its constructor and given the attributes that the methods read, from TRL's own configuration with
its defaults. Three things are stood in for: the forward pass (log-probabilities are given), generation and the reward
functions (rewards are given). What TRL does with them is TRL's code.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from tests.parity.batches import Batch

STOP = 2


def accelerator() -> Any:
    """After a configuration was made: that resets the state which all accelerators share."""
    from accelerate import Accelerator

    return Accelerator(cpu=True)


def config(kind: str, **options: Any) -> Any:
    """A configuration of TRL with its defaults, but for what a machine without a GPU cannot do."""
    import trl

    folder = tempfile.gettempdir()
    return getattr(trl, kind)(output_dir=folder, bf16=False, use_cpu=True, report_to=[], **options)


def policy_trainer(name: str, batch: Batch, logp: Tensor, **options: Any) -> Any:
    """A ``GRPOTrainer`` or ``RLOOTrainer`` whose model gives ``logp`` and the batch's entropies."""
    import trl

    size = int((batch.group == 0).sum())
    args = config(
        f"{name}Config",
        per_device_train_batch_size=len(batch.mask),
        num_generations=size,
        generation_batch_size=len(batch.mask),
        **options,
    )
    kind = getattr(trl, f"{name}Trainer")
    trainer = kind.__new__(kind)
    given = {key: getattr(args, key) for key in vars(args) if not key.startswith("_")}
    plain = ("beta", "loss_type", "scale_rewards", "importance_sampling_level", "multi_objective_aggregation")
    vllm = ("use_vllm", "vllm_importance_sampling_correction", "vllm_importance_sampling_mode")
    bounds = ("vllm_importance_sampling_clip_min", "vllm_importance_sampling_clip_max")
    rest = ("top_entropy_quantile", "off_policy_mask_threshold", "max_completion_length", "num_iterations")
    also = ("mask_truncated_completions", "normalize_advantages", "reward_clip_range", "num_generations")
    for key in (*plain, *vllm, *bounds, *rest, *also):
        if key in given:
            setattr(trainer, key, given[key])
    trainer.args = args
    trainer.accelerator = accelerator()
    trainer.model = SimpleNamespace(training=True, is_gradient_checkpointing=False)
    trainer.ref_model = SimpleNamespace()
    trainer.epsilon_low = args.epsilon
    trainer.epsilon_high = args.epsilon_high if args.epsilon_high is not None else args.epsilon
    trainer.aux_loss_enabled = trainer._entropy_bonus_enabled = trainer.use_adaptive_entropy = False
    trainer.current_gradient_accumulation_steps = 1
    trainer._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}

    def forward(model: Any, ids: Tensor, mask: Tensor, width: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor, None]:
        given = batch.reference if model is trainer.ref_model else logp
        return given[:, :width], batch.entropy[:, :width], None

    trainer._get_per_token_logps_and_entropies = forward
    return trainer


def generated(trainer: Any, batch: Batch, rewards: Tensor, cut: Tensor | None = None) -> dict[str, Any]:
    """``_generate_and_score_completions`` on completions and rewards [B, N] that are given.

    It gives the advantages, the masks, and the weights where vLLM samples. Holes in the mask are tool output; completions
    that the budget cut do not end in the stop token.
    """
    count, width = batch.mask.shape
    position = torch.arange(width).expand(count, width)
    lengths = torch.where(batch.mask, position + 1, 0).amax(1).tolist()
    if type(trainer).__name__ == "GRPOTrainer":
        lengths[0] = width  # so that the padded width is that of the batch; the mask says which tokens count
    ends = [7 if cut is not None and cut[i] else STOP for i in range(count)]
    completions = [[7] * (length - 1) + [end] for length, end in zip(lengths, ends, strict=True)]
    tools = [batch.mask[i, :length].long().tolist() for i, length in enumerate(lengths)]
    behaviour = [batch.behaviour[i, :length].tolist() for i, length in enumerate(lengths)]
    prompts = [[5]] * count

    def generate(_: Any) -> tuple[Any, ...]:
        return prompts, completions, tools, [""] * count, behaviour, {}, None, []

    def generate_plain(_: Any) -> tuple[Any, ...]:
        return prompts, completions, [""] * count

    trainer._generate = generate if type(trainer).__name__ == "GRPOTrainer" else generate_plain
    trainer._calculate_rewards = lambda *_: rewards
    trainer._tokenizer = SimpleNamespace(pad_token_id=0)
    trainer.eos_token_ids, trainer.pad_to_multiple_of = [STOP], None
    trainer.environment_factories = trainer.environments = None
    trainer.tools, trainer.chat_template_kwargs = [], {}
    trainer.num_generations_eval = trainer.num_generations
    names = [f"reward_{k}" for k in range(rewards.shape[1])]
    trainer.reward_funcs = trainer.reward_func_names = names
    given = trainer.args.reward_weights
    trainer.reward_weights = torch.tensor(given or [1.0] * len(names), dtype=rewards.dtype)
    trainer._logs = {key: [] for key in ("prompt", "completion", "advantages")}
    trainer._logs |= {"rewards": defaultdict(list), "extra": defaultdict(list)}
    trainer._pending_extra_logs, trainer._pending_metrics = defaultdict(list), defaultdict(list)
    return trainer._generate_and_score_completions([{"prompt": "x"} for _ in range(count)])


def advantage(batch: Batch, rewards: Tensor | None = None, *, trainer: str = "GRPO", **options: Any) -> Tensor:
    """[B, T], what the trainer makes of the rewards."""
    made = policy_trainer(trainer, batch, batch.old, **options)
    given = batch.reward[:, None] if rewards is None else rewards
    result = generated(made, batch, given)["advantages"]
    return torch.where(batch.mask, result[:, None], 0.0)


def inputs_of(batch: Batch) -> dict[str, Any]:
    count, width = batch.mask.shape
    ones = torch.ones(count, width, dtype=torch.long)
    return {
        "prompt_ids": ones[:, :1],
        "prompt_mask": ones[:, :1],
        "completion_ids": ones,
        "completion_mask": ones,
        "tool_mask": batch.mask.long(),
        "old_per_token_logps": batch.old,
        "ref_per_token_logps": batch.reference,
        "sampling_per_token_logps": batch.behaviour,
        "num_items_in_batch": batch.mask.sum(),
    }


def policy_loss(
    batch: Batch, given: Tensor, *, trainer: str = "GRPO", weights: Tensor | None = None, **options: Any
) -> dict[str, Tensor]:
    """``_compute_loss`` and its gradient. ``given`` [B] or [B, T]; ``weights`` those of vLLM's correction."""
    leaf = batch.logp.clone().requires_grad_()
    made = policy_trainer(trainer, batch, leaf, **options)
    inputs = {**inputs_of(batch), "advantages": given}
    if trainer == "RLOO":  # it has no mask within a completion
        inputs |= {"completion_mask": batch.mask.long(), "old_logps": (batch.old * batch.mask).sum(1)}
    if weights is not None:
        inputs["importance_sampling_ratio"] = weights
    value = made._compute_loss(made.model, inputs)
    value.backward()
    assert leaf.grad is not None
    return {"loss": value.detach(), "gradient": leaf.grad}
