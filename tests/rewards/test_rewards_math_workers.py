"""Mathematics in worker processes: what hangs or raises marks its own sample, and a verdict depends on nothing else."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from surefoot.errors import RewardError
from surefoot.rewards import equivalence
from surefoot.rewards.base import Completion
from surefoot.rewards.equivalence import decide
from surefoot.rewards.grade import grade
from surefoot.rewards.latex import is_safe
from surefoot.rewards.verifiers import make_verifier
from surefoot.rewards.verifiers.mathematics import Mathematics
from surefoot.rewards.workers import WorkerPool
from surefoot.types import Prompt, Score, Status
from tests.rewards.case_tables import load

HERE = str(Path(__file__).parent)


def completions(*pairs: tuple[str, str]) -> list[Completion]:
    return [Completion(Prompt(str(k), "?", gold), rf"\boxed{{{given}}}") for k, (gold, given) in enumerate(pairs)]


class TrickyPool:
    """Grades with a function that hangs or raises where the answer asks for it."""

    def __init__(self) -> None:
        self.pool = WorkerPool(["tricky_equality", "math_verify"], workers=2)

    def run(self, function: str, jobs: list[tuple[str, str, int]], deadline: float):
        return self.pool.run("tricky_equality:equal", jobs, deadline)


def test_a_sample_that_hangs_or_raises_marks_itself_and_no_other(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(HERE)
    pool = TrickyPool()
    monkeypatch.setattr("surefoot.rewards.verifiers.mathematics.shared_pool", lambda *_: pool)
    pairs = [("x+1", "1+x"), ("x+1", "h(1)"), ("x+1", "x-1"), ("x+1", "r(1)"), ("x+1", "k(1)"), ("x+2", "2+x")]
    scores = grade(make_verifier("math", {"deadline": 4.0}), completions(*pairs))
    pool.pool.close()
    assert [score.status for score in scores] == [
        Status.OK,
        Status.TIMEOUT,
        Status.OK,
        Status.ERROR,
        Status.ERROR,
        Status.OK,
    ]
    assert [score.correct for score in scores] == [True, None, False, None, None, True]
    assert math.isnan(scores[1].total) and "not graded within 4 seconds" in scores[1].text
    assert "ValueError: raised" in scores[3].text and "worker process ended" in scores[4].text


def test_a_verdict_depends_on_neither_order_nor_process():
    rows = [row for row in load("mathematics") if row["kind"] not in ("bomb", "listing", "place")][::3]
    cases = [Completion(Prompt(str(k), "?", row["gold"]), row["completion"]) for k, row in enumerate(rows)]
    verifier = make_verifier("math")
    first = verifier.score(cases)
    order = list(range(len(cases)))
    random.Random(1).shuffle(order)
    shuffled = verifier.score([cases[k] for k in order])
    assert [shuffled[order.index(k)] for k in range(len(cases))] == first
    code = (
        "import json, sys; from surefoot.rewards.verifiers import make_verifier; from surefoot.rewards.base import Completion;"
        "from surefoot.types import Prompt; rows = json.load(sys.stdin);"
        "scores = make_verifier('math', {'workers': 1}).score([Completion(Prompt('p', '?', g), c) for g, c in rows]);"
        "print(json.dumps([[s.total, s.status, s.text] for s in scores]))"
    )
    given = json.dumps([[row["gold"], row["completion"]] for row in rows])
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    out = subprocess.run(
        [sys.executable, "-c", code], input=given, capture_output=True, text=True, env=environment, check=True
    )
    assert json.loads(out.stdout) == [[s.total, s.status, s.text] for s in first]


def test_it_works_in_threads():
    """Libraries that keep deadlines with signals fail anywhere but in the main thread."""
    found: list[list[Score]] = []

    def use() -> None:
        found.append(make_verifier("math").score(completions(("x^2-1", "(x-1)(x+1)"), ("x^2-1", "(x+1)^2"))))

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [[score.correct for score in scores] for scores in found] == [[True, False]] * 3


def test_most_answers_need_no_algebra(monkeypatch: pytest.MonkeyPatch):
    def never(*_: object) -> None:
        raise AssertionError("a worker was asked")

    pairs = [
        ("936", "936", True),
        ("936", "937", False),
        (r"\frac{1}{2}", "0.5", True),
        ("1,234", "1234", True),
        ("(1, 2)", "(2, 1)", False),
        (r"\{1, 2\}", r"\{2, 1\}", True),
        ("[2, 5)", r"2 \le x < 5", True),
        ("Evelyn", "Briana", False),
        (r"50\%", "0.5", True),
        ("x^2", "x^{2}", True),
        ("9", "9**9**9**9", False),
    ]
    assert [decide(gold, given, 6) for gold, given, _ in pairs] == [right for _, _, right in pairs]
    monkeypatch.setattr(WorkerPool, "run", lambda self, function, jobs, deadline: [never() for _ in jobs])
    scores = Mathematics().score(completions(*((gold, given) for gold, given, _ in pairs)))
    assert [score.correct for score in scores] == [right for _, _, right in pairs]


def test_the_same_pair_is_graded_once(monkeypatch: pytest.MonkeyPatch):
    asked: list[object] = []
    run = WorkerPool.run

    def count(self: WorkerPool, function: str, jobs: list[object], deadline: float | None = None):
        asked.extend(jobs)
        return run(self, function, jobs, deadline)  # type: ignore[arg-type]

    monkeypatch.setattr(WorkerPool, "run", count)
    scores = Mathematics().score(completions(*[("x^2-1", "(x-1)(x+1)")] * 8, ("x^2-1", "x^2+1")))
    assert [score.correct for score in scores] == [True] * 8 + [False]
    assert len(asked) == 2


BOMBS = [
    "9**9**9",
    "9^{9^{9}}",
    "2^{99999}",
    "10**100000",
    "1e9999",
    "(7!)!",
    "10000!",
    "{" * 40,
    "9" * 500,
    "x^2" * 400,
]


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_known_without_lighting_them(bomb: str):
    assert not is_safe(bomb)
    assert decide("9", bomb, 6) is False
    assert decide(bomb, bomb, 6) is True  # as text


@pytest.mark.parametrize(
    "fine", [r"\frac{1}{2^{99}}", "2^{2005}", "e^{x^2}", "20!", "(n+1)!", r"\binom{10}{5}", "x^{10}"]
)
def test_large_and_honest_answers_are_computed(fine: str):
    assert is_safe(fine)


@pytest.mark.parametrize("nothing", ["0/0", r"\frac{0}{0}", r"\infty-\infty", r"0\cdot\infty"])
def test_what_has_no_value_is_wrong(nothing: str):
    """A failure would leave the statistics, and cost less than a wrong answer."""
    assert equivalence.equal("4", nothing, 6) is False and equivalence.equal("0", nothing, 6) is False


def test_equal_needs_no_parent():
    """The worker's function, here in this process: the verdict is its own."""
    assert equivalence.equal(r"\frac{x}{2}", "0.5x", 6) and not equivalence.equal(r"\frac{x}{2}", "0.4x", 6)
    assert equivalence.equal(r"\log_2 3", r"\frac{\ln 3}{\ln 2}", 6)


