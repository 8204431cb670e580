"""Numbers of answers, exactly, and decimals that may stand for a number they were rounded from.

A decimal that is written with at least ``digits`` significant digits may stand for a value it is rounded (or cut off)
from: 0.333333 is 1/3, 0.333 is not, 2.9999999 is not 3.
"""

from __future__ import annotations

import re
from fractions import Fraction

from surefoot.rewards.latex import LONGEST
from surefoot.tasks.numerals import read_numeral

_DECIMAL = re.compile(r"[+-]?[0-9]*\.([0-9]+)(?:\.\.\.)?")
_FRAC = re.compile(r"([+-]?)\s*\\frac\s*\{\s*([+-]?[0-9.]+)\s*\}\s*\{\s*([+-]?[0-9.]+)\s*\}")
_SCIENTIFIC = re.compile(r"([+-]?[0-9.]+)\s*\\(?:times|cdot)\s*10\s*\^\s*\{?\s*([+-]?[0-9]{1,5})\s*\}?")
_RECURRING = re.compile(r"([+-]?)([0-9]*)\.([0-9]*)\\overline\s*\{\s*([0-9]+)\s*\}")
_GOES_ON = re.compile(r"([+-]?)([0-9]*)\.([0-9]*?)([0-9]{1,12}?)(?:\4){1,}\.\.\.")

_BARE = re.compile(r"[-+0-9.,eE/ ]+")  # money and units, which a numeral may carry, are compared with it, not dropped


def number(text: str) -> Fraction | None:
    r"""The exact value of a numeral, a fraction of two, a recurring decimal, or a power of ten times a numeral.

    >>> number(r"-\frac{1}{3}") == -number(r"0.\overline{3}"), number(r"1.5 \times 10^{-1}") == number("3/20")
    (True, True)
    """
    if len(text) > LONGEST:
        return None
    if fraction := _FRAC.fullmatch(text):
        above, below = read_numeral(fraction[2]), read_numeral(fraction[3])
        if above is None or below is None or not above.value or not below.value:
            return Fraction(0) if above and below and above.value == 0 and below.value else None
        value = above.value / below.value
        return -value if fraction[1] == "-" else value
    if recurring := _RECURRING.fullmatch(text) or _recurring(text):
        sign, whole, part, period = recurring.groups()
        value = Fraction(int(whole + part or 0) * (10 ** len(period) - 1) + int(period))
        value /= 10 ** len(part) * (10 ** len(period) - 1)
        return -value if sign == "-" else value
    scientific = _SCIENTIFIC.fullmatch(text)
    digits = f"{scientific[1]}e{scientific[2]}" if scientific else text.removesuffix("...")
    numeral = read_numeral(digits) if _BARE.fullmatch(digits) else None
    return numeral.value if numeral else None


def _recurring(text: str) -> re.Match[str] | None:
    """``0.333...`` and ``0.1212...``: a period that is written three times where it is one digit, else twice."""
    match = _GOES_ON.fullmatch(text[:60]) if text.endswith("...") else None
    return match if match and (len(match[4]) > 1 or text.removesuffix("...").endswith(match[4] * 3)) else None


def near(gold: str, a: Fraction, given: str, b: Fraction, digits: int) -> bool:
    """Equal, or one is the other written as a decimal of enough digits."""
    if a == b:
        return True
    return any(
        rounds(abs(exact), abs(written), unit)
        for text, written, exact in ((gold, a, b), (given, b, a))
        if a * b > 0 and (unit := last_place(text, digits)) is not None
    )


def rounds(exact: Fraction, written: Fraction, unit: Fraction) -> bool:
    """Whether a written size is the exact one rounded to its last place, or cut off there."""
    return bool(abs(exact - written) <= unit / 2 or 0 <= exact - written < unit)


def last_place(text: str, digits: int) -> Fraction | None:
    decimal = _DECIMAL.fullmatch(text.replace(",", ""))
    if not decimal or digits < 1 or len(text.replace(".", "").lstrip("+-0")) < digits:
        return None
    return Fraction(1, 10 ** len(decimal[1]))
