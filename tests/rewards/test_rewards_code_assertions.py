"""An assertion about the values of a program means what it means in Python, which is asked here; no cheat makes use of that."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

import pytest

from surefoot.rewards.sandbox import Checks, Ending, Sandbox
from tests.rewards.assertion_forms import CASES
from tests.rewards.sandboxes import at_each_level

PLAIN = """
import json, sys
verdicts = []
for program, test in json.load(sys.stdin):
    names = {"__name__": "tests"}
    try:
        exec(program, names)
        exec(test, names)
        verdicts.append(True)
    except BaseException:
        verdicts.append(False)
print(json.dumps(verdicts))
"""


@functools.cache
def verdicts_of_python() -> list[bool]:
    command = [sys.executable, "-c", PLAIN]
    done = subprocess.run(command, input=json.dumps(CASES), capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


REFUSED = ["h + [4]"]
"""Assertions that Python takes and the sandbox does not: docs/sandbox.md says so."""


@at_each_level
def test_an_assertion_means_what_it_means_in_python(sandbox: Sandbox) -> None:
    wrong = []
    for (program, test), right in zip(CASES, verdicts_of_python(), strict=True):
        result = sandbox.run(program, task=Checks((test,)))
        expected = right and not any(form in test for form in REFUSED)
        if result.status is Ending.ERROR or result.passed != (expected,):
            wrong.append((test, right, result.status, result.passed, result.text))
    assert not wrong
