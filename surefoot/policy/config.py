"""The ``[model]`` section: which policy, in which numbers, on which device."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from surefoot.config import Section


class LoraConfig(Section):
    """Low-rank adapters (LoRA): with a rank or a path they alone learn, and the model's own weights stay as they are."""

    rank: int = Field(0, ge=0, description="rank of the adapters (0: none, the whole model learns)")
    alpha: float = Field(32.0, gt=0, description="what the adapters add is multiplied by alpha / rank")
    rslora: bool = Field(False, description="multiply by alpha / sqrt(rank) instead (rank-stabilised)")
    target_modules: tuple[str, ...] = Field(
        ("all-linear",),
        min_length=1,
        description="names of the projections that get adapters, for instance ['q_proj', 'v_proj']; 'all-linear': all linear "
        "layers but the output embedding",
    )
    path: str | None = Field(
        None, min_length=1, description="an adapter in PEFT's format to go on from; the keys above are then its own"
    )

    @model_validator(mode="after")
    def _either(self) -> LoraConfig:
        for name in ("rank", "alpha", "rslora", "target_modules"):
            if self.path is not None and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"lora.path = '{self.path}' brings its own {name}: leave model.lora.{name} out, or model.lora.path"
                )
        return self

    @property
    def used(self) -> bool:
        """Whether there are adapters at all."""
        return self.rank > 0 or self.path is not None


class ModelConfig(Section):
    """Which policy to load and how to run it."""

    path: str = Field(
        "embedded",
        description="a Hugging Face folder or hub name, 'smollm2-135m-instruct', or 'embedded' (a fresh tiny model)",
    )
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="number format of the weights")
    autocast: Literal["off", "bfloat16"] = Field(
        "off",
        description="'bfloat16': float32 weights whose matrix products run in bfloat16, in the trainer and in the engine",
    )
    head_float32: bool = Field(
        False,
        description="compute the logits of a bfloat16 model, or under autocast, in float32, in the engine and in the trainer "
        "(ScaleRL)",
    )
    device: str = Field("auto", description="'cpu', 'cuda', 'cuda:1' or 'auto' (CUDA where there is one)")
    seed: int = Field(0, description="seed of the initial weights of the embedded model and of new adapters")
    logprob_chunk: int = Field(
        1024, gt=0, description="tokens whose logits are held at once: memory is chunk x vocabulary x 4 bytes"
    )
    logprob_keep: int = Field(
        256,
        ge=0,
        description="megabytes of probabilities that a micro-batch may keep for its backward pass instead of computing them "
        "again",
    )
    checkpointing: bool = Field(
        False,
        description="keep one state per layer and compute the rest again in the backward pass: less memory, slower",
    )
    compile: bool = Field(
        False,
        description="compile the layers for the passes of the trainer: pays in long runs, after a minute or more of warm-up",
    )
    attention: Literal["sdpa", "eager"] = Field("sdpa", description="attention implementation of Transformers")
    lora: LoraConfig = LoraConfig()


class CriticConfig(Section):
    """The critic of an algorithm that needs one: where its values come from and how it learns."""

    kind: Literal["head", "model"] = Field(
        "model",
        description="'model': a model of its own with a linear head; 'head': a linear head on the policy's hidden states",
    )
    path: str | None = Field(
        None,
        min_length=1,
        description="what it starts from: what model.path takes, or the critic folder of a run (none: the policy as it is)",
    )
    lr: float = Field(1e-5, ge=0, description="its learning rate; schedule and betas are the optimiser's")
    max_grad_norm: float = Field(
        1.0, gt=0, description="gradients of its own weights are scaled down to this global norm"
    )
    warmup_steps: int = Field(0, ge=0, description="first rollout batches from which only the critic learns")
