"""Speed of the local engine: our own decode steps, in float32 and int8, against the forward of Transformers, in turn.

    python benchmarks/generation.py                                   # every work
    python benchmarks/generation.py --work smollm2 --repeats 2        # one of them
    python benchmarks/generation.py --work embedded --only own        # one arm, for a profiler

Printed for each arm: seconds of the best repeat and by part, tokens per second, the share of the matrix-product rate
that its matrix products reach (measured on a square product beside every repeat), and the peak memory of a process
that generates once. One thread is measured in CPU seconds, so that other processes disturb less; more threads in
seconds of the clock. Compare ratios within one run.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from surefoot.policy.config import ModelConfig
from surefoot.policy.loading import load_policy
from surefoot.rollout import decode, local
from surefoot.rollout.decode import Decoder
from surefoot.rollout.engine import Request, Sampling
from surefoot.rollout.forward import Forward
from surefoot.rollout.local import LocalEngine

ARMS: dict[str, dict[str, bool]] = {
    "transformers": {"own_steps": False},
    "own": {},
    "int8": {"quantise": True},
}
PROBE = 1024


@dataclass(frozen=True)
class Work:
    """What is generated.

    Attributes:
        model: ``model.path``, or "llama-3m".
        prompts: number of prompts.
        samples: of each.
        length: tokens of the longest prompt; the others are up to 4 tokens shorter.
        common: tokens that all prompts begin with.
        new: budget of tokens.
        stops: how many tokens of the vocabulary end a completion.
        slots: ``rollout.max_batch_tokens``.
    """

    model: str
    prompts: int
    samples: int
    length: int
    common: int
    new: int
    stops: int = 0
    slots: int = 65536


WORKS = {
    "embedded": Work("embedded", 64, 8, 12, 0, 32),
    "embedded-stops": Work("embedded", 64, 8, 12, 0, 32, stops=4),
    "llama-3m": Work("llama-3m", 32, 8, 16, 0, 48),
    "llama-3m-stops": Work("llama-3m", 32, 8, 16, 0, 48, stops=20),
    "llama-3m-slots": Work("llama-3m", 64, 8, 16, 0, 128, stops=10, slots=64 * 144),
    "smollm2": Work("smollm2-135m-instruct", 8, 8, 44, 24, 64),
    "smollm2-few-shot": Work("smollm2-135m-instruct", 8, 8, 400, 380, 16),
    "smollm2-long-prompts": Work("smollm2-135m-instruct", 8, 8, 400, 0, 16),
}


def load(name: str) -> Any:
    if name != "llama-3m":
        return load_policy(ModelConfig(path=name)).model
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512, hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=8
    )
    return LlamaForCausalLM(config).float().eval()


def requests_of(work: Work, vocabulary: int) -> list[Request]:
    rng = np.random.default_rng(0)
    common = rng.integers(3, vocabulary, work.common)
    stop_ids = tuple(int(token) for token in rng.choice(vocabulary, work.stops, replace=False))
    sampling = Sampling(max_new_tokens=work.new, stop_ids=stop_ids)
    made = []
    for i in range(work.prompts):
        own = rng.integers(3, vocabulary, work.length - work.common - i % 5)
        seeds = tuple(range(i * work.samples, (i + 1) * work.samples))
        made.append(Request(np.concatenate([common, own]), str(i), seeds, sampling))
    return made


class Parts:
    """Seconds spent in functions of the engine, outermost first: what one of them calls is in its own seconds too."""

    WATCHED: tuple[tuple[Any, str, str], ...] = (
        (Forward, "prompts", "prompts"),
        (Forward, "__call__", "forward"),
        (Decoder, "step", "steps"),
        (decode, "attend", "attention"),
        (local, "draw", "drawing"),
    )

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.seconds: dict[str, float] = {}

    @contextmanager
    def watch(self) -> Iterator[None]:
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in self.WATCHED]
        for owner, name, part in self.WATCHED:
            setattr(owner, name, self._timed(getattr(owner, name), part))
        try:
            yield
        finally:
            for owner, name, function in before:
                setattr(owner, name, function)

    def _timed(self, function: Any, part: str) -> Any:
        def timed(*arguments: Any, **options: Any) -> Any:
            begin = self.clock()
            result = function(*arguments, **options)
            self.seconds[part] = self.seconds.get(part, 0.0) + self.clock() - begin
            return result

        return timed


def probe(clock: Callable[[], float]) -> float:
    """Operations per second of a product of two square float32 matrices."""
    a, b = torch.randn(PROBE, PROBE), torch.randn(PROBE, PROBE)
    seconds = []
    for _ in range(6):
        begin = clock()
        torch.mm(a, b)
        seconds.append(clock() - begin)
    return 2 * PROBE**3 / min(seconds)


def weights_of(model: Any) -> tuple[int, int]:
    """Weights that every token is multiplied with: those of the layers, those of the head."""
    head = model.get_output_embeddings().weight.numel()
    linear = sum(m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Linear))
    return linear - head, head


def measure(name: str, repeats: int, only: str | None) -> dict[str, dict[str, float]]:
    work = WORKS[name]
    model = load(work.model)
    wanted = requests_of(work, model.config.vocab_size)
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    arms = [only] if only else list(ARMS)
    engines = {arm: LocalEngine(model, max_batch_tokens=work.slots, **ARMS[arm]) for arm in arms}
    layers, head = weights_of(model)
    best: dict[str, dict[str, float]] = {}
    rates = []
    for engine in engines.values():
        engine.generate([wanted[0]])  # warms up
    for _ in range(repeats):
        for arm, engine in engines.items():
            rates.append(probe(clock))
            parts = Parts(clock)
            with parts.watch():
                begin = clock()
                groups = engine.generate(wanted)
                seconds = clock() - begin
            new = sum(sample.length for group in groups for sample in group)
            if arm not in best or seconds < best[arm]["seconds"]:
                steps = seconds - parts.seconds["prompts"] - parts.seconds["drawing"]
                decoded = new - sum(len(group) for group in groups)
                best[arm] = {"seconds": seconds, "tokens": new, "tokens/s": new / seconds}
                best[arm] |= {f"seconds: {part}": value for part, value in parts.seconds.items()}
                best[arm]["decode, GFLOP/s"] = 2 * decoded * (layers + head) / steps / 1e9
                whole = 2 * (new * (layers + head) + sum(len(r.prompt_ids) for r in wanted) * layers)
                best[arm]["all, prompts once each, GFLOP/s"] = whole / seconds / 1e9
    for found in best.values():
        rate = float(np.median(rates)) / 1e9
        found["matrix products, GFLOP/s"] = rate
        found["decode, share of the rate"] = found["decode, GFLOP/s"] / rate
    return best


def peak(name: str, arm: str) -> float:
    """Megabytes of this process at its peak, after generating once."""
    work = WORKS[name]
    model = load(work.model)
    LocalEngine(model, max_batch_tokens=work.slots, **ARMS[arm]).generate(requests_of(work, model.config.vocab_size))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(*words: str) -> Any:
    done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=sorted(WORKS), action="append", help="may be given several times")
    parser.add_argument("--repeats", type=int, default=3, help="the best of so many is reported")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=sorted(ARMS), help="one arm alone")
    parser.add_argument("--no-memory", action="store_true", help="leave the runs for the peak memory out")
    parser.add_argument("--child", choices=("measure", "peak"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")
    for name in arguments.work or WORKS:
        if arguments.child == "measure":
            print(json.dumps(measure(name, arguments.repeats, arguments.only)))
            continue
        if arguments.child == "peak":
            print(json.dumps(peak(name, arguments.only)))
            continue
        common = ["--work", name, "--threads", str(arguments.threads), "--repeats", str(arguments.repeats)]
        only = ["--only", arguments.only] if arguments.only else []
        found = child("--child", "measure", *common, *only)
        for arm in found:
            if not arguments.no_memory:
                found[arm]["peak memory, MB"] = child("--child", "peak", *common, "--only", arm)
        report(name, found)


def report(name: str, found: dict[str, dict[str, float]]) -> None:
    print(f"{name}: {WORKS[name]}")
    keys = list(dict.fromkeys(key for arm in found.values() for key in arm))
    print(f"  {'':34}" + "".join(f"{arm:>16}" for arm in found))
    for key in keys:
        values = [arm.get(key) for arm in found.values()]
        print(f"  {key:34}" + "".join(f"{'' if value is None else f'{value:.4g}':>16}" for value in values))
    if "transformers" in found:
        times = [found["transformers"]["seconds"] / arm["seconds"] for arm in found.values()]
        print(f"  {'times faster':34}" + "".join(f"{value:>16.2f}" for value in times))
    print(flush=True)


if __name__ == "__main__":
    main()
