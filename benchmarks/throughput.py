"""Tokens per second of generation and of training, and peak memory, for one model.

    python benchmarks/throughput.py                       # the embedded model and SmolLM2-135M (extra: smollm2)
    python benchmarks/throughput.py --model embedded      # one of them

Each model is measured in a process of its own, so that the peak resident memory is its own. Figures differ from run to
run by 10 to 20 per cent; compare ratios within one run.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np
import torch

from surefoot.algorithms.loss import policy_loss
from surefoot.algorithms.presets import dr_grpo
from surefoot.algorithms.tokens import Tokens
from surefoot.policy.config import ModelConfig
from surefoot.policy.loading import Policy, load_policy
from surefoot.policy.logprob import token_logprobs
from surefoot.policy.packing import count, pack
from surefoot.rollout.engine import Request, Sampling
from surefoot.rollout.local import LocalEngine
from surefoot.types import Sample

# model: prompts, samples of each, tokens of a prompt, tokens of a completion, tokens of a micro-batch
WORK = {"embedded": (64, 8, 12, 32, 16384), "smollm2-135m-instruct": (8, 8, 44, 32, 2048)}


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def generate(policy: Policy, work: tuple[int, int, int, int, int]) -> list[Sample]:
    prompts, size, prompt_length, length, _ = work
    rng = np.random.default_rng(0)
    vocabulary = policy.model.config.vocab_size
    requests = [
        Request(
            prompt_ids=rng.integers(3, vocabulary, prompt_length),
            prompt_id=str(i),
            seeds=tuple(range(i * size, (i + 1) * size)),
            sampling=Sampling(max_new_tokens=length),  # no stop token: every completion has the full length
        )
        for i in range(prompts)
    ]
    engine = LocalEngine(policy.model, max_batch_tokens=65536)
    return [sample for samples in engine.generate(requests) for sample in samples]


def train(policy: Policy, samples: list[Sample], micro_batch_tokens: int) -> None:
    """Forward and backward of the samples, as in an optimiser step."""
    group = [int(sample.prompt_id) for sample in samples]
    totals = count(samples, group, 32)
    for packed in pack(samples, [1.0] * len(samples), group, totals, max_tokens=micro_batch_tokens):
        current = token_logprobs(policy, packed)
        loss, _ = policy_loss(
            dr_grpo,
            Tokens.on_policy(packed, current.logp, current.entropy),
            totals,
        )
        loss.backward()


def measure(name: str, repeats: int, threads: int) -> dict[str, float | str | int]:
    if threads:
        torch.set_num_threads(threads)
    policy = load_policy(ModelConfig(path=name))
    work = WORK[name]
    optimiser = torch.optim.AdamW(policy.model.parameters(), lr=0.0, fused=True)
    samples = generate(policy, work)  # warms up
    seconds = {"generate": [], "train": []}  # type: dict[str, list[float]]
    for _ in range(repeats):
        begin = time.perf_counter()
        samples = generate(policy, work)
        seconds["generate"].append(time.perf_counter() - begin)
        begin = time.perf_counter()
        train(policy, samples, work[-1])
        optimiser.step()
        optimiser.zero_grad()
        seconds["train"].append(time.perf_counter() - begin)
    new, whole = sum(sample.length for sample in samples), sum(len(sample) for sample in samples)
    return {
        "model": name,
        "parameters": sum(parameter.numel() for parameter in policy.model.parameters()),
        "threads": torch.get_num_threads(),
        "sequences": len(samples),
        "generated tokens/s": round(new / min(seconds["generate"])),
        "trained tokens/s (completion)": round(new / min(seconds["train"])),
        "trained tokens/s (with prompt)": round(whole / min(seconds["train"])),
        "peak memory MB": round(peak_megabytes()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(WORK), action="append", help="may be given several times")
    parser.add_argument("--repeats", type=int, default=3, help="the best of so many is reported")
    parser.add_argument("--threads", type=int, default=0, help="threads of PyTorch (0: its own choice)")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for name in arguments.model or sorted(WORK):
        if arguments.child:
            print(json.dumps(measure(name, arguments.repeats, arguments.threads)))
            continue
        words = ["--child", "--model", name, "--repeats", str(arguments.repeats), "--threads", str(arguments.threads)]
        done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{name}: {done.stderr.strip().splitlines()[-1]}\n")
            continue
        for key, value in json.loads(done.stdout.splitlines()[-1]).items():
            print(f"{key:32} {value}")
        print()


if __name__ == "__main__":
    main()
