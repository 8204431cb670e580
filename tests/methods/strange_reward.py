"""A reward whose scores differ between processes; in a module of its own, where another process finds it."""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.rewards.base import Completion
from surefoot.types import Score


class ByHash:
    """Scores by the hash of the text, which Python salts anew in every process."""

    name = "by hash"

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        return [Score(float(hash(c.text) % 2), correct=c.text == c.prompt.answer) for c in completions]


class Steady:
    """Says the same everywhere."""

    name = "steady"

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        return [Score(float(c.text == c.prompt.answer), correct=c.text == c.prompt.answer) for c in completions]
