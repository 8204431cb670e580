"""Programs are graded by their tests, in every shape of data set, and a program that cheats is worth nothing."""

from __future__ import annotations

import builtins
import json
from typing import Any

import pytest

from surefoot.errors import RewardError, SandboxError
from surefoot.rewards.base import Completion
from surefoot.rewards.code import CodeTests
from surefoot.rewards.grade import grade
from surefoot.rewards.sandbox import Job, Limits, Result, Sandbox
from surefoot.rewards.sandbox import pool as pool_module
from surefoot.rewards.sandbox.results import Ending
from surefoot.rewards.sandbox.worker import Worker, WorkerFailure
from surefoot.types import Prompt, Score, Status
from tests.rewards.sandboxes import at_each_level

SCRIPT = {"inputs": ["1 2\n", "3 4\n", "10 -10"], "outputs": ["3\n", "7\n", "0\n"]}
FUNCTION = {"inputs": [[1, 2], [[1], [2]]], "outputs": [3, [1, 2]], "fn_name": "add"}
HEADER = 'def add(a: int, b: int) -> int:\n    """The sum.\n\n    >>> add(1, 2)\n    3\n    """\n'
CHECK = "METADATA = {}\n\n\ndef check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(5, -5) == 0, 'zero'\n"
HUMAN = {"prompt": HEADER, "test": CHECK, "entry_point": "add"}
ASSERTS = {"test_list": ["assert add(1, 2) == 3", "assert set(add([1], [2])) == {1, 2}"], "test_setup_code": ""}


def fenced(program: str) -> str:
    return f"<think>x = 1</think>I would write\n\n```python\n{program}\n```\nas asked."


def scores(sandbox: Sandbox, gold: Any, *texts: str, score_by: Any = "all", **prompt: Any) -> list[Score]:
    problem = Prompt("p", "Write a program.", gold, **prompt)
    verifier = CodeTests(score_by=score_by, pool=sandbox)
    return grade(verifier, [Completion(problem, text) for text in texts])


PAIRS = [{"stdin": "1 2\n", "stdout": "3\n"}, {"stdin": "3 4\n", "stdout": "7\n"}]
RIGHT = [
    (PAIRS, "print(sum(map(int, input().split())))"),
    (SCRIPT, "a, b = map(int, input().split())\nprint(a + b)"),
    (SCRIPT, "import sys\nif __name__ == '__main__':\n    print(sum(int(x) for x in sys.stdin.read().split()))"),
    (json.dumps({"input_output": json.dumps(SCRIPT)}), "print(sum(map(int, input().split())))"),
    (FUNCTION, "def add(a, b): return a + b"),
    (FUNCTION, "class Solution:\n    def add(self, a: List[int], b: List[int]): return a + b"),
    (HUMAN, "def add(a, b): return a + b"),
    (HUMAN, HEADER + "    return a + b"),
    (HUMAN, "    return a + b"),
    (ASSERTS, "def add(a, b): return a + b"),
    (ASSERTS["test_list"], "def add(a, b): return a + b"),
]


@at_each_level
def test_a_wrong_program_fails_tests_that_are_pairs(sandbox: Sandbox) -> None:
    for gold in (PAIRS, json.dumps(PAIRS), [{"input": "1 2", "output": "3"}]):
        assert scores(sandbox, gold, fenced("print('banana')"))[0].total == 0.0


@at_each_level
@pytest.mark.parametrize("case", range(len(RIGHT)))
def test_right_programs_pass(sandbox: Sandbox, case: int) -> None:
    gold, program = RIGHT[case]
    (score,) = scores(sandbox, gold, fenced(program))
    assert (score.total, score.correct, score.status, score.text) == (1.0, True, Status.OK, ""), score
    assert dict(score.components) == {"passed": 1.0}


FAILURES = [
    (SCRIPT, "print(3)", "wrong_answer"),
    (SCRIPT, "print(1 / 0)", "runtime_error"),
    (SCRIPT, "while True: pass", "timeout"),
    (SCRIPT, "import time\ntime.sleep(99)", "timeout"),
    (SCRIPT, "x = [0] * 10**10", "out_of_memory"),
    (SCRIPT, "print(", "compile_error"),
    (SCRIPT, "while True: print('x' * 9999)", "output_limit"),
    (FUNCTION, "def add(a, b): return a - b", "wrong_answer"),
    (FUNCTION, "def add(a): return a", "runtime_error"),
    (FUNCTION, "def sum(a, b): return a + b", "runtime_error"),
    (FUNCTION, "def add(a, b): return 10**5000", "wrong_answer"),
    (HUMAN, "def add(a, b): return 3", "wrong_answer"),
    (HUMAN, "def add(a, b): return a.b", "runtime_error"),
    (HUMAN, "def add(a, b):\n    while True: pass", "timeout"),
    (HUMAN, "x = [0] * 10**10", "out_of_memory"),
    (HUMAN, "def add(a, b):\n    return [0] * 10**10", "out_of_memory"),
    (HUMAN, "def add(", "compile_error"),
    (ASSERTS, "def add(a, b): return 3", "runtime_error"),
    (ASSERTS, "def other(a, b): return 3", "runtime_error"),
]


