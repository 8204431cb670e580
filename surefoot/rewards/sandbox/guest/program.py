"""The process of the program: the only place where a line that a model wrote is executed.

Nothing that decides the verdict is here. The program may do to this module what it likes: it can choose what it
prints, what its functions return and how it ends, which is what it may choose anyway.
"""

from __future__ import annotations

import atexit
import contextlib
import linecache
import os
import random
import sys
import threading
import traceback
import types
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from .frames import Closed, read_frame, write_frame
from .values import decode, encode

SOURCE, REPORT, CALLS, RETURNS = 3, 4, 5, 6
FILE = "program.py"


def main() -> NoReturn:
    """Read the job, run it, say on the report how it ended, and leave."""
    job = read_frame(SOURCE)
    os.close(SOURCE)
    random.seed(0)
    _open_standard_files()
    sys.argv[:] = [FILE]
    linecache.cache[FILE] = (len(job["source"]), None, job["source"].splitlines(keepends=True), FILE)
    _finish(_run(job))


def _run(job: Mapping[str, Any]) -> int:
    """Execute the source and the calls; the exit code."""
    module = types.ModuleType("__main__" if job["mode"] == "script" else "solution")
    sys.modules[module.__name__] = module
    names = module.__dict__
    try:
        exec(job["prelude"], names)
        code = compile(job["source"], FILE, "exec", dont_inherit=True)
    except BaseException as error:
        return _fail("compile", error)
    try:
        exec(code, names)
        if job["mode"] == "call":
            arguments = [decode(argument) for argument in job["arguments"]]
            write_frame(REPORT, {"kind": "value", "value": encode(resolve(names, job["name"])(*arguments))})
        elif job["mode"] == "tests":
            _serve(names)
    except SystemExit as error:
        return _exit_code(error)
    except BaseException as error:
        return _fail("memory" if isinstance(error, MemoryError) else "raised", error)
    return 0


def _serve(names: dict[str, Any]) -> None:
    """Answer calls until nobody asks any more."""
    write_frame(RETURNS, {"ready": True})
    while True:
        try:
            message = read_frame(CALLS)
        except Closed:
            return
        try:
            arguments, options = decode(message["arguments"]), decode(message["options"])
            answer = {"value": encode(resolve(names, message["name"])(*arguments, **options))}
        except MemoryError:
            raise
        except BaseException as error:
            answer = {"raised": type(error).__name__, "text": str(error)[:1000]}
        write_frame(RETURNS, answer)


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


def _finish(code: int) -> NoReturn:
    """What Python does at its end: wait for threads, run what was registered, flush."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
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
