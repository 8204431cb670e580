"""The process of the program: the only place where a line that a model wrote is executed.

Nothing that decides the verdict is here. The program may do to this module what it likes: it can choose what it
prints, what its functions return and how it ends, which is what it may choose anyway.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import linecache
import os
import random
import sys
import threading
import traceback
import types
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from .frames import read_frame, write_frame
from .values import Unencodable, decode, encode
from .wire import Wire

SOURCE, REPORT, CALLS, RETURNS = 3, 4, 5, 6
FILE = "program.py"
LARGEST_STACK = 128 << 20


def main() -> NoReturn:
    """Read the job, run it, say on the report how it ended, and leave."""
    job = read_frame(SOURCE)
    os.close(SOURCE)
    random.seed(0)
    _open_standard_files()
    module = _module("__main__" if job["mode"] == "script" else "solution", job["source"])
    _finish(_run(job, module.__dict__), module.__dict__)


def _module(name: str, source: str) -> types.ModuleType:
    """The module that ``python program.py`` would run; its file is in its folder where the program speaks of it."""
    place = os.path.abspath(FILE)
    if any(word in source for word in ("__file__", "argv", FILE)):
        with contextlib.suppress(OSError), open(place, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(source)
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    sys.argv[:] = [FILE]
    sys.path.insert(0, os.path.dirname(place))
    module = types.ModuleType(name)
    module.__dict__.update(__file__=place, __cached__=None, __annotations__={}, __builtins__=builtins)
    sys.modules[name] = module
    threading.stack_size = _stack_size
    return module


def _stack_size(size: int = 0, set_size: Any = threading.stack_size) -> int:
    """As much as the address space has room for; a deep recursion of Python functions does not use it."""
    return set_size(min(size, LARGEST_STACK))


def _run(job: Mapping[str, Any], names: dict[str, Any]) -> int:
    """Execute the source and the calls; the exit code."""
    try:
        exec(job["prelude"], names)
        code = compile(job["source"].removeprefix("\ufeff"), FILE, "exec", dont_inherit=True)
    except BaseException as error:
        return _fail("compile", error)
    try:
        exec(code, names)
        if job["mode"] == "call":
            write_frame(REPORT, {"kind": "value", **_called(job, names)})
        elif job["mode"] == "tests":
            wire = Wire(CALLS, RETURNS, guarded=False, lookup=lambda name: resolve(names, name))
            write_frame(RETURNS, {"ready": True})
            wire.serve()
    except SystemExit as error:
        return _exit_code(error)
    except BaseException as error:
        return _fail("memory" if isinstance(error, MemoryError) else "raised", error)
    return 0


def _called(job: Mapping[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """What the function returned; where that is nothing, also what it made of its first argument."""
    arguments = [decode(argument) for argument in job["arguments"]]
    value = resolve(names, job["name"])(*arguments)
    answer = {"value": encode(value)}
    if value is None and arguments:
        with contextlib.suppress(Unencodable):
            answer["changed"] = encode(arguments[0])
    return answer


def resolve(names: Mapping[str, Any], name: str) -> Callable[..., Any]:
    """The function of that name, or the method of that name of ``Solution``, as LeetCode has it."""
    if name in names:
        return names[name]
    if "Solution" in names:
        return getattr(names["Solution"](), name)
    raise NameError(f"the program defines no function '{name}'")


def _fail(kind: str, error: BaseException) -> int:
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != FILE:
        frame = frame.tb_next
    with contextlib.suppress(BaseException):
        write_frame(REPORT, {"kind": kind})
    with contextlib.suppress(BaseException):
        traceback.print_exception(type(error), error, frame, limit=20, chain=False)
    return 1


def _exit_code(error: SystemExit) -> int:
    with contextlib.suppress(BaseException):
        write_frame(REPORT, {"kind": "exit"})
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    with contextlib.suppress(BaseException):
        print(error.code, file=sys.stderr)
    return 1


def _finish(code: int, names: dict[str, Any]) -> NoReturn:
    """What Python does at its end: wait for threads, run what was registered, let go of objects, flush."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for name in names:
            if name != "__builtins__":
                names[name] = None
        gc.collect()
        sys.stdout.flush()
    except BaseException:
        code = code or 1
    finally:
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def _open_standard_files() -> None:
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
