"""What a task is made of as one hash, so that a run is not gone on with on other problems.

The metadata of a prompt is what many graders judge by (hidden tests, options, the state of an environment): a change in it
changes the run. It may hold any Python value, so that each is brought into a form that another process makes too: no memory
addresses, no order of a set or of keys.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Set
from typing import Any

from surefoot.tasks.base import Task

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def task_fingerprint(task: Task) -> str:
    """A hash of all prompts with their answers and metadata, in order, of the worked examples, weights and verifier."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (task.train, task.heldout):
        for prompt in part:
            words = [prompt.prompt_id, prompt.content, prompt.answer, prompt.metadata]
            digest.update(canonical(words).encode() + b"\n")
        digest.update(b"\x1e")
    shots = [[prompt.prompt_id, prompt.content, solution] for prompt, solution in task.shots]
    digest.update(canonical([shots, task.weights, task.verifier]).encode())
    return digest.hexdigest()


def canonical(value: Any) -> str:
    """A text that equal values share, whatever the order of their keys and the process.

    >>> canonical({"b": {2, 1}, "a": 1}) == canonical({"a": 1, "b": {1, 2}})
    True
    """
    try:
        return json.dumps(value, sort_keys=True, default=_plain)
    except (ValueError, RecursionError):  # it holds itself, or is deeper than Python goes
        return _ADDRESS.sub("", repr(value))
    except TypeError:  # keys that JSON does not have or that have no order
        return json.dumps(_pairs(value))


def _pairs(value: Any) -> Any:
    if isinstance(value, Mapping):
        return sorted([canonical(key), canonical(held)] for key, held in value.items())
    if isinstance(value, (list, tuple)):
        return [canonical(held) for held in value]
    return canonical(_plain(value))


def _plain(value: Any) -> Any:
    """What JSON has no form for, by what it holds."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Set):
        return sorted(canonical(held) for held in value)
    if hasattr(value, "tolist"):  # an array or a tensor, whose text leaves numbers out
        return [type(value).__name__, str(getattr(value, "dtype", "")), value.tolist()]
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [name, {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}]
    text = repr(value)
    if text == object.__repr__(value):  # it says nothing but where it lies
        return [name, getattr(value, "__dict__", {})]
    return _ADDRESS.sub("", text)
