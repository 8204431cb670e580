"""The verifier 'choice': which one of several options a completion names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from surefoot.errors import RewardError
from surefoot.rewards.base import Completion
from surefoot.rewards.options import LONGEST, THEREFORE, begun_with, letter_of, named_in
from surefoot.rewards.verifiers.base import Verifier, gold_text, judged, no_answer
from surefoot.tasks.extraction import after_thought, has_place, placed_answer
from surefoot.tasks.statements import MARK, statements
from surefoot.types import Prompt, Score

_LETTERS = "ABCDEFGHIJ"
_LINES = 200
_CLEAR = ("tag", "boxed", "hashes")


@dataclass(frozen=True)
class Choice(Verifier):
    r"""The one option that the final answer names: ``B``, ``(B)``, ``B. Paris``, ``\boxed{B}``, ``Option B`` or ``Paris``.

    The options are the letters A to J, or those of the problem's metadata: ``options`` as a list of texts (A is the first)
    or as a mapping of letters to texts. The gold answer is a letter, or the text of an option. The answer is looked for in
    ``places``, then in the one line that is an option, unless a conclusion follows, and then in the last line. Naming
    several options is an answer, and wrong; an option that is denied ("not B", "B is wrong", 排除B) is not named.

    Attributes:
        places: where the final answer is looked for first.
    """

    name: ClassVar[str] = "choice"
    about: ClassVar[str] = "the final answer names the right option of several, and no other"

    places: tuple[Literal["tag", "boxed", "hashes", "says"], ...] = ("tag", "boxed", "hashes", "says")

    def verdict(self, completion: Completion) -> Score:
        options = _options(completion.prompt)
        named = self._named(completion.text, options)
        return (
            judged(named == (letter_of(gold_text(completion.prompt.answer), options),), ", ".join(named))
            if named
            else no_answer()
        )

    def _named(self, text: str, options: Mapping[str, str]) -> tuple[str, ...]:
        """The letters that the final answer names."""
        if has_place(text, _CLEAR):
            return named_in(
                placed_answer(text, [place for place in self.places if place in _CLEAR]) or "", options
            ).named
        text = after_thought(text).strip()
        denied: set[str] = set()
        for statement in statements(text) if "says" in self.places else ():
            found = named_in(statement, options)
            if found.named:
                return tuple(letter for letter in found.named if letter not in denied)
            if not found.denied:
                break
            denied |= found.denied
        last = text[text.rfind("\n") + 1 :].strip()
        if denied or ("says" in self.places and MARK.search(last)):
            return ()
        only = _only_line(text, options)
        if only and not THEREFORE.search(last):
            return only
        return named_in(last[-LONGEST:], options).named or only

    def refuses(self, prompt: Prompt) -> str:
        options = _options(prompt)
        gold = letter_of(gold_text(prompt.answer), options)
        if gold is None:
            return "is neither the letter nor the text of one of the options"
        return "" if not options or gold in options else f"is not one of the options {', '.join(options)}"


def _options(prompt: Prompt) -> dict[str, str]:
    """Letters and texts of a problem's options; empty where the metadata has none."""
    given = prompt.metadata.get("options")
    if not given:
        return {}
    if isinstance(given, Mapping):
        return {str(letter).strip().upper(): str(text) for letter, text in given.items()}
    if isinstance(given, (str, bytes)) or len(given) > len(_LETTERS):
        raise RewardError(
            f"the problem {prompt.prompt_id} has the options {str(given)[:60]!r}: expected a list of at most "
            f"{len(_LETTERS)} texts, or a mapping of letters to texts"
        )
    return {letter: str(text) for letter, text in zip(_LETTERS, given, strict=False)}


def _only_line(text: str, options: Mapping[str, str]) -> tuple[str, ...]:
    """The option that one line of a few words begins with or is, where no other line does that."""
    found = {letters for line in text.split("\n")[:_LINES] if (letters := begun_with(line, options))}
    return found.pop() if len(found) == 1 else ()
