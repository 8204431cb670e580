"""Parts of a step by themselves: the matrix product, the decoding of a batch, forward and backward, and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.speed.side import Gate, forget_peak, peak_megabytes
from benchmarks.speed.works import MEMORY_TOKENS, Work, prompts

SIZE = 2048
PROBE_SECONDS = 0.5


def product(work: Work, spec: Mapping[str, Any], gate: Gate) -> None:
    """The rate of a large float32 matrix product, which is what everything else is measured by."""
    gate.libraries_loaded()
    device = torch.device(spec["device"])
    a, b = (torch.randn(SIZE, SIZE, device=device) for _ in range(2))
    out = torch.empty_like(a)
    _watch_device(gate)
    gate.say(threads=torch.get_num_threads())
    while True:
        gate.wait()
        best, begin = 0.0, time.perf_counter()
        while time.perf_counter() - begin < PROBE_SECONDS:
            started = time.perf_counter()
            torch.mm(a, b, out=out)
            gate.synchronise()
            best = max(best, 2 * SIZE**3 / (time.perf_counter() - started))
        gate.tell(rate=best)


def train(work: Work, spec: Mapping[str, Any], gate: Gate) -> None:
    """Forward and backward of whole sequences of which every token but the first is trained on."""
    from surefoot.algorithms.loss import policy_loss
    from surefoot.algorithms.presets import dr_grpo
    from surefoot.algorithms.tokens import Tokens
    from surefoot.policy.logprob import token_logprobs
    from surefoot.policy.packing import count, pack

    policy, samples = _policy(spec), _samples(work, _vocabulary(spec))
    gate.say(threads=torch.get_num_threads(), prompt=1.0)
    _watch_device(gate)
    group = list(range(len(samples)))
    totals = count(samples, group, work.length)
    while True:
        gate.wait()
        for packed in pack(samples, [1.0] * len(samples), group, totals, max_tokens=work.micro_batch_tokens):
            packed = packed.to(policy.device)
            current = token_logprobs(policy, packed)
            loss, _ = policy_loss(dr_grpo, Tokens.on_policy(packed, current.logp, current.entropy), totals)
            loss.backward()
        gate.tell(trained=int(totals.tokens), answers=0, phases={})
        policy.model.zero_grad(set_to_none=True)


def plain_train(work: Work, spec: Mapping[str, Any], gate: Gate) -> None:
    """The same by Transformers alone: whole logits, log-softmax, backward."""
    model = _plain(spec)
    ids = torch.from_numpy(np.stack([sample.ids for sample in _samples(work, _vocabulary(spec))])).to(spec["device"])
    gate.say(threads=torch.get_num_threads(), prompt=1.0)
    _watch_device(gate)
    while True:
        gate.wait()
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
        functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
        gate.tell(trained=ids[:, 1:].numel(), answers=0, phases={})
        model.zero_grad(set_to_none=True)


def decode(work: Work, spec: Mapping[str, Any], gate: Gate) -> None:
    """Answers of full length to different prompts, side by side."""
    from surefoot.rollout.engine import Request, Sampling
    from surefoot.rollout.local import LocalEngine

    policy = _policy(spec)
    asked = [np.asarray(policy.tokenizer(text)["input_ids"]) for text, _ in prompts(work, work.prompts)]
    requests = [
        Request(ids, str(i), tuple(range(i * work.samples, (i + 1) * work.samples)), Sampling(max_new_tokens=work.new))
        for i, ids in enumerate(asked)
    ]
    engine = LocalEngine(policy.model, max_batch_tokens=65536)
    gate.say(threads=torch.get_num_threads(), prompt=float(np.mean([len(ids) for ids in asked])))
    _watch_device(gate)
    while True:
        gate.wait()
        made = engine.generate(requests)
        gate.tell(answers=sum(sample.length for samples in made for sample in samples), trained=0, phases={})


def plain_decode(work: Work, spec: Mapping[str, Any], gate: Gate) -> None:
    """The same by ``generate`` of Transformers, prompts padded on the left."""
    from transformers import AutoTokenizer

    model = _plain(spec)
    tokenizer = AutoTokenizer.from_pretrained(spec["model"], padding_side="left")
    texts = [text for text, _ in prompts(work, work.prompts) for _ in range(work.samples)]
    given = tokenizer(texts, return_tensors="pt", padding=True).to(spec["device"])
    gate.say(threads=torch.get_num_threads(), prompt=float(given["attention_mask"].sum(1).float().mean()))
    _watch_device(gate)
    options = {"min_new_tokens": work.new, "max_new_tokens": work.new, "do_sample": True, "top_k": 0}
    while True:
        gate.wait()
        with torch.inference_mode():
            made = model.generate(**given, **options, pad_token_id=tokenizer.pad_token_id)
        gate.tell(answers=made[:, given["input_ids"].shape[1] :].numel(), trained=0, phases={})


def memory(work: Work, spec: Mapping[str, Any], gate: Gate) -> None:
    """The peak of log-probability and backward above the model, for more and more tokens, one number a turn."""
    from surefoot.policy.logprob import token_logprobs
    from surefoot.policy.packing import count, pack

    policy = _policy(spec)
    vocabulary = _vocabulary(spec)
    gate.say(threads=torch.get_num_threads(), hidden=policy.model.config.hidden_size, vocabulary=vocabulary)
    for parameter in policy.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for tokens in MEMORY_TOKENS:
        samples = _samples(work.but(prompts=tokens // work.length), vocabulary)
        group = list(range(len(samples)))
        (packed,) = pack(samples, [1.0] * len(samples), group, count(samples, group, 1.0), max_tokens=2 * tokens)
        gate.wait()
        peak = _peak(spec["device"])
        token_logprobs(policy, packed, entropy=False).logp.sum().backward()
        gate.tell(tokens=tokens, above=peak(), phases={}, answers=0, trained=tokens)
    while True:
        gate.wait()


def _peak(device: str) -> Callable[[], float]:
    """A function that tells how many megabytes the memory has risen above what it is now."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        return lambda: (torch.cuda.max_memory_allocated() - held) / 2**20
    forget_peak()
    before = peak_megabytes()
    return lambda: peak_megabytes() - before


def _watch_device(gate: Gate) -> None:
    if torch.cuda.is_available():
        gate.synchronise = torch.cuda.synchronize


def _policy(spec: Mapping[str, Any]) -> Any:
    from surefoot.policy.config import ModelConfig
    from surefoot.policy.loading import load_policy

    return load_policy(ModelConfig(path=spec["model"], device=spec["device"]))


def _plain(spec: Mapping[str, Any]) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(spec["model"], dtype=torch.float32).to(spec["device"])


def _vocabulary(spec: Mapping[str, Any]) -> int:
    from transformers import AutoConfig

    return int(AutoConfig.from_pretrained(spec["model"]).vocab_size)


def _samples(work: Work, vocabulary: int) -> list[Any]:
    from surefoot.types import Sample

    rng = np.random.default_rng(0)
    made = []
    for number in range(work.prompts):
        ids = rng.integers(3, vocabulary, work.length)
        made.append(Sample.of(ids[:1], ids[1:], prompt_id=str(number), sample_id=number))
    return made
