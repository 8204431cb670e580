"""The ``[model]`` section: which policy, in which numbers, on which device."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from surefoot.config import Section


class ModelConfig(Section):
    """Which policy to load and how to run it."""

    path: str = Field(
        "embedded",
        description="a Hugging Face folder or hub name, 'smollm2-135m-instruct', or 'embedded' (a fresh tiny model)",
    )
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="number format of the weights")
    device: str = Field("auto", description="'cpu', 'cuda', 'cuda:1' or 'auto' (CUDA where there is one)")
    seed: int = Field(0, description="seed of the initial weights of the embedded model")
    logprob_chunk: int = Field(
        1024, gt=0, description="tokens whose logits are held at once: memory is chunk x vocabulary x 4 bytes"
    )
    attention: Literal["sdpa", "eager"] = Field("sdpa", description="attention implementation of Transformers")
