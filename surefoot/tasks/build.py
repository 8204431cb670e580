"""From the ``[task]`` section to a Task."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from surefoot.config import nearest, validate
from surefoot.errors import ConfigError, DataError
from surefoot.tasks import addition, chain_mod, file, gym, hub, mixture, shots
from surefoot.tasks.base import Task
from surefoot.tasks.check import check_task
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.fingerprint import task_fingerprint
from surefoot.tasks.overlap import Decontaminator
from surefoot.tasks.readers import kind_of
from surefoot.types import Prompt

BUILDERS: dict[str, Callable[[TaskConfig], Task]] = {
    "addition": addition.build,
    "chain_mod": chain_mod.build,
    "file": file.build,
    "mixture": lambda config: mixture.build(config, build_part),
}
PREFIXES: dict[str, Callable[[TaskConfig], Task]] = {gym.PREFIX: gym.build, hub.PREFIX: hub.build}
EVERYTHING = 10**9
_READ_BY = {
    "path": ("file", hub.PREFIX),
    "heldout_path": ("file", hub.PREFIX),
    "parts": ("mixture",),
}


def build_task(config: TaskConfig) -> Task:
    """Read or generate the problems of a task, without those of ``exclude`` and with its worked examples.

    Raises:
        DataError: an unknown task, dataset or option, a file that cannot be used, too few problems, a held-out problem that
            is also trained on.
        MissingExtraError: the task needs a package that is not installed.
    """
    task = build_part(config)
    if config.exclude:
        task = _without(task, config)
    if config.shots:
        task = shots.with_shots(task, config)
    elif config.shots_path is not None:
        raise DataError("task.shots_path is given, but task.shots = 0: say how many worked examples to show")
    task = check_task(task)
    return replace(task, fingerprint=task_fingerprint(task))


def build_part(config: TaskConfig) -> Task:
    """The problems of one task by its name, with nothing taken out and no examples.

    Raises:
        DataError, MissingExtraError: as for :func:`build_task`.
    """
    name = config.name
    builder = next((build for prefix, build in PREFIXES.items() if name.startswith(prefix)), BUILDERS.get(name))
    if builder is None:
        if name in hub.known_names():
            raise DataError(f"unknown task '{name}'. Did you mean '{hub.PREFIX}{name}'?")
        hint = f" Data sets of the hub are named '{hub.PREFIX}<name>'. Data sets of reasoning-gym are named '{gym.PREFIX}<name>'."
        raise DataError(f"unknown task '{name}'." + nearest(name, BUILDERS) + hint)
    for key, readers in _READ_BY.items():
        if getattr(config, key) and not name.startswith(readers):
            which = " and ".join(f"'{reader}...'" if reader.endswith(":") else f"'{reader}'" for reader in readers)
            raise DataError(f"task.{key} is read by {which} only: set task.name = '{readers[0]}', or leave it out")
    return builder(config)


def _without(task: Task, config: TaskConfig) -> Task:
    """The task without the training problems that overlap with an evaluation set."""
    notes = list(task.notes)
    train = list(task.train)
    for entry in config.exclude:
        problems, name = _evaluation_set(entry)
        known = Decontaminator(problems, config.exclude_ngram)
        kept = [prompt for prompt in train if not known.overlaps(prompt)]
        notes.append(
            f"{len(train) - len(kept)} of {len(train)} training problems overlap with {name} ({len(problems)} problems, runs "
            f"of {config.exclude_ngram} words) and were left out"
        )
        train = kept
    if task.train and not train:
        raise DataError(f"task.exclude leaves no training problem: {notes[-1]}")
    return replace(task, train=tuple(train), notes=tuple(notes))


def _evaluation_set(entry: str | dict[str, Any]) -> tuple[list[Prompt], str]:
    """The held-out problems of an entry of ``exclude`` (all of a file, and of what has no held-out ones), and its name."""
    if isinstance(entry, str):
        values: dict[str, Any] = {"name": "file", "path": entry} if kind_of(Path(entry)) else {"name": entry}
    else:
        values = {"name": "file", **entry} if "path" in entry else entry
    whole: dict[str, Any] = {}
    if str(values.get("name")).startswith(("file", hub.PREFIX)):  # generated problems have no end
        whole = {"train_size": EVERYTHING, "heldout_size": EVERYTHING}
    if values.get("name") == "file" and "heldout_path" not in values:
        whole |= {"heldout_size": 0, "heldout_share": 1e-12}  # nothing of it is for training
    try:
        config = validate(TaskConfig, {**whole, **values})
    except ConfigError as error:
        raise DataError(f"task.exclude, {entry!r}: {error}") from error
    task = build_part(config)
    return list(task.heldout or task.train), str(config.path or config.name)


def fingerprint(*parts: Iterable[Prompt]) -> str:
    """A hash of all prompts and answers, in order: which problems were asked, whatever else is known about them."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        for prompt in part:
            digest.update(json.dumps([prompt.prompt_id, prompt.content, prompt.answer], default=str).encode() + b"\n")
        digest.update(b"\x1e")
    return digest.hexdigest()
