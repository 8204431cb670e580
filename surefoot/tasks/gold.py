"""What the answer of a row says: the texts that are right.

=====================================  ===================================================================================
an answer that is                      is right as
=====================================  ===================================================================================
text                                   that text, whatever is in it: ``(1, 2)`` and ``[1, 2]`` are one text each
a list (tuple, set, array)             any of its entries: they are accepted answers, and their order says nothing
a whole number                         its digits
another number, a decimal of a table   its shortest digits (``5`` for 5.0 and for the decimal 5.00), as the row has them
                                       (``5.00``) and as Python writes them (``1e+22``)
true, false                            ``true`` or ``True``, ``false`` or ``False``
a date, a time                         ISO 8601, between date and time a ``T`` or a blank; without seconds where they are 0,
                                       and as the date alone where the time is midnight (tables keep dates so)
bytes                                  the text that they are in UTF-8
=====================================  ===================================================================================

Nothing else is an answer: an empty list, a list in a list, null or NaN, infinity, an object, a duration, bytes that are no
text. The verifier 'json' takes data instead, and reward functions take whatever the row has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np

from surefoot.tasks.base import unreadable

LONG = 21
"""Powers of ten from which a number is shown with an exponent."""
MOST_DIGITS = 400
"""Powers of ten beyond which a number is not written without one."""


class GoldError(ValueError):
    """A value that cannot be a gold answer; the message is the end of a sentence about it."""


def accepted(answer: Any, literal: Callable[[str], str] = str) -> tuple[str, ...]:
    """Every text that is right, each once; first what a person would write.

    Args:
        answer: of the row.
        literal: what becomes of the texts of numbers, dates and the like, which are not what the row says word for word.

    Raises:
        GoldError: it cannot be an answer.

    >>> accepted(5), accepted(5.0), accepted(["5", "five"]), accepted(True)
    (('5',), ('5', '5.0'), ('5', 'five'), ('true', 'True'))
    """
    return tuple(dict.fromkeys(text for texts in _answers(answer, literal) for text in texts))


def shown(answer: Any) -> str:
    """An answer as one line for a person: accepted answers with "or" between them, other data as JSON.

    >>> shown(["5", "five"]), shown({"a": 1})
    ('5 or five', '{"a": 1}')
    """
    try:
        return " or ".join(dict.fromkeys(texts[0] for texts in _answers(answer)))
    except GoldError:
        return json.dumps(answer, ensure_ascii=False, default=str)


def _answers(answer: Any, literal: Callable[[str], str] = str) -> Iterator[tuple[str, ...]]:
    """The texts of each accepted answer."""
    entries = _entries(answer)
    if entries is None:
        yield _texts(answer, literal)
        return
    if not entries:
        raise GoldError("is a list without entries: name at least one accepted answer")
    for number, entry in enumerate(entries, start=1):
        try:
            if _entries(entry) is not None:
                raise GoldError("is a list in a list: write an answer of several values as one text")
            texts = _texts(entry, literal)
        except GoldError as error:
            raise GoldError(f"is a list of accepted answers, and entry {number} ({_short(entry)}) {error}") from None
        yield texts


def _entries(value: Any) -> Sequence[Any] | None:
    """The entries of a list of any kind; None where the value is no list."""
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, np.ndarray) and value.ndim:
        return list(value)
    return sorted(value, key=repr) if isinstance(value, (set, frozenset)) else None


def _texts(value: Any, literal: Callable[[str], str]) -> tuple[str, ...]:
    """The texts of one answer."""
    if isinstance(value, (str, bytes, bytearray)):
        return (_decoded(value),)
    if isinstance(value, (np.generic, np.ndarray)):
        value = _of_numpy(value)
    return tuple(dict.fromkeys(map(literal, _written(value))))


def _written(value: Any) -> tuple[str, ...]:
    if value is None:
        raise GoldError("is null, which is no answer")
    if isinstance(value, bool):
        return ("true", "True") if value else ("false", "False")
    if isinstance(value, int):
        return (_digits(value),)
    if isinstance(value, float):
        return _number(Decimal(repr(float(value))), repr(float(value)))
    if isinstance(value, Decimal):
        return _number(value, str(value))
    if isinstance(value, (datetime, date, time)):
        return _moment(value)
    if isinstance(value, (Fraction, UUID)):
        return (str(value),)
    if isinstance(value, Mapping):
        names = ", ".join(map(str, value)) or "nothing"
        raise GoldError(
            f"is an object (it has {names}): name the entry that is the answer, for instance task.options.answer = "
            f"'answer.{next(iter(value), 'value')}'"
        )
    what = "a duration" if isinstance(value, timedelta) else f"a value of the type {type(value).__name__}"
    raise GoldError(f"is {what}, which has no one way to be written: give it as text")


def _decoded(value: str | bytes | bytearray) -> str:
    try:
        text = value if isinstance(value, str) else value.decode()
    except UnicodeDecodeError:
        raise GoldError("is bytes that are no text (UTF-8): give it as text") from None
    if trouble := unreadable(text):
        raise GoldError(f"cannot be written: {trouble}")
    return text


def _of_numpy(value: Any) -> Any:
    """A scalar of NumPy as Python has it: a float of 32 bits with its own shortest digits, not with those of a double."""
    value = value[()]
    if isinstance(value, np.datetime64):
        return value.astype("datetime64[us]").item() if value.dtype != "datetime64[D]" else value.item()
    if isinstance(value, np.floating) and np.isfinite(value):
        return Decimal(str(value))
    return value.item() if isinstance(value, np.generic) else value


def _digits(value: int) -> str:
    try:
        return str(int(value))
    except ValueError:  # Python writes at most 4300 digits
        raise GoldError("is a whole number of more than 4300 digits") from None


def _number(value: Decimal, written: str) -> tuple[str, ...]:
    if not value.is_finite():
        what = "infinite" if value.is_infinite() else "NaN (no number, or a cell that is missing)"
        raise GoldError(f"is {what}, which is no answer")
    if not value:
        return "0", written
    if abs(value.adjusted()) > MOST_DIGITS:
        return (written,)
    digits = format(value, "f")
    shortest = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return (written, shortest, digits) if abs(value.adjusted()) > LONG else (shortest, digits, written)


def _moment(value: date | time) -> tuple[str, ...]:
    if value != value:  # pandas' NaT is a datetime
        raise GoldError("is a date that is missing, which is no answer")
    text = value.isoformat()
    forms = [text]
    if isinstance(value, (datetime, time)) and not (value.second or value.microsecond):
        forms.append(value.isoformat(timespec="minutes"))
    if isinstance(value, datetime):
        forms += [form.replace("T", " ") for form in forms]
        if value.tzinfo is None and value.time() == time():
            forms.insert(0, value.date().isoformat())
    return tuple(forms)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
