"""Surefoot: reinforcement-learning post-training of language models that reason.

Train from a file, with a key of it changed::

    import surefoot

    result = surefoot.train("run.toml", train__steps=10)

Names are imported when they are first used, so ``import surefoot`` alone is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surefoot.algorithms import presets
    from surefoot.algorithms.algorithm import Algorithm
    from surefoot.api import audit, evaluate, sft, train
    from surefoot.errors import SurefootError
    from surefoot.rewards.base import Completion, Reward
    from surefoot.tasks.base import Task
    from surefoot.training.config import RunConfig, SftConfig
    from surefoot.types import Finish, Group, Prompt, Sample, Score, Status

__version__ = "0.1.0"

_HOMES = {
    "presets": "surefoot.algorithms",
    "Algorithm": "surefoot.algorithms.algorithm",
    "audit": "surefoot.api",
    "evaluate": "surefoot.api",
    "sft": "surefoot.api",
    "train": "surefoot.api",
    "SurefootError": "surefoot.errors",
    "Completion": "surefoot.rewards.base",
    "Reward": "surefoot.rewards.base",
    "Task": "surefoot.tasks.base",
    "RunConfig": "surefoot.training.config",
    "SftConfig": "surefoot.training.config",
    "Finish": "surefoot.types",
    "Group": "surefoot.types",
    "Prompt": "surefoot.types",
    "Sample": "surefoot.types",
    "Score": "surefoot.types",
    "Status": "surefoot.types",
}

__all__ = [
    "Algorithm",
    "Completion",
    "Finish",
    "Group",
    "Prompt",
    "Reward",
    "RunConfig",
    "Sample",
    "Score",
    "SftConfig",
    "Status",
    "SurefootError",
    "Task",
    "__version__",
    "audit",
    "evaluate",
    "presets",
    "sft",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'surefoot' has no attribute '{name}'")
    importlib.import_module("surefoot.training.threads").wait_passively()  # before PyTorch is loaded
    home = importlib.import_module(_HOMES[name])
    value = importlib.import_module("surefoot.algorithms.presets") if name == "presets" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
