"""Jobs for the tests of the worker pool: what a worker may meet."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any


def double(number: int) -> int:
    return 2 * number


def who(number: int, seconds: float = 0.0) -> list[int]:
    time.sleep(seconds)
    return [number, os.getpid()]


def act(what: str, number: int) -> Any:
    """Misbehave in the named way, or return the number."""
    if what == "raise":
        raise ValueError(f"broken {number}")
    if what == "hang":
        while True:
            time.sleep(1)
    if what == "spin":
        while True:
            pass
    if what == "power":  # one C call that never lets go of the interpreter
        return len(str(9**9**9))
    if what == "memory":
        return len([0] * 10**10)
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "exit":
        sys.exit(0)
    if what == "print":
        print("noise" * 10**5)
        os.write(1, b"\x00\x00\x00\x02[]")
    if what == "deep":
        return act("deep", number)
    if what == "odd":
        return {1, 2}
    if what == "large":
        return "x" * 10**6
    return number


def length(text: str) -> int:
    return len(text)


def torch_is_loaded(_: int) -> bool:
    return "torch" in sys.modules
