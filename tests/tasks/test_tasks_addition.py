"""Addition with a scratchpad: what is right, what is no answer, and where a mistake is charged."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.tasks.addition import build, carries, demonstrate, verify
from surefoot.tasks.config import TaskConfig
from surefoot.types import Prompt, Status

PROMPT = Prompt("p", "347+589=", "936", {"digits": 3})
RIGHT = "7+9+0=16,4+8+1=13,3+5+1=09>936"


def values(text: str) -> list[float]:
    return [step.value for step in verify(PROMPT, text).steps]


def test_the_worked_solution_is_the_documented_one():
    assert demonstrate(PROMPT, 0, 0.0) == RIGHT
    assert len(RIGHT) == 30
    assert set(RIGHT) <= set(string.printable) - set(string.whitespace)


@pytest.mark.parametrize(
    ("text", "total", "status", "answer"),
    [
        (RIGHT, 1.0, Status.OK, "936"),
        (">936", 1.0, Status.OK, "936"),  # the scratchpad does not enter the total
        ("nonsense>936", 1.0, Status.OK, "936"),
        (">936\n", 1.0, Status.OK, "936"),
        (">937", 0.0, Status.OK, "937"),
        (">0", 0.0, Status.OK, "0"),
        (">9369", 0.0, Status.OK, "9369"),  # the gold answer as a part
        (">1936", 0.0, Status.OK, "1936"),
        ("", 0.0, Status.NO_ANSWER, ""),
        ("936", 0.0, Status.NO_ANSWER, ""),
        (">", 0.0, Status.NO_ANSWER, ""),
        (">936>937", 0.0, Status.NO_ANSWER, ""),  # a list of candidates, whichever is right
        (">937>936", 0.0, Status.NO_ANSWER, ""),
        (">936>936", 0.0, Status.NO_ANSWER, ""),
        (">0936", 0.0, Status.NO_ANSWER, ""),
        (">00", 0.0, Status.NO_ANSWER, ""),
        (">+936", 0.0, Status.NO_ANSWER, ""),
        (">-936", 0.0, Status.NO_ANSWER, ""),
        ("> 936", 0.0, Status.NO_ANSWER, ""),
        (">936,937", 0.0, Status.NO_ANSWER, ""),
        (">936 937", 0.0, Status.NO_ANSWER, ""),
        (">936.0", 0.0, Status.NO_ANSWER, ""),
        (">9.36e2", 0.0, Status.NO_ANSWER, ""),
        (">1e999999", 0.0, Status.NO_ANSWER, ""),
        (">９３６", 0.0, Status.NO_ANSWER, ""),  # digits of another script
        (">936abc", 0.0, Status.NO_ANSWER, ""),
        ("347+589=", 0.0, Status.NO_ANSWER, ""),
        ("347+589=936", 0.0, Status.NO_ANSWER, ""),
        (">" + "9" * 5000, 0.0, Status.OK, "9" * 5000),
    ],
)
def test_only_a_strictly_formed_answer_counts(text: str, total: float, status: Status, answer: str):
    score = verify(PROMPT, text)
    assert (score.total, score.status, score.text) == (total, status, answer)
    assert score.correct is bool(total)
    assert score.components == {"accuracy": total}
    assert score.valid


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (RIGHT, [1, 1, 1]),
        ("7+9+0=17,4+8+1=13,3+5+1=09>937", [0, 1, 1]),  # a wrong sum
        ("7+9+0=06,4+8+0=12,3+5+1=09>926", [0, 1, 1]),  # wrong carry in the sum: the next step goes on rightly from it
        ("7+9+0=16,4+8+0=12,3+5+1=09>926", [1, 0, 1]),  # the carry dropped between two steps
        ("7+9+1=17,4+8+1=13,3+5+1=09>937", [0, 1, 1]),  # a carry out of nowhere
        ("7+8+0=15,4+8+1=13,3+5+1=09>935", [0, 1, 1]),  # another digit than the prompt's
        ("9+7+0=16,4+8+1=13,3+5+1=09>936", [0, 1, 1]),  # digits in the wrong order
        ("7+9+0=16,4+8+1=13,3+5+1=9>936", [1, 1, 0]),  # a sum of one digit
        ("7+9=16,4+8+1=13,3+5+1=09>936", [0, 1, 1]),  # malformed: the next one is held to the true carry
        ("7+9=16,4+8+0=12,3+5+1=09>926", [0, 0, 1]),
        ("7+9+0=16,4+8+1=13,3+5+1=09,0+0+0=00>936", [1, 1, 1, 0]),  # a step too many
        ("7+9+0=16>936", [1]),  # a step too few
        ("7+9+0=16,,3+5+1=09>936", [1, 0, 1]),
        ("7+9+0=16,4+8", [1, 0]),  # cut off
        ("", []),
        (">936", []),
    ],
)
def test_steps_are_charged_where_the_mistake_was_made(text: str, expected: list[int]):
    assert values(text) == expected


def test_steps_end_where_their_text_ends():
    steps = verify(PROMPT, RIGHT).steps
    assert [RIGHT[: step.end] for step in steps] == [RIGHT[:8], RIGHT[:17], RIGHT[:26]]


@given(st.integers(0, 2**40), st.integers(1, 6), st.integers(0, 2**40))
def test_demonstrations_are_right_without_errors_and_hold_one_mistake_with(seed: int, digits: int, task_seed: int):
    config = TaskConfig(options={"digits": digits}, seed=task_seed, train_size=1, heldout_size=0)
    prompt = build(config).train[0]
    right = verify(prompt, demonstrate(prompt, seed, 0.0))
    assert right.correct and len(right.steps) == digits and all(step.value == 1 for step in right.steps)

    text = demonstrate(prompt, seed, 1.0)
    wrong = verify(prompt, text)
    # It is carried through to a well-formed wrong answer, and every other step goes on from it.
    assert wrong.correct is False and wrong.status is Status.OK
    assert sum(step.value == 0 for step in wrong.steps) <= 1
    assert demonstrate(prompt, seed, 1.0) == text


def test_both_kinds_of_mistake_occur():
    texts = {demonstrate(PROMPT, seed, 1.0) for seed in range(200)}
    dropped = [text for text in texts if "4+8+0" in text and text.startswith("7+9+0=16")]
    miscounted = [text for text in texts if not text.startswith("7+9+0=16")]
    unwritten = [text for text in texts if text.startswith(RIGHT[:26]) and not text.endswith(">936")]
    assert dropped and miscounted
    assert not unwritten  # 3 + 5 + 1 carries nothing that could be lost on the way to the answer


def test_a_last_carry_can_be_lost_on_the_way_to_the_answer():
    prompt = Prompt("p", "900+900=", "1800", {"digits": 3})
    texts = {demonstrate(prompt, seed, 1.0) for seed in range(100)}
    assert "0+0+0=00,0+0+0=00,9+9+0=18>800" in texts


def test_the_error_rate_is_a_rate():
    wrong = sum(not verify(PROMPT, demonstrate(PROMPT, seed, 0.3)).correct for seed in range(2000))
    assert 0.26 < wrong / 2000 < 0.34  # four standard deviations


def test_swapped_operands_lie_in_the_same_part():
    task = build(TaskConfig(options={"digits": 1}, train_size=80, heldout_size=4, heldout_share=0.1))
    train, heldout = ({prompt.text for prompt in part} for part in (task.train, task.heldout))
    swapped = {"+".join(reversed(text.rstrip("=").split("+"))) + "=" for text in train}
    assert len(train & swapped) > 50  # most of them are there, none on the other side
    assert not heldout & swapped


@pytest.mark.parametrize("digits", [1, 2, 5, 25])
def test_operands_have_the_digits_that_were_asked_for(digits: int):
    task = build(TaskConfig(options={"digits": digits}, train_size=20, heldout_size=2))
    for prompt in task.train:
        a, b = prompt.text.rstrip("=").split("+")
        assert len(a) == len(b) == digits
        assert prompt.answer == str(int(a) + int(b))


@pytest.mark.parametrize(("a", "b", "count"), [(123, 456, 0), (129, 456, 1), (999, 1, 3), (555, 555, 3), (0, 0, 0)])
def test_the_label_is_the_number_of_carries(a: int, b: int, count: int) -> None:
    assert carries(a, b) == count
