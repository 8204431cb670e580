"""Values of one process as plain data for the other, and back.

Immutable plain data crosses by value. A list, a dictionary, a set that crosses is held by both sides from then on, under
a number (:mod:`.containers`). Anything else (a function, an object, a class, a generator) stays where it is, and the other
side holds a stand-in (:mod:`.mirrors`).
"""

from __future__ import annotations

import builtins
import collections
import datetime
import decimal
import fractions
import sys
import types
from collections.abc import Callable
from typing import Any

from . import mirrors
from .mirrors import MUTABLE, PLAIN, MirrorClass, Unsupported
from .values import DEEPEST, Unencodable, decode, encode

CONTAINERS = {
    kind.__name__: kind
    for kind in (*MUTABLE, collections.deque, collections.OrderedDict, collections.Counter, collections.defaultdict)
}
STANDARD: dict[str, tuple[type, Callable[[Any], tuple[Any, ...]]]] = {
    "range": (range, lambda x: (x.start, x.stop, x.step)),
    "slice": (slice, lambda x: (x.start, x.stop, x.step)),
    "Decimal": (decimal.Decimal, lambda x: (str(x),)),
    "Fraction": (fractions.Fraction, lambda x: (x.numerator, x.denominator)),
    "timedelta": (datetime.timedelta, lambda x: (x.days, x.seconds, x.microseconds)),
    "date": (datetime.date, lambda x: (x.year, x.month, x.day)),
    "time": (datetime.time, lambda x: (x.hour, x.minute, x.second, x.microsecond, x.tzinfo)),
    "timezone": (datetime.timezone, lambda x: (x.utcoffset(None),)),
    "datetime": (
        datetime.datetime,
        lambda x: (x.year, x.month, x.day, x.hour, x.minute, x.second, x.microsecond, x.tzinfo),
    ),
}
_STANDARD_NAMES = {kind: name for name, (kind, _) in STANDARD.items()}
_BUILTIN = {name: kind for name, kind in vars(builtins).items() if isinstance(kind, type)}
_NEVER = (types.FrameType, types.CodeType, types.TracebackType, types.ModuleType)


class Shared:
    """A container that both sides hold, and its contents when they last agreed."""

    def __init__(self, value: Any, state: Any = None) -> None:
        self.value, self.state = value, state


