"""Unique generated problems, divided into training and held-out ones by a hash of the problem itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from surefoot.config import Section, validate
from surefoot.errors import ConfigError, DataError
from surefoot.tasks.base import content_id, is_heldout
from surefoot.tasks.config import TaskConfig
from surefoot.types import Prompt

S = TypeVar("S", bound=Section)


@dataclass(frozen=True)
class Candidate:
    """A generated problem.

    Attributes:
        prompt: the problem.
        key: what it has in common with another wording of the same problem (``347+589`` and ``589+347``); problems with
            one key are all training problems or all held out. None: the content itself.
    """

    prompt: Prompt
    key: Any = None


def generate_unique(
    config: TaskConfig, candidate: Callable[[int], Candidate | None]
) -> tuple[tuple[Prompt, ...], tuple[Prompt, ...]]:
    """Ask for candidate 0, 1, 2 ... until both parts are full; a hash of the problem decides which part it belongs to.

    The parts are stable for ever: a larger ``train_size`` or ``heldout_size`` appends, and no size, seed or option
    moves a problem from one part to the other (``heldout_share`` does).

    Args:
        config: name, sizes and the share that is held out.
        candidate: a pure function of the counter; None where it makes no problem that can be used.

    Returns:
        Training and held-out prompts.

    Raises:
        DataError: the generator repeats itself before both parts are full; says how many problems there are.
    """
    train: dict[str, Prompt] = {}
    heldout: dict[str, Prompt] = {}
    seen: set[str] = set()
    counter = repeats = 0
    while len(train) < config.train_size or len(heldout) < config.heldout_size:
        # With N problems drawn evenly, one that is still missing survives 10 N draws with probability exp(-10).
        if repeats > 1000 + 10 * len(seen):
            raise DataError(_too_few(config, seen, len(train), len(heldout)))
        found = candidate(counter)
        counter += 1
        if found is None or found.prompt.prompt_id in seen:
            repeats += 1
            continue
        repeats = 0
        seen.add(found.prompt.prompt_id)
        part, size = (train, config.train_size)
        if is_heldout(split_id(config.name, found.prompt, found.key), config.heldout_share):
            part, size = (heldout, config.heldout_size)
        if len(part) < size:
            part[found.prompt.prompt_id] = found.prompt
    return tuple(train.values()), tuple(heldout.values())


def split_id(name: str, prompt: Prompt, key: Any = None) -> str:
    """The hash that decides whether a problem is held out."""
    return prompt.prompt_id if key is None else content_id(name, key)


def read_options(schema: type[S], config: TaskConfig) -> S:
    """Validate the options of a generator.

    Raises:
        DataError: an option that the generator does not have (with the nearest one), or a bad value.
    """
    try:
        return validate(schema, config.options)
    except ConfigError as error:
        text = str(error).replace("unknown key", "unknown option")
        raise DataError(f"task.options of the task '{config.name}': {text}") from error


def _too_few(config: TaskConfig, seen: set[str], train: int, heldout: int) -> str:
    options = json.dumps(config.options, default=str) if config.options else "its default options"
    return (
        f"the task '{config.name}' with {options} has only {len(seen)} different problems, {train} for training and "
        f"{heldout} held out, but task.train_size = {config.train_size} and task.heldout_size = {config.heldout_size}: "
        f"lower them, change task.heldout_share = {config.heldout_share}, or choose options with more problems"
    )
