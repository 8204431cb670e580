"""Tiny models with random weights, large enough that context, positions and masks change the logits visibly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import PreTrainedModel

from surefoot.batches import Packed
from surefoot.policy.config import ModelConfig
from surefoot.policy.logprob import TokenLogprobs, token_logprobs
from surefoot.policy.packing import count, pack
from surefoot.policy.policy import Policy
from surefoot.rollout.engine import Request, Sampling
from surefoot.seeds import derive
from surefoot.types import Sample

VOCABULARY = 71
SHORT = Sampling(max_new_tokens=16)
COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"num_key_value_heads": 2}),
    "llama-eager": ("LlamaConfig", {"num_key_value_heads": 2, "attn_implementation": "eager"}),
    "qwen2": ("Qwen2Config", {"num_key_value_heads": 2}),
    "gpt2": ("GPT2Config", {"attn_pdrop": 0.3, "resid_pdrop": 0.3, "embd_pdrop": 0.3}),
    # Windows of 6 in sequences of up to 40: most of every sequence lies outside of it.
    "gemma2": ("Gemma2Config", {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 6}),
    "mistral": ("MistralConfig", {"num_key_value_heads": 2, "sliding_window": 6}),
    "llama-tied": ("LlamaConfig", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    "qwen2-window": (
        "Qwen2Config",
        {"num_key_value_heads": 1, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3Config", {"num_key_value_heads": 2, "head_dim": 24}),
    "gemma": ("GemmaConfig", {"num_key_value_heads": 1, "head_dim": 16}),
    # Two kinds of rotation, one for the layers with a window.
    "gemma3": (
        "Gemma3TextConfig",
        {
            "num_key_value_heads": 2,
            "head_dim": 16,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    # Takes no position_ids.
    "bloom": ("BloomConfig", {}),
    # A convolution whose state is no key-value cache.
    "lfm2": ("Lfm2Config", {"num_key_value_heads": 2, "layer_types": ["conv", "full_attention"]}),
}


@cache
def _build(name: str) -> PreTrainedModel:
    config_class, options = ARCHITECTURES[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = getattr(transformers, config_class)(**{**COMMON, **options})
        model: PreTrainedModel = transformers.AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(std=0.2)
    return model.eval()


@pytest.fixture
def tiny() -> Callable[[str], PreTrainedModel]:
    """Builds a model by the name of its architecture; the same one for every test, which must leave it as it was."""
    return _build


@pytest.fixture
def requests() -> Callable[..., list[Request]]:
    """Builds requests with random prompts of the given lengths."""

    def build(lengths: list[int], samples: int = 3, *, sampling: Sampling = SHORT, seed: int = 0) -> list[Request]:
        rng = np.random.default_rng(seed)
        return [
            Request(
                prompt_ids=rng.integers(0, VOCABULARY, size=length),
                prompt_id=f"p{i}",
                seeds=tuple(derive(seed, i, j) for j in range(samples)),
                sampling=sampling,
            )
            for i, length in enumerate(lengths)
        ]

    return build


@pytest.fixture
def plain_logp() -> Callable[..., np.ndarray]:
    """[T] float64, log-probability of every token in one plain forward: no cache, no padding; NaN for the first."""

    def compute(model: PreTrainedModel, ids: np.ndarray, temperature: float = 1.0) -> np.ndarray:
        with torch.no_grad():
            logits = model(input_ids=torch.from_numpy(ids)[None], use_cache=False).logits[0].double() / temperature
        logp = torch.log_softmax(logits, dim=-1)[:-1].gather(-1, torch.from_numpy(ids)[1:, None]).squeeze(-1)
        return np.concatenate([[np.nan], logp.numpy()])

    return compute


@pytest.fixture
def trained() -> Callable[..., tuple[Packed, TokenLogprobs]]:
    """All samples in one micro-batch, and what the trainer finds for their loss tokens on the model as it is."""

    def compute(
        model: PreTrainedModel, groups: Sequence[Sequence[Sample]], *, head_float32: bool = False, layout: Any = "right"
    ) -> tuple[Packed, TokenLogprobs]:
        samples = [sample for group in groups for sample in group]
        numbers = list(range(len(samples)))
        totals = count(samples, numbers, 1.0)
        [packed] = pack(samples, [1.0] * len(samples), numbers, totals, max_tokens=10**9, order="given")
        config = ModelConfig(head_float32=head_float32, logprob_chunk=50)
        top_ids = None if packed.top_ids is None else packed.top_ids[packed.mask]
        with torch.no_grad():
            policy = Policy(model, None, config, torch.device("cpu"))
            return packed, token_logprobs(policy, packed, layout=layout, top_ids=top_ids)

    return compute
