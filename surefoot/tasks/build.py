"""From the ``[task]`` section to a Task."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace

from surefoot.config import nearest
from surefoot.errors import DataError
from surefoot.tasks import addition, chain_mod, file, gym
from surefoot.tasks.base import Task
from surefoot.tasks.check import check_task
from surefoot.tasks.config import TaskConfig
from surefoot.types import Prompt

BUILDERS: dict[str, Callable[[TaskConfig], Task]] = {
    "addition": addition.build,
    "chain_mod": chain_mod.build,
    "file": file.build,
}


def build_task(config: TaskConfig) -> Task:
    """Read or generate the problems of a task.

    Raises:
        DataError: an unknown task, dataset or option, a file that cannot be used, too few problems.
        MissingExtraError: the task needs a package that is not installed.
    """
    builder = gym.build if config.name.startswith(gym.PREFIX) else BUILDERS.get(config.name)
    if builder is None:
        hint = f" Data sets of reasoning-gym are named '{gym.PREFIX}<name>'."
        raise DataError(f"unknown task '{config.name}'." + nearest(config.name, BUILDERS) + hint)
    for key in ("path", "heldout_path"):
        if getattr(config, key) is not None and config.name != "file":
            raise DataError(f"task.{key} is read by the task 'file' only: set task.name = 'file', or leave it out")
    task = check_task(builder(config))
    return replace(task, fingerprint=fingerprint(task.train, task.heldout))


def fingerprint(*parts: Iterable[Prompt]) -> str:
    """A hash of all prompts and answers, in order."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        for prompt in part:
            digest.update(json.dumps([prompt.prompt_id, prompt.content, prompt.answer], default=str).encode() + b"\n")
        digest.update(b"\x1e")
    return digest.hexdigest()
