"""What every task must keep, whoever made it: prompts that can be read, and held-out ones that are never trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.errors import DataError
from surefoot.tasks.base import Task, content_id, unreadable
from surefoot.types import Prompt


def as_task(value: Any) -> Task:
    """A task made by hand, checked.

    Raises:
        DataError: no task, or one that :func:`check_task` refuses.
    """
    if not isinstance(value, Task):
        what = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
        raise DataError(f"task is {what}: give a Task, the name of a task, a data file or a mapping")
    return check_task(value)


def check_task(task: Task) -> Task:
    """The task itself, where its prompts can be used.

    Raises:
        DataError: no prompts at all, something that is no prompt, text that is no Unicode, or a prompt that is both
            trained on and held out.
    """
    parts: dict[str, Any] = {"train": task.train, "heldout": task.heldout}
    for name, prompts in parts.items():
        if not isinstance(prompts, Sequence) or isinstance(prompts, str):
            raise DataError(f"the task '{task.name}': {name} is a {type(prompts).__name__}; expected a list of Prompt")
        for number, prompt in enumerate(prompts, start=1):
            _check_prompt(f"the task '{task.name}', number {number} of {name}", prompt)
    if not task.train and not task.heldout:
        raise DataError(f"the task '{task.name}' has no training prompts and no held-out ones: give at least one")
    trained = {_content(prompt): prompt.prompt_id for prompt in task.train}
    for prompt in task.heldout:
        if (twin := trained.get(_content(prompt))) is not None:
            raise DataError(
                f"the task '{task.name}': the prompt {prompt.prompt_id} ({prompt.text[:40]!r}) is held out, and trained "
                f"on as {twin}: held-out problems must never be trained on, remove it from one of the two"
            )
    return task


def check_trainable(task: Task) -> None:
    """Refuse to train on what is for evaluation only.

    Raises:
        DataError: the task has no training prompts.
    """
    if not task.train:
        raise DataError(
            f"the task '{task.name}' has no training prompts, only {len(task.heldout)} held-out ones to evaluate on: choose "
            "another task, or name a split to train on (task.options.train)"
        )


def _content(prompt: Prompt) -> str:
    """A hash of the content alone."""
    return content_id("", prompt.content if isinstance(prompt.content, str) else [dict(m) for m in prompt.content])


def _check_prompt(place: str, prompt: Any) -> None:
    if not isinstance(prompt, Prompt):
        raise DataError(f"{place} is a {type(prompt).__name__}; expected a Prompt")
    content: Any = prompt.content
    named = f"{place} (prompt {prompt.prompt_id})"
    if isinstance(content, str):
        texts = [content]
    elif isinstance(content, Sequence) and content and all(_is_message(message) for message in content):
        texts = [message[key] for message in content for key in ("role", "content")]
    else:
        raise DataError(f"{named}: content is {str(content)[:60]!r}; expected text or a list of messages")
    if trouble := next(filter(None, map(unreadable, texts)), ""):
        raise DataError(f"{named}: {trouble}")


def _is_message(message: Any) -> bool:
    return isinstance(message, Mapping) and all(isinstance(message.get(key), str) for key in ("role", "content"))
