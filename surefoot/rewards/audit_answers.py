"""What a person would write for a gold answer: the audit's own reading of the raw row.

An audit that took its right answers from the code of the verifiers would agree with whatever they misread. So nothing here
imports what verifiers read gold answers or completions with, and the rules are few: a text is itself, each entry of a list is
an answer, a number is its digits, a date its ISO form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Any

from surefoot.types import Prompt

_PLAIN_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+|/\d+)?(?!\.?\d|\w)")


@dataclass(frozen=True)
class Answers:
    """The right answers of a prompt.

    Attributes:
        accepted: for each accepted answer the ways to write it, one of which must do; the first is the usual one.
        data: the gold answer as JSON in an unusual spelling, where it is data: a reward that reads data takes it, one that
            compares texts does not. "" where the answer is a plain value.
    """

    accepted: tuple[tuple[str, ...], ...] = ()
    data: str = ""


def answers_of(prompt: Prompt) -> Answers:
    """What is right for a prompt, as a person reads its row; nothing where that is unknown."""
    gold = prompt.answer
    if hasattr(gold, "tolist"):  # an array, or a scalar of NumPy
        gold = _shortest(gold)
    if isinstance(gold, Mapping):
        return Answers(((_as_json(gold),),) if gold else ())
    if isinstance(gold, (list, tuple, set, frozenset)):
        entries = sorted(gold, key=str) if isinstance(gold, (set, frozenset)) else gold
        return Answers(tuple(filter(None, map(_ways, entries))), _disguised(list(entries)))
    return Answers(tuple(filter(None, [_ways(gold)])))


def gold_of(prompt: Prompt) -> str:
    """The gold answer as a person writes it, the first of several; "" where there is none."""
    known = answers_of(prompt).accepted
    return known[0][0] if known else ""


def is_gold(text: str, prompt: Prompt) -> bool:
    """Whether a text is one of the right answers of a prompt."""
    return any(text in ways for ways in answers_of(prompt).accepted)


def value_of(text: str) -> Fraction | None:
    """The number that a text plainly is.

    >>> value_of("1,200"), value_of("3/4"), value_of("x")
    (Fraction(1200, 1), Fraction(3, 4), None)
    """
    text = text.strip()
    if not _PLAIN_NUMBER.fullmatch(text):
        return None
    try:
        return Fraction(text.replace(",", ""))
    except (ValueError, ZeroDivisionError):
        return None


def values_in(text: str) -> set[Fraction]:
    """The numbers that plainly stand in a text."""
    return {value for found in _PLAIN_NUMBER.findall(text) if (value := value_of(found)) is not None}


def _ways(value: Any) -> tuple[str, ...]:
    """The ways to write one answer; none where a person would not know how."""
    if hasattr(value, "tolist"):
        value = _shortest(value)
    if isinstance(value, str):
        return (value,) if value.strip() else ()
    if isinstance(value, bytes):
        return (value.decode(errors="ignore"),)
    if isinstance(value, bool):
        return (str(value).lower(), str(value))
    if isinstance(value, (int, float, Decimal)):
        try:
            return _number(Decimal(str(value)))
        except ValueError:  # more digits than Python writes
            return ()
    if isinstance(value, datetime):
        day, clock = value.date().isoformat(), value.time().isoformat()
        return ((day,) if value.time() == time() else ()) + (f"{day} {clock}", f"{day}T{clock}", value.isoformat())
    if isinstance(value, (date, time)):
        return (value.isoformat(),)
    return ()


def _number(value: Decimal) -> tuple[str, ...]:
    """Digits without zeros that say nothing; a very large or small number may have an exponent."""
    if not value.is_finite():
        return ()
    if not value:
        return ("0",)
    _, digits, exponent = value.normalize().as_tuple()
    assert isinstance(exponent, int)
    figures = "".join(map(str, digits))
    sign = "-" if value < 0 else ""
    short = f"{sign}{figures[0]}{'.' if figures[1:] else ''}{figures[1:]}e{exponent + len(figures) - 1}"
    if not -30 < exponent <= 30:
        return (short,)
    if exponent >= 0:
        plain = figures + "0" * exponent
    else:
        padded = figures.rjust(1 - exponent, "0")
        plain = f"{padded[:exponent]}.{padded[exponent:]}"
    return (sign + plain,) if -7 < exponent + len(figures) < 16 else (sign + plain, short)


def _shortest(value: Any) -> Any:
    """An array as a list, a scalar as Python has it; a float by its own digits."""
    if getattr(value, "ndim", 0):
        return [_shortest(one) for one in value]
    plain = value.tolist()
    return Decimal(str(value)) if isinstance(plain, float) else plain


def _as_json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, default=lambda value: next(iter(_ways(value)), str(value)))


def _disguised(data: Any) -> str:
    """JSON with every character of a text escaped and every whole number written with an exponent."""
    if isinstance(data, str):
        units = data.encode("utf-16-be", "surrogatepass").hex()
        return '"' + "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4)) + '"'
    if isinstance(data, (list, tuple)):
        return f"[ {' , '.join(map(_disguised, data))} ]"
    if isinstance(data, Mapping):
        return "{ " + " , ".join(f"{_disguised(str(key))} : {_disguised(one)}" for key, one in data.items()) + " }"
    return f"{data}e0" if isinstance(data, int) and not isinstance(data, bool) else _as_json(data)
