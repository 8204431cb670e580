"""Whether what a program gave is what was expected. This runs in our own process, on plain values."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

from surefoot.rewards.sandbox import Result

RELATIVE = 1e-6
"""Relative tolerance of numbers with a fraction; the usual one of programming contests."""


MARKS = 64
"""Bytes that say what type a value has, and the digits of a number."""


def same_output(given: str, expected: str) -> bool:
    """Equal line by line, but for white space; a number with a fraction may differ in its seventh digit.

    >>> same_output("1 2\\n3.3333333 \\n\\n", "1 2\\n3.33333334"), same_output("12", "1 2"), same_output("2.0", "2")
    (True, False, False)
    """
    left, right = _lines(given), _lines(expected)
    return len(left) == len(right) and all(
        len(mine) == len(theirs) and all(_same_word(a, b) for a, b in zip(mine, theirs, strict=True))
        for mine, theirs in zip(left, right, strict=True)
    )


def room_for(expected: Any) -> int:
    """Bytes that an output, or a value with what marks its types, may take where this is expected."""
    if isinstance(expected, str):
        return 4096 + 12 * len(expected)  # twice the longest form of a character in JSON
    if isinstance(expected, (list, tuple, dict)):
        items = [*expected.keys(), *expected.values()] if isinstance(expected, dict) else expected
        return 4096 + sum(room_for(item) - 4096 + MARKS for item in items)
    return 4096 + (expected.bit_length() if isinstance(expected, int) else 0)


def same_result(result: Result, expected: Any) -> bool:
    """Whether a call gave what is expected.

    A data set in the form of APPS may hold the value in a list of one. A function that returns nothing may have changed its
    first argument, as LeetCode asks of some.
    """
    values = [result.value] if result.value is not None or expected is None else [result.value, result.changed]
    wanted = [expected, expected[0]] if isinstance(expected, list) and len(expected) == 1 else [expected]
    return any(same_value(value, one) for value in values for one in wanted)


def same_value(given: Any, expected: Any) -> bool:
    """Equal as JSON would have it: a tuple is a list, and a key that is a number is its text.

    Numbers with a fraction are compared as in :func:`same_output`.

    >>> same_value((1, [0.1 + 0.2]), [1, [0.3]]), same_value("1", 1), same_value(True, 1)
    (True, False, False)
    """
    if isinstance(given, (list, tuple)) and isinstance(expected, (list, tuple)):
        return len(given) == len(expected) and all(same_value(a, b) for a, b in zip(given, expected, strict=True))
    if isinstance(given, dict) and isinstance(expected, dict):
        if any(not isinstance(key, str) for key in given) and all(isinstance(key, str) for key in expected):
            texts = {_key(key): value for key, value in given.items()}
            given = texts if len(texts) == len(given) else given
        return len(given) == len(expected) and all(
            key in given and same_value(given[key], value) for key, value in expected.items()
        )
    if isinstance(given, bool) or isinstance(expected, bool):
        return given is expected
    if isinstance(given, (Decimal, Fraction)):
        given = _number(given)
    if isinstance(given, (int, float)) and isinstance(expected, (int, float)):
        return _close(given, expected) if isinstance(expected, float) else given == expected
    return type(given) is type(expected) and bool(given == expected)


def _key(key: Any) -> Any:
    """A key of a dictionary as JSON has it: always a text."""
    if key is None or isinstance(key, (bool, float)) or (isinstance(key, int) and abs(key) < 1 << 64):
        return json.dumps(key)
    return key


def _number(given: Decimal | Fraction) -> int | float:
    """An integer where it is one, but not of 10**9 digits, which ``Decimal("1e999999999")`` would be."""
    if isinstance(given, Decimal):
        whole = given.is_finite() and given.adjusted() < 400 and given == given.to_integral_value()
    else:
        whole = given.denominator == 1
    try:
        return int(given) if whole else float(given)
    except OverflowError:
        return math.inf
    except ValueError:  # a signalling NaN
        return math.nan


def _lines(text: str) -> list[list[str]]:
    lines = [line.split() for line in text.strip().splitlines()]
    return [line for line in lines if line]


def _same_word(given: str, expected: str) -> bool:
    if given == expected:
        return True
    if not any(mark in expected for mark in ".eE"):
        return False
    try:
        return _close(float(given), float(expected))
    except ValueError:
        return False


def _close(given: float, expected: float) -> bool:
    try:
        return math.isclose(given, expected, rel_tol=RELATIVE, abs_tol=RELATIVE * 1e-3)
    except OverflowError:
        return False
