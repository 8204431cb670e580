"""The process of tests that are code (HumanEval, MBPP): it calls the program in the other process, and judges here.

A name of the program is a proxy here: its arguments go over as plain data, and so does what comes back. An object with
an ``__eq__`` of its own, a patched ``assert``, a ``sys.exit`` or a made-up message of success stays in the other
process, which has neither the tests nor the pipe on which the verdict leaves.
"""

from __future__ import annotations

import ast
import builtins
import os
import random
from collections.abc import Callable
from typing import Any, NoReturn

from .frames import Closed, read_frame, write_frame
from .values import Unencodable, decode, encode

TESTS, VERDICT, CALLS, RETURNS = 3, 4, 5, 6
LARGEST_VALUE = 16 << 20


class RemoteError(Exception):
    """The program raised something that is no ordinary exception of Python's own."""


class Gone(BaseException):
    """The process of the program has ended. A test that catches this fails all the same."""


class Unsupported(BaseException):
    """A test hands the program something that is not plain data."""


def main() -> NoReturn:
    """Read the tests, run them, say on the verdict which passed, and leave."""
    job = read_frame(TESTS)
    os.close(TESTS)
    random.seed(0)
    write_frame(VERDICT, _judge(job))
    os._exit(0)


def _judge(job: dict[str, Any]) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "tests"}
    lost: list[str] = []
    try:
        exec(compile(job["setup"], "setup.py", "exec", dont_inherit=True), names)
        trees = [ast.parse(test, "tests.py") for test in job["tests"]]
    except BaseException as error:
        return {"kind": "suite", "passed": [], "text": _line(error)}
    entry = job["entry"]
    for name in {entry} if entry else _missing(trees, names):
        names[name] = _proxy(name, lost)
    passed: list[bool] = []
    kind = text = ""
    try:
        _wait_until_ready()
        for tree in trees:
            problem = _attempt(tree, dict(names), entry)
            if lost:
                raise Gone(lost[0])
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


def _attempt(tree: ast.Module, names: dict[str, Any], entry: str | None) -> tuple[str, str]:
    """Run one test: ('', '') where it passes, else what kind of failure, and its text."""
    try:
        exec(compile(tree, "tests.py", "exec", dont_inherit=True), names)
        if entry and "check" in names:
            names["check"](names[entry])
    except (Gone, Unsupported):
        raise
    except AssertionError as error:
        return "assertion", _where(error) or str(error)[:500]
    except BaseException as error:
        return "raised", _line(error)
    return "", ""


def _proxy(name: str, lost: list[str]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            message = {"name": name, "arguments": encode(list(arguments)), "options": encode(options)}
        except Unencodable as error:
            raise Unsupported(f"a test calls {name} with {error}") from None
        try:
            write_frame(CALLS, message)
            answer = read_frame(RETURNS, LARGEST_VALUE)
        except (OSError, Closed) as error:
            lost.append(f"the program ended in {name}: {error}")
            raise Gone(lost[0]) from None
        if not isinstance(answer, dict):
            lost.append(f"the program answered with no value in {name}")
            raise Gone(lost[0])
        return _outcome(name, answer)

    call.__name__ = name
    return call


def _outcome(name: str, answer: dict[str, Any]) -> Any:
    """The value that the program returned; what it raised is raised here, as one of Python's own exceptions."""
    if "value" in answer:
        try:
            return decode(answer["value"])
        except Exception as error:
            raise RemoteError(f"{name} returned {error}") from None
    raised, text = str(answer.get("raised")), str(answer.get("text"))
    kind = getattr(builtins, raised, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, AssertionError):
        try:
            again = kind(text)
        except Exception:  # UnicodeDecodeError wants five arguments
            again = RemoteError(f"{raised}: {text}")
        raise again
    raise RemoteError(f"{raised}: {text}")


def _wait_until_ready() -> None:
    try:
        read_frame(RETURNS, 1024)
    except Closed:
        raise Gone("the program ended before the first test") from None


def _missing(trees: list[ast.Module], names: dict[str, Any]) -> set[str]:
    """Names that the tests use and nobody here defines: those of the program."""
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)]
    stored = {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
    defined = {
        alias.asname or alias.name.split(".")[0]
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    return {node.id for node in nodes} - stored - defined - set(names) - set(dir(builtins))


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
