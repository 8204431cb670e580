"""Verifiers of manner, which look at how a completion is written and never at whether it is right.

Each gives its value as the total and as a component, ``Score.correct`` is None, and no gold answer is needed.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import ClassVar, Literal

from surefoot.rewards.base import Completion
from surefoot.rewards.verifiers.base import Verifier, measured, outside
from surefoot.types import Score

_TAG_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
# Scripts that are written without spaces count by character.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+|[^\w\s]")


@dataclass(frozen=True)
class Format(Verifier):
    """1 where the completion is ``<think>...</think><answer>...</answer>``: each tag exactly once, in order, not nested.

    Attributes:
        tags: the names of the tags, in order.
        strict: whether nothing but white space may stand outside of them.
        opened: whether the prompt ends with the first opening tag, so that the completion must not have it. Where the
            prompt's template is known to open a thought, that is so without being said.
        empty: whether a tag may hold nothing.
    """

    name: ClassVar[str] = "format"
    about: ClassVar[str] = "think and answer tags exactly once, in order, with nothing outside"
    manner: ClassVar[bool] = True

    tags: tuple[str, ...] = ("think", "answer")
    strict: bool = True
    opened: bool = False
    empty: bool = False

    def __post_init__(self) -> None:
        if not self.tags or len(set(self.tags)) < len(self.tags) or not all(map(_TAG_NAME.fullmatch, self.tags)):
            raise outside("format", f"tags = {list(self.tags)}", "different names of letters, digits, - and _")

    def wants_gold(self) -> bool:
        return False

    def verdict(self, completion: Completion) -> Score:
        opens = completion.opens or (f"<{self.tags[0]}>" if self.opened else "")
        return measured("well_formed", float(self._fits(opens + completion.text)))

    def _fits(self, text: str) -> bool:
        marks = [mark for tag in self.tags for mark in (f"<{tag}>", f"</{tag}>")]
        if any(text.count(mark) != 1 for mark in marks):
            return False
        pieces, rest = [], text
        for mark in marks:
            before, found, rest = rest.partition(mark)
            if not found:  # it stands earlier: out of order
                return False
            pieces.append(before)
        inside, outside_pieces = pieces[1::2], [*pieces[0::2], rest]
        if not self.empty and not all(piece.strip() for piece in inside):
            return False
        return not self.strict or not any(piece.strip() for piece in outside_pieces)


@dataclass(frozen=True)
class Length(Verifier):
    """A penalty on length: 0 up to the budget, falling to -1 over ``span`` more.

    Attributes:
        budget: length that costs nothing.
        span: length over which the penalty grows from 0 to -1.
        unit: "tokens" that the policy wrote, or "characters".
    """

    name: ClassVar[str] = "length"
    about: ClassVar[str] = "0 up to a budget, falling to -1 beyond it"
    manner: ClassVar[bool] = True

    budget: int = 1024
    span: int = 1024
    unit: Literal["tokens", "characters"] = "tokens"

    def __post_init__(self) -> None:
        if self.budget < 0 or self.span < 1:
            raise outside("length", f"budget = {self.budget}, span = {self.span}", "a budget from 0 and a span from 1")

    def wants_gold(self) -> bool:
        return False

    def verdict(self, completion: Completion) -> Score:
        length = completion.length if self.unit == "tokens" else len(completion.text)
        return measured("length", -min(1.0, max(0.0, (length - self.budget) / self.span)) or 0.0)


@dataclass(frozen=True)
class Repetition(Verifier):
    """A penalty on repetition, from 0 to -1.

    With ``measure = "ngrams"`` the share is that of runs of ``size`` words which occurred before. With "compression"
    it is ``1 - ratio / natural``, where ratio is the size that zlib makes of the text (plain prose stays above 0.3).
    The penalty is ``-(share - allowed) / (1 - allowed)``, at most 0.

    Attributes:
        measure: how repetition is measured.
        size: words of a run; characters of scripts without spaces, and marks, are words of their own.
        allowed: share that costs nothing.
        natural: ratio of compression that counts as free of repetition.
    """

    name: ClassVar[str] = "repetition"
    about: ClassVar[str] = "0 without repetition, falling to -1"
    manner: ClassVar[bool] = True

    measure: Literal["ngrams", "compression"] = "ngrams"
    size: int = 4
    allowed: float = 0.0
    natural: float = 0.3

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 <= self.allowed < 1 or not 0 < self.natural <= 1:
            raise outside(
                "repetition",
                f"size = {self.size}, allowed = {self.allowed}, natural = {self.natural}",
                "a size from 1, allowed in [0, 1) and natural in (0, 1]",
            )

    def wants_gold(self) -> bool:
        return False

    def verdict(self, completion: Completion) -> Score:
        share = self._runs(completion.text) if self.measure == "ngrams" else self._packed(completion.text)
        return measured("repetition", -max(0.0, share - self.allowed) / (1 - self.allowed) or 0.0)

    def _runs(self, text: str) -> float:
        words = _WORD.findall(text.casefold())
        runs = [tuple(words[k : k + self.size]) for k in range(len(words) - self.size + 1)]
        return 1 - len(set(runs)) / len(runs) if runs else 0.0

    def _packed(self, text: str) -> float:
        raw = text.encode(errors="replace")
        return max(0.0, 1 - len(zlib.compress(raw, 6)) / len(raw) / self.natural) if raw else 0.0
