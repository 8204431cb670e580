"""Whether what a program gave is what was expected. This runs in our own process, on plain values."""

from __future__ import annotations

import math
from typing import Any

RELATIVE = 1e-6
"""Relative tolerance of numbers with a fraction; the usual one of programming contests."""


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


def same_value(given: Any, expected: Any) -> bool:
    """Equal as JSON would have it: a tuple is a list; numbers with a fraction as in :func:`same_output`.

    >>> same_value((1, [0.1 + 0.2]), [1, [0.3]]), same_value("1", 1), same_value(True, 1)
    (True, False, False)
    """
    if isinstance(given, (list, tuple)) and isinstance(expected, (list, tuple)):
        return len(given) == len(expected) and all(same_value(a, b) for a, b in zip(given, expected, strict=True))
    if isinstance(given, dict) and isinstance(expected, dict):
        return len(given) == len(expected) and all(
            key in given and same_value(given[key], value) for key, value in expected.items()
        )
    if isinstance(given, bool) or isinstance(expected, bool):
        return given is expected
    if isinstance(given, (int, float)) and isinstance(expected, (int, float)):
        return _close(given, expected) if isinstance(expected, float) else given == expected
    return type(given) is type(expected) and bool(given == expected)


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
