r"""Verifiers that look for one final answer in one place and compare it with the gold one.

=========  ==========================================  ==============================================================
name       where the final answer is                   right where
=========  ==========================================  ==============================================================
exact      the whole completion                        the texts are equal but for white space
number     the last number                             the values are equal, exactly: 1,234 is 1234.0, 0.75 is 3/4,
                                                       0.333 is not 1/3
boxed      the last ``\boxed{...}``, braces balanced   the texts are equal but for white space, or both are numbers
                                                       of one value
tag        ``<answer>...</answer>``, exactly one       as for boxed
=========  ==========================================  ==============================================================

A completion without a final answer is ``Status.NO_ANSWER``. Only one place counts, so listing candidates is worth no
more than naming the last of them. A number that is too large or none (``1e999999``, ``3/0``) is an answer, and wrong.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from surefoot.errors import RewardError
from surefoot.rewards.base import Completion
from surefoot.rewards.verifiers.base import Verifier, gold_text, judged, no_answer
from surefoot.tasks.extraction import after_thought, boxed, tagged
from surefoot.tasks.gold import GoldError, accepted
from surefoot.tasks.numerals import last_numeral, read_numeral
from surefoot.types import Prompt, Score


@dataclass(frozen=True)
class Exact(Verifier):
    """The whole completion, after its thoughts, is the gold answer.

    Attributes:
        case: whether upper and lower case differ.
        punctuation: whether punctuation counts; without it, it is taken out of both texts.
        strip: characters that may stand around the answer, besides white space.
    """

    name: ClassVar[str] = "exact"
    about: ClassVar[str] = "the whole completion is the gold answer, but for white space"

    case: bool = True
    punctuation: bool = True
    strip: str = ""

    def verdict(self, completion: Completion) -> Score:
        text = after_thought(completion.text).strip()
        if not text:
            return no_answer()
        return judged(self._plain(text) == self._plain(gold_text(completion.prompt.answer)), text)

    def refuses(self, prompt: Prompt) -> str:
        return "" if self._plain(gold_text(prompt.answer)) else "is not text or a number"

    def _plain(self, text: str) -> list[str]:
        text = _stripped(text, self.strip)
        if not self.case:
            text = text.casefold()
        if not self.punctuation:
            text = "".join(c for c in text if not unicodedata.category(c).startswith("P"))
        return text.split()


@dataclass(frozen=True)
class Number(Verifier):
    """The last number of the completion has the value of the gold answer.

    It is right where ``|given - gold| <= max(absolute, relative * |gold|)``, computed without rounding.

    Attributes:
        absolute: absolute tolerance.
        relative: relative tolerance, a share of the gold value's size.
    """

    name: ClassVar[str] = "number"
    about: ClassVar[str] = "the last number has the gold answer's value"

    absolute: float = 0.0
    relative: float = 0.0

    def __post_init__(self) -> None:
        for option in ("absolute", "relative"):
            if not 0 <= getattr(self, option) < float("inf"):
                raise RewardError(
                    f"the option {option} = {getattr(self, option)} of the verifier 'number': a tolerance is finite and "
                    f"not negative"
                )

    def verdict(self, completion: Completion) -> Score:
        numeral = last_numeral(after_thought(completion.text))
        if numeral is None:
            return no_answer()
        gold = read_numeral(gold_text(completion.prompt.answer))
        if numeral.value is None or gold is None or gold.value is None:
            return judged(False, numeral.text)
        # Decimals as they are written: 0.1 is a tenth here, not the double next to it.
        absolute, relative = Fraction(str(self.absolute)), Fraction(str(self.relative))
        near = abs(numeral.value - gold.value) <= max(absolute, relative * abs(gold.value))
        return judged(near, numeral.text)

    def refuses(self, prompt: Prompt) -> str:
        return "" if _is_number(gold_text(prompt.answer)) else "is not a number"


@dataclass(frozen=True)
class Boxed(Verifier):
    r"""What stands in the last ``\boxed{...}`` is the gold answer, as text or as a number."""

    name: ClassVar[str] = "boxed"
    about: ClassVar[str] = r"the last \boxed{...} is the gold answer, as text or as a number"

    def verdict(self, completion: Completion) -> Score:
        return _compared(boxed(completion.text), completion.prompt)

    def refuses(self, prompt: Prompt) -> str:
        return "" if gold_text(prompt.answer).strip() else "is not text or a number"


@dataclass(frozen=True)
class Tag(Verifier):
    """What stands in the one ``<answer>...</answer>`` is the gold answer, as text or as a number."""

    name: ClassVar[str] = "tag"
    about: ClassVar[str] = "the one <answer>...</answer> is the gold answer, as text or as a number"

    def verdict(self, completion: Completion) -> Score:
        return _compared(tagged(completion.text), completion.prompt)

    def refuses(self, prompt: Prompt) -> str:
        return "" if gold_text(prompt.answer).strip() else "is not text or a number"


def is_number(answer: Any) -> bool:
    """Whether a gold answer is a number, or a text that is one, or a list of such."""
    try:
        return all(_is_number(text) for text in accepted(answer))
    except GoldError:
        return False


def same_text(given: str, gold: str) -> bool:
    """Equal but for white space.

    >>> same_text(" a  b", "a b "), same_text("ab", "a b")
    (True, False)
    """
    return given.split() == gold.split()


def same_number(given: str, gold: str) -> bool:
    """Whether both texts are numbers, of one value.

    >>> same_number("+1,234.50", "2469/2"), same_number("12 apples", "12")
    (True, False)
    """
    left, right = read_numeral(given), read_numeral(gold)
    return left is not None and right is not None and left.value is not None and left.value == right.value


def _compared(answer: str | None, prompt: Prompt) -> Score:
    if answer is None:
        return no_answer()
    gold = gold_text(prompt.answer)
    return judged(same_text(answer, gold) or same_number(answer, gold), answer)


def _is_number(gold: str) -> bool:
    numeral = read_numeral(gold)
    return numeral is not None and numeral.value is not None


def _stripped(text: str, around: str) -> str:
    """Without white space and these characters at both ends, in whatever order they stand."""
    bare = None
    while bare != text:
        bare, text = text, text.strip().strip(around)
    return text
