"""Python values as JSON, restricted to plain data, so that what comes back compares with the built-in operators only.

A list stands for itself, and every other type that JSON lacks is ``{"type": ..., "value": ...}``. Subclasses become
what they derive from: an object with an ``__eq__`` of its own does not survive the crossing.
"""

from __future__ import annotations

import base64
from decimal import Decimal
from fractions import Fraction
from typing import Any

DEEPEST = 200


class Unencodable(Exception):
    """A value that is not plain data."""


def encode(value: Any, depth: int = 0) -> Any:
    """The value in terms of JSON.

    >>> encode((1, {2.5})), encode(float("inf"))
    ({'type': 'tuple', 'value': [1, {'type': 'set', 'value': [2.5]}]}, {'type': 'float', 'value': 'inf'})

    Raises:
        Unencodable: the type is none of None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset,
            dict, Decimal and Fraction, or derived from one; or the nesting is deeper than 200.
    """
    if depth > DEEPEST:
        raise Unencodable(f"a value nested deeper than {DEEPEST}")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return _integer(int.__int__(value))
    if isinstance(value, float):
        number = float.__float__(value)
        return number if number - number == 0 else {"type": "float", "value": float.__repr__(number)}
    if isinstance(value, complex):
        return {"type": "complex", "value": complex.__repr__(complex(value.real, value.imag))}
    if isinstance(value, (bytes, bytearray)):
        return {"type": "bytes", "value": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, dict):
        pairs = [[encode(key, depth + 1), encode(item, depth + 1)] for key, item in dict.items(value)]
        return {"type": "dict", "value": pairs}
    if isinstance(value, Decimal):
        return {"type": "Decimal", "value": Decimal.__str__(value)}
    if isinstance(value, Fraction):
        return {"type": "Fraction", "value": [hex(int(value.numerator)), hex(int(value.denominator))]}
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            items = [encode(item, depth + 1) for item in kind.__iter__(value)]  # type: ignore[arg-type]
            return items if kind is list else {"type": kind.__name__, "value": items}
    if callable(getattr(value, "tolist", None)):  # NumPy
        return encode(value.tolist(), depth + 1)
    raise Unencodable(f"a value of type {type(value).__name__}")


def decode(message: Any) -> Any:
    """What :func:`encode` was given, in built-in types.

    Raises:
        Unencodable: the message is not one of :func:`encode`.
    """
    if isinstance(message, list):
        return [decode(item) for item in message]
    if not isinstance(message, dict):
        return message
    kind, value = message.get("type"), message.get("value")
    try:
        if kind == "dict":
            return {decode(key): decode(item) for key, item in value}  # type: ignore[union-attr]
        return _READERS[kind](value)  # type: ignore[index,operator]
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise Unencodable(f"not a value: {type(error).__name__}: {error}") from None


def _integer(value: int) -> Any:
    """Large numbers in base 16: converting to base 10 is quadratic, and Python refuses it above 4,300 digits."""
    return value if -(2**63) <= value < 2**63 else {"type": "int", "value": hex(value)}


_READERS = {
    "int": lambda value: int(value, 16),
    "float": float,
    "complex": complex,
    "bytes": base64.b64decode,
    "Decimal": Decimal,
    "Fraction": lambda value: Fraction(int(value[0], 16), int(value[1], 16)),  # of a text it may be 10**10**9
    "tuple": lambda value: tuple(decode(item) for item in value),
    "set": lambda value: {decode(item) for item in value},
    "frozenset": lambda value: frozenset(decode(item) for item in value),
}