class TestOptions:
    def test_places_and_their_order(self):
        prompt = Prompt("p", "?", "42")
        text = r"The answer is 41. \boxed{42}"
        assert make_verifier("math")(prompt, text).correct
        assert not make_verifier("math", {"places": ["says", "boxed"]})(prompt, text).correct
        assert make_verifier("math", {"places": ["says"]})(prompt, text).text == "41"
        assert make_verifier("math")(prompt, "It is 42").status is Status.NO_ANSWER
        assert make_verifier("math", {"places": ["boxed", "number"]})(prompt, "It is 42").correct
        assert make_verifier("math", {"places": ["boxed", "number"]})(prompt, r"42 \boxed{").status is Status.NO_ANSWER

    def test_digits(self):
        prompt, text = Prompt("p", "?", r"\frac{1}{3}"), r"\boxed{0.333}"
        assert not make_verifier("math")(prompt, text).correct
        assert make_verifier("math", {"digits": 3})(prompt, text).correct
        assert not make_verifier("math", {"digits": 0})(prompt, r"\boxed{0.333333333}").correct

    @pytest.mark.parametrize(
        "options", [{"places": []}, {"deadline": 0.0}, {"digits": -1}, {"workers": -1}, {"memory": -1}]
    )
    def test_values_out_of_range_are_refused(self, options: dict[str, object]):
        with pytest.raises(RewardError, match="the verifier 'math'"):
            make_verifier("math", options)

    def test_an_empty_gold_answer_is_refused(self):
        with pytest.raises(RewardError, match="the gold answer ' ' of the problem b holds no answer"):
            make_verifier("math").check([Prompt("a", "?", "1"), Prompt("b", "?", " ")])
