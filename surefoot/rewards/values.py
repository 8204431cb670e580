"""What a reward hands back, read strictly: numbers of any library as Python's, texts that every file can hold."""

from __future__ import annotations

import math
import numbers
from typing import Any


def scalar(value: Any) -> float | bool | None:
    """A number of Python, NumPy or PyTorch as Python's (infinite where it is too large); None for anything else.

    >>> from fractions import Fraction
    >>> scalar(Fraction(1, 4)), scalar(True), scalar("1")
    (0.25, True, None)
    """
    if type(value) in (float, int, bool):  # nearly always; asking an abstract class takes its time
        return value if isinstance(value, bool) else _float(value)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value if isinstance(value, bool) else None
    return _float(value)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def well_formed(text: str) -> str:
    r"""The text with lone surrogates escaped, which UTF-8 cannot hold: ``"\ud800"`` is written as its six characters."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def short(value: Any) -> str:
    """A value in one line of a message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def one_line(error: Exception) -> str:
    """The type and the message of an exception in one line."""
    return well_formed(" ".join(f"{type(error).__name__}: {error}".split()))
