r"""Whether two mathematical answers are the same: by text and by number here, by computer algebra in a worker process.

:func:`decide` looks at structure, texts and numbers, which settles most answers; where that is not enough, it says None
and :func:`equal`, which needs math-verify and SymPy and may take long, is to be called in a worker (see :mod:`.workers`).

Numbers are compared exactly. A decimal that is written with at least ``digits`` significant digits may stand for a value
it is rounded (or cut off) from: 0.333333 is 1/3, 0.333 is not, 2.9999999 is not 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from typing import Any

from surefoot.rewards.latex import LONGEST, is_safe, spelled
from surefoot.rewards.structure import read, same
from surefoot.tasks.numerals import read_numeral

_DECIMAL = re.compile(r"[+-]?[0-9]*\.([0-9]+)")
_FRAC = re.compile(r"([+-]?)\s*\\frac\s*\{\s*([+-]?[0-9]+)\s*\}\s*\{\s*([+-]?[0-9]+)\s*\}")
_SCIENTIFIC = re.compile(r"([+-]?[0-9.]+)\s*\\(?:times|cdot)\s*10\s*\^\s*\{?\s*([+-]?[0-9]{1,5})\s*\}?")
_RECURRING = re.compile(r"([+-]?)([0-9]*)\.([0-9]*)\\overline\s*\{\s*([0-9]+)\s*\}")
_WORD = re.compile(r"(?<![\\A-Za-z])[^\W\d_]{4,}|(?<![\\A-Za-z])(?i:yes|no|odd|not|non)(?![A-Za-z])")
_RELATED = re.compile(
    r"\\(?:sim|cong|equiv|to|(?:long|Long)?(?:left)?(?:right|Right)arrow|ne|mid|propto|implies|iff|pmod|bmod|mod)(?![A-Za-z])"
)
_PRECISION = 60
_POINTS, _ENOUGH = 8, 4
_PRIMES = (101, 13, 149, 61, 223, 31, 89, 173, 43, 127, 71, 19, 199, 53, 107, 37, 151)


class Undecided(Exception):
    """Texts and numbers are not enough."""


def decide(gold: str, given: str, digits: int) -> bool | None:
    """Whether the answers are the same, or None where it takes computer algebra to say so."""
    if _squeezed(gold) == _squeezed(given):
        return True
    if max(len(gold), len(given)) > LONGEST or not is_safe(given):
        return False
    try:
        return same(read(spelled(gold)), read(spelled(given)), lambda a, b: _cheap(a, b, digits))
    except Undecided:
        return None


def equal(gold: str, given: str, digits: int) -> bool:
    """The same with computer algebra: slow, and to be called in a worker."""

    def leaf(a: str, b: str) -> bool:
        try:
            return _cheap(a, b, digits)
        except Undecided:
            return _algebra(a, b, digits)

    return same(read(spelled(gold)), read(spelled(given)), leaf)


def number(text: str) -> Fraction | None:
    r"""The exact value of a numeral, a fraction of two, a recurring decimal, or a power of ten times a numeral.

    >>> number(r"-\frac{1}{3}") == -number(r"0.\overline{3}"), number(r"1.5 \times 10^{-1}") == number("3/20")
    (True, True)
    """
    fraction = _FRAC.fullmatch(text)
    if fraction and len(text) <= LONGEST and int(fraction[3]):
        value = Fraction(int(fraction[2]), int(fraction[3]))
        return -value if fraction[1] == "-" else value
    recurring = _RECURRING.fullmatch(text)
    if recurring and len(text) <= LONGEST:
        sign, whole, part, period = recurring.groups()
        value = Fraction(int(whole + part or 0) * (10 ** len(period) - 1) + int(period))
        value /= 10 ** len(part) * (10 ** len(period) - 1)
        return -value if sign == "-" else value
    scientific = _SCIENTIFIC.fullmatch(text)
    numeral = read_numeral(f"{scientific[1]}e{scientific[2]}" if scientific else text)
    return numeral.value if numeral else None


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
    if not gold or not given or not is_safe(gold) or not is_safe(given):
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


def _rounds(exact: Any, written: Any, unit: Any) -> bool:
    """Whether a written size is the exact one rounded to its last place, or cut off there."""
    return bool(abs(exact - written) <= unit / 2 or 0 <= exact - written < unit)


def _last_place(text: str, digits: int) -> Fraction | None:
    decimal = _DECIMAL.fullmatch(text.replace(",", ""))
    if not decimal or digits < 1 or len(text.replace(".", "").lstrip("+-0")) < digits:
        return None
    return Fraction(1, 10 ** len(decimal[1]))


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _is_word(text: str) -> bool:
    return r"\begin" not in text and bool(_WORD.search(text))


def _letters(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s]", " ", text).casefold().split())


def _algebra(gold: str, given: str, digits: int) -> bool:
    """By SymPy: numbers by value to forty places, expressions by their values at points, everything else by math-verify."""
    import sympy
    from math_verify import verify

    a, b = _parsed(gold), _parsed(given)
    if a is None or b is None:
        return False
    if isinstance(a, sympy.Eq) or isinstance(b, sympy.Eq):
        return isinstance(a, sympy.Eq) and isinstance(b, sympy.Eq) and _same_equation(a, b)
    if isinstance(a, sympy.Expr) and isinstance(b, sympy.Expr):
        if a.free_symbols != b.free_symbols:
            return False
        return _same_expression(a, b) if a.free_symbols else _same_number(gold, a, given, b, digits)
    return bool(verify(a, b, timeout_seconds=None))


def _parsed(text: str) -> Any:
    if "$" in text:  # it would end the formula early, and the library go on to another one
        return None
    from math_verify import LatexExtractionConfig, parse

    found = parse(
        f"${text}$",
        [LatexExtractionConfig()],
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,
    )
    return found[0] if found else None


def _same_number(gold: str, a: Any, given: str, b: Any, digits: int) -> bool:
    import sympy

    a, b = _exact(a), _exact(b)
    if a is sympy.nan or b is sympy.nan:  # 0/0 is an answer, and equal to nothing
        return False
    if a == b:
        return True
    if a.is_finite is False or b.is_finite is False:
        return False
    x, y = sympy.N(a, _PRECISION), sympy.N(b, _PRECISION)
    if not (x.is_number and y.is_number):
        return False
    if _close(x, y):
        return True
    if not (x.is_real and y.is_real and x * y > 0):
        return False
    for text, written, exact in ((gold, x, y), (given, y, x)):
        unit = _last_place(text, digits)
        if unit and _rounds(abs(exact), abs(written), sympy.Rational(unit.numerator, unit.denominator)):
            return True
    return False


def _same_expression(a: Any, b: Any) -> bool:
    """Equal at points: cheaper and safer than to simplify, and surer than to compare forms."""
    import sympy

    for agreed, (x, y) in enumerate(_at_points(a, b), start=1):
        if not _close(x, y):
            return False
        if agreed == _ENOUGH:
            return True
    return bool(sympy.simplify(a - b) == 0)


def _same_equation(a: Any, b: Any) -> bool:
    """The difference of one's sides is a constant multiple of that of the other's, at points."""
    left, right = a.lhs - a.rhs, b.lhs - b.rhs
    if left.free_symbols != right.free_symbols or not left.free_symbols:
        return False
    values = [pair for pair in islice(_at_points(left, right), _ENOUGH) if 0 not in pair]
    return len(values) == _ENOUGH and all(_close(x * values[0][1], y * values[0][0]) for x, y in values[1:])


def _at_points(a: Any, b: Any) -> Iterator[tuple[Any, Any]]:
    """Values of both at fixed points, positive and negative ones, where both have any."""
    import sympy

    a, b = _exact(a), _exact(b)
    names = sorted(a.free_symbols | b.free_symbols, key=str)
    for shift in range(_POINTS):
        # Fractions of primes, so that no two variables or points are related by accident.
        point = {
            name: sympy.Rational(_PRIMES[(3 * k + shift) % len(_PRIMES)], 97) * (-1 if (k + shift) % 3 == 1 else 1)
            for k, name in enumerate(names)
        }
        pair = [sympy.N(x.subs(point), _PRECISION) for x in (a, b)]
        if all(x.is_number and x.is_finite for x in pair):
            yield pair[0], pair[1]


def _exact(x: Any) -> Any:
    """With decimals as the fractions that they spell."""
    import sympy

    x = x.doit()
    return sympy.nsimplify(x, rational=True) if x.has(sympy.Float) else x


def _close(x: Any, y: Any) -> bool:
    import sympy

    return bool(sympy.Abs(x - y) <= sympy.Float(10, _PRECISION) ** (20 - _PRECISION) * max(sympy.Abs(x), sympy.Abs(y)))
