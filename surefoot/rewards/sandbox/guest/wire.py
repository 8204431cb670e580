"""Two processes that use each other's objects: requests and answers in which nothing but plain data travels.

Immutable plain data crosses by value. A list, a dictionary, a set that crosses is held by both sides from then on, under
a number, and each message carries the contents of those that have changed: what a function does to its arguments is seen by
the test that passed them, and a list has one identity. Anything else (a function, an object, a class, a generator) stays
where it is, and the other side holds a stand-in (:mod:`.mirrors`).

The side of the tests is ``guarded``: it answers requests only about objects that a test has handed over, gives only
their public attributes, and never a frame, a module or a code object.
"""

from __future__ import annotations

import builtins
import collections
import copy
import datetime
import decimal
import fractions
import sys
import types
from collections.abc import Callable
from typing import Any

from . import mirrors
from .frames import Closed, read_frame, write_frame
from .mirrors import MUTABLE, PLAIN, Mirror, MirrorClass, Unsupported
from .values import DEEPEST, Unencodable, decode, encode

LARGEST_VALUE = 16 << 20
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
_NAMED = ("__name__", "__qualname__", "__doc__", "__module__")
_NEVER = (types.FrameType, types.CodeType, types.TracebackType, types.ModuleType)
_SWALLOWED = (StopIteration, StopAsyncIteration, GeneratorExit)


class Shared:
    """A container that both sides hold, and its contents when they last agreed."""

    def __init__(self, value: Any, state: Any = None) -> None:
        self.value, self.state = value, state


_ALONE = sys.getrefcount(Shared([]).value)  # of a container that nothing else refers to


class Lost(Exception):
    """The other side is gone, or has sent what is no message."""


