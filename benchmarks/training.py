"""Forward, backward and optimiser of the update: tokens per second, share of the machine's matrix-product rate, memory.

    python benchmarks/training.py                          # every model and kind of work, one thread
    python benchmarks/training.py --work plain few_shot    # some of the work
    python benchmarks/training.py --profile                # where the time goes, operator by operator
    python benchmarks/training.py --memory                 # peak memory of the log-probabilities at a vocabulary of 150k

Layouts take turns (A B C A B C ...), beside a probe of the matrix-product rate in every turn, and the medians of processor
seconds are compared: ratios within a run mean something, seconds of two runs do not. The rate counts the products that the
sequences need one by one (2 per weight and token forward, 4 backward, the head on loss tokens alone, and attention over what
each token may see), so that a layout that computes less can exceed the rate of the machine.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from surefoot.policy.config import ModelConfig
from surefoot.policy.loading import Policy, load_policy
from surefoot.policy.logprob import chunked_logprobs, token_logprobs
from surefoot.policy.packing import count, pack
from surefoot.training.config import OptimiserConfig
from surefoot.training.optimiser import make_optimiser, take_step
from surefoot.types import Sample

# groups, samples of each, tokens of the prompt, shortest and longest answer, tokens of a micro-batch
Work = tuple[int, int, int, int, int, int]
SMOLLM2, EMBEDDED, MIDDLE = "smollm2-135m-instruct", "embedded", "3m"
WORK: dict[str, tuple[str, Work]] = {
    "plain": (SMOLLM2, (16, 1, 44, 84, 84, 2048)),  # 2,048 tokens that share nothing
    "groups": (SMOLLM2, (2, 8, 45, 8, 64, 4096)),
    "few_shot": (SMOLLM2, (1, 8, 400, 16, 16, 4096)),
    "middle": (MIDDLE, (8, 8, 16, 8, 48, 4096)),
    "tiny": (EMBEDDED, (64, 8, 12, 4, 32, 4096)),
}
LAYOUTS = ("right", "packed", "shared", "auto")


def load(name: str) -> Policy:
    """A model by name; ``"3m"`` is a fresh Llama of 3 million weights with a vocabulary of 512."""
    if name != MIDDLE:
        return load_policy(ModelConfig(path=name))
    from transformers import LlamaConfig, LlamaForCausalLM

    policy = load_policy(ModelConfig())
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    return Policy(LlamaForCausalLM(config).eval(), policy.tokenizer, policy.config, policy.device)


def make_samples(work: Work, vocabulary: int) -> list[Sample]:
    groups, size, prompt, shortest, longest, _ = work
    rng = np.random.default_rng(0)
    samples = []
    for group in range(groups):
        start = rng.integers(3, vocabulary, prompt)
        for number in range(size):
            answer = rng.integers(3, vocabulary, rng.integers(shortest, longest + 1))
            samples.append(Sample.of(start, answer, prompt_id=str(group), sample_id=number))
    return samples


def needed(policy: Policy, samples: list[Sample]) -> float:
    """Floating-point operations of forward and backward, each sequence by itself."""
    config, body = policy.model.config, policy.model.base_model
    matrices = sum(p.numel() for p in body.parameters() if p.dim() == 2) - body.get_input_embeddings().weight.numel()
    tokens = sum(len(sample) - 1 for sample in samples)
    head = sum(sample.length for sample in samples) * policy.model.get_output_embeddings().weight.numel()
    width = config.num_attention_heads * (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    pairs = sum((len(sample) - 1) * len(sample) / 2 for sample in samples)
    return 6.0 * (tokens * matrices + head + 2 * pairs * width * config.num_hidden_layers)


def gemm_rate(seconds: float = 0.3) -> float:
    """Operations per processor second of a product [2048, 576] x [576, 1536] in float32."""
    left, right = torch.randn(2048, 576), torch.randn(576, 1536)
    left @ right
    begin, done = time.thread_time(), 0
    while time.thread_time() - begin < seconds:
        left @ right
        done += 1
    return done * 2.0 * 2048 * 576 * 1536 / (time.thread_time() - begin)


def timed(action: Callable[[], object]) -> float:
    begin = time.thread_time()
    action()
    return time.thread_time() - begin


def update(policy: Policy, samples: list[Sample], layout: str, limit: int) -> dict[str, float]:
    """Processor seconds of packing, forward and backward."""
    group = [int(sample.prompt_id) for sample in samples]
    totals = count(samples, group, 1.0)
    seconds = dict.fromkeys(("pack", "forward", "backward"), 0.0)
    begin = time.thread_time()
    batches = pack(samples, [1.0] * len(samples), group, totals, max_tokens=limit, layout=layout)  # type: ignore[arg-type]
    seconds["pack"] = time.thread_time() - begin
    for packed in batches:
        begin = time.thread_time()
        loss = token_logprobs(policy, packed, layout=layout).logp.sum()  # type: ignore[arg-type]
        seconds["forward"] += time.thread_time() - begin
        seconds["backward"] += timed(loss.backward)
    return seconds


def measure(name: str, layouts: list[str], turns: int) -> None:
    model, work = WORK[name]
    policy = load(model)
    samples = make_samples(work, policy.model.config.vocab_size)
    tokens, operations = sum(len(sample) for sample in samples), needed(policy, samples)
    optimiser = make_optimiser(policy.model, OptimiserConfig(lr=0.0))
    found: dict[str, list[dict[str, float]]] = {layout: [] for layout in layouts}
    rates, steps = [], []
    for turn in range(turns + 1):
        for layout in layouts:
            rates.append(gemm_rate())
            seconds = update(policy, samples, layout, work[-1])
            steps.append(timed(lambda: take_step(optimiser, policy.model, lr=0.0, max_grad_norm=1.0)))
            if turn:  # the first one warms up
                found[layout].append(seconds)
    rate = statistics.median(rates)
    print(f"{name}: {model}, {len(samples)} sequences, {tokens} tokens, products at {rate / 1e9:.0f} GFLOPS")
    base = None
    for layout, runs in found.items():
        parts = {part: statistics.median(run[part] for run in runs) for part in runs[0]}
        whole = sum(parts.values())
        base = base or whole
        words = "  ".join(f"{part} {value:.3f}" for part, value in parts.items())
        share = operations / whole / rate
        speed = f"{tokens / whole:8.0f} tokens/s  {share:5.0%} of the rate  {base / whole:5.2f} x"
        print(f"  {layout:7} {whole:8.3f} s  {words}  {speed}")
    print(f"  optimiser {statistics.median(steps):.3f} s, peak memory {peak():.0f} MB\n")


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def profile(name: str, layout: str) -> None:
    model, work = WORK[name]
    policy = load(model)
    samples = make_samples(work, policy.model.config.vocab_size)
    update(policy, samples, layout, work[-1])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        update(policy, samples, layout, work[-1])
    print(f"{name}, {layout}")
    print(seen.key_averages().table(sort_by="self_cpu_time_total", row_limit=16, max_name_column_width=60))


def memory(tokens: int, vocabulary: int = 150_000, width: int = 256) -> float:
    """Peak megabytes of log-probabilities and their backward pass over so many hidden states."""
    from surefoot.policy.head import Head

    head = Head(torch.nn.Linear(width, vocabulary, bias=False))
    hidden = torch.randn(tokens, width, requires_grad=True)
    target = torch.randint(vocabulary, (tokens,))
    keep = ModelConfig().logprob_keep * 2**20
    logp, _, _ = chunked_logprobs(hidden, head, target, torch.ones(tokens), ModelConfig().logprob_chunk, keep=keep)
    logp.sum().backward()
    return peak()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="+", choices=sorted(WORK), default=list(WORK))
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--profile", action="store_true", help="operators instead of a comparison")
    parser.add_argument("--memory", action="store_true", help="peak memory instead of a comparison")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.child:
        kind, value = json.loads(options.child)
        print(f"{value:6} tokens: {memory(value):.0f} MB") if kind == "memory" else measure(
            value, options.layouts, options.turns
        )
        return
    if options.profile:
        for name in options.work:
            profile(name, options.layouts[-1])
        return
    todo = (
        [("memory", tokens) for tokens in (1024, 4096, 16384)]
        if options.memory
        else [("work", w) for w in options.work]
    )
    for item in todo:  # each in a process of its own, whose peak memory is its own
        words = ["--turns", str(options.turns), "--threads", str(options.threads), "--layouts", *options.layouts]
        subprocess.run([sys.executable, __file__, *words, "--child", json.dumps(item)], check=True)


if __name__ == "__main__":
    main()