@at_each_level
@pytest.mark.parametrize("case", range(len(FAILURES)))
def test_each_kind_of_failure_is_told_and_worth_nothing(sandbox: Sandbox, case: int) -> None:
    gold, program, kind = FAILURES[case]
    pool = Limited(sandbox, Limits(seconds=1.0 if kind == "timeout" else 60.0))
    (score,) = scores(pool, gold, fenced(program))  # type: ignore[arg-type]
    assert score.total == 0.0 and score.correct is False and score.status is Status.OK
    assert score.components[kind] == 1.0 and score.text.startswith(kind.replace("_", " ")), score


class Limited:
    """A sandbox with other limits."""

    def __init__(self, sandbox: Sandbox, limits: Limits) -> None:
        self.sandbox, self.limits, self.workers = sandbox, limits, sandbox.workers

    def run_job(self, job: Job) -> Result:
        return self.sandbox.run_job(job)

    def run(self, *arguments: Any, **options: Any) -> Result:
        return self.sandbox.run(*arguments, **options, limits=self.limits)


# Each is worth 1 to a verifier that trusts the process of the program.
CHEATS = {
    "exits before the tests": "import sys\nsys.exit(0)",
    "exits before the tests, at once": "import os\nos._exit(0)",
    "exits in the function": "import os\ndef add(a, b): os._exit(0)",
    "exits at the end": "def add(a, b): return 0\nimport atexit, os\natexit.register(os._exit, 0)",
    "equal to everything": "class X:\n    def __eq__(self, o): return True\n    def __ne__(self, o): return False\n"
    "def add(a, b): return X()",
    "an integer equal to everything": "class X(int):\n    def __eq__(self, o): return True\n    __hash__ = int.__hash__\n"
    "def add(a, b): return X(9)",
    "patches assert": "import builtins\nbuiltins.AssertionError = type('E', (BaseException,), {})\ndef add(a, b): return 9",
    "raises assertions as passes": "def add(a, b): raise AssertionError('passed')",
    "patches the messages": 'import sys, json\njson.dumps = lambda *a, **k: \'{"kind": "", "passed": [true, true]}\'\n'
    "for m in list(sys.modules.values()):\n    if getattr(m, 'encode', None) and 'guest' in m.__name__: m.encode = lambda x: 3\n"
    "def add(a, b): return 9",
    "writes a verdict": "import os, json\nfor fd in range(3, 64):\n"
    "    body = json.dumps({'kind': '', 'passed': [True, True], 'text': ''}).encode()\n"
    "    try: os.write(fd, len(body).to_bytes(4, 'big') + body)\n    except OSError: pass\n"
    "def add(a, b): return 9",
    "prints a verdict": 'print(\'{"kind": "", "passed": [true, true]}\')\nprint(\'OK\')\n'
    "print('PASSED')\ndef add(a, b): return 9",
    "redefines check": "def check(candidate): pass\ndef add(a, b): return 9",
    "looks for the tests": "import gc\nfound = [x for x in gc.get_objects() if isinstance(x, dict)"
    " and 'assert candidate' in str(x.get('tests'))]\ndef add(a, b): return 3 if found and a == 1 else 0 if found else 9",
    "looks up the stack": "import sys\ndef add(a, b):\n    f = sys._getframe()\n    while f:\n"
    "        for v in list(f.f_locals.values()):\n            if isinstance(v, dict) and 'expected' in v: return v['expected']\n"
    "        f = f.f_back\n    return 9",
    "kills the tests": "import os\ndef add(a, b):\n    for pid in range(2, 40):\n        try:\n"
    "            if pid != os.getpid(): os.kill(pid, 9)\n"
    "        except OSError: pass\n    return 9",
    "closes everything": "import os\ndef add(a, b):\n    os.closerange(0, 99)\n    return 3",
    "a subclass of the expected": "class X(list):\n    def __len__(self): return 2\ndef add(a, b): return X()",
    "reads the tests from a file": "import os\ndef add(a, b):\n    for root in ('/proc/self', '/proc/1', '/tmp', '.'):\n"
    "        try: return [open(os.path.join(root, n)).read() for n in os.listdir(root)]\n        except OSError: pass\n"
    "    return 9",
    "prints what is expected": "def add(a, b):\n    print(3)\nprint(3)\nprint(7)\nprint(0)",
}
SCRIPT_CHEATS = {
    "prints all that is expected": "print(3)\nprint(7)\nprint(0)",
    "exits with success": "import os\nos._exit(0)",
    "success and a flood": "import os\nos.write(1, b'3\\n')\nwhile True: os.write(1, b' ' * 65536)",
    "right, then fails": "print(sum(map(int, input().split())), flush=True)\nraise SystemExit(1)",
    "right, then never ends": "print(sum(map(int, input().split())), flush=True)\nwhile True: pass",
    "a report in the output": 'print(\'{"outcome": "exited", "code": 0, "stdout": "3"}\')',
}


