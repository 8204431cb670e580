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


YES = """
class X:
    def __init__(self, *a, **k): pass
    def yes(self, *a): return True
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __bool__ = yes
    startswith = endswith = issubset = issuperset = isdisjoint = yes
    def nought(self, *a): return 0
    __sub__ = __rsub__ = __mod__ = __rmod__ = __xor__ = __and__ = __rand__ = __round__ = __abs__ = __float__ = nought
    def __hash__(self): return hash(4)
    def __iter__(self): return iter(())
    def __getattr__(self, name): return self.yes
"""
ME = YES + "    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __pow__ = lambda self, *a: self\n"
DERIVED = "class X({0}):\n    def __eq__(self, o): return True\n    __ne__ = __lt__ = __gt__ = __contains__ = __eq__\n"
DERIVED += "    def __sub__(self, o): return X()\n    __rsub__ = __add__ = __radd__ = __and__ = __or__ = __sub__\n"
DERIVED += "    __hash__ = {0}.__hash__\n"
RETURNS = "\ndef f(x): return X()"
FORMS = [
    "assert f(2) == 4",
    "assert 4 == f(2)",
    "assert not f(2) != 4",
    "assert f(2) in [4]",
    "assert f(2) in {4}",
    "assert [f(2)] == [4]",
    "assert (f(2), 1) == (4, 1)",
    "assert {1: f(2)} == {1: 4}",
    "assert f(2) > 3 and f(2) < 5",
    "assert 4 in f(2)",
    "assert abs(f(2) - 4.0) < 1e-6",
    "assert abs(4.0 - f(2)) < 1e-6",
    "assert (f(2) - 4.0) ** 2 < 1e-6",
    "import math; assert math.isclose(f(2), 4)",
    "import math; assert math.fabs(f(2) - 4) < 1e-6",
    "assert round(f(2) - 4.0, 5) == 0",
    "assert int(f(2) - 4) == 0",
    "assert not (f(2) - 4)",
    "assert f(2).startswith('four')",
    "assert f(2).issuperset({4})",
    "assert f(2).__eq__(4) is True",
    "assert f(2).__contains__(4) is True",
    "assert list(f(2)) == [4]",
    "assert sum([f(2)]) == 4",
    "assert str(f(2)) == '4'",
    "import pytest; assert f(2) == pytest.approx(4)",
    "import pytest; assert f(2) == pytest.approx([4])",
    "import unittest; unittest.TestCase().assertEqual(f(2), 4)",
    "import unittest; unittest.TestCase().assertAlmostEqual(f(2), 4)",
    "import unittest.mock; assert f(2) == 4 and unittest.mock.ANY == f(2)",
    "assert max(f(2), 4) == 4 and f(2) == 4",
    "assert set([f(2)]) == {4}",
    "assert f(2) is 4 or f(2) == 4",
    "assert isinstance(f(2), int) and f(2) - 4 == 0",
    "assert all(a == b for a, b in zip([f(2)], [4]))",
    "assert sorted([f(2), 4]) == [4, 4]",
]
KINDS = {
    "any object": YES + RETURNS,
    "itself from arithmetic": ME + RETURNS,
    "an integer": DERIVED.format("int") + RETURNS,
    "a text": DERIVED.format("str") + RETURNS,
    "a list": DERIVED.format("list") + RETURNS,
    "a set": DERIVED.format("set") + RETURNS,
    "a dictionary": DERIVED.format("dict") + RETURNS,
    "a tuple": DERIVED.format("tuple") + RETURNS,
    "a class in place of a function": YES.replace("class X", "class f"),
    "a class that answers": YES.replace("class X:", "class M(type):")
    + "class X(metaclass=M): pass\ndef f(x): return X",
    "an exception": YES.replace("class X:", "class X(Exception):").replace(
        "    def __init__(self, *a, **k): pass\n", ""
    )
    + RETURNS,
    "nothing": "def f(x): pass",
    "stops": "def f(x): raise StopIteration",
    "stops of its own": "class E(StopIteration): pass\ndef f(x): raise E",
    "asserts": "def f(x): raise AssertionError",
    "leaves": "def f(x): raise SystemExit(0)",
    "leaves a generator": "def f(x): raise GeneratorExit",
    "shadows": "def abs(*x): return 0\ndef all(*x): return True\ndef list(x): return [4]\n"
    "len = sum = set = str = sorted = int = abs\n"
    "def isinstance(*x): return True\ndef f(x): return 3",
    "mangles the messages": "import sys\nw = [m for n, m in sys.modules.items() if n.endswith('guest.wire')][0]\n"
    "w.Wire.pack = lambda *a: {'type': 'builtin', 'value': 'int'}\ndef f(x): return 4",
    "asks for what is not its own": "import sys\nw = [m for n, m in sys.modules.items() if n.endswith('guest.wire')][0]\n"
    "import gc\ndef f(x):\n    wire = [o for o in gc.get_objects() if type(o) is w.Wire][0]\n"
    "    for op in ('name', 'get', 'call'):\n        try: return wire.ask(op, None, ('check',))\n"
    "        except BaseException: pass\n"
    "    return 9",
}


@at_each_level
@pytest.mark.parametrize("kind", KINDS)
def test_no_object_of_a_program_passes_for_a_value(sandbox: Sandbox, kind: str) -> None:
    right = sandbox.run("def f(x): return 4", task=Checks(("assert f(2) == 4",)))
    assert right.passed == (True,)
    result = sandbox.run(KINDS[kind], task=Checks(tuple(FORMS), stop=False))
    passed = [form for form, ok in zip(FORMS, result.passed, strict=False) if ok]
    assert result.status is not Ending.ERROR and not passed


@at_each_level
@pytest.mark.parametrize(
    "loop", ["map(f, [1, 2])", "filter(f, [1, 2])", "iter(lambda: f(1), None)", "(f(x) for x in [1, 2])"]
)
def test_a_function_that_stops_ends_no_loop_of_the_tests(sandbox: Sandbox, loop: str) -> None:
    test = f"assert all(a == b for a, b in zip({loop}, [2, 4]))"
    for error in ("StopIteration", "StopIteration(3)", "type('E', (StopIteration,), {})", "GeneratorExit"):
        result = sandbox.run(f"def f(x): raise {error}", task=Checks((test,)))
        assert result.passed == (False,), (error, result)


@at_each_level
def test_a_function_may_have_the_name_of_one_of_python(sandbox: Sandbox) -> None:
    program = "def sum(a, b): return a + b"
    assert sandbox.run(program, task=Checks(("assert sum(1, 2) == 3", "assert set([sum(1, 1)]) == {2}"))).passed == (
        True,
        True,
    )
    assert sandbox.run("x = 1", task=Checks(("assert sum(1, 2) == 3",))).passed == (False,)
