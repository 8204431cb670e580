"""Compiled layers against plain ones: seconds of forward and backward, and what compiling costs first.

    python benchmarks/compiled.py                     # every model
    python benchmarks/compiled.py --work middle       # one of the works of benchmarks/training.py

Processor seconds, those of the compiler's own processes included. Plain and compiled passes take turns (A B A B ...) in one
process. The compiler keeps what it made in a folder; a fresh one is used, so that the warm-up is that of a first run.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))


def spent() -> float:
    """Processor seconds of this process and of those that it started and that are over."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def measure(name: str, turns: int, layout: str) -> None:
    import torch

    from benchmarks.training import WORK, load, make_samples, update
    from surefoot.policy.compile import set_compile

    model, work = WORK[name]
    policy = load(model)
    samples = make_samples(work, policy.model.config.vocab_size)
    set_compile(policy.model, model, policy.device)
    layers = [module for module in policy.model.modules() if getattr(module, "surefoot_compile", False)]

    def step(compiled: bool) -> float:
        for layer in layers:
            layer.surefoot_compile = compiled
        policy.model.zero_grad(set_to_none=True)
        begin = spent()
        update(policy, samples, layout, work[-1])
        return spent() - begin

    step(False)
    warm_up = step(True)
    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(turns):
        for compiled in found:
            found[compiled].append(step(compiled))
    plain, fast = (statistics.median(found[compiled]) for compiled in (False, True))
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    steps = f"{(warm_up - fast) / (plain - fast):.0f} steps" if plain > fast else "never"
    print(
        f"{name}: {model}, layout {layout}: plain {plain:.3f} s, compiled {fast:.3f} s, {plain / fast:.2f} times faster; warm-up "
        f"{warm_up:.0f} s, {graphs} graphs; pays after {steps}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="*", default=["tiny", "middle", "groups"])
    parser.add_argument("--layout", default="auto")
    parser.add_argument("--turns", type=int, default=3)
    words = parser.parse_args()
    # Compile in this process, whose time is counted, and not in helpers that live on.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        import torch

        torch.set_num_threads(1)
        for name in words.work:
            measure(name, words.turns, words.layout)


if __name__ == "__main__":
    main()