class Wire:
    """One end.

    Args:
        inlet, outlet: file descriptors.
        guarded: whether this is the side of the tests.
        lookup: a name to its value; what the other side asks for.
    """

    def __init__(self, inlet: int, outlet: int, *, guarded: bool, lookup: Callable[[str], Any] | None = None) -> None:
        self.inlet, self.outlet, self.guarded, self.lookup = inlet, outlet, guarded, lookup
        self.mine: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.described: set[int] = set()
        self.theirs: dict[int, Any] = {}
        self.shared: dict[int, Shared] = {}
        self.shared_numbers: dict[int, int] = {}
        self.raised: list[BaseException] = []  # by the other side
        self.next = int(guarded)  # even numbers are given by one side, odd ones by the other

    # Messages

    def ask(self, op: str, on: Any, arguments: Any = (), options: Any = None) -> Any:
        """Have the other side do something, and answer what it asks meanwhile.

        Raises:
            Lost: there is no other side any more.
            BaseException: what was raised there, of the same class.
        """
        # A function that raises StopIteration ends a loop of C around it without a trace, and what the loop did not
        # get to would count as passed.
        stops = op == "await" or (op == "operator" and arguments[0] in ("__next__", "__anext__"))
        request = {
            "ask": op,
            "on": self.pack(on),
            "arguments": [self.pack(one) for one in arguments],
            "options": [[name, self.pack(one)] for name, one in (options or {}).items()],
        }
        self._send(request)
        while True:
            message = self._receive()
            if "ask" not in message:
                break
            self._answer(message)
        try:
            if "value" in message:
                value = self.unpack(message["value"])
                self._drop(message.get("dropped", ()))
                return value
            error = self.unpack(message["raised"])
        except Lost:
            raise
        except Exception as broken:
            raise Lost(f"no value: {type(broken).__name__}: {broken}") from None
        if not isinstance(error, BaseException):
            raise Lost("an exception that is none")
        if isinstance(error, _SWALLOWED) and not stops:
            raise RuntimeError(f"the program raised {type(error).__name__}")
        self.raised.append(error)
        raise error

    def serve(self) -> None:
        """Answer requests until nobody asks any more."""
        while True:
            try:
                message = self._receive()
            except Lost:
                return
            self._answer(message, outermost=True)

    def _answer(self, message: dict[str, Any], outermost: bool = False) -> None:
        try:
            on = self.unpack(message["on"])
            arguments = [self.unpack(one) for one in message["arguments"]]
            options = {str(name): self.unpack(one) for name, one in message["options"]}
            op = message["ask"]
        except Lost:
            raise
        except Exception as error:
            raise Lost(f"no request: {error}") from None
        try:
            answer = {"value": self.pack(_do(self, op, on, arguments, options))}
        except (Lost, MemoryError):
            raise
        except BaseException as error:
            if isinstance(error, Unsupported):
                error = TypeError(str(error))
            error.__traceback__ = error.__context__ = None  # they hold the arguments
            answer = {"raised": self.pack(error)}
        del on, arguments, options
        self._send(answer, drop=outermost)

    def _send(self, message: dict[str, Any], drop: bool = False) -> None:
        message["states"] = self._changes()
        if drop:
            message["dropped"] = self._unused()
        try:
            write_frame(self.outlet, message)
        except OSError as error:
            raise Lost(str(error)) from None

    def _receive(self) -> dict[str, Any]:
        try:
            message = read_frame(self.inlet, LARGEST_VALUE if self.guarded else 1 << 28)
        except (OSError, Closed) as error:
            raise Lost(str(error)) from None
        if not isinstance(message, dict):
            raise Lost("no message")
        try:
            self._apply(message.get("states", ()))
        except Exception as error:
            raise Lost(f"no contents: {type(error).__name__}: {error}") from None
        return message

    # Containers that both hold

    def _share(self, value: Any) -> int:
        number = self.shared_numbers.get(id(value))
        if number is None:
            number, self.next = self.next, self.next + 2
            self.shared[number] = Shared(value)
            self.shared_numbers[id(value)] = number
        return number

    def _changes(self) -> list[Any]:
        changes, seen, waiting = [], 0, list(self.shared)
        while seen < len(waiting):
            number = waiting[seen]
            seen += 1
            entry, before = self.shared[number], len(self.shared)
            state = self._state(entry.value)
            if state != entry.state:
                entry.state = state
                changes.append([number, type(entry.value).__name__, state])
            if len(self.shared) > before:
                waiting += list(self.shared)[before:]
        return changes

    def _state(self, value: Any) -> Any:
        if isinstance(value, bytearray):
            return encode(bytes(value))
        if isinstance(value, dict):
            pairs = [[self.pack(key), self.pack(item)] for key, item in value.items()]
            return [self.pack(value.default_factory), pairs] if isinstance(value, collections.defaultdict) else pairs
        items = _as_they_are(value) or [self.pack(item) for item in value]
        return [value.maxlen, items] if isinstance(value, collections.deque) else items

    def _apply(self, states: Any) -> None:
        for number, kind, _ in states:  # all of them exist before one is filled with another
            if number not in self.shared:
                value = CONTAINERS[kind]()
                self.shared[number] = Shared(value)
                self.shared_numbers[id(value)] = number
        for number, kind, state in states:
            entry = self.shared[number]
            if kind == "deque" and state[0] != entry.value.maxlen:
                entry.value = collections.deque(maxlen=state[0])
                self.shared_numbers[id(entry.value)] = number
            self._fill(entry.value, state)
        for number, _, state in states:
            entry = self.shared[number]
            simple = isinstance(state, list) and not any(type(item) in (dict, list) for item in state)
            entry.state = state if simple else self._state(entry.value)

    def _fill(self, value: Any, state: Any) -> None:
        if isinstance(value, bytearray):
            value[:] = decode(state)
            return
        if isinstance(value, dict):
            if isinstance(value, collections.defaultdict):
                factory, state = state
                value.default_factory = self.unpack(factory)
            items = [(self.unpack(key), self.unpack(item)) for key, item in state]
            value.clear()
            for key, item in items:  # update() of a Counter adds
                value[key] = item
            return
        if isinstance(value, collections.deque):
            state = state[1]
        items = [self.unpack(item) if type(item) is dict else item for item in state]
        if isinstance(value, list):
            value[:] = items
        else:
            value.clear()
            (value.update if isinstance(value, set) else value.extend)(items)

    def _unused(self) -> list[int]:
        """Forget the containers that nothing here refers to; the one that asked owns them alone from now on."""
        unused = [number for number, entry in self.shared.items() if self._forget(number, entry)]
        for number in unused:
            del self.shared[number]
        return unused

    def _forget(self, number: int, entry: Shared) -> bool:
        if sys.getrefcount(entry.value) > _ALONE:
            return False
        del self.shared_numbers[id(entry.value)]
        entry.value = None  # which frees those in it
        return True

    def _drop(self, numbers: Any) -> None:
        for number in numbers:
            entry = self.shared.pop(number, None)
            if entry is not None:
                self.shared_numbers.pop(id(entry.value), None)

    # Values

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
            message["plain"] = self.pack(base(base.__iter__(value)))  # type: ignore[attr-defined]
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
                bases = tuple(b for b in bases if b in PLAIN or isinstance(b, MirrorClass) or issubclass(b, BaseException))
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


