r"""Verifiers that compare a final answer with the gold one, for tasks that have none of their own.

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

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from surefoot.errors import RewardError
from surefoot.tasks.extraction import after_thought, boxed, tagged
from surefoot.tasks.numerals import last_numeral, read_numeral
from surefoot.types import Prompt, Score, Status


@dataclass(frozen=True)
class Verifier:
    """How a final answer is found and compared.

    Attributes:
        name: as in ``reward.verifier``.
        find: the completion -> its final answer, or None.
        same: (final answer, gold answer as text) -> whether they are the same.
        wants: what a gold answer must be, in words.
        accepts: whether a gold answer, as text, is that.
    """

    name: str
    find: Callable[[str], str | None]
    same: Callable[[str, str], bool]
    wants: str = "text or a number"
    accepts: Callable[[str], bool] = lambda gold: bool(gold.strip())

    def __call__(self, prompt: Prompt, text: str) -> Score:
        """The verdict on one completion: total 1 or 0, component "accuracy", the answer that was found as text."""
        answer = self.find(text)
        if answer is None:
            return Score(0.0, {"accuracy": 0.0}, False, Status.NO_ANSWER)
        right = self.same(answer, gold_text(prompt.answer))
        return Score(float(right), {"accuracy": float(right)}, right, Status.OK, (), answer)

    def check(self, prompts: Iterable[Prompt]) -> None:
        """Refuse gold answers that no completion could match.

        Raises:
            RewardError: names the first such problem.
        """
        for prompt in prompts:
            if prompt.answer is None:
                raise RewardError(
                    f"the problem {prompt.prompt_id} ({prompt.text[:60]!r}) has no gold answer to compare with "
                    f"(reward.verifier = '{self.name}'): add 'answer' to it, or give a reward function"
                )
            if not self.accepts(gold_text(prompt.answer)):
                raise RewardError(
                    f"the gold answer {prompt.answer!r} of the problem {prompt.prompt_id} is not {self.wants}: choose "
                    f"another reward.verifier than '{self.name}'"
                )


def gold_text(answer: Any) -> str:
    """A gold answer as text: texts as they are, everything else as JSON writes it."""
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)


def is_number(answer: Any) -> bool:
    """Whether a gold answer is a number, or a text that is one."""
    return not isinstance(answer, bool) and answer is not None and _is_number(gold_text(answer))


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


def _same_either(given: str, gold: str) -> bool:
    return same_text(given, gold) or same_number(given, gold)


def _whole(text: str) -> str | None:
    return after_thought(text).strip() or None


def _last_number(text: str) -> str | None:
    numeral = last_numeral(after_thought(text))
    return numeral.text if numeral else None


def _is_number(gold: str) -> bool:
    numeral = read_numeral(gold)
    return numeral is not None and numeral.value is not None


VERIFIERS: dict[str, Verifier] = {
    verifier.name: verifier
    for verifier in (
        Verifier("exact", _whole, same_text),
        Verifier("number", _last_number, same_number, "a number", _is_number),
        Verifier("boxed", boxed, _same_either),
        Verifier("tag", tagged, _same_either),
    )
}
