"""A function in worker processes is stopped when it is late, and everything else is graded."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from surefoot.errors import RewardError
from surefoot.rewards.base import BrokenRewardError, Completion
from surefoot.rewards.functions import as_reward
from surefoot.rewards.grade import grade
from surefoot.rewards.isolated import Isolated
from surefoot.types import Prompt, Status


def wild(prompt: str, completion: str, answer: Any) -> float | bool | None:
    """Does what the completion says."""
    if completion == "loop":
        while True:
            pass
    if completion == "swallow":
        while True:
            try:
                time.sleep(60)
            except BaseException:
                continue
    if completion == "die":
        os._exit(3)
    if completion == "none":
        return None
    if completion == "raise":
        raise ValueError("no\nnumber")
    return completion == answer


def completions(*texts: str) -> list[Completion]:
    return [Completion(Prompt("p", "?", "right"), text) for text in texts]


@pytest.fixture(scope="module")
def reward() -> Any:
    made = Isolated(wild, deadline=1.0, workers=2)
    yield made
    made.pool.close()


def test_each_failure_is_its_own(reward: Isolated):
    begin = time.monotonic()
    texts = ["right", "loop", "wrong", "raise", "swallow", "none", "die", "right"]
    scores = grade(reward, completions(*texts))
    assert time.monotonic() - begin < 60
    assert [s.status for s in scores] == [
        Status.OK, Status.TIMEOUT, Status.OK, Status.ERROR, Status.TIMEOUT, Status.INVALID, Status.ERROR, Status.OK,
    ]  # fmt: skip
    assert [s.correct for s in scores if s.valid] == [True, False, True]
    assert "ValueError: no number" in scores[3].text and "not graded within 1 seconds" in scores[1].text
    assert all(s.valid for s in grade(reward, completions("right", "wrong")))  # the workers are whole afterwards


def test_all_that_fail_are_broken(reward: Isolated):
    with pytest.raises(BrokenRewardError, match="'wild' failed on all 2 completions"):
        grade(reward, completions("raise", "raise"))


def test_it_is_a_reward_for_other_threads(reward: Isolated):
    assert as_reward(reward) is reward and reward.name == "wild" and reward.threads == 1


def test_what_cannot_be_sent_is_refused(reward: Isolated):
    def inner(prompt, completion, answer):
        return 1.0

    for function in (inner, lambda prompt, completion, answer: 1.0):
        with pytest.raises(RewardError, match="cannot be imported by a worker process"):
            Isolated(function)
    with pytest.raises(RewardError, match="cannot be sent"):
        grade(reward, [Completion(Prompt("p", "?", object()), "x")])
