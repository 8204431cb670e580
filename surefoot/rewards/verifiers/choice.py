"""The verifier 'choice': which one of several options a completion names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from surefoot.errors import RewardError
from surefoot.rewards.base import Completion
from surefoot.rewards.latex import spelled
from surefoot.rewards.verifiers.base import Verifier, gold_text, judged, no_answer
from surefoot.tasks.extraction import after_thought, placed_answer
from surefoot.types import Prompt, Score

_LETTERS = "ABCDEFGHIJ"
_ALONE = re.compile(r"[(\[]?\s*([A-Ja-j])\s*[)\]]?\s*[.:]?")
_LEADING = re.compile(
    r"(?:(?:option|choice|answer)\s+)?[(\[]?([A-J])(?:[)\]]\s*[.:]?|[.:](?=\s|$)|\s*[-–](?=\s)|(?=\s*[,/&;+]|\s*$|\s+(?:and|or)\b))",
    re.I,
)
_SEVERAL = re.compile(r"[(\[]?[A-J][)\].]?(?:\s*[-–\s]\s*[(\[]?[A-J][)\].]?)+")
_FURTHER = re.compile(
    r"(?:\b(?:and|or|to|also|option|choice)\b|[,/&;+–-])\s*[(\[]?([A-J])[)\]]?(?=[\s.,;:/&+)\]–-]|$)|[(\[]([A-J])[)\]]"
)
_MARKED = re.compile(
    r"[(\[]([A-J])[)\]]|\b(?:[Oo]ption|[Cc]hoice|[Aa]nswer)\s+([A-J])\b|\*\*([A-J])\*\*|\b([A-J])(?=[.)]\s|[.)]?$)"
)


@dataclass(frozen=True)
class Choice(Verifier):
    r"""The one option that the final answer names: ``B``, ``(B)``, ``B. Paris``, ``\boxed{B}``, ``Option B`` or ``Paris``.

    The options are the letters A to J, or those of the problem's metadata: ``options`` as a list of texts (A is the first)
    or as a mapping of letters to texts. The gold answer is a letter, or the text of an option. The answer is looked for in
    ``places``, and then in a completion that is nothing else, and in its last line. Naming several options is an answer,
    and wrong.

    Attributes:
        places: where the final answer is looked for first.
    """

    name: ClassVar[str] = "choice"
    about: ClassVar[str] = "the final answer names the right option of several, and no other"

    places: tuple[Literal["tag", "boxed", "hashes", "says"], ...] = ("tag", "boxed", "hashes", "says")

    def verdict(self, completion: Completion) -> Score:
        options = _options(completion.prompt)
        answer = placed_answer(completion.text, self.places)
        if answer is None:
            answer = _last_line(completion.text, self.places)
        named = _named(answer, options) if answer else []
        if not named:
            return no_answer()
        return judged(named == [_gold(completion.prompt, options)], ", ".join(named))

    def refuses(self, prompt: Prompt) -> str:
        options = _options(prompt)
        gold = _gold(prompt, options)
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


def _gold(prompt: Prompt, options: Mapping[str, str]) -> str | None:
    text = gold_text(prompt.answer)
    alone = _ALONE.fullmatch(text.strip())
    if alone:
        return alone[1].upper()
    return next((letter for letter, option in options.items() if _plain(option) == _plain(text)), None)


def _last_line(text: str, places: tuple[str, ...]) -> str | None:
    """The last line, where none of the places is there (an empty or doubled place is no answer)."""
    text = after_thought(text).strip()
    if any(mark in text for mark in ("<answer>", "</answer>", r"\boxed", "####")):
        return None
    return text.split("\n")[-1].strip() or None


def _named(answer: str, options: Mapping[str, str]) -> list[str]:
    """The letters that an answer names, each once, in order."""
    for letter, option in options.items():
        if _plain(answer) == _plain(option):
            return [letter]
    text = spelled(answer)
    if alone := _ALONE.fullmatch(text):
        return [alone[1].upper()]
    if _SEVERAL.fullmatch(text):
        return list(dict.fromkeys(re.findall("[A-J]", text)))
    leading = _LEADING.match(text)
    if leading:
        rest = text[leading.end() :]
        first = leading[1].upper()
        if _plain(rest) and _plain(rest) == _plain(options.get(first, "")):
            return [first]
        found = [first, *(a or b for a, b in _FURTHER.findall(rest))]
        found += [letter for letter, option in options.items() if _mentions(rest, option, joined=True)]
    else:
        found = [next(filter(None, groups)) for groups in _MARKED.findall(text)]
        found += [letter for letter, option in options.items() if _mentions(text, option)]
    return list(dict.fromkeys(found))


def _mentions(text: str, option: str, joined: bool = False) -> bool:
    """Whether a text has an option's text in it (behind an "or", "and" or a comma, where it must be joined)."""
    plain = _plain(option)
    before = r"(?:\bor|\band|[,/&])\s*" if joined else r"(?<!\w)"
    return bool(plain) and re.search(rf"{before}{re.escape(plain)}(?!\w)", _plain(text)) is not None


def _plain(text: str) -> str:
    return " ".join(spelled(text).casefold().split())
