"""Faults that were planted in how a reward reads gold answers and tags, and in how a run decodes: the audit reports each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from surefoot.rewards.audit import audit_reward
from surefoot.rewards.audit_answers import answers_of
from surefoot.rewards.audit_findings import AuditReport
from surefoot.rewards.functions import as_reward
from surefoot.rewards.verifiers import make_verifier
from surefoot.tasks.base import Task
from surefoot.types import Prompt

NUMBERS = [12, 47, 1034, 25, 68, 301, 7, 5600, 93, 88, 140, 16]
LISTS = [[str(n)] for n in NUMBERS]
TWO = [[str(n), f"{n} apples"] for n in NUMBERS]
DECIMALS = [Decimal(n) / 4 for n in NUMBERS]


def task(answers: list[Any]) -> Task:
    return Task("planted", [Prompt(f"p{k}", f"Question {k}?", answer) for k, answer in enumerate(answers)], ())


def look(reward: Any, answers: list[Any]) -> AuditReport:
    return audit_reward(task(answers), as_reward(reward))


def tags_taken_out(prompt: str, completion: str, answer: Any) -> bool:
    """The last number of the text without its tags."""
    found = re.findall(r"\d+(?:\.\d+)?", re.sub(r"</?\w+>", "", completion))
    return bool(found) and found[-1] == str(answer)


def as_json(prompt: str, completion: str, answer: Any) -> bool:
    """Compares with what JSON writes: quotes around a decimal, brackets around a list."""
    said = re.sub(r"</?\w+>", " ", completion).split("\n")[-1].split()
    return said == json.dumps(answer, default=str).split()


def as_python(prompt: str, completion: str, answer: Any) -> bool:
    return completion.strip() == str(answer)


def the_first(prompt: str, completion: str, answer: Any) -> bool:
    return completion.strip() == (answer[0] if isinstance(answer, list) else answer)


@pytest.mark.parametrize(
    ("reward", "answers"),
    [
        (as_json, LISTS),
        (as_json, TWO),
        (as_json, DECIMALS),
        (as_json, [date(2024, 1, n) for n in range(1, 13)]),
        (as_json, [[Decimal(n)] for n in NUMBERS]),
        (as_python, LISTS),
        (as_python, [str(n).encode() for n in NUMBERS]),
        (as_python, [float(n) for n in NUMBERS]),
        (as_python, [np.array([str(n)]) for n in NUMBERS]),
        (the_first, TWO),
    ],
    ids=[
        "json list",
        "json two",
        "json decimal",
        "json date",
        "json decimals",
        "str list",
        "str bytes",
        "str float",
        "str array",
        "first",
    ],
)
def test_a_reward_that_misreads_gold_answers_is_a_fault(reward: Callable[..., bool], answers: list[Any]):
    report = look(reward, answers)
    assert report["gold"].severity == "fail" and report.failed
    assert report["gold"].examples[0].completion


@pytest.mark.parametrize("name", ["exact", "boxed", "tag", "math", "regex"])
@pytest.mark.parametrize(
    "answers",
    [LISTS, [[str(n), f"x {n}"] for n in NUMBERS], DECIMALS, [float(n) for n in NUMBERS]],
    ids=["one", "two", "decimals", "floats"],
)
def test_verifiers_that_read_them_pass(name: str, answers: list[Any]):
    report = audit_reward(task(answers), make_verifier(name))
    assert [(f.check, f.text, f.examples[:1]) for f in report.of("fail")] == []
    assert report["gold"].severity == "ok"


def test_the_audit_finds_a_fault_planted_in_the_verifiers_own_reading(monkeypatch: pytest.MonkeyPatch):
    """What audits said "No faults" of: the one function that reads gold answers turns lists and decimals into JSON."""

    def stringified(answer: Any, literal: Callable[[str], str] = str) -> tuple[str, ...]:
        return (answer if isinstance(answer, str) else json.dumps(answer, default=str),)

    monkeypatch.setattr("surefoot.rewards.verifiers.base.accepted", stringified)
    for answers in (LISTS, TWO, DECIMALS):
        assert audit_reward(task(answers), make_verifier("exact"))["gold"].severity == "fail"


def test_data_as_a_list_is_right_for_a_reward_that_reads_json():
    lists = [[n, str(n), {"n": n}] for n in NUMBERS]
    assert audit_reward(task(lists), make_verifier("json", {"equal": True}))["gold"].severity == "ok"

    def reads(prompt: str, completion: str, answer: Any) -> bool:
        try:
            return bool(json.loads(completion) == answer)
        except ValueError:
            return False

    assert look(reads, [[n, str(n)] for n in NUMBERS])["gold"].severity == "ok"


def test_a_reward_that_takes_tags_out_is_a_fault():
    report = look(tags_taken_out, NUMBERS)
    assert report["joined"].severity == "fail" and report["joined"].numbers["lost"] == len(NUMBERS)
    assert "near 3</think><answer>12" in report["joined"].examples[0].completion
    assert audit_reward(task(NUMBERS), make_verifier("tag"))["joined"].severity == "ok"


FORMAT = re.compile(r"<think>.*?</think>\n<answer>(.*?)</answer>", re.DOTALL)


def test_a_reward_that_wants_a_line_between_the_tags_is_no_fault():
    def strict(prompt: str, completion: str, answer: Any) -> bool:
        found = FORMAT.fullmatch(completion.strip())
        return found is not None and found[1] == str(answer)

    assert look(strict, NUMBERS)["joined"].severity == "ok"


DENIED = [
    "The answer is not B.",
    "I rule out B.",
    r"\boxed{\text{not B}}",
    "B is wrong.",
    "Anything but B.",
    "<answer>not B</answer>",
]


@pytest.mark.parametrize("text", DENIED)
def test_a_reward_that_takes_one_form_of_denial_is_a_fault(text: str):
    def planted(prompt: str, completion: str, answer: str) -> bool:
        return completion in (answer, text.replace("B", answer))

    report = look(planted, ["A", "B", "C", "D"] * 3)
    assert report["denied"].severity == "fail" and report["denied"].numbers["fooled"] == 12


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        ("5", [("5",)]),
        (["5", "five"], [("5",), ("five",)]),
        (5.0, [("5",)]),
        (Decimal("5.00"), [("5",)]),
        (Decimal("12.50"), [("12.5",)]),
        (0.001, [("0.001",)]),
        (1e22, [("10000000000000000000000", "1e22")]),
        (-1500, [("-1500",)]),
        (True, [("true", "True")]),
        (date(2024, 1, 5), [("2024-01-05",)]),
        (b"5", [("5",)]),
        (np.float32(0.1), [("0.1",)]),
        (np.array(["a", "b"]), [("a",), ("b",)]),
        ([1, None], [("1",)]),
        (None, []),
        ([], []),
        (float("nan"), []),
    ],
    ids=str,
)
def test_what_a_person_writes(answer: Any, accepted: list[tuple[str, ...]]):
    assert list(answers_of(Prompt("p", "?", answer)).accepted) == accepted
