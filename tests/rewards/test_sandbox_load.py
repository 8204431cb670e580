"""Under load no program is lost, a tenth of them hostile."""

from __future__ import annotations

import pytest

from surefoot.rewards.sandbox import Ending, Job, Limits, Sandbox
from tests.rewards.sandboxes import at_each_level

HOSTILE = [
    ("import os\nwhile True: os.fork()", Ending.FAILED),
    ("x = bytearray(10**10)", Ending.MEMORY),
    ("while True: pass", Ending.TIMEOUT),
    ("while True: print('x' * 10000)", Ending.OUTPUT),
    ("import os\nos.closerange(0, 999)\nos.kill(os.getpid(), 9)", Ending.FAILED),
    ("import ctypes\nctypes.string_at(0)", Ending.FAILED),
    ("import os\nprint('x', flush=True)\nos._exit(0)", Ending.OK),
    ("import sys\nfor m in list(sys.modules.values()): m.__dict__.clear()", Ending.FAILED),
]


def load(sandbox: Sandbox, programs: int) -> None:
    """Run so many programs, every tenth hostile, and see that each ended as it should."""
    short = Limits(seconds=0.5)
    long = Limits(seconds=60.0)
    jobs, endings, printed = [], [], []
    for n in range(programs):
        if n % 10 == 9:
            program, ending = HOSTILE[n // 10 % len(HOSTILE)]
            jobs.append(Job(program, limits=short if ending is Ending.TIMEOUT else long))
            endings.append(ending)
            printed.append(None)
        else:
            jobs.append(Job("print(sum(map(int, input().split())))", f"{n} {n}", limits=long))
            endings.append(Ending.OK)
            printed.append(f"{2 * n}\n")
    results = sandbox.run_many(jobs)
    assert [result.status for result in results] == endings
    for text, result in zip(printed, results, strict=True):
        assert text is None or result.stdout == text
    assert sandbox.run("print(6 * 7)").stdout == "42\n"


@at_each_level
def test_no_program_is_lost(sandbox: Sandbox) -> None:
    load(sandbox, 120)


@pytest.mark.slow
@at_each_level
def test_no_program_of_two_thousand_is_lost(sandbox: Sandbox) -> None:
    load(sandbox, 2000)
