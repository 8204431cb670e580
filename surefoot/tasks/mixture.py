"""Several tasks in one: ``task.name = "mixture"`` with ``task.parts``, each a task of its own with a weight.

Every prompt keeps its part's verifier; ``metadata["task"]`` says which part that is, and metrics are given for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from surefoot.config import validate
from surefoot.errors import ConfigError, DataError
from surefoot.tasks.base import Task
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.cursor import MixtureCursor, members_of
from surefoot.tasks.overlap import separate
from surefoot.types import Prompt

WHOLE = (
    *("template", "template_options", "system", "think", "prompt", "shots", "shots_path", "exclude", "exclude_ngram"),
    *("max_prompt_tokens", "overlong", "overlap", "parts"),
)
"""Keys that hold for the mixture as a whole."""


class PartConfig(TaskConfig):
    """A part of a mixture."""

    weight: float = Field(1.0, gt=0, description="share of the prompts, relative to the other parts")
    label: str = Field("", description="what metrics call the part; its name, or that of its file")


def build(config: TaskConfig, build_part: Callable[[TaskConfig], Task]) -> Task:
    """The parts in one task. Sizes, seeds and shares are those of each part.

    Held-out problems of all parts stand in turn, in proportion to the weights as long as there are any, so that the first
    ones of an evaluation are of all parts.

    Args:
        config: with ``parts``.
        build_part: builds one of them.

    Raises:
        DataError: no parts, two with one label, a key that holds for the whole, or a problem that one part trains on and
            another holds out.
    """
    if not config.parts:
        raise DataError("the task 'mixture' needs task.parts: give a list of tables, each with a 'name' and a 'weight'")
    if config.options:
        raise DataError("the task 'mixture' has no options: give them to its parts")
    parts: dict[str, Task] = {}
    weights: dict[str, float] = {}
    for number, values in enumerate(config.parts, start=1):
        part = _part(number, values)
        label = part.label or (Path(part.path).name.split(".")[0] if part.name == "file" and part.path else part.name)
        if label in parts:
            raise DataError(f"part {number} of the mixture is called '{label}', as one before it: give it a 'label'")
        parts[label], weights[label] = build_part(part), part.weight
    total = sum(weights.values())
    weights = {label: weight / total for label, weight in weights.items()}
    notes = [note for task in parts.values() for note in task.notes]
    train, heldout, left_out = _join(parts, drop=config.overlap == "drop")
    order = _in_turn(heldout, weights, config.seed)
    return Task(
        config.name,
        tuple(train),
        tuple(heldout[index] for index in order),
        verify=_dispatch(parts, "verify"),
        demonstrate=_dispatch(parts, "demonstrate"),
        gold=_dispatch(parts, "gold"),
        paraphrases=_dispatch(parts, "paraphrases"),
        wrong=_dispatch(parts, "wrong"),
        notes=(*notes, *left_out),
        parts=parts,
        weights=weights,
    )


def _part(number: int, values: dict[str, Any]) -> PartConfig:
    for key in WHOLE:
        if key in values:
            raise DataError(f"task.parts, part {number}: '{key}' holds for the whole mixture: set task.{key}")
    try:
        return validate(PartConfig, values)
    except ConfigError as error:
        raise DataError(f"task.parts, part {number}: {error}") from error


def _join(parts: dict[str, Task], *, drop: bool) -> tuple[list[Prompt], list[Prompt], list[str]]:
    """Training and held-out prompts of all parts, marked with their part; no problem twice, none on both sides."""
    heldout: dict[str, Prompt] = {}
    for label, task in parts.items():
        for prompt in task.heldout:
            heldout.setdefault(prompt.prompt_id, _marked(prompt, label))
    train: dict[str, Prompt] = {}
    notes = []
    for label, task in parts.items():
        own = list(task.train)
        for other, rest in parts.items():
            if other != label:
                own, left_out = separate(own, rest.heldout, drop=drop, where=f"the parts '{label}' and '{other}'")
                notes += left_out
        twice = [prompt for prompt in own if prompt.prompt_id in train]
        if twice:
            notes.append(f"{len(twice)} problems of the part '{label}' stand in a part before it and were left out")
        for prompt in own:
            train.setdefault(prompt.prompt_id, _marked(prompt, label))
    return list(train.values()), list(heldout.values()), notes


def _marked(prompt: Prompt, label: str) -> Prompt:
    return replace(prompt, metadata={**prompt.metadata, "task": label})


def _in_turn(prompts: Sequence[Prompt], weights: dict[str, float], seed: int) -> list[int]:
    """Each index once, the parts in proportion to their weights until one is used up."""
    members = members_of(prompts, weights)
    if not members:
        return []
    cursor = MixtureCursor(list(members.values()), [weights[label] for label in members], seed)
    left = {label: iter(indices) for label, indices in members.items()}
    order: list[int] = []
    while len(order) < len(prompts):
        label = prompts[cursor.take(1)[0]].metadata["task"]
        order += [index for index in [next(left[label], None)] if index is not None]
    return order


def _dispatch(parts: dict[str, Task], hook: str) -> Any:
    """A hook of the mixture that asks the prompt's part; None unless every part has it."""
    hooks = {label: getattr(task, hook) for label, task in parts.items()}
    if any(function is None for function in hooks.values()):
        return None

    def ask(prompt: Prompt, *arguments: Any) -> Any:
        return hooks[prompt.metadata["task"]](prompt, *arguments)

    ask.__name__ = hook
    return ask