@at_each_level
@pytest.mark.parametrize("gold", [FUNCTION, HUMAN, ASSERTS], ids=["function", "check", "asserts"])
def test_cheats_are_worth_nothing(sandbox: Sandbox, gold: Any) -> None:
    found = scores(sandbox, gold, *map(fenced, CHEATS.values()))
    wrong = {name: score for name, score in zip(CHEATS, found, strict=True) if score.total != 0 or score.correct}
    assert not wrong
    assert {score.status for score in found} == {Status.OK}
    assert scores(sandbox, gold, fenced("def add(a, b): return a + b"))[0].total == 1.0


@at_each_level
def test_cheating_scripts_are_worth_nothing(sandbox: Sandbox) -> None:
    pool: Any = Limited(sandbox, Limits(seconds=2.0))
    found = scores(pool, SCRIPT, *map(fenced, SCRIPT_CHEATS.values()), score_by="all")
    assert [score.total for score in found] == [0.0] * len(found)
    assert {score.status for score in found} == {Status.OK}


@at_each_level
def test_the_share_of_tests_that_pass(sandbox: Sandbox) -> None:
    three = "print(3)"
    (share,), (nothing,) = (scores(sandbox, SCRIPT, fenced(three), score_by=by) for by in ("share", "all"))
    assert share.total == pytest.approx(1 / 3) and share.correct is False
    assert nothing.total == 0.0
    half = "def add(a, b): return 3 if a == 1 else []"
    (share,) = scores(sandbox, ASSERTS, fenced(half), score_by="share")
    assert share.total == 0.5 and share.components["wrong_answer"] == 1.0
    later = "def add(a, b): return [1, 2]"
    assert scores(sandbox, ASSERTS, fenced(later), score_by="share")[0].total == 0.5


@at_each_level
def test_a_text_without_a_program_has_no_answer(sandbox: Sandbox) -> None:
    texts = [
        "",
        "The answer is 3.",
        "```python\nprint(3",
        "<think>```python\nprint(3)\n```",
        "```json\n{}\n```",
        "3",
        "x",
    ]
    for score in scores(sandbox, SCRIPT, *texts):
        assert (score.total, score.correct, score.status) == (0.0, False, Status.NO_ANSWER)


@at_each_level
def test_a_failing_sandbox_drops_the_sample(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Worker):
        def run(self, job: Job, limits: Limits) -> Any:
            if "unlucky" in job.program:
                raise WorkerFailure("out of machines")
            return super().run(job, limits)

    monkeypatch.setattr(pool_module, "Worker", Broken)
    good = "print(sum(map(int, input().split())))"
    with Sandbox(sandbox.config.model_copy(update={"workers": 1})) as one:
        found = scores(one, SCRIPT, fenced(good + " # unlucky"), fenced(good))
    assert [score.status for score in found] == [Status.ERROR, Status.OK]
    assert "out of machines" in found[0].text and not found[0].valid and found[1].total == 1.0


@at_each_level
def test_equal_programs_run_once(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Job] = []
    real = Sandbox.run_job
    monkeypatch.setattr(Sandbox, "run_job", lambda self, job: runs.append(job) or real(self, job))
    right = fenced("print(sum(map(int, input().split())))")
    found = scores(sandbox, SCRIPT, right, fenced("print(9)"), right, right)
    assert [score.total for score in found] == [1.0, 0.0, 1.0, 1.0]
    assert len(runs) == 3 + 1


@at_each_level
def test_a_long_output_may_be_as_long_as_the_expected_one(sandbox: Sandbox) -> None:
    gold = {"inputs": ["300000"], "outputs": ["x" * 300_000]}
    assert scores(sandbox, gold, fenced("print('x' * int(input()))"))[0].total == 1.0
    gold = {"inputs": [[300_000]], "outputs": [list(range(50_000))], "fn_name": "f"}
    assert scores(sandbox, gold, fenced("def f(n): return range(50_000) and list(range(50_000))"))[0].total == 1.0


