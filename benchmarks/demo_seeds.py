"""The demonstration on several seeds, with a control that must not learn: the table and the plot of docs/demo.md.

    python benchmarks/demo_seeds.py --seeds 5 --out runs/demo-seeds --plot docs/demo.svg

The control is the same run from the same warm start with a reward that is a coin toss, so whatever the verifier teaches
it cannot. Seeds that are finished in the folder are not run again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import surefoot
from surefoot.methods.demo import run_config, run_demo
from surefoot.report.plots import plot_runs
from surefoot.report.terminal import ProgressView
from surefoot.seeds import generator
from surefoot.training.loop import train


class Coin:
    """A reward that knows nothing: 0 or 1 by a stream of its own."""

    name = "coin"

    def __init__(self, seed: int) -> None:
        self.rng = generator(seed, "coin")

    def score(self, completions: Any) -> list[surefoot.Score]:
        return [surefoot.Score(float(self.rng.integers(2)), correct=False) for _ in completions]


def reward_of(run: Path, last: bool) -> float:
    """Mean reward of the first or the last five steps: the accuracy of sampled answers."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rewards = [json.loads(line)["reward/mean"] for line in (lines[-5:] if last else lines[:5])]
    return sum(rewards) / len(rewards)


def accuracy(record: Mapping[str, float]) -> str:
    return f"{record['accuracy']:.1%} [{record['low']:.1%}, {record['high']:.1%}]".replace("%", " %")


def measure(out: Path, seed: int, threads: int) -> dict[str, Any]:
    """Run a seed, or read what it came to."""
    with ProgressView() as watch:
        if not (out / "rl" / "result.json").exists():
            run_demo(out, seed, watch, threads)
        if not (out / "control.json").exists():
            config = run_config(out, seed, out / "warm-up" / "model", threads).model_copy(update={"name": "control"})
            control = train(config, reward=Coin(seed), watch=watch, resume=True)
            found = surefoot.evaluate(control.model, config).record(0)
            (out / "control.json").write_text(json.dumps(found), encoding="utf-8")
    warm, run = (json.loads((out / name / "result.json").read_text(encoding="utf-8")) for name in ("warm-up", "rl"))
    return {
        "seed": seed,
        "warm-up steps": warm["steps"],
        "greedy before": accuracy(run["before"]),
        "greedy after": accuracy(run["after"]),
        "sampled, first 5 steps": f"{reward_of(out / 'rl', last=False):.2f}",
        "sampled, last 5 steps": f"{reward_of(out / 'rl', last=True):.2f}",
        "control after": accuracy(json.loads((out / "control.json").read_text(encoding="utf-8"))),
        "seconds": round(warm["seconds"]["train"] + sum(run["seconds"].values())),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/demo-seeds"))
    parser.add_argument("--plot", type=Path, help="write the curves of all seeds here")
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch")
    arguments = parser.parse_args()
    rows = [measure(arguments.out / str(seed), seed, arguments.threads) for seed in range(arguments.seeds)]
    print("| " + " | ".join(rows[0]) + " |")
    print("|" + "---|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")
    if arguments.plot:
        plot_runs([arguments.out / str(seed) / "rl" for seed in range(arguments.seeds)], arguments.plot)


if __name__ == "__main__":
    main()
