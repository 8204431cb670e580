"""What is asked of the sandbox, and what comes back."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from surefoot.rewards.sandbox.limits import Limits


class Ending(enum.StrEnum):
    """How a program ended."""

    OK = "ok"  # exit code 0
    COMPILE = "compile error"
    FAILED = "runtime error"  # an exception, another exit code, a signal
    MEMORY = "out of memory"
    TIMEOUT = "timeout"  # of the clock or of computing
    OUTPUT = "too much output"
    DISK = "disk full"
    ERROR = "sandbox error"  # the sandbox's own failure: it says nothing about the program


@dataclass(frozen=True)
class Call:
    """A function to call once the program is loaded: its name (or that of a method of ``Solution``) and arguments."""

    name: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Checks:
    """Checks that are code. They run in another process than the program, which never sees them.

    Attributes:
        sources: one or more pieces of code, each a test that passes where it raises nothing.
        setup: code before them; not judged.
        entry: a function that the program defines. If the tests define ``check``, it is called with that function.
            A name that the tests use and do not define is taken from the program.
        stop: leave off at the first failure.
    """

    sources: tuple[str, ...]
    setup: str = ""
    entry: str | None = None
    stop: bool = True


@dataclass(frozen=True)
class Job:
    """A program with what to do with it.

    Attributes:
        program: source text.
        stdin: what it reads.
        task: nothing (run it as a script), a call, or tests.
        prelude: trusted code before the program, in its namespace (imports, for instance).
        limits: None for those of the sandbox.
    """

    program: str
    stdin: str | bytes = ""
    task: Call | Checks | None = None
    prelude: str = ""
    limits: Limits | None = None


@dataclass(frozen=True)
class Result:
    """What became of a program.

    Attributes:
        status: see :class:`Ending`.
        stdout, stderr: what it printed, up to the limit; bytes that are no UTF-8 as replacement characters.
        code: exit code; minus the number of the signal that ended it.
        seconds: of the clock, from the delivery of the program to its end.
        cpu_seconds: of computing.
        value: what the function returned, in built-in types (a :class:`Call` only).
        returned: whether it returned at all.
        changed: its first argument after the call, where it returned None.
        passed: for each test that was run, whether it passed (:class:`Checks` only).
        text: one line for a person on what went wrong.
    """

    status: Ending
    stdout: str = ""
    stderr: str = ""
    code: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    value: Any = None
    returned: bool = False
    changed: Any = None
    passed: tuple[bool, ...] = ()
    text: str = ""

    @property
    def ok(self) -> bool:
        """Whether the program ended by itself with exit code 0."""
        return self.status is Ending.OK
