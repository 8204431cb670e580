r"""What stands before a value: ``x`` of ``x = 3``, ``f(x)`` of ``f(x) = x^2``, words of ``the area is 5``; and equations."""

from __future__ import annotations

import re

from surefoot.tasks.numerals import read_numeral

_INDEX = r"(?:_(?:\{[^{}]*\}|\\?[A-Za-z0-9]+))?"
_POWER = r"(?:\^(?:\{(?:-1|\\prime|\([0-9a-z]\)|\*)\}|\*))?"
_GREEK = "alpha|beta|gamma|delta|epsilon|varepsilon|theta|lambda|mu|omega|phi|varphi|rho|sigma|tau"
_NAME = rf"(?:\\?[A-Za-z]|\\(?:{_GREEK}|Omega|Delta|angle\s*[A-Z\\a-z0-9]+)|[A-Z]{{2,}}){_INDEX}{_POWER}'*"
_LABELS = re.compile(
    rf"{_NAME}(?:\s*\([^()=<>]*\))?|\\(?:angle|triangle|measuredangle|overline|vec|overrightarrow|bar|hat|tilde)\s*\{{?[\sA-Za-z0-9_]+\}}?|"
    rf"\|[A-Za-z]+\||\\frac\{{d\^?[0-9]?[a-z]\}}\{{d[a-z]\^?[0-9]?\}}|\([A-Za-z](?:_[0-9])?(?:\s*,\s*[A-Za-z](?:_[0-9])?)+\)|[A-Za-z]+(?:\s+[A-Za-z]+)*(?<=[A-Za-z]{{3}})|[^\x00-\x7f]+|"
    rf"\\(?:sin|cos|tan|cot|sec|csc)\s*\(?\\?[A-Za-z]+\)?|{_NAME}(?::{_NAME})+|\\?[A-Za-z]+(?:_\{{?[A-Za-z0-9]+\}}?)?'*"
)
_PRODUCT = re.compile(r"[a-z]{2}|[a-z]+(?![a-z]{2})[a-z]")
_SAID = re.compile(
    r"(?P<label>[A-Za-z]+(?:\s+[A-Za-z]+)*)\s+(?:is|are|equals)\s*:?\s+(?!not\b)(?P<value>\S.*)|(?P<before>[^\W\d_a-zA-Z]+)(?:是|为)(?!非)(?P<after>[^\s].*)"
)
_MEMBER = re.compile(rf"(?P<label>{_NAME})\s*(?:\\in(?![A-Za-z])|\\equiv(?![A-Za-z]))\s*(?P<value>.+)")
_EQUALS = re.compile(r"(?<![<>!\\:])=(?!=)")
_RELATED = re.compile(r"\\le(?![A-Za-z])|\\ge(?![A-Za-z])|<|>|=")
_FUNCTION = re.compile(r"(?P<name>[A-Za-z]\w?)\s*\([^()]*\)")
_LETTER = re.compile(rf"\\(?:{_GREEK})(?![A-Za-z])|(?<![A-Za-z\\])(?!(?:[ei])(?![A-Za-z]))[A-Za-z]+")


def assignment(text: str) -> tuple[str, str, str]:
    r"""The value, what it was assigned to, and the equation where there is one with letters.

    >>> assignment("x = 3"), assignment(r"AB = 5"), assignment("x + y = 5")
    (('3', 'x', ''), ('5', 'AB', ''), ('x + y = 5', '', 'x + y = 5'))
    """
    if said := _SAID.fullmatch(text):
        value, label, relation = assignment((said["value"] or said["after"]).strip())
        return value, label or said["label"] or said["before"], relation
    if member := _MEMBER.fullmatch(text):
        return member["value"].strip(), member["label"], ""
    sides = [side.strip() for side in _EQUALS.split(text)]
    if len(sides) < 2 or not all(sides) or re.search(r"[<>]|\\(?:le|ge|ne)(?![A-Za-z])", text):
        return text, "", relation_of(text)
    numbers = [read_numeral(side) for side in sides]
    if len(sides) == 2 and all(numbers) and numbers[0].value != numbers[1].value:  # type: ignore[union-attr]
        return text, "", ""
    whole = " = ".join((sides[0], sides[-1]))
    if _is_label(sides[0]):
        return sides[-1], "".join(sides[0].split()), whole if has_letters(sides[-1]) else ""
    if len(sides) == 2 and _is_label(sides[1]) and not has_letters(sides[0]):
        return sides[0], sides[1], ""
    if not has_letters(sides[0] + sides[-1]):  # a sum that was written out
        return sides[-1], "", ""
    return text, "", whole if len(sides) == 2 else text


def relation_of(text: str) -> str:
    """The text where it is an inequality of expressions with letters, else ""."""
    return text if len(_RELATED.findall(text)) == 1 and has_letters(text) else ""


def has_letters(text: str) -> bool:
    r"""Whether letters stand in it that are no constants: not e, i and \pi."""
    return bool(_LETTER.search(text))


def clash(one: str, other: str) -> bool:
    """Whether two labels name different things: ``x`` and ``y`` do, ``y`` and ``f(x)`` do not."""
    if not one or not other or one == other:
        return False
    first, second = _FUNCTION.fullmatch(one), _FUNCTION.fullmatch(other)
    if first and second:
        return True
    if first or second:
        function, plain = (first, other) if first else (second, one)
        return plain not in ("y", function["name"])  # type: ignore[index]
    words = [
        len(re.sub("[^A-Za-z]", "", label)) > 3 or not label.isascii() for label in (one, other) if "\\" not in label
    ]
    return len(words) < 2 or words[0] == words[1]


def _is_label(text: str) -> bool:
    return bool(_LABELS.fullmatch(text)) and not _PRODUCT.fullmatch(text)
