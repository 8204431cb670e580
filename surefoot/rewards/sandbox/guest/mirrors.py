"""Stand-ins for objects that live in the other process, with the operators that their classes have there.

A class of the other process is a class here, with the same bases, so that ``isinstance``, ``type(x) is C`` and
``except C`` mean what they mean there; an operator that the class lacks is lacking here.

On the side that judges (``wire.guarded``) nothing that a test tells an object may come back as the answer that the test
wants. An object of the program is never equal to plain data, is not ordered with it, and arithmetic with plain data
gives no plain data: otherwise a class with an ``__eq__`` that always says yes, or a ``__sub__`` that gives 0, would pass
any test of any function. Two objects of the program compare as the program says.
"""

from __future__ import annotations

import types
from typing import Any

PLAIN = (int, float, complex, str, bytes, tuple, frozenset)
"""Immutable: a stand-in of a class derived from one of them has its value, and its operators."""
MUTABLE = (list, dict, set, bytearray)
SEEN = {
    kind.__name__: kind
    for kind in (*MUTABLE, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.GeneratorType)
} | {"coroutine": types.CoroutineType}
"""What ``isinstance`` takes a stand-in for, beside its own class."""

_COMPARING = "eq ne lt le gt ge"
_ARITHMETIC = "add sub mul truediv floordiv mod divmod pow matmul lshift rshift and or xor"
_NUMBERS = "abs float int complex index round trunc floor ceil bool"
_UNARY = "neg pos invert"
_OTHERS = "len getitem setitem delitem iter next reversed call enter exit str repr format hash bytes missing fspath"
_OTHERS += " aiter anext aenter aexit"
_PREDICATES = {"startswith", "endswith", "issubset", "issuperset", "isdisjoint"}


class Unsupported(BaseException):
    """What a test does needs something that cannot cross between the processes."""


class MirrorClass(type):
    """The class of stand-ins for a class of the other process."""

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        raise Unsupported("a test that derives a class from one of the program")

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        made = cls._wire.ask("call", cls, arguments, options)
        if isinstance(made, Mirror) and cls.__name__[:1].isupper():  # as classes are named, and few functions are
            _told(made)["made"] = True
        return made

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_mirror") or name == "_wire":
            raise AttributeError(name)
        return cls._wire.ask("get", cls, (name,))

    def __setattr__(cls, name: str, value: Any) -> None:
        cls._wire.ask("set", cls, (name, value))

    def __iter__(cls) -> Any:
        return cls._wire.ask("operator", cls, ("__iter__",))

    def __len__(cls) -> Any:
        return cls._wire.ask("operator", cls, ("__len__",))

    def __bool__(cls) -> bool:
        return True

    def __getitem__(cls, key: Any) -> Any:
        return cls._wire.ask("item", cls, (key,))

    def __contains__(cls, item: Any) -> bool:
        return any(item is one or item == one for one in cls)

    @property
    def __doc__(cls) -> Any:  # type: ignore[override]
        return cls._wire.ask("get", cls, ("__doc__",))

    def __repr__(cls) -> str:
        return str(cls._wire.ask("operator", cls, ("__repr__",)))


