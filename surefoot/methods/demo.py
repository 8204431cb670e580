"""The demonstration: a tiny model learns addition with a scratchpad, first from imperfect examples, then from a verifier.

Nothing is downloaded and nothing is stored in advance: the model starts from random weights, is warmed up by supervised
training on demonstrations of which a share contains a mistake, to a middling accuracy, and is then improved by
reinforcement learning with a reward that only says whether the answer is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from surefoot.config import validate
from surefoot.training.config import RunConfig, SftConfig
from surefoot.training.loop import RunResult, train
from surefoot.training.progress import Progress
from surefoot.training.sft import SftResult, sft

TASK = {"name": "addition", "options": {"digits": 3}, "train_size": 20000, "heldout_size": 512, "template": "plain"}
ROLLOUT = {"temperature": 1.0, "max_new_tokens": 40}


@dataclass(frozen=True)
class DemoResult:
    """The two halves of the demonstration."""

    warm_up: SftResult
    run: RunResult


def warm_up_config(out: Path, seed: int, threads: int = 1) -> SftConfig:
    """Supervised training from random weights, stopped at a middling sampled accuracy."""
    return validate(
        SftConfig,
        {
            "name": "warm-up",
            "runs": str(out),
            "seed": seed,
            "model": {"path": "embedded", "seed": seed},
            "task": TASK,
            "rollout": ROLLOUT,
            "optimiser": {"lr": 2e-3, "beta2": 0.99, "warmup_steps": 20},
            "evaluation": {"problems": 128, "samples": 1, "temperature": 1.0},
            "steps": 1000,
            "batch": 32,
            "error_rate": 0.1,
            "target_accuracy": 0.25,
            "check_every": 10,
            "threads": threads,
        },
    )


def run_config(out: Path, seed: int, model: Path, threads: int = 1) -> RunConfig:
    """Reinforcement learning from the warm start."""
    return validate(
        RunConfig,
        {
            "name": "rl",
            "runs": str(out),
            "seed": seed,
            "model": {"path": str(model)},
            "task": TASK,
            "rollout": ROLLOUT,
            "algorithm": {"preset": "dr_grpo"},
            "train": {
                "steps": 60,
                "prompts_per_step": 64,
                "group_size": 8,
                "micro_batch_tokens": 8192,
                "threads": threads,
            },
            "optimiser": {"lr": 3e-4, "warmup_steps": 10},
            "evaluation": {"every": 20, "problems": 512, "samples": 1, "temperature": 0.0},
            "checkpoint": {"every": 20},
        },
    )


def run_demo(out: Path, seed: int = 0, watch: Callable[[Progress], None] | None = None, threads: int = 1) -> DemoResult:
    """Warm up, then train. Writes ``out/warm-up`` and ``out/rl``.

    One thread by default: a model this small gains little from a second one, and two that wait for each other on a busy
    machine are many times slower than one.
    """
    warm_up = sft(warm_up_config(out, seed, threads), watch=watch)
    return DemoResult(warm_up, train(run_config(out, seed, warm_up.model, threads), watch=watch))