def _do(wire: Wire, op: str, on: Any, arguments: list[Any], options: dict[str, Any]) -> Any:
    """What the other side asks for."""
    if wire.guarded:
        _allow(wire, op, on, arguments)
    if op == "name" and wire.lookup is not None:
        return wire.lookup(*arguments)
    if op == "operator":
        return getattr(type(on), arguments[0])(on, *arguments[1:])
    if op == "call":
        return on(*arguments, **options)
    if op == "plain":
        return next(_PLAINLY[kind](on) for kind in _PLAINLY if isinstance(on, kind))
    return _ACTIONS[op](on, *arguments)


def _await(value: Any) -> Any:
    import asyncio

    async def wait() -> Any:
        return await value

    if not _loop:
        _loop.append(asyncio.new_event_loop())
    return _loop[0].run_until_complete(wait())


_loop: list[Any] = []
_ACTIONS: dict[str, Callable[..., Any]] = {
    "get": getattr,
    "set": setattr,
    "delete": delattr,
    "item": lambda value, key: value[key],
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "await": _await,
}
_PLAINLY: dict[type, Callable[[Any], Any]] = {
    list: lambda value: list(list.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
    set: lambda value: set(set.__iter__(value)),
    bytearray: lambda value: bytearray(bytes(value)),
}


def _allow(wire: Wire, op: str, on: Any, arguments: list[Any]) -> None:
    """What the program may do with an object that a test has handed it."""
    if op not in ("call", "operator", "get", "set", "item", "await"):
        raise AttributeError(op)
    if id(on) not in wire.numbers:
        raise TypeError("no object of the tests")
    if op in ("get", "set", "operator"):
        name = arguments[0]
        public = isinstance(name, str) and not name.startswith("_")
        if op == "operator" and name not in mirrors.FORWARD:
            raise AttributeError(name)
        if op in ("get", "set") and not public and (op == "set" or name not in _NAMED):
            raise AttributeError(name)


def _operators(kind: type) -> list[str]:
    """The operators of a class that the other side has to ask for."""
    found = ["no hash"] if kind.__hash__ is None else []
    for name in (*mirrors.FORWARD, "__await__"):
        owner = next((one for one in kind.__mro__ if name in vars(one)), None)
        local = owner in PLAIN or (isinstance(owner, type) and issubclass(owner, BaseException) and owner.__module__ == "builtins")
        if owner is None or local or vars(owner)[name] is None:
            continue
        if owner is not object or name in ("__repr__", "__str__", "__format__"):
            found.append(name)
    if issubclass(kind, (BaseException, *PLAIN)):
        own = {name for one in kind.__mro__ if one.__module__ != "builtins" for name in vars(one)}
        found = [name for name in found if name in own or name == "no hash"]
    return found


def _as_they_are(value: Any) -> list[Any] | None:
    """The items where each stands for itself in JSON, which is quick to see for those of one type."""
    kinds = set(map(type, value))
    if kinds <= {str, bool, type(None)}:
        return list(value)
    if kinds == {int} and min(value) >= -(2**63) and max(value) < 2**63:
        return list(value)
    return None


def _importable(value: Any) -> list[str] | None:
    """Where the standard library has this function or class; the program then gets its own."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module.partition(".")[0] not in sys.stdlib_module_names:
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
