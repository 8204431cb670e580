"""What an audit says of the problems alone: gold answers that stand in the prompt, and copies of problems."""

from __future__ import annotations

import re
from collections.abc import Sequence

from surefoot.rewards.audit_answers import gold_of
from surefoot.rewards.audit_findings import Example, Finding, counted
from surefoot.tasks.base import Task
from surefoot.tasks.overlap import problem_key, problem_text
from surefoot.types import Prompt

LEAK = 0.25
"""Share of prompts with their own gold answer in them, beyond the share with another prompt's, that is worth a look."""
_CHOICE = re.compile(r"[A-Ja-j]")


def answers_in_prompts(prompts: Sequence[Prompt], texts: Sequence[str] | None = None) -> Finding:
    """Does what the model reads hold the gold answer, as a word of its own? Multiple choice, which must, is left out.

    The share is compared with that of prompts that hold the gold answer of the next prompt, which is what short answers
    come to by themselves.

    Args:
        prompts: the problems.
        texts: what the model reads of each; the problem's messages where None.
    """
    read = texts if texts is not None else [_everything(prompt) for prompt in prompts]
    open_ = [
        (prompt, text)
        for prompt, text in zip(prompts, read, strict=True)
        if gold_of(prompt).strip()
        and "options" not in prompt.metadata
        and not _CHOICE.fullmatch(gold_of(prompt).strip())
    ]
    if not open_:
        return Finding("answer in prompt", "info", "no prompt has a gold answer that could stand in it")
    holds = [(prompt, text) for prompt, text in open_ if _holds(text, gold_of(prompt))]
    turned = [prompt for prompt, _ in [*open_[1:], open_[0]]]
    strange = sum(_holds(text, gold_of(other)) for (_, text), other in zip(open_, turned, strict=True))
    numbers = {"prompts": len(open_), "own": len(holds), "other": strange}
    if not holds:
        return Finding("answer in prompt", "ok", f"none of {len(open_)} prompts holds its gold answer", (), numbers)
    text = f"{counted(len(holds), open_)} hold their own gold answer, and {strange} that of another prompt"
    shown = tuple(Example(prompt.prompt_id, gold_of(prompt), text) for prompt, text in holds[:5])
    if len(holds) - strange > LEAK * len(open_):
        return Finding(
            "answer in prompt", "warn", f"{text}: repeating a part of the prompt may be enough", shown, numbers
        )
    return Finding("answer in prompt", "info", text, shown, numbers)


def copies(task: Task, most: int | None = None) -> Finding:
    """Problems that are held out and trained on, that stand twice, or twice with different gold answers.

    Args:
        task: its problems.
        most: how many of each part are compared; None for all.
    """
    train, heldout = list(task.train[:most]), list(task.heldout[:most])
    first: dict[str, Prompt] = {}
    twice: list[Prompt] = []
    contradict: list[Prompt] = []
    for prompt in train:
        known = first.setdefault(problem_key(prompt), prompt)
        if known is not prompt:
            (twice if gold_of(known) == gold_of(prompt) else contradict).append(prompt)
    both = [
        prompt for prompt in heldout if (key := problem_key(prompt)) in first and gold_of(first[key]) == gold_of(prompt)
    ]
    numbers = {"train": len(train), "heldout": len(heldout), "both": len(both), "twice": len(twice)}
    numbers["contradict"] = len(contradict)
    shown = tuple(Example(p.prompt_id, gold_of(p), problem_text(p)) for p in [*both, *contradict, *twice][:5])
    parts = [
        f"{counted(len(both), heldout, 'held-out problems')} are trained on too" if both else "",
        f"{counted(len(contradict), train, 'training problems')} stand twice with different gold answers"
        if contradict
        else "",
        f"{counted(len(twice), train, 'training problems')} stand twice" if twice else "",
    ]
    if text := "; ".join(filter(None, parts)):
        return Finding("copies", "fail" if both else "warn" if contradict else "info", text, shown, numbers)
    return Finding(
        "copies", "ok", f"no copies among {len(train)} training and {len(heldout)} held-out problems", (), numbers
    )


def _everything(prompt: Prompt) -> str:
    if isinstance(prompt.content, str):
        return prompt.content
    return "\n".join(message["content"] for message in prompt.content)


def _holds(text: str, gold: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(gold.strip().casefold())}(?![\w]|\.\d)", text.casefold()) is not None
