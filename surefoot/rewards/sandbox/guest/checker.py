"""The process of tests that are code (HumanEval, MBPP): it uses the program in the other process, and judges here.

A name that nobody defines here is asked of the program: plain data comes by value, and anything else as a stand-in
(:mod:`.wire`, :mod:`.mirrors`). A patched ``assert``, a ``sys.exit`` or a made-up message of success stays in the
other process, which has neither the tests nor the pipe on which the verdict leaves.
"""

from __future__ import annotations

import ast
import builtins
import os
import random
import sys
from typing import Any, NoReturn

from . import expectations
from .frames import Closed, read_frame, write_frame
from .mirrors import Unsupported
from .values import Unencodable
from .wire import Lost, Wire

TESTS, VERDICT, CALLS, RETURNS = 3, 4, 5, 6


class Gone(BaseException):
    """The process of the program has ended. A test that catches this fails all the same."""


class Program(Wire):
    """The other process; once it is lost, no test passes."""

    lost = ""

    def ask(self, op: str, on: Any, arguments: Any = (), options: Any = None) -> Any:
        if self.lost:
            raise Gone(self.lost)
        try:
            return super().ask(op, on, arguments, options)
        except Lost as error:
            self.lost = f"the program ended: {error}"
            raise Gone(self.lost) from None
        except Unencodable as error:
            raise Unsupported(f"a test that hands over {error}") from None


class Names(dict[str, Any]):
    """What the tests find beside what they define: names of the program, then Python's own.

    A program that defines ``all`` or ``len`` does not get to judge: names of Python are those of Python, but for the ones
    that the tests are about.
    """

    def __init__(self, program: Program, about: set[str]) -> None:
        super().__init__({name: value for name, value in vars(builtins).items() if name not in about})
        self.program, self.about = program, about

    def __missing__(self, name: str) -> Any:
        try:
            return self.program.ask("name", None, (name,))
        except NameError:
            if name in self.about:
                return getattr(builtins, name)
            raise KeyError(name) from None


def main() -> NoReturn:
    """Read the tests, run them, say on the verdict which passed, and leave."""
    job = read_frame(TESTS)
    os.close(TESTS)
    random.seed(0)
    sys.modules["pytest"] = expectations.module()
    write_frame(VERDICT, _judge(job))
    os._exit(0)


def _judge(job: dict[str, Any]) -> dict[str, Any]:
    try:
        setup = compile(job["setup"], "setup.py", "exec", dont_inherit=True)
        trees = [ast.parse(test, "tests.py") for test in job["tests"]]
    except BaseException as error:
        return {"kind": "suite", "passed": [], "text": _line(error)}
    program = Program(RETURNS, CALLS, guarded=True)
    passed: list[bool] = []
    kind = text = ""
    try:
        _wait_until_ready()
        names = {"__name__": "tests", "__builtins__": Names(program, set() if job["entry"] else _about(trees))}
        try:
            exec(setup, names)
        except (Gone, Unsupported):
            raise
        except BaseException as error:
            return {"kind": "raised" if program.raised else "suite", "passed": [], "text": _line(error)}
        for tree in trees:
            problem = _attempt(tree, names, job["entry"], program)
            if program.lost:
                raise Gone(program.lost)
            passed.append(not problem[0])
            if problem[0] and not kind:
                kind, text = problem
                if job["stop"]:
                    break
    except Gone as error:
        kind, text = "gone", str(error)
    except Unsupported as error:
        kind, text = "unsupported", str(error)
    return {"kind": kind, "passed": passed, "text": text}


def _attempt(tree: ast.Module, shared: dict[str, Any], entry: str | None, program: Program) -> tuple[str, str]:
    """Run one test: ('', '') where it passes, else what kind of failure, and its text."""
    names = dict(shared)
    try:
        exec(compile(tree, "tests.py", "exec", dont_inherit=True), names)
        if entry and "check" in names:
            names["check"](program.ask("name", None, (entry,)))
    except (Gone, Unsupported):
        raise
    except BaseException as error:
        if isinstance(error, AssertionError) and not any(error is one for one in program.raised):
            return "assertion", _where(error) or str(error)[:500]
        return "raised", _line(error)
    return "", ""


def _wait_until_ready() -> None:
    try:
        read_frame(RETURNS, 1024)
    except Closed:
        raise Gone("the program ended before the first test") from None


def _about(trees: list[ast.Module]) -> set[str]:
    """Python's names that the tests take from the program: those that every test calls, where it calls nothing else.

    MBPP has problems whose function is called ``sum``.
    """
    own = set(dir(builtins))
    stored, called = set(), []
    for tree in trees:
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        stored |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id not in own}
        # the innermost: set(sum(1, 2)) is about sum
        called.append(
            {
                str(getattr(c.func, "id", ""))
                for c in calls
                if not any(isinstance(n, ast.Call) for a in c.args for n in ast.walk(a))
            }
        )
    about = set.intersection(*called) if called else set()
    return about & own if len(about) == 1 and not stored else set()


def _where(error: AssertionError) -> str:
    """The line of the failed assertion is enough for a person; the message of the test comes first."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    text = str(error)[:500]
    place = f"line {trace.tb_lineno} of the tests" if trace is not None else ""
    return f"{text} ({place})" if text and place else text or place


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]
