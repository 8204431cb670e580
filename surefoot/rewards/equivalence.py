r"""Whether two mathematical answers are the same: by text and by number here, by computer algebra in a worker process.

:func:`decide` looks at structure, texts and numbers, which settles most answers; where that is not enough, it says None
and :func:`equal`, which needs math-verify and SymPy and may take long, is to be called in a worker (see :mod:`.workers`).

Numbers are compared exactly. A decimal that is written with at least ``digits`` significant digits may stand for a value
it is rounded (or cut off) from: 0.333333 is 1/3, 0.333 is not, 2.9999999 is not 3.
"""

from __future__ import annotations

import re
from fractions import Fraction

from surefoot.rewards.latex import LONGEST, is_safe, spelled
from surefoot.rewards.sameness import same
from surefoot.rewards.structure import read
from surefoot.tasks.numerals import read_numeral

_DECIMAL = re.compile(r"[+-]?[0-9]*\.([0-9]+)(?:\.\.\.)?")
_FRAC = re.compile(r"([+-]?)\s*\\frac\s*\{\s*([+-]?[0-9.]+)\s*\}\s*\{\s*([+-]?[0-9.]+)\s*\}")
_SCIENTIFIC = re.compile(r"([+-]?[0-9.]+)\s*\\(?:times|cdot)\s*10\s*\^\s*\{?\s*([+-]?[0-9]{1,5})\s*\}?")
_RECURRING = re.compile(r"([+-]?)([0-9]*)\.([0-9]*)\\overline\s*\{\s*([0-9]+)\s*\}")
_GOES_ON = re.compile(r"([+-]?)([0-9]*)\.([0-9]*?)([0-9]{1,12}?)(?:\4){1,}\.\.\.")
_WORD = re.compile(
    r"(?<![\\A-Za-z])[^\W\d_]{4,}|(?<![\\A-Za-z])(?i:yes|no|odd|not|non|dne)(?![A-Za-z])|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)
_RELATED = re.compile(
    r"\\(?:sim|cong|equiv|to|(?:long|Long)?(?:left)?(?:right|Right)arrow|ne|mid|propto|implies|iff|pmod|bmod|mod|in)(?![A-Za-z])|\|\s*$"
)


class Undecided(Exception):
    """Texts and numbers are not enough."""


def decide(gold: str, given: str, digits: int, positive: bool = False) -> bool | None:
    """Whether the answers are the same, or None where it takes computer algebra to say so."""
    if _squeezed(gold) == _squeezed(given):
        return True
    if max(len(gold), len(given)) > LONGEST:
        return False
    first, second = spelled(gold), spelled(given)
    if _squeezed(first) == _squeezed(second) != "":
        return True
    if not is_safe(given):
        return False
    a, b = number(first), number(second)
    if a is not None and b is not None:
        return _near(first, a, second, b, digits)
    try:
        return same(read(first), read(second), lambda x, y: _cheap(x, y, digits))
    except Undecided:
        return None


def equal(gold: str, given: str, digits: int, positive: bool = False) -> bool:
    """The same with computer algebra: slow, and to be called in a worker."""
    from surefoot.rewards.algebra import same_by_algebra

    def near(exact: Fraction, text: str) -> bool:
        unit, value = _last_place(text, digits), number(text)
        return unit is not None and value is not None and _rounds(exact, abs(value), unit)

    def leaf(a: str, b: str) -> bool:
        try:
            return _cheap(a, b, digits)
        except Undecided:
            return same_by_algebra(_plain(a), _plain(b), near, positive)

    return same(read(spelled(gold)), read(spelled(given)), leaf)


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
    numeral = read_numeral(f"{scientific[1]}e{scientific[2]}" if scientific else text.removesuffix("..."))
    return numeral.value if numeral else None


def _recurring(text: str) -> re.Match[str] | None:
    """``0.333...`` and ``0.1212...``: a period that is written three times where it is one digit, else twice."""
    match = _GOES_ON.fullmatch(text[:60]) if text.endswith("...") else None
    return match if match and (len(match[4]) > 1 or text.removesuffix("...").endswith(match[4] * 3)) else None


def _cheap(gold: str, given: str, digits: int) -> bool:
    if _squeezed(gold) == _squeezed(given):
        return bool(given)
    a, b = number(gold), number(given)
    if a is not None and b is not None:
        return _near(gold, a, given, b, digits)
    if len(gold) == len(given) == 1:  # the names of two things
        return False
    if _is_word(gold) or _is_word(given):
        return _letters(gold) == _letters(given)
    if any("..." in text or ":" in text or _RELATED.search(text) for text in (gold, given)):
        return False
    if not gold or not given or not is_safe(gold) or not is_safe(given) or "$" in gold + given:
        return False
    raise Undecided


def _near(gold: str, a: Fraction, given: str, b: Fraction, digits: int) -> bool:
    """Equal, or one is the other written as a decimal of enough digits."""
    if a == b:
        return True
    return any(
        _rounds(abs(exact), abs(written), unit)
        for text, written, exact in ((gold, a, b), (given, b, a))
        if a * b > 0 and (unit := _last_place(text, digits)) is not None
    )


def _rounds(exact: Fraction, written: Fraction, unit: Fraction) -> bool:
    """Whether a written size is the exact one rounded to its last place, or cut off there."""
    return bool(abs(exact - written) <= unit / 2 or 0 <= exact - written < unit)


def _last_place(text: str, digits: int) -> Fraction | None:
    decimal = _DECIMAL.fullmatch(text.replace(",", ""))
    if not decimal or digits < 1 or len(text.replace(".", "").lstrip("+-0")) < digits:
        return None
    return Fraction(1, 10 ** len(decimal[1]))


def _plain(text: str) -> str:
    """A number as a fraction, which every parser reads alike."""
    value = number(text)
    return text if value is None else rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _is_word(text: str) -> bool:
    return r"\begin" not in text and bool(_WORD.search(text))


def _letters(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s]", " ", text).casefold().split())
