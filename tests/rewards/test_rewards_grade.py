"""The contract of a reward: one valid score per completion, in order."""

from __future__ import annotations

import math
from typing import Any

import pytest

from surefoot.errors import RewardError
from surefoot.rewards.base import Completion
from surefoot.rewards.grade import grade
from surefoot.types import Prompt, Score, Status

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
