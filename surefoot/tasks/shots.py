"""Worked examples before every prompt: the same for all, so that an engine reads them once, and never held-out ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from surefoot.errors import DataError
from surefoot.seeds import generator
from surefoot.tasks.base import Task
from surefoot.tasks.columns import Columns
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.file import read_rows
from surefoot.tasks.gold import GoldError, accepted, shown
from surefoot.tasks.overlap import problem_key
from surefoot.types import Prompt


def with_shots(task: Task, config: TaskConfig) -> Task:
    """The task with ``config.shots`` worked examples, chosen by ``config.seed`` among its training problems or those of
    ``config.shots_path``.

    A problem that is shown with its solution is trained on no more, since its own prompt would hold its answer.

    Raises:
        DataError: too few examples, or one of the file that is held out.
    """
    if config.shots_path is not None:
        candidates = _from_file(task, config)
    else:
        candidates = [prompt for prompt in task.train if isinstance(prompt.content, str)]
        if task.demonstrate is None and task.gold is None:
            candidates = [prompt for prompt in candidates if _own(prompt)]
    if len(candidates) < config.shots:
        raise DataError(
            f"task.shots = {config.shots}, but there are {len(candidates)} examples with a solution or an answer"
            + (f" in {config.shots_path}" if config.shots_path is not None else " among the training problems")
            + ": lower it, or give task.shots_path"
        )
    order = generator("shots", config.seed).permutation(len(candidates))
    chosen = [candidates[index] for index in order[: config.shots]]
    own = config.shots_path is None
    shown = {problem_key(prompt) for prompt in chosen}
    train = tuple(prompt for prompt in task.train if problem_key(prompt) not in shown)
    if not train and task.train:
        raise DataError(f"task.shots = {config.shots} leaves no problem to train on: lower it, or give task.shots_path")
    notes = task.notes
    if len(train) < len(task.train):
        notes = (
            *notes,
            f"{len(task.train) - len(train)} training problems are worked examples, and are not trained on",
        )
    return replace(
        task, train=train, notes=notes, shots=tuple((prompt, _solution(task, prompt, own)) for prompt in chosen)
    )


def _from_file(task: Task, config: TaskConfig) -> list[Prompt]:
    rows = read_rows(Path(str(config.shots_path)), "task.shots_path", Columns())
    heldout = {problem_key(prompt) for prompt in task.heldout}
    candidates = [prompt for prompt in rows.prompts.values() if _own(prompt) and isinstance(prompt.content, str)]
    for prompt in candidates:
        if problem_key(prompt) in heldout:
            raise DataError(
                f"{config.shots_path}: the example {prompt.text[:60]!r} is a held-out problem, whose solution must not be "
                "shown: remove it"
            )
    return candidates


def _own(prompt: Prompt) -> bool:
    return "completion" in prompt.metadata or prompt.answer is not None


def _solution(task: Task, prompt: Prompt, own: bool) -> str:
    """A worked solution, or else the gold answer as the task wants it written."""
    if "completion" in prompt.metadata:
        return str(prompt.metadata["completion"])
    if own and task.demonstrate is not None:
        return task.demonstrate(prompt, 0, 0.0)
    if own and task.gold is not None:
        return task.gold(prompt)
    try:
        return accepted(prompt.answer)[0]
    except GoldError:
        return shown(prompt.answer)
