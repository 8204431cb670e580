"""The Task protocol: training and held-out prompts, how answers are judged, and texts to audit that with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from surefoot.types import Prompt, Score


@dataclass(frozen=True)
class Task:
    """Prompts to train on, prompts never trained on, and how to judge an answer.

    Attributes:
        name: as in the configuration.
        train: training prompts.
        heldout: held-out prompts, disjoint from ``train`` by content.
        verify: ``(prompt, completion text) -> Score``, the task's own verifier; None where the reward section decides.
        demonstrate: ``(prompt, seed, error_rate) -> completion text``, a worked solution, wrong with the given
            probability, for supervised warm-up; None where the task has none.
        fingerprint: hash of all prompts, answers and metadata; a resume with another data set is refused.
        notes: what a person should know about how the problems were read (rows left out), to be shown once.
        verifier: name of the verifier that judges answers where ``verify`` is None and ``[reward]`` names none; 'auto'
            looks at the gold answers.
        gold: ``prompt -> completion text`` that gives the gold answer in the form that ``verify`` wants; None where the
            verifier knows how.
        paraphrases: ``prompt -> completion texts`` that give the right answer in other words, and must be right.
        wrong: ``prompt -> completion texts`` that must not be right, whatever they hold of a right answer.
        parts: the tasks of a mixture by their label, which is ``metadata["task"]`` of their prompts.
        weights: of a mixture's parts, by label; they add up to 1.
        shots: worked examples that stand before every prompt: (problem, completion text).
    """

    name: str
    train: Sequence[Prompt]
    heldout: Sequence[Prompt]
    verify: Callable[[Prompt, str], Score] | None = None
    demonstrate: Callable[[Prompt, int, float], str] | None = None
    fingerprint: str = ""
    notes: tuple[str, ...] = ()
    verifier: str = "auto"
    gold: Callable[[Prompt], str] | None = None
    paraphrases: Callable[[Prompt], Sequence[str]] | None = None
    wrong: Callable[[Prompt], Sequence[str]] | None = None
    parts: Mapping[str, Task] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    shots: tuple[tuple[Prompt, str], ...] = ()

    def of(self, prompt: Prompt) -> Task:
        """The part of a mixture that a prompt belongs to; the task itself where it is none."""
        return self.parts[prompt.metadata["task"]] if self.parts else self


def unreadable(text: str) -> str:
    """What keeps a text from being written as UTF-8, or "" where nothing does.

    >>> unreadable("a"), unreadable("a\\ud800b")
    ('', "'a\\\\ud800b' holds half of a surrogate pair, which is no character: remove it")
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        around = text[max(0, error.start - 20) : error.end + 20]
        return f"{around!r} holds half of a surrogate pair, which is no character: remove it"
    return ""


def content_id(name: str, content: Any) -> str:
    """Stable name of a prompt: a hash of the task's name and the content, the same on every machine and for ever."""
    text = json.dumps([name, content], ensure_ascii=False, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def is_heldout(prompt_id: str, share: float) -> bool:
    """Whether the hash puts this prompt into the held-out part; depends on nothing but the prompt itself."""
    return int(prompt_id, 16) / 16 ** len(prompt_id) < share
