"""The ``[rollout]`` section: how completions are sampled."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from surefoot.config import Section


class RolloutConfig(Section):
    """How completions are sampled."""

    temperature: float = Field(
        1.0, ge=1e-6, description="sampling temperature; the trainer divides its logits by the same"
    )
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus sampling; the kept mass is recorded per token")
    top_k: int = Field(0, ge=0, description="sample among the k likeliest tokens (0: all); the kept mass is recorded")
    max_new_tokens: int = Field(64, gt=0, description="budget of a completion, its stop token included")
    max_batch_tokens: int = Field(65536, gt=0, description="key-value slots held at once; bounds the rows of a wave")
    stop: tuple[str, ...] = Field(
        (),
        description="further single tokens that end a completion, as text; an ordinary token and a tag that the completion "
        "opened (</answer>) stay in the text that is graded, another special token leaves it",
    )
    repack: bool = Field(
        True,
        description="multiply with a copy of the weights in the processor's order while a call generates, where that is "
        "faster (float32 on a CPU, wide models); false saves the copy's memory",
    )
    quantise: Literal["none", "int8"] = Field(
        "none",
        description="'int8': sample from a copy of the weights rounded to 8 bits, faster for wide models on a CPU; the "
        "rounding shows as mismatch, use it with a correction",
    )
