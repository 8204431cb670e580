"""What each preset is trained with: common settings, two rules, and what differs with the reason."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.algorithms.algorithm import Algorithm, resolve
from surefoot.algorithms.presets import PRESETS
from surefoot.config import merge, nested, validate
from surefoot.methods.demo import run_config
from surefoot.training.config import RunConfig, SftConfig

CONTROL = "control"  # a run whose reward is a coin toss
CONTROL_PRESET = "dr_grpo"
UPDATES = 2
COMMON: dict[str, Any] = {
    "train.steps": 24,
    "train.prompts_per_step": 32,
    "train.group_size": 8,
    "optimiser.lr": 3e-4,
    "optimiser.warmup_steps": 5,
    "evaluation.every": 0,
    "evaluation.problems": 512,
    "evaluation.temperature": 0.0,
    "checkpoint.every": 0,
    "checkpoint.keep_best": False,
    "track.samples_per_step": 0,
}


@dataclass(frozen=True)
class Difference:
    """What a preset has otherwise, and why.

    Attributes:
        settings: dotted keys of the configuration.
        reason: in words.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""


DIFFERENCES: dict[str, Difference] = {
    "ppo": Difference(
        {"critic.lr": 1e-3, "critic.warmup_steps": 5, "optimiser.warmup_steps": 10},
        "the critic's own rate, 1e-5, is meant for large models. It starts 5 steps earlier than the policy, which has 5 less, "
        "and the warm-up is as much longer",
    ),
    "gdpo": Difference(
        {"reward.format_weight": 1.0},
        "two rewards, the answer being right and being found, each with weight 1 as in the objective",
    ),
    "scalerl": Difference(
        {
            "reward.wrong": -1.0,
            "task.train_size": 512,
            "algorithm.interruption": {"share": 0.8, "phrase": ">", "close": ">"},
        },
        "rewards as in the paper. Few enough problems that they come back, which its rule for solved ones is about. Its phrase "
        "has 81 characters, twice the budget: the sign that opens the answer stands for it, after 32 tokens without one",
    ),
    "kimi_k15": Difference(
        {"optimiser.lr": 7e-5, "task.train_size": 512},
        "an optimiser that is reset before every batch takes steps of the size of the rate in every weight, where the average of "
        "beta1 = 0.9 shrinks noise to sqrt(0.1 / 1.9) = 0.23 of it: the rate is 0.23 of the common one. Few enough problems that "
        "they come back, which drawing the unsolved ones more often is about",
    ),
    "prorl": Difference(
        {"evaluation.every": 2},
        "resets follow evaluations, so there must be some",
    ),
}
NONE = Difference()


def updates_per_step(algorithm: Algorithm) -> int:
    """Two where the objective has a ratio, which in a single update is 1 everywhere; one where nothing corrects for a second."""
    return 1 if algorithm.ratio.name == "none" else UPDATES


def learning_config(
    out: Path, preset: str, seed: int, model: Path, overrides: Mapping[str, Any] | None = None
) -> RunConfig:
    """The run of a preset and a seed.

    Args:
        out: folder of the runs.
        preset: its name, or that of the control.
        seed: of the run.
        model: the warm start.
        overrides: dotted keys over all other settings, for a quicker look.
    """
    config = run_config(out, seed, model, threads=1).model_dump()
    base = CONTROL_PRESET if preset == CONTROL else preset
    config |= {"name": f"{preset}-{seed}", "algorithm": {"preset": base}}
    settings = {
        **COMMON,
        "train.updates_per_step": updates_per_step(PRESETS[base]),
        **DIFFERENCES.get(preset, NONE).settings,
        **(overrides or {}),
    }
    for key, value in settings.items():
        config = merge(config, nested(key, value))
    return validate(RunConfig, config)


def digest(config: RunConfig, warm_up: SftConfig) -> str:
    """What a finished run is known by: what it and its warm start were told, and the parts of its objective.

    Where the folders lie does not matter, nor do keys that are left at their defaults. A preset whose parts or numbers
    change has another digest, so its old runs do not count.
    """
    algorithm = config.algorithm.build()
    numbers = resolve(algorithm)
    content = {
        "run": config.model_dump(
            exclude_defaults=True, exclude={"name": True, "runs": True, "algorithm": True, "model": {"path"}}
        ),
        "parts": {slot: numbers[slot] for slot, part in algorithm.parts.items() if "idle" not in part.kind.traits},
        "warm-up": warm_up.model_dump(exclude_defaults=True, exclude={"runs"}),
    }
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).hexdigest()
