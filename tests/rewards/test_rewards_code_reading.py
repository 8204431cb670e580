"""Finding the program in a completion, reading gold tests, comparing outputs: no sandbox is needed for these."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from surefoot.errors import RewardError
from surefoot.rewards.code_compare import same_output, same_value
from surefoot.rewards.code_extract import Found, program_in
from surefoot.rewards.code_suites import Case, Suite, suite_of, with_tests_aside
from surefoot.types import Prompt

PROGRAMS = [
    ("```python\nx = 1\n```", "x = 1\n"),
    ("```py\nx = 1\n```", "x = 1\n"),
    ("```Python title\nx = 1\n```", "x = 1\n"),
    ("~~~python\nx = 1\n~~~", "x = 1\n"),
    ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''\n"),
    ("```python\nx = 1\n```\n```python\nx = 2\n```", "x = 2\n"),
    ("```python\nx = 1\n```\nOutput:\n```\n7\n```", "x = 1\n"),
    ("```python\nx = 1\n```\n```bash\nls\n```", "x = 1\n"),
    ("```\nx = 1\n```", "x = 1\n"),
    ("1. So\n   ```python\n   x = 1\n   ```", "x = 1\n"),
    ("<think>```python\nx = 1\n```</think>```python\nx = 2\n```", "x = 2\n"),
    ("<think>```python\nx = 1\n```", None),
    ("", None),
]


BARE = ["print(3)", "def f():\n    return 1\n", "I think so.", "```python\nx = 1", "```json\n{}\n```", "12", "yes"]


@pytest.mark.parametrize("text, program", PROGRAMS)
def test_the_program_in_a_completion(text: str, program: str | None) -> None:
    found = program_in(text)
    assert (found.source if found else None) == program and (found is None or not found.bare)


@pytest.mark.parametrize("text", BARE)
def test_a_text_without_a_fence_is_left_to_the_sandbox(text: str) -> None:
    assert program_in(text) == Found(text, bare=True)


def test_a_block_that_defines_what_is_wanted_goes_before_a_later_one() -> None:
    text = "```python\ndef f(x): return x\n```\nUse it:\n```python\nprint(f(1))\n```\n"
    for wanted, source in ((("f",), "def f(x): return x\n"), ((), "print(f(1))\n"), (("g",), "print(f(1))\n")):
        found = program_in(text, wanted)
        assert found is not None and found.source == source


OUTPUTS = [
    ("1\n", "1", True),
    ("1 \n\n", "1\n", True),
    ("1\r\n2\r\n", "1\n2", True),
    ("a  b", "a b", True),
    ("0.3333333", "0.33333333", True),
    ("1e-3", "0.001", True),
    ("2", "2.0", True),
    ("2.0", "2", False),
    ("0.334", "0.333", False),
    ("1 2", "1\n2", False),
    ("1\n2", "1", False),
    ("1", "1\n2", False),
    ("", "1", False),
    ("", "", True),
    ("Yes", "yes", False),
    ("nan", "1.0", False),
    ("inf", "1e5", False),
    ("12", "1 2", False),
    ("1_0", "10", False),
]


@pytest.mark.parametrize("given, expected, same", OUTPUTS)
def test_outputs(given: str, expected: str, same: bool) -> None:
    assert same_output(given, expected) is same


VALUES = [
    (1, 1, True),
    ((1, 2), [1, 2], True),
    ([1, 2], [2, 1], False),
    ({"a": (1,)}, {"a": [1]}, True),
    ({"a": 1}, {"b": 1}, False),
    ({1: 2}, {"1": 2}, True),
    ({-3: [1], 10: {2: 3}}, {"10": {"2": 3}, "-3": [1]}, True),
    ({True: 1, None: 2, 0.5: 3}, {"true": 1, "null": 2, "0.5": 3}, True),
    ({1: 2, "1": 3}, {"1": 2}, False),
    ({"1": 2}, {1: 2}, False),
    ({(1, 2): 3}, {"(1, 2)": 3}, False),
    (Decimal("1.5"), 1.5, True),
    (Decimal("1.5"), 1.6, False),
    (Decimal("NaN"), 1.0, False),
    (Fraction(4, 2), 2, True),
    (Fraction(1, 3), 0, False),
    ({}, {"a": 1}, False),
    (0.1 + 0.2, 0.3, True),
    (1, 1.0, True),
    (1.0, 1, True),
    (10**400, 1.0, False),
    (float("nan"), 1.0, False),
    (True, 1, False),
    (1, True, False),
    (True, True, True),
    ("1", 1, False),
    (None, None, True),
    (None, 0, False),
    ({1}, [1], False),
    ("", [], False),
]


@pytest.mark.parametrize("given, expected, same", VALUES)
def test_values(given: Any, expected: Any, same: bool) -> None:
    assert same_value(given, expected) is same


STDIN = [{"input": "1\n", "output": "2\n", "testtype": "stdin"}]
HIDDEN = [{"input": "3\n", "output": "4\n", "testtype": "stdin"}]
CALLS = [{"input": '[1, 2]\n"a"', "output": "[2]", "testtype": "functional"}]
PACKED = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(HIDDEN)))).decode()
TWO = (Case("1\n", "2\n"), Case("3\n", "4\n"))

PAIRS = [{"stdin": "1\n", "stdout": "2\n"}, {"stdin": "3\n", "stdout": "4\n"}]

SUITES: list[tuple[Any, dict[str, Any], Suite]] = [
    ({"inputs": ["1\n", "3\n"], "outputs": ["2\n", "4\n"]}, {}, Suite(TWO)),
    ({"inputs": [["1", "2"]], "outputs": [["3"]]}, {}, Suite((Case("1\n2", "3"),))),
    (None, {"input_output": '{"inputs": ["1\\n"], "outputs": ["2\\n"]}'}, Suite(TWO[:1])),
    ({"inputs": [[1, [2]]], "outputs": [3], "fn_name": "f"}, {}, Suite((Case((1, [2]), 3),), "f")),
    ({"inputs": ["1\n[2]"], "outputs": ["3"], "fn_name": "f"}, {}, Suite((Case((1, [2]), 3),), "f")),
    ({"inputs": [["12"]], "outputs": ["21"], "fn_name": "f"}, {}, Suite((Case(("12",), "21"),), "f")),
    (
        {"inputs": [["a"], ["b"]], "outputs": ["true", "[1]"], "fn_name": "f"},
        {},
        Suite((Case(("a",), "true"), Case(("b",), "[1]")), "f"),
    ),
    (
        {"inputs": ["ab", "12"], "outputs": ["ba", "21"], "fn_name": "f"},
        {},
        Suite((Case(("ab",), "ba"), Case(("12",), "21")), "f"),
    ),
    ({"inputs": ['"12"'], "outputs": ['"21"'], "fn_name": "f"}, {}, Suite((Case(("12",), "21"),), "f")),
    ({"public_test_cases": STDIN, "private_test_cases": HIDDEN}, {}, Suite(TWO)),
    ({"public_test_cases": json.dumps(STDIN), "private_test_cases": PACKED}, {}, Suite(TWO)),
    (
        {"public_test_cases": CALLS, "metadata": '{"func_name": "f"}'},
        {},
        Suite((Case(([1, 2], "a"), [2]),), "f"),
    ),
    (
        None,
        {"test": "def check(c): pass", "entry_point": "f", "prompt": "def f():\n"},
        Suite(sources=("def check(c): pass",), setup="def f():\n", entry="f", header="def f():\n"),
    ),
    (["assert f()"], {"test_setup_code": "import math"}, Suite(sources=("assert f()",), setup="import math")),
    ('["assert f()"]', {}, Suite(sources=("assert f()",))),
    (PAIRS, {}, Suite(TWO)),
    (json.dumps(PAIRS), {}, Suite(TWO)),
    ([json.dumps(pair) for pair in PAIRS], {}, Suite(TWO)),
    (PAIRS[0], {}, Suite(TWO[:1])),
    ([{"input": "1\n", "output": "2\n"}, {"input": "3\n", "output": "4\n"}], {}, Suite(TWO)),
    (None, {"test_list": [{"input": 1, "output": 2.5}]}, Suite((Case("1", "2.5"),))),
    ([{"input": [1, [2]], "output": 3}], {"fn_name": "f"}, Suite((Case((1, [2]), 3),), "f")),
    (STDIN + HIDDEN, {}, Suite(TWO)),
    (
        {"test_list": ["assert f()"], "test_imports": ["import a", "import b"]},
        {},
        Suite(sources=("assert f()",), setup="import a\nimport b"),
    ),
]


@pytest.mark.parametrize("answer, metadata, suite", SUITES)
def test_gold_tests_in_every_shape(answer: Any, metadata: dict[str, Any], suite: Suite) -> None:
    prompt = Prompt("p", "?", answer, metadata)
    assert suite_of(prompt) == suite_of(with_tests_aside(prompt)) == suite and with_tests_aside(prompt).answer is None


class Evil:
    def __reduce__(self) -> Any:
        return print, ("executed",)


@pytest.mark.parametrize(
    "answer, message",
    [
        (None, "no tests"),
        ("42", "no tests"),
        ({"inputs": [], "outputs": []}, "no tests"),
        ({"test_list": []}, "no tests"),
        ({"inputs": ["1"], "outputs": []}, "1 inputs, 0 outputs"),
        ({"inputs": ["1"]}, "outputs"),
        ({"public_test_cases": CALLS}, "func_name"),
        ({"public_test_cases": "not packed"}, "cannot be read"),
        ([{"stdin": "1", "expected": "2"}], "a test is .*expected inputs and outputs"),
        ([PAIRS[0], {"input": "1", "output": "2"}], "a test is"),
        (["f(1) == 2"], "no assert statement"),
        (["it adds one"], "is no Python"),
        ([1, 2], "no assert statement"),
        ([["1", "2"]], "no assert statement"),
        ("f(1) == 2", "no tests"),
        ({"test": "f(1) == 2"}, "no assert statement"),
        ({"public_test_cases": base64.b64encode(zlib.compress(pickle.dumps(Evil()))).decode()}, "builtins.print"),
    ],
)
def test_other_gold_answers_are_refused(answer: Any, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RewardError, match=message):
        suite_of(Prompt("p", "?", answer))
    assert capsys.readouterr().out == ""
