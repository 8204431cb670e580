"""A run that takes a second or two: an untrained model, and a reward that it can learn from nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surefoot.config import merge, validate
from surefoot.rewards.base import Reward
from surefoot.rewards.functions import as_reward
from surefoot.training.config import RunConfig

TINY: dict[str, Any] = {
    "name": "tiny",
    "task": {"name": "addition", "options": {"digits": 2}, "train_size": 24, "heldout_size": 6, "template": "plain"},
    "rollout": {"max_new_tokens": 10},
    "algorithm": {"preset": "grpo_token"},
    "train": {"steps": 4, "prompts_per_step": 3, "group_size": 4},
    "optimiser": {"lr": 1e-3},
    "evaluation": {"every": 2, "problems": 4},
    "checkpoint": {"every": 2},
    "health": {"truncated_above": 1.0},
    "audit": {"before": "off"},  # tests/training/test_training_audit.py is about it
}


def share_of_digits(prompt: str, completion: str, answer: object) -> float:
    """Dense enough that an untrained model's samples differ in it."""
    return sum(c.isdigit() for c in completion) / max(1, len(completion))


def tiny(runs: Path, **over: Any) -> RunConfig:
    return validate(RunConfig, merge(merge(TINY, {"runs": str(runs)}), over))


def digits_reward() -> Reward:
    return as_reward(share_of_digits)
