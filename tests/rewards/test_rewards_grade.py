"""The contract of a reward: one valid score per completion, in order."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

from surefoot.errors import MissingExtraError, RewardError
from surefoot.rewards.base import Completion
from surefoot.rewards.grade import grade
from surefoot.types import Prompt, Score, Status, StepScore

COMPLETIONS = [Completion(Prompt("p", "?"), text) for text in "abc"]


class Fixed:
    name = "fixed"

    def __init__(self, result: Any) -> None:
        self.result = result

    def score(self, completions: Any) -> Any:
        return self.result


def test_scores_come_back_in_order():
    scores = [Score(1.0), Score(2.0, status=Status.NO_ANSWER), Score.failed(Status.TIMEOUT, "late")]
    graded = grade(Fixed(scores), COMPLETIONS)
    assert graded[:2] == scores[:2] and graded[2].status is Status.TIMEOUT
    assert grade(Fixed(tuple(scores)), COMPLETIONS)[0] == scores[0]


@pytest.mark.parametrize("n", [0, 1, 2, 4, 300])
def test_another_number_of_scores_is_refused_by_name(n: int):
    with pytest.raises(RewardError, match=f"the reward 'fixed' gave {n} scores for 3 completions; expected one each"):
        grade(Fixed([Score(1.0)] * n), COMPLETIONS)


@pytest.mark.parametrize("result", [None, 1.0, "abc", {0: Score(1.0)}, iter([Score(1.0)] * 3)])
def test_something_else_than_a_list_is_refused_by_name(result: Any):
    with pytest.raises(RewardError, match=r"the reward 'fixed' gave .*; expected a list"):
        grade(Fixed(result), COMPLETIONS)


@pytest.mark.parametrize("entry", [1.0, None, True, "1"])
def test_something_else_than_a_score_is_refused_by_name(entry: Any):
    with pytest.raises(RewardError, match=r"the reward 'fixed' gave .*; expected a Score"):
        grade(Fixed([Score(1.0), entry, Score(1.0)]), COMPLETIONS)


@pytest.mark.parametrize("status", [Status.OK, Status.NO_ANSWER])
@pytest.mark.parametrize("total", [math.nan, math.inf, -math.inf])
def test_a_total_that_is_not_finite_is_invalid(status: Status, total: float):
    score = grade(Fixed([Score(total, status=status), Score(1.0), Score(1.0)]), COMPLETIONS)[0]
    assert score.status is Status.INVALID and math.isnan(score.total) and str(total) in score.text


def test_a_verdict_that_failed_keeps_its_status():
    for status in (Status.INVALID, Status.TIMEOUT, Status.ERROR):
        assert grade(Fixed([Score.failed(status, "why")] * 3), COMPLETIONS)[0].status is status


def test_nothing_to_grade_asks_nobody():
    assert grade(Fixed(None), []) == []


class Raising:
    name = "judge"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def score(self, completions: Any) -> Any:
        raise self.error


def one(score: Any) -> Score:
    return grade(Fixed([score]), COMPLETIONS[:1])[0]


def test_a_reward_that_raises_is_named_with_its_exception():
    error = ConnectionError("no\nserver \ud800")
    with pytest.raises(RewardError) as caught:
        grade(Raising(error), COMPLETIONS)
    message = "the reward 'judge' failed on a batch of 3 completions: ConnectionError: no server \\ud800"
    assert str(caught.value) == message and caught.value.__cause__ is error


@pytest.mark.parametrize("error", [MissingExtraError("pip install something"), KeyboardInterrupt()])
def test_what_a_person_can_mend_and_interrupts_pass_through(error: BaseException):
    with pytest.raises(type(error)) as caught:
        grade(Raising(error), COMPLETIONS)
    assert caught.value is error


@pytest.mark.parametrize(
    "half",
    [np.float32(0.5), np.float16(0.5), np.array(0.5), torch.tensor(0.5), torch.tensor(0.5).bfloat16(), Fraction(1, 2)],
)
def test_numbers_of_any_library_become_pythons(half: Any):
    score = one(Score(half, MappingProxyType({np.str_("part"): half})))
    assert (score.total, score.components, score.correct) == (0.5, {"part": 0.5}, None)
    assert [type(value) for value in (score.total, score.components, score.components["part"])] == [float, dict, float]
    assert [type(name) for name in score.components] == [str]


def test_numbers_are_accepted_as_bools_and_bools_as_numbers():
    for yes in (True, 1, 1.0, np.bool_(True), np.int64(1), torch.tensor(True)):
        score = one(Score(yes, {"part": yes}, yes))
        assert (score.total, score.components, score.correct) == (1.0, {"part": 1.0}, True)
        assert type(score.total) is type(score.components["part"]) is float and type(score.correct) is bool
    assert one(Score(0.0, correct=np.bool_(False))).correct is False  # type: ignore[arg-type]


def test_steps_become_plain_values_and_lose_those_that_are_none():
    steps = [StepScore(np.int64(2), torch.tensor(0.5)), StepScore(4, math.inf, token=7)]
    first, second = one(Score(1.0, steps=steps)).steps  # type: ignore[arg-type]
    assert (first, type(first.end), type(first.value)) == (StepScore(2, 0.5), int, float)
    assert (second.end, second.token) == (4, None) and math.isnan(second.value)


def test_a_status_may_be_its_text():
    assert one(Score(0.0, status="no_answer")).status is Status.NO_ANSWER  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (Score("x"), "total is 'x' (str); expected a number"),
        (Score("1.0"), "total is '1.0' (str); expected a number"),
        (Score(None), "total is None (NoneType); expected a number"),
        (Score(np.array([0.5])), "total is array([0.5]) (ndarray); expected a number"),
        (Score(torch.ones(2)), "total is tensor([1., 1.]) (Tensor); expected a number"),
        (Score(1j), "total is 1j (complex); expected a number"),
        (Score(0.5, None), "components are None (NoneType); expected a mapping from names to numbers"),
        (Score(0.5, [1.0]), "components are [1.0] (list); expected a mapping from names to numbers"),
        (Score(0.5, {"a": "good"}), "component 'a' is 'good' (str); expected a number"),
        (Score(0.5, {"a": None}), "component 'a' is None (NoneType); expected a number"),
        (Score(0.5, {3: 1.0}), "components have the name 3 (int); expected text"),
        (Score(0.5, correct="yes"), "'correct' is 'yes' (str); expected True, False or None"),
        (Score(0.5, correct=0.5), "'correct' is 0.5 (float); expected True, False or None"),
        (Score(0.5, status="fine"), "status is 'fine' (str); expected one of ok, no_answer, "),
        (Score(0.5, steps=None), "steps are None (NoneType); expected a tuple of StepScore"),
        (Score(0.5, steps=((2, 1.0),)), "steps hold (2, 1.0) (tuple); expected StepScore(end, value)"),
        (Score(0.5, steps=(StepScore(None, 1.0),)), "step ends at None (NoneType); expected a whole number"),
        (Score(0.5, steps=(StepScore(2.5, 1.0),)), "step ends at 2.5 (float); expected a whole number"),
        (Score(0.5, steps=(StepScore(2, "1"),)), "step's value is '1' (str); expected a number"),
    ],
)
def test_values_of_other_types_are_refused_by_name(score: Score, words: str):
    with pytest.raises(RewardError) as caught:
        grade(Fixed([Score(1.0), Score(1.0), score]), COMPLETIONS)
    text = str(caught.value)
    assert text.startswith(f"the reward 'fixed' gave a Score whose {words}") and "\n" not in text


@pytest.mark.parametrize("total", [1e308, -1e308, 1e200, np.nextafter(1e15, 2e15)])
def test_a_total_too_large_for_statistics_is_invalid_and_says_so(total: float):
    score = one(Score(total, correct=True, text="42"))
    assert score.status is Status.INVALID and math.isnan(score.total) and not score.valid
    assert score.text.startswith("42 (the total is ") and score.text.endswith("above 1e+15 in magnitude)")


def test_the_largest_total_is_valid():
    assert [one(Score(total)).total for total in (1e15, -1e15)] == [1e15, -1e15]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e16, 10**400, np.float32("nan")])
def test_a_component_without_a_usable_number_leaves_the_total(value: Any):
    score = one(Score(0.5, {"good": 0.25, "bad": value}))
    assert score.valid and score.total == 0.5 and score.components["good"] == 0.25
    assert math.isnan(score.components["bad"])


def test_a_verdict_that_failed_has_no_total():
    assert math.isnan(one(Score(None, status=Status.ERROR)).total)  # type: ignore[arg-type]


def test_names_and_texts_can_be_written_and_stay_apart():
    names = ["a\ud800", "a\udfff", "\u00e9\U0001f600"]
    score = one(Score(0.5, dict(zip(names, (1.0, 2.0, 3.0), strict=True)), text="x\udc00y"))
    assert score.components == {"a\\ud800": 1.0, "a\\udfff": 2.0, "\u00e9\U0001f600": 3.0}
    assert score.text == "x\\udc00y"
    json.dumps([dict(score.components), score.text], ensure_ascii=False).encode("utf-8")
    assert one(Score(0.5, text=None)).text == "" and one(Score(0.5, text=42)).text == "42"  # type: ignore[arg-type]
