"""The configuration of a run: the sections of all rooms, and those that the trainer itself reads."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from surefoot.algorithms.config import AlgorithmConfig
from surefoot.config import Section
from surefoot.evaluation.config import EvaluationConfig
from surefoot.policy.config import CriticConfig, ModelConfig
from surefoot.rewards.audit_config import AuditConfig
from surefoot.rewards.config import RewardConfig
from surefoot.rollout.config import RolloutConfig
from surefoot.tasks.config import TaskConfig
from surefoot.training.budget import BudgetConfig
from surefoot.training.parts import with_parts

NAME = r"^[\w][\w.\-]*$"  # one folder, not hidden, and no way up
FOLDER = r"^[^\x00]+$"


class OptimiserConfig(Section):
    """AdamW and its schedule."""

    lr: float = Field(1e-6, ge=0, description="learning rate after the warm-up")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="course of the rate after the warm-up"
    )
    warmup_steps: int = Field(0, ge=0, description="steps over which the rate rises linearly from lr / warmup_steps")
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the first moment")
    beta2: float = Field(0.999, ge=0, lt=1, description="decay of the second moment")
    eps: float = Field(1e-8, gt=0, description="term in the denominator of AdamW")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay of matrices (not of biases and norms)")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are scaled down to this global norm")
    offload: bool = Field(
        False,
        description="keep the moments in the memory of the host and take the step there: saves twice the memory of the weights "
        "on a GPU; without effect for a model on the CPU",
    )


class TrainConfig(Section):
    """The batch and its arithmetic."""

    steps: int = Field(100, gt=0, description="number of rollout batches")
    prompts_per_step: int = Field(32, gt=0, description="prompts in a rollout batch")
    group_size: int = Field(8, gt=0, description="samples of each prompt")
    updates_per_step: int = Field(
        1, gt=0, description="optimiser steps that the batch is split into (mini-batches of groups)"
    )
    epochs: int = Field(1, gt=0, description="times that the batch is gone through")
    micro_batch_tokens: int = Field(
        4096,
        gt=0,
        description="tokens of a forward and backward pass, padding included; changes memory and speed, not the gradient. A "
        "GPU wants as many as its memory holds, a CPU few enough that they stay near",
    )
    layout: Literal["auto", "right", "left", "packed", "shared"] = Field(
        "auto",
        description="how rows lie in a forward pass; same result. 'right', 'left': padded; 'packed': without padding; 'shared': "
        "and the prompt of a group once; 'auto': what has the fewest tokens to compute",
    )
    old: Literal["recompute", "behaviour"] = Field(
        "recompute",
        description="where the log-probabilities before several updates come from: a pass of the trainer, or 'behaviour': what "
        "the engine sampled with (saves the pass; differs by the mismatch of engine and trainer)",
    )
    threads: int = Field(
        0, ge=0, description="threads of PyTorch (0: as many as there are cores on which nobody else computes)"
    )


class CheckpointConfig(Section):
    """Run state and its retention."""

    every: int = Field(
        10, ge=0, description="save the run state after every n-th step and after the last (0: only last)"
    )
    keep_last: int = Field(2, gt=0, description="run states kept")
    keep_best: bool = Field(True, description="also keep the model with the best held-out accuracy, in 'best/'")


class TrackConfig(Section):
    """Trackers beside metrics.jsonl; one that fails is reported once and never stops a run."""

    tensorboard: bool = Field(False, description="write TensorBoard events into the run folder")
    wandb: bool = Field(False, description="log to Weights & Biases")
    trackio: bool = Field(False, description="log to trackio")
    policy_grad_norm: int = Field(
        10,
        ge=0,
        description="every n-th step measures the gradient norm of the policy term apart from further terms of the loss, "
        "at the price of a second backward pass (0: only where there are no others)",
    )
    project: str = Field("surefoot", description="project name for wandb and trackio")
    samples_per_step: int = Field(
        16, ge=0, description="samples per step kept in samples/*.jsonl (whole groups, from the first)"
    )
    token_details: int = Field(
        8,
        ge=0,
        description="how many of these, and of the kept samples of an evaluation, have their tokens with them one by one: text, "
        "log-probability, ratio, bounds, entropy (0: none; about 30 bytes a token)",
    )


class HealthConfig(Section):
    """When to print a plain warning."""

    truncated_above: float = Field(
        0.2, ge=0, le=1, description="warn when a larger share of completions is cut by rollout.max_new_tokens"
    )
    entropy_below: float = Field(
        0.1, ge=0, description="warn when the entropy falls below this share of its first value"
    )
    mismatch_above: float = Field(
        0.01, ge=0, description="warn when engine and trainer differ by more nats per token on average"
    )
    reward_rise_above: float = Field(
        0.2,
        ge=0,
        description="warn when the mean reward has risen by more while held-out accuracy surely rose by less than half of that",
    )


class RunConfig(Section):
    """Everything that a run depends on."""

    name: str = Field("run", max_length=120, pattern=NAME, description="name of the run and of its folder")
    runs: str = Field("runs", min_length=1, pattern=FOLDER, description="folder that holds the run folders")
    seed: int = Field(0, description="seed of the run: order of prompts and sampling")
    model: ModelConfig = ModelConfig()
    task: TaskConfig = TaskConfig()
    reward: RewardConfig = RewardConfig()
    rollout: RolloutConfig = RolloutConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    train: TrainConfig = TrainConfig()
    optimiser: OptimiserConfig = OptimiserConfig()
    critic: CriticConfig = CriticConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    budget: BudgetConfig = BudgetConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    track: TrackConfig = TrackConfig()
    health: HealthConfig = HealthConfig()
    audit: AuditConfig = AuditConfig()

    @model_validator(mode="after")
    def _arithmetic(self) -> RunConfig:
        train = self.train
        if train.updates_per_step > train.prompts_per_step:
            raise ValueError(
                f"train.updates_per_step = {train.updates_per_step} splits a batch of {train.prompts_per_step} prompts by "
                f"whole groups: raise train.prompts_per_step or lower train.updates_per_step"
            )
        self._share_parts()
        algorithm = self.algorithm.build()
        algorithm.check(group_size=train.group_size)
        if "evaluation" in algorithm.reset.kind.traits and not self.evaluation.every:
            raise ValueError(
                f"algorithm.reset = '{algorithm.reset.name}' follows the held-out accuracy, and evaluation.every = 0 measures it "
                "only at the ends: set evaluation.every, or algorithm.reset = 'every'"
            )
        mixes = "idle" not in algorithm.reset.kind.traits and algorithm.reset.reference and algorithm.reset.alpha < 1
        if self.model.lora.used and algorithm.needs_reference and mixes:
            raise ValueError(
                f"algorithm.reset.alpha = {algorithm.reset.alpha:g} averages policy and reference, and the average of two "
                f"adapters has a higher rank than they: set algorithm.reset.alpha = 1, or train without model.lora"
            )
        return self

    def _share_parts(self) -> None:
        """An advantage over the parts of the reward takes their weights and conditions, where it names none of its own."""
        section = with_parts(self.algorithm, self.reward.terms())
        if section is not self.algorithm:
            object.__setattr__(self, "algorithm", section)

    def resolved(self) -> dict[str, Any]:
        """Every key with its value, the parts of the algorithm written out."""
        return {**self.model_dump(), "algorithm": self.algorithm.resolved()}


class SftOptimiserConfig(OptimiserConfig):
    """AdamW and its schedule, at the rate of supervised training."""

    lr: float = Field(1e-3, ge=0, description="learning rate after the warm-up")


class SftConfig(Section):
    """Supervised training on demonstrations (``surefoot sft``)."""

    name: str = Field("sft", max_length=120, pattern=NAME, description="name of the run and of its folder")
    runs: str = Field("runs", min_length=1, pattern=FOLDER, description="folder that holds the run folders")
    seed: int = Field(0, description="seed of the order of the demonstrations")
    model: ModelConfig = ModelConfig()
    task: TaskConfig = TaskConfig()
    reward: RewardConfig = RewardConfig()
    rollout: RolloutConfig = RolloutConfig()
    optimiser: SftOptimiserConfig = SftOptimiserConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    steps: int = Field(500, gt=0, description="optimiser steps, at most")
    batch: int = Field(32, gt=0, description="demonstrations of an optimiser step")
    error_rate: float = Field(
        0.0, ge=0, le=1, description="share of demonstrations with a mistake, where the task makes them"
    )
    micro_batch_tokens: int = Field(16384, gt=0, description="tokens of a forward and backward pass, padding included")
    target_accuracy: float = Field(
        1.0, gt=0, description="stop once sampled held-out accuracy reaches this (above 1: never)"
    )
    check_every: int = Field(25, gt=0, description="steps between checks of the sampled held-out accuracy")
    threads: int = Field(
        0, ge=0, description="threads of PyTorch (0: as many as there are cores on which nobody else computes)"
    )
