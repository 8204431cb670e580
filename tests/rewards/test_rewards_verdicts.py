"""How often 'math' judges wrongly, on pairs that were labelled by the rules of docs/verdicts.md before it was run on them."""

from __future__ import annotations

import json
import random
import time
from functools import cache
from typing import Any

import pytest

from surefoot.rewards.base import Completion
from surefoot.rewards.equivalence import decide
from surefoot.rewards.latex import spelled
from surefoot.rewards.verifiers import make_verifier
from surefoot.types import Prompt, Status
from tests.rewards.case_tables import DATA

KNOWN_MISSES: set[tuple[str, str]] = set()
"""(gold, given) that are judged wrongly. One that is mended is to be taken out here."""


@cache
def pairs(name: str) -> list[dict[str, Any]]:
    path = DATA / "verdicts" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@cache
def misses(name: str, every: int) -> list[dict[str, Any]]:
    rows = pairs(name)[::every]
    completions = [Completion(Prompt("p", "?", row["gold"]), rf"\boxed{{{row['given']}}}") for row in rows]
    scores = make_verifier("math", {"deadline": 30.0}).score(completions)
    assert {score.status for score in scores} == {Status.OK}
    return [row for row, score in zip(rows, scores, strict=True) if score.correct != row["right"]]


@pytest.mark.parametrize(
    ("name", "every"),
    [
        ("math", 4),
        ("math_held_out", 1),
        pytest.param("math", 1, marks=(pytest.mark.slow, pytest.mark.timeout(600))),
    ],
)
def test_fewer_than_three_in_a_hundred_are_judged_wrongly_either_way(name: str, every: int):
    """And each that is judged wrongly is known; one that was mended is to be taken out of the list."""
    rows, missed = pairs(name)[::every], misses(name, every)
    right, wrong = (sum(row["right"] is side for row in rows) for side in (True, False))
    assert sum(row["right"] for row in missed) < 0.03 * right
    assert sum(not row["right"] for row in missed) < 0.03 * wrong
    named = {(row["gold"], row["given"]) for row in rows}
    assert {(row["gold"], row["given"]) for row in missed} == KNOWN_MISSES & named


@pytest.mark.parametrize(("name", "least"), [("math", 650), ("math_held_out", 150)])
def test_half_of_the_pairs_are_right_and_half_are_tempting(name: str, least: int):
    rows = pairs(name)
    assert len(rows) >= least and 0.4 * len(rows) < sum(row["right"] for row in rows) < 0.6 * len(rows)
    assert len({(row["gold"], row["given"]) for row in rows}) > 0.99 * len(rows)


@pytest.mark.parametrize(
    ("gold", "given", "always", "positive"),
    [
        (r"\sqrt{x^2}", "x", False, True),
        (r"\sqrt{\frac{L}{g}}", r"\frac{\sqrt{Lg}}{g}", False, True),
        (r"\sqrt{1/n}", r"\frac{1}{\sqrt{n}}", True, True),
        (r"\sqrt{a^2b}", r"a\sqrt{b}", False, True),
        (r"\sqrt{x^2}", "-x", False, False),
    ],
)
def test_letters_may_be_positive_numbers(gold: str, given: str, always: bool, positive: bool):
    prompt = Prompt("p", "?", gold)
    for option, expected in ((False, always), (True, positive)):
        assert make_verifier("math", {"positive": option})(prompt, rf"\boxed{{{given}}}").correct is expected


def test_hostile_texts_are_read_in_little_time():
    """Texts of the length that is still read, of anything that the reader looks for; longer ones are not read."""
    rng = random.Random(0)
    line = r". a { } ( ) \frac{ = , or \text{ $ * 12 - ° | \{ k\in is \cdot _ ^ \pm \cup \begin{cases} & \\ 一 \sqrt[ 9. i+j A( %"
    marks = line.split()
    texts = [(mark + " ") * 990 for mark in marks] + [mark * 990 for mark in marks]
    texts += ["".join(rng.choice(marks) for _ in range(990)) for _ in range(50)]
    begun = time.process_time()
    for text in texts:
        decide("5", text[:990], 6)
        decide(f"x = {text[:900]}", "x + 1", 6)
    spelled("." * 1_000_000)
    decide("5", "." * 1_000_000, 6)
    assert time.process_time() - begun < 20.0