class Packing:
    """What one side knows of the other's objects, and the other of its own.

    Args:
        guarded: whether this is the side of the tests.
    """

    def __init__(self, *, guarded: bool) -> None:
        self.guarded = guarded
        self.mine: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.described: set[int] = set()
        self.theirs: dict[int, Any] = {}
        self.shared: dict[int, Shared] = {}
        self.shared_numbers: dict[int, int] = {}
        self.next = int(guarded)  # even numbers are given by one side, odd ones by the other

    def _share(self, value: Any) -> int:
        number = self.shared_numbers.get(id(value))
        if number is None:
            number, self.next = self.next, self.next + 2
            self.shared[number] = Shared(value)
            self.shared_numbers[id(value)] = number
        return number

    def pack(self, value: Any, depth: int = 0) -> Any:
        """A value in terms of JSON."""
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind in (int, float, complex, bytes):
            return encode(value)
        if depth > DEEPEST:
            raise Unencodable(f"a value nested deeper than {DEEPEST}")
        if kind is tuple or kind is frozenset:
            return {"type": kind.__name__, "value": [self.pack(one, depth + 1) for one in value]}
        if CONTAINERS.get(kind.__name__) is kind:
            return {"type": "shared", "value": self._share(value)}
        if kind in _STANDARD_NAMES:
            name = _STANDARD_NAMES[kind]
            return {"type": name, "value": [self.pack(one, depth + 1) for one in STANDARD[name][1](value)]}
        if value is NotImplemented or value is Ellipsis:
            return {"type": "constant", "value": repr(value)}
        if issubclass(kind, type) and kind is not MirrorClass:
            return self._packed_class(value)
        if mirrors.is_mirror(value) and mirrors.wire_of(value) is self:
            return {"type": "yours", "value": mirrors.number_of(value)}
        if self.guarded and (place := _importable(value)):
            return {"type": "global", "value": place}
        array = sys.modules.get("numpy")
        if array is not None and isinstance(value, (array.ndarray, array.generic)) and not value.dtype.hasobject:
            return {
                "type": "array",
                "value": [value.dtype.str, value.shape, encode(value.tobytes()), isinstance(value, array.generic)],
            }
        return self._packed_object(value)

    def _packed_object(self, value: Any) -> Any:
        if self.guarded and isinstance(value, _NEVER):
            raise Unsupported(f"a test that hands the program a {type(value).__name__}")
        kind = type(value)
        if kind.__module__ == "builtins" and isinstance(value, BaseException) and _BUILTIN.get(kind.__name__) is kind:
            return {"type": "exception", "value": [kind.__name__, [self._packed_argument(one) for one in value.args]]}
        message: dict[str, Any] = {"type": "object", "value": self._number(value), "class": self._packed_class(kind)}
        base = next((one for one in kind.__mro__ if one in PLAIN), None)
        if base is tuple or base is frozenset:
            message["plain"] = self.pack(base(base.__iter__(value)))
        elif base is not None:
            message["plain"] = encode(value)
        elif isinstance(value, BaseException):
            message["arguments"] = [self._packed_argument(one) for one in value.args]
        return message

    def _packed_argument(self, value: Any) -> Any:
        try:
            return self.pack(value)
        except Unencodable:
            return repr(value)[:1000]

    def _packed_class(self, kind: type) -> Any:
        if _BUILTIN.get(kind.__name__) is kind and issubclass(kind, (BaseException, *PLAIN, *MUTABLE, type(None))):
            return {"type": "builtin", "value": kind.__name__}
        if kind in (object, type):
            return {"type": "builtin", "value": kind.__name__}
        if self.guarded and (place := _importable(kind)):
            return {"type": "global", "value": place}
        number = self._number(kind)
        message: dict[str, Any] = {"type": "class", "value": number}
        if number not in self.described:
            self.described.add(number)
            bases = [self._packed_class(base) for base in kind.__bases__ if base is not object]
            seen = next((one.__name__ for one in kind.__mro__ if mirrors.SEEN.get(one.__name__) is one), "")
            message |= {"name": kind.__name__, "bases": bases, "operators": _operators(kind), "seen": seen}
        return message

    def _number(self, value: Any) -> int:
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = len(self.mine)
            self.mine.append(value)  # which keeps it alive, and its id its own
        return number

    def unpack(self, message: Any) -> Any:
        """What :meth:`pack` was given, or a stand-in for it.

        Raises:
            Exception: of several kinds, where it is nothing that ``pack`` gave.
        """
        if type(message) is not dict:
            if isinstance(message, list):
                raise ValueError("a list")
            return message
        kind, value = message["type"], message["value"]
        if kind == "tuple" or kind == "frozenset":
            return {"tuple": tuple, "frozenset": frozenset}[kind](self.unpack(one) for one in value)
        if kind in ("int", "float", "complex", "bytes"):
            return decode(message)
        if kind == "shared":
            return self.shared[value].value
        if kind in STANDARD:
            return STANDARD[kind][0](*(self.unpack(one) for one in value))
        if kind == "constant":
            return {"NotImplemented": NotImplemented, "Ellipsis": ...}[value]
        if kind == "yours":
            return self.mine[value]
        if kind == "builtin":
            return _BUILTIN[value]
        if kind == "global" and not self.guarded:
            return _imported(*value)
        if kind == "array":
            return _array(*value)
        if kind == "exception":
            return _exception(_BUILTIN[value[0]], tuple(self.unpack(one) for one in value[1]))
        return self._stand_in(kind, value, message)

    def _stand_in(self, kind: str, number: int, message: dict[str, Any]) -> Any:
        found = self.theirs.get(number)
        if kind == "class":
            if found is None:
                bases = tuple(self.unpack(base) for base in message["bases"])
                bases = tuple(
                    b for b in bases if b in PLAIN or isinstance(b, MirrorClass) or issubclass(b, BaseException)
                )
                found = mirrors.make_class(self, number, message["name"], bases, message["operators"], message["seen"])
                self.theirs[number] = found
            if not isinstance(found, MirrorClass):
                raise ValueError("no class")
            return found
        if kind != "object":
            raise ValueError(f"a value of the kind {kind!r}")
        of = self.unpack(message["class"])
        if found is None:
            arguments = tuple(self.unpack(one) for one in message.get("arguments", ()))
            found = mirrors.make(of, number, self.unpack(message.get("plain")), arguments)
            self.theirs[number] = found
        return found


def _operators(kind: type) -> list[str]:
    """The operators of a class that the other side has to ask for."""
    found = ["no hash"] if kind.__hash__ is None else []
    for name in (*mirrors.FORWARD, "__await__"):
        owner = next((one for one in kind.__mro__ if name in vars(one)), None)
        local = owner in PLAIN or (
            isinstance(owner, type) and issubclass(owner, BaseException) and owner.__module__ == "builtins"
        )
        if owner is None or local or vars(owner)[name] is None:
            continue
        if owner is not object or name in ("__repr__", "__str__", "__format__"):
            found.append(name)
    if issubclass(kind, (BaseException, *PLAIN)):
        own = {name for one in kind.__mro__ if one.__module__ != "builtins" for name in vars(one)}
        found = [name for name in found if name in own or name == "no hash"]
    return found


def _importable(value: Any) -> list[str] | None:
    """Where the standard library has this function or class; the program then gets its own."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if (
        not isinstance(module, str)
        or not isinstance(name, str)
        or module.partition(".")[0] not in sys.stdlib_module_names
    ):
        return None
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return [module, name] if found is value and value is not None else None


def _imported(module: str, name: str) -> Any:
    found = __import__(module, fromlist=["_"])
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _exception(kind: type[BaseException], arguments: tuple[Any, ...]) -> BaseException:
    if not issubclass(kind, BaseException):
        raise TypeError(f"{kind.__name__} is no exception")
    try:
        return kind(*arguments)
    except Exception:
        error = kind.__new__(kind)
        error.args = arguments
        return error


def _array(dtype: str, shape: Any, data: Any, scalar: bool) -> Any:
    numpy = sys.modules["numpy"]
    array = numpy.frombuffer(decode(data), numpy.dtype(dtype)).reshape([int(n) for n in shape])
    return array[()] if scalar else array.copy()
