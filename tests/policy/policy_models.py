"""Tiny random models of several architectures, and samples to put through them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from surefoot.batches import Packed
from surefoot.policy.config import ModelConfig
from surefoot.policy.loading import Policy
from surefoot.policy.packing import count, pack
from surefoot.types import Sample

VOCABULARY = 61
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "eos_token_id": 1,  # pad is eos: nothing may depend on either
    "bos_token_id": None,
}
GEMMA2 = {"head_dim": 8, "final_logit_softcapping": 3.0, "attn_logit_softcapping": 5.0}
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "bos_token_id": None}
BUILDERS: dict[str, tuple[type, dict[str, Any], str]] = {
    "llama": (transformers.LlamaConfig, COMMON, "sdpa"),
    "llama-eager": (transformers.LlamaConfig, COMMON, "eager"),
    "qwen2": (transformers.Qwen2Config, COMMON, "sdpa"),
    "qwen2-window": (
        transformers.Qwen2Config,
        COMMON | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
        "sdpa",
    ),
    "mistral-window": (transformers.MistralConfig, COMMON | {"sliding_window": 4}, "sdpa"),
    "gemma2-window": (transformers.Gemma2Config, COMMON | GEMMA2 | {"sliding_window": 4}, "eager"),
    "gpt2": (transformers.GPT2Config, GPT2 | {"eos_token_id": 1}, "sdpa"),
    "granite": (transformers.GraniteConfig, COMMON | {"logits_scaling": 4.0}, "sdpa"),
    "cohere": (transformers.CohereConfig, COMMON | {"logit_scale": 0.25}, "sdpa"),
}
NO_PACKING = {
    "bloom": (
        transformers.BloomConfig,
        {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4},
        "eager",
    ),
    "mamba": (transformers.MambaConfig, {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2}, "eager"),
}


class Largest(TorchDispatchMode):
    """Records the largest tensor that any operation returns."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.numbers = max(
            [self.numbers, *(leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))]
        )
        return result


class OddHead(transformers.LlamaForCausalLM):
    """Logits that no recipe describes."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.logits = output.logits + torch.sin(3 * output.logits)
        return output


def odd_head() -> OddHead:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return OddHead(transformers.LlamaConfig(**COMMON | {"initializer_range": 0.3})).eval()


class Words:
    """As much of a tokenizer as a policy without text needs."""

    eos_token_id = 1
    chat_template = None
    model_max_length = 64

    def convert_ids_to_tokens(self, token: int) -> str:
        return str(token)


def build(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A random model, with weights large enough that every position and every neighbour would show."""
    config, options, attention = (BUILDERS | NO_PACKING)[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config(**options), attn_implementation=attention)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0, 0.2) if parameter.ndim > 1 else parameter.add_(
                    torch.randn_like(parameter), alpha=0.1
                )
    return model.to(dtype).eval()


def policy_of(model: Any, chunk: int = 1024, **options: Any) -> Policy:
    return Policy(model, Words(), ModelConfig(logprob_chunk=chunk, **options), torch.device("cpu"))


def some_samples(
    lengths: tuple[tuple[int, int], ...] = ((3, 9), (1, 1), (5, 2), (2, 12), (4, 0), (1, 6)),
    *,
    temperature: float = 0.7,
    kept_logmass: float = 0.0,
    vocabulary: int = VOCABULARY,
    seed: int = 0,
) -> list[Sample]:
    """Random samples with (prompt, completion) lengths; pad and eos turn up in both like any other token."""
    rng = np.random.default_rng(seed)
    samples = []
    for number, (prompt, completion) in enumerate(lengths):
        ids = rng.integers(0, vocabulary, prompt), rng.integers(0, vocabulary, completion)
        if completion > 2:
            ids[1][completion // 2] = 1
        samples.append(
            Sample.of(
                *ids,
                prompt_id=f"p{number}",
                temperature=temperature,
                kept_logmass=np.full(completion, kept_logmass),
                sample_id=number,
            )
        )
    return samples


def packed_of(samples: list[Sample], **options: Any) -> Packed:
    """All samples in one micro-batch, in the order given."""
    group = list(range(len(samples)))
    (packed,) = pack(
        samples, [1.0] * len(samples), group, count(samples, group, 1.0), max_tokens=10**9, order="given", **options
    )
    return packed


def plain_logprobs(model: Any, samples: list[Sample]) -> torch.Tensor:
    """The truth: each sample alone through the model's own logits, log-softmax, pick the token."""
    parts = []
    for sample in samples:
        logits = model(input_ids=torch.from_numpy(sample.ids)[None], use_cache=False).logits[0]
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        places = [place for place in np.flatnonzero(sample.mask) if place > 0]
        for place in places:
            row = (wide[place - 1] / float(sample.temperature[place])).log_softmax(-1)
            parts.append(row[sample.ids[place]] - float(sample.kept_logmass[place]))
    return torch.stack(parts)
