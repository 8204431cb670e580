"""Two processes that use each other's objects: requests and answers in which nothing but plain data travels.

The side of the tests is ``guarded``: it answers requests only about objects that a test has handed over, gives only
their public attributes, and never a frame, a module or a code object.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from . import mirrors
from .containers import Containers
from .frames import Closed, read_frame, write_frame
from .mirrors import Unsupported

LARGEST_VALUE = 16 << 20
_NAMED = ("__name__", "__qualname__", "__doc__", "__module__")
_SWALLOWED = (StopIteration, StopAsyncIteration, GeneratorExit)


class Lost(Exception):
    """The other side is gone, or has sent what is no message."""


class Wire(Containers):
    """One end.

    Args:
        inlet, outlet: file descriptors.
        guarded: whether this is the side of the tests.
        lookup: a name to its value; what the other side asks for.
    """

    def __init__(self, inlet: int, outlet: int, *, guarded: bool, lookup: Callable[[str], Any] | None = None) -> None:
        super().__init__(guarded=guarded)
        self.inlet, self.outlet, self.lookup = inlet, outlet, lookup
        self.raised: list[BaseException] = []  # by the other side

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
