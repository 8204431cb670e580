"""The Reward protocol: completions in, scores out, in the same order. A reward sees no tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from surefoot.types import Finish, Prompt, Score


@dataclass(frozen=True)
class Completion:
    """What a reward sees of a sample: the text of its completion (special tokens left out), and why it ended.

    Attributes:
        prompt: the problem, with its gold answer.
        text: what the policy wrote, with the phrase that was forced on it where its thinking was ended; no tool output.
        finish: why the completion ended.
        length: number of policy tokens.
        opens: the tag that the prompt ends with (``<think>``), where the completion begins inside a thought. The policy
            did not write it; a verifier reads it before the text, or it could not tell an unfinished thought from an answer.
    """

    prompt: Prompt
    text: str
    finish: Finish = Finish.STOP
    length: int = 0
    opens: str = ""


class Reward(Protocol):
    """What every reward does."""

    @property
    def name(self) -> str:
        """What messages and metrics call it."""

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        """One score per completion, in order; a completion that cannot be graded gets a status, not a zero."""
