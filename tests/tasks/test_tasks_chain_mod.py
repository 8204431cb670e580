"""Chained modular arithmetic: left to right, every step judged from the value before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.tasks.chain_mod import build, demonstrate, verify
from surefoot.tasks.config import TaskConfig
from surefoot.types import Prompt, Status

PROMPT = Prompt("p", "3+4*2-7=", "7", {"modulus": 10})
LARGE = Prompt("p", "9*9*9-5=", "45", {"modulus": 97})  # 81, 729 = 50, 45


def test_it_is_read_from_left_to_right():
    assert demonstrate(PROMPT, 0, 0.0) == "7,4,7"
    assert demonstrate(LARGE, 0, 0.0) == "81,50,45"


@pytest.mark.parametrize(
    ("prompt", "text", "total", "status"),
    [
        (PROMPT, "7,4,7", 1.0, Status.OK),
        (PROMPT, "1,1,7", 1.0, Status.OK),  # the total looks at the answer alone
        (PROMPT, "7,4,7\n", 1.0, Status.OK),
        (PROMPT, "7,4,8", 0.0, Status.OK),
        (PROMPT, "", 0.0, Status.NO_ANSWER),
        (PROMPT, "7", 0.0, Status.NO_ANSWER),
        (PROMPT, "7,4", 0.0, Status.NO_ANSWER),
        (PROMPT, "7,4,7,7", 0.0, Status.NO_ANSWER),
        (PROMPT, "0,1,2,3,4,5,6,7", 0.0, Status.NO_ANSWER),
        (PROMPT, "7,4,", 0.0, Status.NO_ANSWER),
        (PROMPT, "7,,7", 0.0, Status.NO_ANSWER),
        (PROMPT, "7,4,07", 0.0, Status.NO_ANSWER),
        (PROMPT, "7,4,-3", 0.0, Status.NO_ANSWER),
        (PROMPT, "7,4,17", 0.0, Status.NO_ANSWER),  # not reduced
        (PROMPT, "7,14,7", 0.0, Status.NO_ANSWER),
        (PROMPT, "7, 4, 7", 0.0, Status.NO_ANSWER),
        (PROMPT, "7,4,1e999999", 0.0, Status.NO_ANSWER),
        (PROMPT, "7,4," + "7" * 5000, 0.0, Status.NO_ANSWER),
        (PROMPT, "7,4,٧", 0.0, Status.NO_ANSWER),
        (PROMPT, "3+4*2-7=", 0.0, Status.NO_ANSWER),
        (LARGE, "81,50,45", 1.0, Status.OK),
        (LARGE, "81,50,97", 0.0, Status.NO_ANSWER),
    ],
)
def test_only_a_whole_list_of_values_has_an_answer(prompt: Prompt, text: str, total: float, status: Status):
    score = verify(prompt, text)
    assert (score.total, score.status, score.correct) == (total, status, bool(total))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7,4,7", [1, 1, 1]),
        ("8,6,9", [0, 1, 1]),  # wrong, and rightly on from there
        ("7,5,8", [1, 0, 1]),
        ("7,4,8", [1, 1, 0]),
        ("2,4,7", [0, 1, 1]),  # the right answer by luck
        ("x,4,7", [0, 0, 1]),
        ("7,4,7,7", [1, 1, 1, 0]),
        ("7", [1]),
        ("", []),
    ],
)
def test_a_step_is_judged_from_the_value_before_it(text: str, expected: list[int]):
    steps = verify(PROMPT, text).steps
    assert [step.value for step in steps] == expected
    pieces = text.split(",")
    assert [step.end for step in steps] == [len(",".join(pieces[: k + 1])) for k in range(len(steps))]


@given(st.integers(0, 2**40), st.integers(1, 8), st.sampled_from([2, 10, 97]), st.integers(0, 2**40))
def test_demonstrations_hold_no_mistake_or_exactly_one(seed: int, steps: int, modulus: int, task_seed: int):
    options = {"steps": steps, "modulus": modulus}
    prompt = build(TaskConfig(name="chain_mod", options=options, seed=task_seed, train_size=1, heldout_size=0)).train[0]
    right = verify(prompt, demonstrate(prompt, seed, 0.0))
    assert right.correct and [step.value for step in right.steps] == [1.0] * steps
    wrong = verify(prompt, demonstrate(prompt, seed, 1.0))
    assert wrong.status is Status.OK
    assert sum(step.value == 0 for step in wrong.steps) == 1


def test_the_gold_answer_is_what_python_computes():
    for prompt in build(TaskConfig(name="chain_mod", options={"steps": 3, "modulus": 97}, train_size=50)).train:
        a, o1, b, o2, c, o3, d = prompt.text.rstrip("=")
        assert prompt.answer == str(eval(f"((({a}{o1}{b}){o2}{c}){o3}{d}) % 97"))


def test_a_larger_modulus_changes_the_answers_and_not_the_split():
    small = build(TaskConfig(name="chain_mod", train_size=300, heldout_size=30))
    large = build(TaskConfig(name="chain_mod", train_size=300, heldout_size=30, options={"modulus": 97}))
    assert [p.content for p in small.train] == [p.content for p in large.train]
    assert [p.content for p in small.heldout] == [p.content for p in large.heldout]
    assert small.train[0].prompt_id != large.train[0].prompt_id
    assert [p.answer for p in small.train] != [p.answer for p in large.train]
