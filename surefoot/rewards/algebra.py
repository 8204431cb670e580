r"""Two values compared by computer algebra: numbers to forty places, expressions and relations by their values at points.

math-verify's parser (latex2sympy2-extended) reads the LaTeX. To be imported in a worker process: it is slow, and what it
computes may be large. Values at points are cheaper and safer than to simplify, and surer than to compare forms.

Two expressions with letters are the same where both are real: at every point that was tried at which no even root of a
negative number, no logarithm of one and no other value that is not real occurs in either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy

from surefoot.rewards.exact import last_place, number, rounds

_PRECISION = 60
_ENOUGH = 4
_PRIMES = (101, 13, 149, 61, 223, 31, 89, 173, 43, 127, 71, 19, 199, 53, 107, 37, 151)
_SCALES = (1, 7, sympy.Rational(1, 5), 60)
_SHIFTS = 8
_SIGNS = (lambda k: False, lambda k: True, lambda k: k % 2 == 0, lambda k: k % 2 == 1)  # which letters are negative
_CONFIG = ConversionConfig(lowercase_symbols=False, interpret_as_mixed_fractions=False)
_CIS = re.compile(
    r"(?<![A-Za-z\\])\\?cis\s*(?:\(((?:[^()]|\([^()]*\))*)\)|(\\frac\{[^{}]*\}\{[^{}]*\}|\\?[A-Za-z0-9]+))"
)
_SIGN = re.compile(r"\\le(?![A-Za-z])|\\ge(?![A-Za-z])|<|>|(?<![<>!])=")


def same_by_algebra(gold: str, given: str, digits: int, positive: bool) -> bool:
    """Whether two texts are the same value, expression or relation.

    Args:
        gold: in the spelling of :func:`surefoot.rewards.latex.spelled`, like ``given``.
        digits: a decimal with at least so many significant digits may be a rounded value.
        positive: whether letters are positive numbers.
    """
    if _SIGN.search(gold) or _SIGN.search(given):
        return _same_relation(gold, given, positive)
    a, b = _parsed(gold), _parsed(given)
    if a is None or b is None:
        return False
    a, b = _with_imaginary(a, b)
    if not (a.free_symbols or b.free_symbols):
        return _same_number(gold, a, given, b, digits)
    return _same_expression(a, b, positive) or _same_up_to_a_constant(a, b, positive)


def _parsed(text: str) -> Any:
    """The expression that a text is; None where it is none."""
    if (value := number(text)) is not None:
        return sympy.Rational(value.numerator, value.denominator)
    text = _CIS.sub(lambda match: f"e^{{i({match[1] or match[2]})}}", text)
    try:
        found = latex2sympy(text, is_real=None, normalization_config=None, conversion_config=_CONFIG)
    except MemoryError:
        raise
    except Exception:  # of the parser's many, and of SymPy's for what has no value
        return None
    return found if isinstance(found, sympy.Expr) else None


def _with_imaginary(a: Any, b: Any) -> tuple[Any, Any]:
    """With ``i`` as the imaginary unit, unless j or k stands beside it; ``j`` too where it is the only letter."""
    made = []
    names = {symbol.name for symbol in a.free_symbols | b.free_symbols}
    for one in (a, b):
        own = {symbol.name: symbol for symbol in one.free_symbols}
        for name in ("i", "j"):
            if (
                name in own
                and not names & ({"j", "k"} if name == "i" and own.keys() != {"i"} else set())
                and (name == "i" or len(own) == 1)
            ):
                one = one.subs(own[name], sympy.I)
        made.append(one)
    return made[0], made[1]


def _same_number(gold: str, a: Any, given: str, b: Any, digits: int) -> bool:
    a, b = _exact(_real_roots(a)), _exact(_real_roots(b))
    if sympy.nan in (a, b) or sympy.zoo in (a, b):  # 0/0 is an answer, and equal to nothing
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
    return any(
        rounds(abs(Fraction(str(exact))), abs(written), unit)
        for text, exact in ((gold, y), (given, x))
        if (written := number(text)) is not None and (unit := last_place(text, digits)) is not None
    )


def _same_expression(a: Any, b: Any, positive: bool) -> bool:
    for agreed, (x, y) in enumerate(_at_points(a, b, positive), start=1):
        if not _close(x, y):
            return False
        if agreed == _ENOUGH:
            return True
    return bool(sympy.simplify(a - b) == 0)


def _same_up_to_a_constant(a: Any, b: Any, positive: bool) -> bool:
    """Two antiderivatives: both end with a constant of integration, and differ by a number beside it."""
    bare = []
    for one in (a, b):
        names = [symbol for symbol in one.free_symbols if symbol.name in ("C", "K", "c", "k", "C_1", "c_1")]
        if len(names) != 1 or len(one.free_symbols) < 2 or one.diff(names[0]) != 1:
            return False
        bare.append(one.subs(names[0], 0))
    if "C" not in {symbol.name for symbol in a.free_symbols} or bare[0].free_symbols != bare[1].free_symbols:
        return False
    gaps = [x - y for x, y in islice(_at_points(bare[0], bare[1], positive), _ENOUGH)]
    return len(gaps) == _ENOUGH and all(abs(gap - gaps[0]) < sympy.Float(10) ** -35 for gap in gaps)


def _same_relation(gold: str, given: str, positive: bool) -> bool:
    """The difference of one's sides is a constant multiple of that of the other's, at points; a positive one where it is
    an inequality."""
    first, second = _relation(gold), _relation(given)
    if first is None or second is None or first[0] != second[0]:
        return False
    left, right = _with_imaginary(first[1], second[1])
    if left.free_symbols != right.free_symbols or not left.free_symbols:
        return False
    values = [pair for pair in islice(_at_points(left, right, positive), _ENOUGH) if 0 not in pair]
    same = len(values) == _ENOUGH and all(_close(x * values[0][1], y * values[0][0]) for x, y in values[1:])
    return same and (first[0] == "=" or bool(values[0][0] / values[0][1] > 0))


def _relation(text: str) -> tuple[str, Any] | None:
    r"""The kind ("=", "<" or "\le") and the smaller side less the larger one."""
    signs, sides = _SIGN.findall(text), [_parsed(side) for side in _SIGN.split(text)]
    if len(signs) != 1 or any(side is None for side in sides):
        return None
    difference = sides[0] - sides[1]
    return {"=": ("=", difference), "<": ("<", difference), r"\le": (r"\le", difference), ">": ("<", -difference)}.get(
        signs[0], (r"\le", -difference)
    )


def _at_points(a: Any, b: Any, positive: bool) -> Iterator[tuple[Any, Any]]:
    """Values of both at fixed points where both are real; at whole numbers and then complex values where there are too few."""
    complex_ = a.has(sympy.I) or b.has(sympy.I)
    a, b = (_exact(x if complex_ else _real_roots(x)) for x in (a, b))
    names = sorted(a.free_symbols | b.free_symbols, key=str)
    guards = [] if complex_ else _guards(a) | _guards(b)
    found = 0
    for whole in (False, True):
        for point in _points(names, whole, positive):
            if any(not _allowed(inner.evalf(15, subs=point), strict) for inner, strict in guards):
                continue
            pair = [_at(x, point, whole) for x in (a, b)]
            if all(x.is_number and x.is_finite and (complex_ or x.is_real) for x in pair):
                found += 1
                yield pair[0], pair[1]
        if found >= _ENOUGH:
            return
    for point in _points(names, False, positive):
        pair = [_at(x, point, False) for x in (a, b)]
        if not found and all(x.is_number and x.is_finite for x in pair):
            yield pair[0], pair[1]


def _points(names: list[Any], whole: bool, positive: bool) -> Iterator[dict[Any, Any]]:
    """Fractions of primes, so that no two variables or points are related by accident; or small whole numbers."""
    for shift in range(_SHIFTS):
        if whole:
            yield {name: sympy.Integer(1 + shift + 2 * k) for k, name in enumerate(names)}
            continue
        for scale in _SCALES if shift >= _ENOUGH else _SCALES[:1]:
            yield {
                name: scale
                * sympy.Rational(_PRIMES[(3 * k + shift) % len(_PRIMES)], 97)
                * (-1 if _SIGNS[shift % len(_SIGNS)](k) and not positive else 1)
                for k, name in enumerate(names)
            }


def _guards(x: Any) -> set[tuple[Any, bool]]:
    """What must not be negative for real values (strictly positive where True): bases of even roots, arguments of logarithms."""
    roots = {(power.base, False) for power in x.atoms(sympy.Pow) if power.exp.is_Rational and power.exp.q % 2 == 0}
    return roots | {(log.args[0], True) for log in x.atoms(sympy.log)}


def _at(x: Any, point: dict[Any, Any], whole: bool) -> Any:
    """A value; not by exact fractions, which may have millions of digits."""
    return sympy.N(x.subs(point), _PRECISION) if whole else x.evalf(_PRECISION, subs=point)


def _allowed(value: Any, strict: bool) -> bool:
    return bool(value.is_real and (value > 0 if strict else value >= 0))


def _real_roots(x: Any) -> Any:
    """With the real odd roots of negative numbers: the cube root of -8 is -2."""

    def odd(part: Any) -> bool:
        return bool(
            part.is_Pow and part.exp.is_Rational and part.exp.q > 1 and part.exp.q % 2 and not part.base.has(sympy.I)
        )

    if not any(odd(part) for part in x.atoms(sympy.Pow)):
        return x
    return x.replace(odd, lambda part: sympy.sign(part.base) ** part.exp.p * sympy.Abs(part.base) ** part.exp)


def _exact(x: Any) -> Any:
    """With decimals as the fractions that they spell."""
    return x.xreplace({part: sympy.Rational(str(part)) for part in x.atoms(sympy.Float)}).doit()


def _close(x: Any, y: Any) -> bool:
    return bool(sympy.Abs(x - y) <= sympy.Float(10, _PRECISION) ** (20 - _PRECISION) * max(sympy.Abs(x), sympy.Abs(y)))