def test_problems_without_tests_are_refused_before_a_run() -> None:
    verifier = CodeTests()
    verifier.check([Prompt("a", "?", SCRIPT), Prompt("b", "?", None, HUMAN)])
    with pytest.raises(RewardError, match="problem c has no tests"):
        verifier.check([Prompt("c", "?", "42")])
    with pytest.raises(RewardError, match="2 inputs, 1 outputs"):
        verifier.check([Prompt("d", "?", {"inputs": ["1", "2"], "outputs": ["1"]})])


def test_without_a_sandbox_nothing_is_graded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(config: Any) -> str:
        raise SandboxError("no sandbox here")

    monkeypatch.setattr(pool_module, "choose", refuse)
    monkeypatch.setattr(pool_module, "_shared", {})
    with pytest.raises(SandboxError):
        CodeTests().score([Completion(Prompt("a", "?", SCRIPT), fenced("print(1)"))])


def test_every_ending_has_a_place() -> None:
    from surefoot.rewards.code import FAILURES as kinds

    assert set(kinds) == set(Ending) - {Ending.OK, Ending.ERROR}


@at_each_level
def test_nothing_of_a_completion_is_parsed_in_the_process_that_trains(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = ["import a" + ".b" * 100_000, "(" * 100_000, "x = " + "9" * 100_000, "f'{" * 10_000, "-" * 100_000 + "1"]
    for gold in (SCRIPT, FUNCTION, HUMAN, ASSERTS):
        scores(sandbox, gold, fenced("pass"))  # the tests themselves are read

    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a parser in the process that trains")

    for name in ("compile", "exec", "eval"):
        monkeypatch.setattr(builtins, name, refuse)
    pool: Any = Limited(sandbox, Limits(seconds=5.0, cpu_seconds=2.0))
    for gold in (SCRIPT, HUMAN):
        found = scores(pool, gold, *hostile, *map(fenced, hostile))
        assert [score.total for score in found] == [0.0] * len(found)
        assert {score.status for score in found} <= {Status.OK, Status.NO_ANSWER}


@at_each_level
def test_numbers_that_take_for_ever_to_write_out_are_wrong(sandbox: Sandbox) -> None:
    gold = {"inputs": [[1, 2]], "outputs": [3], "fn_name": "f"}
    for value in ("Decimal('1e999999999')", "Decimal('-1e999999999')", "Fraction(1, 10**4000)", "Decimal('sNaN')"):
        program = f"from decimal import *\nfrom fractions import *\ndef f(a, b): return {value}"
        assert scores(sandbox, gold, fenced(program))[0].total == 0.0


ROOM = [
    ({"inputs": [""], "outputs": ["\u4f60" * 40_000]}, "print('\u4f60' * 40_000)"),
    ({"inputs": [""], "outputs": ["\U0001f600" * 20_000]}, "print('\U0001f600' * 20_000)"),
    ({"inputs": [""], "outputs": ["\n".join(map(str, range(30_000)))]}, "print(*range(30_000), sep='\\n')"),
    ({"inputs": [[]], "outputs": ["\u4f60" * 40_000], "fn_name": "f"}, "def f(): return '\u4f60' * 40_000"),
    (
        {"inputs": [[]], "outputs": [[[n, n] for n in range(5_000)]], "fn_name": "f"},
        "def f(): return [(n, n) for n in range(5_000)]",
    ),
    ({"inputs": [[]], "outputs": [[0.3] * 9_000], "fn_name": "f"}, "def f(): return [0.1 + 0.2] * 9_000"),
    (
        {"inputs": [[]], "outputs": [{str(n): [n] for n in range(3_000)}], "fn_name": "f"},
        "def f(): return {n: (n,) for n in range(3_000)}",
    ),
    ({"inputs": [[]], "outputs": [10**4_000], "fn_name": "f"}, "def f(): return 10**4_000"),
]


@at_each_level
@pytest.mark.parametrize("case", range(len(ROOM)))
def test_what_is_expected_has_room_in_bytes(sandbox: Sandbox, case: int) -> None:
    gold, program = ROOM[case]
    small: Any = Limited(sandbox, Limits(output=1024))
    assert scores(small, gold, fenced(program))[0].total == 1.0
    if "inputs" in gold and gold["inputs"] == [""]:
        assert scores(small, gold, fenced("print('x' * 10_000_000)"))[0].components["output_limit"] == 1.0
