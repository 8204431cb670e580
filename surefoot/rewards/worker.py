"""The inside of a worker process: ``python -m surefoot.rewards.worker MEMORY MODULE ...`` (see :mod:`.workers`).

It reads ``[function, arguments, deadline]`` and answers ``[status, value, text, seconds]``. What libraries print goes
nowhere: the pipe of answers is moved away from the standard output before anything is imported.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import select
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

_HEAD = struct.Struct("!I")
_PATIENCE = 2.0


def main(memory: int, modules: list[str]) -> None:
    jobs, answers = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory << 20, memory << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    parent = os.getppid()
    try:
        for module in modules:
            importlib.import_module(module)
    except Exception as error:
        _send(answers, ["failed", _line(error)])
        return
    _send(answers, ["ready", ""])
    while (job := _receive(jobs, parent)) is not None:
        _send(answers, _answer(*job))


def _answer(function: str, arguments: list[Any], deadline: float) -> list[Any]:
    begun = time.perf_counter()
    # The parent counts wall time. This limit only matters where the parent is gone.
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + deadline) + 1, hard))
    try:
        value = _find(function)(*arguments)
        json.dumps(value)
    except (Exception, SystemExit) as error:  # a MemoryError is one; the worker goes on
        return ["error", None, _line(error), time.perf_counter() - begun]
    return ["ok", value, "", time.perf_counter() - begun]


def _find(function: str) -> Callable[..., Any]:
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def _receive(pipe: int, parent: int) -> Any:
    """The next job; None where the parent is gone or has closed the pipe."""
    while not select.select([pipe], [], [], _PATIENCE)[0]:
        if os.getppid() != parent:  # a fork of the parent may hold the pipe open
            return None
    head = _exactly(pipe, _HEAD.size)
    body = _exactly(pipe, _HEAD.unpack(head)[0]) if head else None
    return None if body is None else json.loads(body)


def _exactly(pipe: int, length: int) -> bytes | None:
    pieces = bytearray()
    while len(pieces) < length:
        piece = os.read(pipe, length - len(pieces))
        if not piece:
            return None
        pieces += piece
    return bytes(pieces)


def _send(pipe: int, message: list[Any]) -> None:
    body = json.dumps(message).encode()
    view = memoryview(_HEAD.pack(len(body)) + body)
    while view:
        view = view[os.write(pipe, view) :]


def _line(error: BaseException) -> str:
    try:
        return " ".join(f"{type(error).__name__}: {error}".split())[:500]
    except Exception:  # the message of an error can fail to be written, too
        return type(error).__name__


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
