"""Prompts that are longer than the budget: refused, left out with a count, or without the beginning of their problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from surefoot.errors import DataError
from surefoot.tasks.base import Task
from surefoot.types import Prompt


def within_budget(task: Task, limit: int, overlong: str, length: Callable[[Prompt], int]) -> Task:
    """The task with prompts of at most ``limit`` tokens.

    Args:
        task: any.
        limit: tokens of a whole prompt, template and worked examples included.
        overlong: 'refuse', 'drop', or 'truncate': whoever renders the prompt then calls :func:`shorten`.
        length: of a prompt as it is.

    Raises:
        DataError: a longer prompt under 'refuse', or no training prompt that fits.
    """
    parts: dict[str, Sequence[Prompt]] = {"training": task.train, "held-out": task.heldout}
    kept: dict[str, tuple[Prompt, ...]] = {}
    notes = list(task.notes)
    for name, prompts in parts.items():
        long = [(prompt, tokens) for prompt in prompts if (tokens := length(prompt)) > limit]
        if long and overlong == "refuse":
            prompt, tokens = long[0]
            raise DataError(
                f"{len(long)} {name} prompts are longer than task.max_prompt_tokens = {limit} (first: {prompt.prompt_id}, "
                f"{prompt.text[:40]!r}, {tokens} tokens): raise it, or set task.overlong = 'drop' or 'truncate'"
            )
        gone = {prompt.prompt_id for prompt, _ in long} if overlong == "drop" else set()
        kept[name] = tuple(prompt for prompt in prompts if prompt.prompt_id not in gone)
        if prompts and not kept[name]:
            raise DataError(f"no {name} prompt fits into task.max_prompt_tokens = {limit}: raise it")
        if long:
            what = "were left out" if overlong == "drop" else "lose the beginning of their problem"
            notes.append(f"{len(long)} of {len(prompts)} {name} prompts are longer than {limit} tokens and {what}")
    return replace(task, train=kept["training"], heldout=kept["held-out"], notes=tuple(notes))


def shorten(prompt: Prompt, limit: int, tokenizer: Any, length: Callable[[Prompt], int]) -> Prompt:
    """The prompt without the beginning of its problem (its last message), so that it has at most ``limit`` tokens.

    What stands around the problem stays whole: the template, the system message, worked examples, earlier turns.

    Raises:
        DataError: what stands around it alone is longer.
    """
    tokens = list(tokenizer(prompt.text, add_special_tokens=False)["input_ids"])

    def last(count: int) -> Prompt:
        text = tokenizer.decode(
            tokens[len(tokens) - count :], skip_special_tokens=False, clean_up_tokenization_spaces=False
        ).lstrip("\ufffd")  # of a character that the cut went through
        if isinstance(prompt.content, str):
            return replace(prompt, content=text)
        return replace(prompt, content=(*prompt.content[:-1], {**prompt.content[-1], "content": text}))

    # Of the problem's own length what is over is taken off; tokens may join at the seam, so it can take another look.
    count = len(tokens)
    while count > 0:
        count = max(0, count - max(1, length(last(count)) - limit))
        if length(last(count)) <= limit:
            break
    if count <= 0:
        raise DataError(
            f"prompt {prompt.prompt_id} does not fit into task.max_prompt_tokens = {limit} even without its problem: raise it, "
            "or take fewer task.shots"
        )
    return last(count)