class Mirror:
    """An object of the other process."""

    def __getattr__(self, name: str) -> Any:
        wire, told = wire_of(self), _told(self)
        if wire.guarded and not told.get("made") and name in _PREDICATES:
            raise AttributeError(f"{name} of an object of the program, which would be asked what the test expects")
        if told.get("told") and hasattr(float, name):
            raise TypeError(_NO_NUMBER)
        return wire.ask("get", self, (name,))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OF_EXCEPTIONS:
            object.__setattr__(self, name, value)
        else:
            wire_of(self).ask("set", self, (name, value))

    def __delattr__(self, name: str) -> None:
        wire_of(self).ask("delete", self, (name,))

    def __copy__(self) -> Any:
        return wire_of(self).ask("copy", self)

    def __deepcopy__(self, memo: Any) -> Any:
        return wire_of(self).ask("deepcopy", self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise Unsupported("a test that pickles an object of the program")

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return wire_of(self).ask("get", self, ("__dict__",))

    @property
    def __doc__(self) -> Any:  # type: ignore[override]
        return wire_of(self).ask("get", self, ("__doc__",))


class Awaitable:
    """An awaitable of the other process is run there, to its end, where it is first awaited."""

    def __await__(self: Any) -> Any:
        yield from ()
        return wire_of(self).ask("await", self)

    def send(self: Any, value: Any) -> Any:
        raise StopIteration(wire_of(self).ask("await", self))

    def throw(self: Any, *error: Any) -> Any:
        raise error[0]

    def close(self: Any) -> None:
        pass


_OF_EXCEPTIONS = ("__traceback__", "__context__", "__cause__", "__suppress_context__")
_NO_NUMBER = "an object that arithmetic with plain data gave is no number to the tests"


def is_mirror(value: Any) -> bool:
    return isinstance(type(value), MirrorClass) or isinstance(value, MirrorClass)


def make_class(wire: Any, number: int, name: str, bases: tuple[type, ...], operators: list[str], seen: str) -> type:
    """A class of stand-ins. ``operators``: those to ask the other side for."""
    body = {operator: FORWARD[operator] for operator in operators if operator in FORWARD}
    body |= {"__module__": "solution", "_wire": wire, "_mirror_number": number, "_mirror_plain": seen in _SNAPSHOT}
    body["__doc__"] = vars(Mirror)["__doc__"]
    if "no hash" in operators:
        body["__hash__"] = None
    elif "__hash__" not in body:
        body["__hash__"] = next((b.__hash__ for b in bases if issubclass(b, PLAIN)), object.__hash__)
    if "__await__" in operators:
        body |= {one: vars(Awaitable)[one] for one in ("__await__", "send", "throw", "close")}
    if seen in SEEN:
        body["__class__"] = property(lambda self: SEEN[seen])
    mine: tuple[type, ...] = tuple(base for base in bases if isinstance(base, MirrorClass))
    plain = tuple(base for base in bases if not isinstance(base, MirrorClass))
    for chosen in ((*mine, *plain) if mine else (Mirror, *plain), (*mine[:1],) or (Mirror, *plain[:1]), (Mirror,)):
        try:
            return type.__new__(MirrorClass, name, chosen, dict(body))
        except TypeError:  # an order of bases or a layout that the stand-ins cannot have
            continue
    raise TypeError(f"no stand-in for the class {name}")


def make(kind: Any, number: int, plain: Any = None, arguments: tuple[Any, ...] = ()) -> Any:
    """A stand-in of that class; ``plain`` is its value where the class derives from an immutable type of Python's."""
    base = next((one for one in kind.__mro__ if one in PLAIN), None)
    if base is not None:
        one = base.__new__(kind, *(() if plain is None else (plain,)))
    elif issubclass(kind, BaseException):
        one = kind.__new__(kind)
        BaseException.args.__set__(one, arguments)  # type: ignore[attr-defined]
    else:
        one = object.__new__(kind)
    object.__setattr__(one, "_mirror_number", number)
    object.__setattr__(one, "_mirror_told", {})
    return one


def number_of(value: Any) -> int:
    """The number by which the other side knows it."""
    if isinstance(value, MirrorClass):
        return type.__getattribute__(value, "_mirror_number")
    return object.__getattribute__(value, "_mirror_number")


def wire_of(value: Any) -> Any:
    """The connection to the process where it lives."""
    if isinstance(value, MirrorClass):
        return type.__getattribute__(value, "_wire")
    return type.__getattribute__(type(value), "_wire")


def _told(value: Any) -> dict[str, bool]:
    return object.__getattribute__(value, "_mirror_told")


def _operate(name: str, value: Any, *others: Any) -> Any:
    return wire_of(value).ask("operator", value, (name, *others))


def _comparing(name: str) -> Any:
    def compare(self: Any, other: Any) -> Any:
        if is_mirror(other) or not wire_of(self).guarded:
            return _operate(name, self, other)
        if type(self)._mirror_plain:
            return getattr(wire_of(self).ask("plain", self), name)(other)
        base = next((one for one in type(self).__mro__ if one in PLAIN), None)
        return NotImplemented if base is None else getattr(base, name)(self, other)

    return compare


def _arithmetic(name: str) -> Any:
    def combine(self: Any, *others: Any) -> Any:
        answer = _operate(name, self, *others)
        if answer is NotImplemented or not wire_of(self).guarded:
            return answer
        if all(is_mirror(other) and not _is_told(other) for other in others) and not _is_told(self):
            return answer
        if not isinstance(answer, Mirror) or isinstance(answer, PLAIN) or getattr(type(answer), "_mirror_plain", False):
            raise TypeError(f"{name} of an object of the program with plain data gave plain data")
        _told(answer)["told"] = True
        return answer

    return combine


def _is_told(value: Any) -> bool:
    return isinstance(value, Mirror) and bool(_told(value).get("told"))


def _number(name: str) -> Any:
    def convert(self: Any, *others: Any) -> Any:
        if _is_told(self):
            raise TypeError(_NO_NUMBER)
        return _operate(name, self, *others)

    return convert


def _forward(name: str) -> Any:
    def forward(self: Any, *others: Any) -> Any:
        return _operate(name, self, *others)

    return forward


def _call(self: Any, *arguments: Any, **options: Any) -> Any:
    return wire_of(self).ask("call", self, arguments, options)


def _exit(self: Any, kind: Any, error: Any, trace: Any) -> Any:
    return _operate("__exit__", self, kind, error, None)


def _contains(self: Any, item: Any) -> Any:
    iterable = any("__iter__" in vars(one) for one in type(self).__mro__)
    if not wire_of(self).guarded or is_mirror(item) or (_told(self).get("made") and not iterable):
        return _operate("__contains__", self, item)
    return any(item is one or item == one for one in self)


_SNAPSHOT = {kind.__name__ for kind in MUTABLE}
FORWARD: dict[str, Any] = {f"__{name}__": _comparing(f"__{name}__") for name in _COMPARING.split()}
for _name in _ARITHMETIC.split():
    for _prefix in ("", "r", "i"):
        FORWARD[f"__{_prefix}{_name}__"] = _arithmetic(f"__{_prefix}{_name}__")
FORWARD |= {f"__{name}__": _number(f"__{name}__") for name in _NUMBERS.split()}
FORWARD |= {f"__{name}__": _arithmetic(f"__{name}__") for name in _UNARY.split()}
FORWARD |= {f"__{name}__": _forward(f"__{name}__") for name in _OTHERS.split()}
FORWARD |= {"__call__": _call, "__exit__": _exit, "__contains__": _contains}
