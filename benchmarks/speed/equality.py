"""``python -m benchmarks.speed.equality --device cuda``: the paths that must agree, on the device at hand.

The engine against a plain forward pass of Transformers, chunked log-probabilities against whole logits in value and
gradient, every layout against rows padded on the right, and AdamW with its state on the host against one without; for
architectures that differ in what matters (grouped heads, tied and untied heads, sliding windows, capped logits, learned
positions), with random weights. The same comparisons run on the CPU in the test suite, with many more cases.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from surefoot.batches import Packed
from surefoot.policy.config import ModelConfig
from surefoot.policy.logprob import token_logprobs
from surefoot.policy.packing import count, pack
from surefoot.policy.policy import Policy
from surefoot.rollout.engine import Request, Sampling
from surefoot.rollout.local import LocalEngine
from surefoot.training.offload import OffloadedAdamW
from surefoot.types import Sample

VALUE, GRADIENT = 1e-4, 1e-4  # nats; share of the largest gradient of a weight. Both in float32.
STEP = 1e-2  # share of the learning rate
LAYOUTS = ("right", "left", "packed")
COMMON = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "bos_token_id": None,
}
CAPPED = {"head_dim": 16, "final_logit_softcapping": 3.0, "attn_logit_softcapping": 5.0, "sliding_window": 8}
GPT2 = {"vocab_size": 512, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256, "eos_token_id": 1}
MODELS: dict[str, tuple[str, dict[str, Any], str]] = {
    "llama": ("LlamaConfig", COMMON, "sdpa"),
    "llama, tied head": ("LlamaConfig", COMMON | {"tie_word_embeddings": True}, "sdpa"),
    "qwen2": ("Qwen2Config", COMMON, "sdpa"),
    "mistral, window": ("MistralConfig", COMMON | {"sliding_window": 8}, "sdpa"),
    "gemma2, window, capped": ("Gemma2Config", COMMON | CAPPED, "eager"),
    "gpt2": ("GPT2Config", GPT2 | {"bos_token_id": None}, "sdpa"),
}


class NoWords:
    """A tokenizer for a policy that reads no text."""

    eos_token_id = 1
    chat_template = None
    model_max_length = 256


def build(name: str, device: torch.device) -> Policy:
    """A random model with weights that are large enough for every position to matter."""
    import transformers

    kind, options, attention = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**options)
    model: Any = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.15)
    return Policy(model.to(device).eval(), NoWords(), ModelConfig(logprob_chunk=16), device)


def sampled(policy: Policy) -> list[Sample]:
    """Groups of unequal size after prompts of unequal length; a third of the vocabulary ends an answer."""
    rng = np.random.default_rng(0)
    sampling = Sampling(max_new_tokens=24, stop_ids=tuple(range(1, 40)), temperature=1.3)
    requests = [
        Request(rng.integers(40, 512, length), str(i), tuple(range(1 + 2 * i)), sampling)
        for i, length in enumerate((9, 1, 23, 9, 50))
    ]
    engine = LocalEngine(policy.model, max_batch_tokens=600)
    return [sample for group in engine.generate(requests) for sample in group]


def plain(policy: Policy, samples: Sequence[Sample]) -> torch.Tensor:
    """[M], each sample alone through the model's own logits."""
    parts = []
    for sample in samples:
        ids = torch.from_numpy(sample.ids).to(policy.device)
        places = torch.from_numpy(np.flatnonzero(sample.mask)).to(policy.device)
        logits = policy.model(input_ids=ids[None], use_cache=False).logits[0]
        temperature = float(sample.temperature[sample.mask][0])
        logp = (logits[places - 1].float() / temperature).log_softmax(-1)
        parts.append(logp.gather(1, ids[places, None]).squeeze(1))
    return torch.cat(parts)


def packed_of(samples: Sequence[Sample]) -> Packed:
    group = list(range(len(samples)))
    totals = count(samples, group, 1.0)
    (made,) = pack(samples, [1.0] * len(samples), group, totals, max_tokens=10**9, order="given")
    return made


def gradients(policy: Policy, logp: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of a weighted sum, by name."""
    policy.model.zero_grad(set_to_none=True)
    (logp * torch.linspace(-1, 2, len(logp), device=logp.device)).sum().backward()
    return {name: p.grad.clone() for name, p in policy.model.named_parameters() if p.grad is not None}


def worst(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """The largest difference of a gradient, as a share of the largest gradient of the same weight."""
    shares = [
        float((found[name] - value).abs().max() / value.abs().max().clamp(min=1e-12))
        for name, value in expected.items()
    ]
    return max(shares)


def comparisons(name: str, device: torch.device) -> Iterator[tuple[str, float, float]]:
    """(what is compared, the largest difference, what is allowed)"""
    policy = build(name, device)
    samples = sampled(policy)
    with torch.no_grad():
        engine = torch.from_numpy(np.concatenate([sample.logp_behaviour[sample.mask] for sample in samples]))
        yield "engine, plain forward", float((engine.to(device) - plain(policy, samples)).abs().max()), VALUE
    expected = plain(policy, samples)
    values, slopes = expected.detach(), gradients(policy, expected)
    for layout in LAYOUTS:
        logp = token_logprobs(policy, packed_of(samples), layout=layout).logp  # type: ignore[arg-type]
        yield f"{layout}, plain forward", float((logp.detach() - values).abs().max()), VALUE
        yield f"{layout}, plain gradient", worst(gradients(policy, logp), slopes), GRADIENT
    yield "steps with moments on the host", offloaded(name, device), STEP


def offloaded(name: str, device: torch.device) -> float:
    """The largest difference of a weight after three steps with the optimiser's state on the host, as a share of the rate."""
    made = []
    for kind in (torch.optim.AdamW, OffloadedAdamW):
        model = build(name, device).model
        optimiser = kind([{"params": list(model.parameters())}], lr=1e-3, eps=1e-4, fused=True)
        for step in range(3):
            ids = torch.arange(40 + step, 60 + step, device=device)[None]
            model(input_ids=ids, use_cache=False).logits.square().mean().backward()
            optimiser.step()
            optimiser.zero_grad()
        moments = {value.device.type for kept in optimiser.state.values() for value in kept.values() if value.dim()}
        assert kind is torch.optim.AdamW or moments == {"cpu"}
        made.append([parameter.detach() for parameter in model.parameters()])
    return max(float((mine - theirs).abs().max()) for mine, theirs in zip(*made, strict=True)) / 1e-3


def main(words: Sequence[str] | None = None, told: Callable[[str], None] = print) -> int:
    """Returns 1 where a difference is larger than it may be, else 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.equality", description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = torch.device(parser.parse_args(words).device)
    torch.backends.cuda.matmul.allow_tf32 = False
    failed = False
    told("| model | compared | largest difference | allowed | |")
    told("|---|---|---|---|---|")
    for name in MODELS:
        for what, difference, allowed in comparisons(name, device):
            good = difference <= allowed  # NaN is not
            failed |= not good
            told(f"| {name} | {what} | {difference:.1e} | {allowed:g} | {'ok' if good else '**too large**'} |")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
