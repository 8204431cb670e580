"""An equality for the tests that hangs, raises or dies where the answer asks for it."""

from __future__ import annotations

import os
import signal
import time

from surefoot.rewards import equivalence


def equal(gold: str, given: str, digits: int, positive: bool = False) -> bool:
    if given == "h(1)":
        time.sleep(600)
    if given == "r(1)":
        raise ValueError("raised")
    if given == "k(1)":
        os.kill(os.getpid(), signal.SIGKILL)
    return equivalence.equal(gold, given, digits, positive)
