r"""Numbers in text: finding the last one and reading it exactly.

A number is an integer, a decimal, either with groups of thousands (``1,234,567.5``) or an exponent (``1e-3``), or a
fraction of two integers (``3/4`` or ``\frac{3}{4}``), with an optional sign. A hyphen counts as a sign only where no
digit, letter or closing bracket stands before it (``5-3`` holds 5 and 3). What looks like a number and is none, such as
``1.2.3``, ``2024/01/02``, ``10:30``, ``1_000`` or the 2 of ``x2``, is passed over; a list without spaces (``12,13``) is
its parts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_EXPONENT = 400
MAX_CHARACTERS = 1000

_MINUS = "\u2212"
_FRAC = r"\\[dt]?frac\s*\{\s*[+-]?[0-9]+\s*\}\s*\{\s*[0-9]+\s*\}"
_CHUNK = r"(?:[0-9]|\.(?=[0-9]))[0-9]*+(?:[.,/:][0-9]++)*+(?!_[0-9])"
_EXPONENT = r"(?:[eE][+-]?[0-9]+(?![0-9A-Za-z]))?"
_TOKEN = re.compile(rf"(?P<sign>(?<![0-9A-Za-z_)\]}}])[+-])?(?<![0-9A-Za-z_.])(?P<body>{_FRAC}|{_CHUNK}{_EXPONENT})")
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+")
_DECIMAL = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]+))?(?:[eE](?P<exponent>[+-]?[0-9]+))?")
_FRACTION = re.compile(r"([0-9]+)/([0-9]+)")
_LATEX = re.compile(r"\\[dt]?frac\s*\{\s*([+-]?[0-9]+)\s*\}\s*\{\s*([0-9]+)\s*\}")


@dataclass(frozen=True)
class Numeral:
    """A number as it was written.

    Attributes:
        text: without groups of thousands and without a plus sign, the minus as a hyphen.
        value: exact; None where it is no number that can be computed with (``3/0``, ``1e999999``).
    """

    text: str
    value: Fraction | None


def last_numeral(text: str) -> Numeral | None:
    """The last number of a text, or None."""
    numerals = _numerals(text)
    return numerals[-1] if numerals else None


def first_numeral(text: str) -> Numeral | None:
    """The first number of a text, or None."""
    return next(iter(_numerals(text)), None)


def values_in(text: str) -> set[Fraction]:
    """The values of all numbers of a text."""
    return {numeral.value for numeral in _numerals(text) if numeral.value is not None}


def read_numeral(text: str) -> Numeral | None:
    """The number that the whole text is (white space and dollar signs around it aside), or None.

    >>> read_numeral("1,234.50").value == Fraction(2469, 2), read_numeral("12 apples"), read_numeral("1e999999").value
    (True, None, None)
    """
    text = text.strip().strip("$").strip().replace(_MINUS, "-")
    match = _TOKEN.match(text)
    if match is None or match.end() != len(text):
        return None
    numerals = _read(match)
    return numerals[0] if len(numerals) == 1 else None


def _numerals(text: str) -> list[Numeral]:
    return [numeral for match in _TOKEN.finditer(text.replace(_MINUS, "-")) for numeral in _read(match)]


def _read(match: re.Match[str]) -> list[Numeral]:
    """The numbers of one token: none, one, or the parts of a list."""
    sign, body = ("-" if match["sign"] == "-" else ""), match["body"]
    latex = _LATEX.fullmatch(body)
    if latex:
        return [Numeral(sign + body, _fraction(sign, latex[1], latex[2]))]
    fraction = _FRACTION.fullmatch(body)
    if fraction:
        return [Numeral(sign + body, _fraction(sign, fraction[1], fraction[2]))]
    head, dot, tail = body.partition(".")
    if _GROUPED.fullmatch(head):
        body = head.replace(",", "") + dot + tail
    if "," in body:
        parts = body.split(",")
        signs = [sign] + [""] * (len(parts) - 1)
        listed = all(_DECIMAL.fullmatch(part) for part in parts)
        return [Numeral(s + part, _decimal(s, part)) for s, part in zip(signs, parts, strict=True)] if listed else []
    return [Numeral(sign + body, _decimal(sign, body))] if _DECIMAL.fullmatch(body) else []


def _fraction(sign: str, above: str, below: str) -> Fraction | None:
    if len(above) + len(below) > MAX_CHARACTERS or not below.strip("0"):
        return None
    value = Fraction(int(above), int(below))
    return -value if sign else value


def _decimal(sign: str, body: str) -> Fraction | None:
    match = _DECIMAL.fullmatch(body)
    exponent = match["exponent"] if match else None
    if match is None or len(body) > MAX_CHARACTERS or len(exponent or "") > 10:
        return None
    power = int(exponent or 0)
    if abs(power) > MAX_EXPONENT:
        return None
    part = match["part"] or ""
    value = int((match["whole"] or "") + part) * Fraction(10) ** (power - len(part))
    return -value if sign else value
