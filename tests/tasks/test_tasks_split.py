"""What is held out stays held out: the split by hash, copies in other clothes, and evaluation sets that are excluded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.errors import DataError
from surefoot.tasks.base import Task, is_heldout
from surefoot.tasks.build import build_task
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.overlap import Decontaminator, normal_form, problem_key
from surefoot.types import Prompt


def write(path: Path, prompts: list[Any]) -> str:
    path.write_text("".join(json.dumps({"prompt": prompt, "answer": "1"}) + "\n" for prompt in prompts))
    return str(path)


def build(**over: Any) -> Task:
    return build_task(TaskConfig(**over))


SAME = [
    ("What is 1 + 1?", "what is 1+1"),
    ("Find  the sum of 1,000 and 2.50.", "find the sum of 1000 and 2.5"),
    ("Compute $x + 1$, please", "compute x+1 please"),
    ("\u201cHow many?\u201d", "How many"),
    ("3 \u2212 2 = ?", "3-2="),
    ("A tenth is 0.10.", "a tenth is 0.1"),
    ("\uff11 + 1", "1 + 1"),
    (r"Solve \(x\,+\,1=2\).", "Solve x + 1 = 2"),
]
DIFFERENT = [
    ("1 + 1", "1 - 1"),
    ("4 5", "45"),
    ("5!", "5"),
    ("f'(x)", "f(x)"),
    ("1,2", "12"),
    ("1.5", "15"),
    ("100", "1"),
    ("10.05", "10.5"),
    ("x^2", "x2"),
    ("(a)(b)", "ab"),
    ("-3", "3"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_copies_of_a_problem_have_one_normal_form(one: str, other: str) -> None:
    assert normal_form(one) == normal_form(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_other_problems_have_another(one: str, other: str) -> None:
    assert normal_form(one) != normal_form(other)


@given(st.text())
def test_a_normal_form_stays_as_it_is(text: str) -> None:
    words = " ".join(text.split())
    assert normal_form(words) == normal_form(text)
    assert problem_key(Prompt("a", text)) == problem_key(Prompt("b", text))


def test_the_split_is_the_same_for_ever() -> None:
    sides = "".join(str(int(is_heldout(problem_key(Prompt("p", f"{k} + {k} =")), 0.3))) for k in range(40))
    assert sides == "0010010000100000001110001000100000001010"
    chat = Prompt("p", ({"role": "system", "content": "any"}, {"role": "user", "content": "What is 1 + 1?"}))
    assert problem_key(chat) == problem_key(Prompt("q", "what is 1+1")) == "b98e3b5b0d05aa9d"


def test_copies_lie_on_one_side(tmp_path: Path) -> None:
    prompts = [p for k in range(80) for p in (f"What is {k} + 1?", f"what is {k}+1", f"WHAT is ${k} + 1$")]
    task = build(name="file", path=write(tmp_path / "a.jsonl", prompts), heldout_share=0.3)
    assert len(task.train) + len(task.heldout) == 240 and len(task.heldout) > 20
    assert not {problem_key(p) for p in task.train} & {problem_key(p) for p in task.heldout}


def test_a_copy_in_the_held_out_file_is_refused_or_dropped(tmp_path: Path) -> None:
    files = {
        "path": write(tmp_path / "a.jsonl", [f"What is {k} + 1?" for k in range(20)]),
        "heldout_path": write(tmp_path / "b.jsonl", ["what is 7+1", "something else"]),
    }
    with pytest.raises(DataError, match=r"1 problems stand in both .*row 8 and row 1.*task.overlap = 'drop'"):
        build(name="file", **files)
    task = build(name="file", overlap="drop", **files)
    assert len(task.train) == 19 and len(task.heldout) == 2
    assert any("1 training problems are also held out" in note for note in task.notes)


def test_a_mixture_whose_parts_overlap_is_refused_or_dropped(tmp_path: Path) -> None:
    a = write(tmp_path / "a.jsonl", [f"What is {k} + 1?" for k in range(20)])
    b = write(tmp_path / "b.jsonl", [f"Other {k}" for k in range(20)])
    c = write(tmp_path / "c.jsonl", ["WHAT IS 7+1", "mine"])
    parts = [
        {"name": "file", "path": a, "heldout_size": 0, "heldout_share": 1e-9},
        {"name": "file", "path": b, "heldout_path": c},
    ]
    with pytest.raises(DataError, match="1 problems stand in both the parts 'a' and 'b'"):
        build(name="mixture", parts=parts)
    task = build(name="mixture", parts=parts, overlap="drop")
    assert len(task.train) == 39 and {p.text for p in task.heldout} == {"WHAT IS 7+1", "mine"}


LONG = "A farmer who keeps {k} hens sells nine of them on the market and buys four geese for the money that he got"


def test_excluded_evaluation_sets_leave_training(tmp_path: Path) -> None:
    inside = "In a village far away. " + LONG.format(k=3) + " , so how many animals are there now"
    prompts = [*(f"What is {k} + 1?" for k in range(30)), inside, LONG.format(k="many")]
    path = write(tmp_path / "a.jsonl", prompts)
    evaluation = write(tmp_path / "test.jsonl", [LONG.format(k=3), "what is 5+1"])
    base = {"name": "file", "path": path, "heldout_size": 0, "heldout_share": 1e-9}
    task = build(**base, exclude=[evaluation])
    assert {p.text for p in build(**base).train} - {p.text for p in task.train} == {
        "What is 5 + 1?",
        inside,
        LONG.format(k="many"),
    }
    assert any(note.startswith("3 of 32 training problems overlap with") for note in task.notes)
    strict = build(**base, exclude=[evaluation], exclude_ngram=25)
    assert {p.text for p in build(**base).train} - {p.text for p in strict.train} == {"What is 5 + 1?"}
    table = build(**base, exclude=[{"path": evaluation, "options": {"answer": "answer"}}])
    assert table.train == task.train and table.fingerprint == task.fingerprint != build(**base).fingerprint
    with pytest.raises(DataError, match="leaves no training problem"):
        build(**base, exclude=[path])
    with pytest.raises(DataError, match="unknown key 'pth'"):
        build(**base, exclude=[{"pth": path}])


def test_a_task_by_name_can_be_excluded() -> None:
    config = {"name": "addition", "options": {"digits": 1}, "train_size": 60, "heldout_size": 5}
    other = {**config, "seed": 3}
    whole, task = build(**config), build(**config, exclude=[other])
    held = {p.text for p in build(**other).heldout}
    assert {p.text for p in whole.train} - {p.text for p in task.train} == held & {p.text for p in whole.train}
    assert "0 of 60" in task.notes[-1], "the hash keeps held-out problems out whatever the seed is"


def test_short_problems_are_compared_whole() -> None:
    known = Decontaminator([Prompt("a", "one two three four")], 3)
    assert known.overlaps(Prompt("b", "zero two three four five"))
    assert not known.overlaps(Prompt("c", "one three two four"))
    assert not known.overlaps(Prompt("d", "two three"))
    assert Decontaminator([Prompt("a", "2 + 2")], 13).overlaps(Prompt("b", "2+2?"))
