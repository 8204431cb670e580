"""The exact value of a token that :mod:`.numeral_grammar` has found; None where there is none to compute with."""

from __future__ import annotations

import re
from fractions import Fraction

from surefoot.tasks.numeral_forms import chinese

MAX_EXPONENT = 400
MAX_CHARACTERS = 1000
LARGEST = Fraction(10) ** (2 * MAX_EXPONENT)

GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}")
DECIMAL = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]+))?(?:[eE](?P<exponent>[+-]?[0-9]+))?")
_TENS = re.compile(r"([0-9]+(?:\.[0-9]+)?)([百千万亿]*)")
_SIZES = {"百": 10**2, "千": 10**3, "万": 10**4, "亿": 10**8}
_SHARES = {"half": Fraction(1, 2), "third": Fraction(1, 3), "quarter": Fraction(1, 4)}
_SHARES |= {"three quarters": Fraction(3, 4), "two thirds": Fraction(2, 3)}


def decimal(body: str) -> Fraction | None:
    """A decimal without a sign, also with an exponent (``1.5e-3``)."""
    match = DECIMAL.fullmatch(body)
    exponent = match["exponent"] if match else None
    if (
        match is None
        or len(body) > MAX_CHARACTERS
        or len(exponent or "") > 10
        or abs(int(exponent or 0)) > MAX_EXPONENT
    ):
        return None
    part = match["part"] or ""
    return int((match["whole"] or "") + part or 0) * Fraction(10) ** (int(exponent or 0) - len(part))


def fraction(above: str, below: str) -> Fraction | None:
    """One whole number over another."""
    if len(above) + len(below) > MAX_CHARACTERS or not below.strip("0+-"):
        return None
    return Fraction(int(above), int(below))


def value_of(kind: str, match: re.Match[str]) -> Fraction | None:
    """The value of a token of any kind but a list, without its sign and multiplier."""
    return _VALUES[kind](match)


def _latex(match: re.Match[str]) -> Fraction | None:
    return _sum(match["latex_whole"], fraction(match["top"] or match["top1"], match["bottom"] or match["bottom1"]))


def _mixed(match: re.Match[str]) -> Fraction | None:
    return _sum(match["whole"].replace(",", ""), fraction(match["mixed_top"], match["mixed_bottom"]))


def _parts(match: re.Match[str]) -> Fraction | None:
    above, below, whole = (_either(match[name]) for name in ("above", "below", "parts_whole"))
    if match["below"] == "百":  # as 20%, which is 20
        return above
    if above is None or not below or (match["parts_whole"] and whole is None):
        return None
    return (whole or 0) + above / below


def _half(match: re.Match[str]) -> Fraction | None:
    return _sum(match["count"], _SHARES[(match["share"] or "half").replace("-", " ")])


def _ratio(match: re.Match[str]) -> Fraction | None:
    return fraction(match["over"], match["under"])


def _recurring(match: re.Match[str]) -> Fraction | None:
    whole, _, part = match["fixed"].partition(".")
    period = match["period"] or match["period1"]
    if len(match[0]) > MAX_CHARACTERS:
        return None
    nines = 10 ** len(period) - 1
    return Fraction(int(whole + part or 0) * nines + int(period), 10 ** len(part) * nines)


def _power(match: re.Match[str]) -> Fraction | None:
    base, exponent = decimal(match["base"]), match["exponent"].strip("{() }")
    factor = decimal(match["coefficient"]) if match["coefficient"] else Fraction(1)
    if base is None or factor is None or len(exponent) > 5 or abs(int(exponent)) > MAX_EXPONENT:
        return None
    if (base == 0 and int(exponent) < 0) or len(match["base"]) * abs(int(exponent)) > 2 * MAX_CHARACTERS:
        return None
    return factor * base ** int(exponent)


def _tens(match: re.Match[str]) -> Fraction | None:
    if len(match["tens"]) > MAX_CHARACTERS:
        return None
    total = Fraction(0)
    for number, signs in _TENS.findall(match["tens"].replace(",", "")):
        size = 1
        for sign in signs:
            size *= _SIZES[sign]
        total += Fraction(number) * size
    return total


def _han(match: re.Match[str]) -> Fraction | None:
    whole = chinese(match["signs"])
    if whole is None:
        return None
    digits = "".join(str(chinese(c)) for c in match["decimals"] or "")
    return (whole + Fraction(int(digits or 0), 10 ** len(digits))) * _SIZES.get(match["more"] or "", 1)


def _nothing(match: re.Match[str]) -> Fraction | None:
    return None


_VALUES = {
    "latex": _latex,
    "parts": _parts,
    "mixed": _mixed,
    "half": _half,
    "ratio": _ratio,
    "recurring": _recurring,
    "power": _power,
    "other": _nothing,
    "tens": _tens,
    "han": _han,
}


def _sum(whole: str | None, part: Fraction | None) -> Fraction | None:
    first = decimal(whole) if whole else Fraction(0)
    return None if first is None or part is None else first + part


def _either(text: str | None) -> Fraction | None:
    if not text:
        return None
    if text[0].isascii():
        return decimal(text)
    value = chinese(text) or {"百": 100, "千": 1000, "万": 10000}.get(text)
    return None if value is None else Fraction(value)
