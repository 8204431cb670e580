"""A tag that the prompt opened, as verifiers see it; and graders that have every attribute or are wrapped without end."""

from __future__ import annotations

import functools
from dataclasses import replace
from unittest.mock import AsyncMock, MagicMock, Mock, create_autospec

import pytest

from surefoot.errors import RewardError
from surefoot.rewards.base import Completion
from surefoot.rewards.functions import as_reward, name_of
from surefoot.rewards.verifiers import make_verifier
from surefoot.rewards.wrapped import Opened
from surefoot.types import Prompt

QUESTION = Prompt("p", "How many words?", "4")


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("2 + 2</think><answer>4</answer>", 1.0),
        ("<think>2 + 2</think><answer>4</answer>", 0.0),  # it opens what is open
        ("2 + 2<answer>4</answer>", 0.0),
        ("2 + 2</think>4", 0.0),
        ("</think><answer>4</answer>", 0.0),  # nothing in it
    ],
)
def test_the_format_behind_a_template_that_opens_the_thought(text: str, total: float, opened: bool) -> None:
    verifier = Opened(make_verifier("format", {"opened": opened}))
    (score,) = verifier.score([Completion(QUESTION, text, opens="<think>")])
    assert score.total == total


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("length", {"unit": "characters", "budget": 8, "span": 8}),
        ("repetition", {"size": 1}),
        ("repetition", {"measure": "compression"}),
        ("language", {"language": "han"}),
    ],
)
def test_manner_is_that_of_what_the_policy_wrote(name: str, options: dict) -> None:
    verifier = Opened(make_verifier(name, options))
    plain = Completion(QUESTION, "think, think</think> 四")
    assert verifier.score([replace(plain, opens="<think>")]) == verifier.score([plain])


def test_an_unfinished_thought_is_no_answer_all_the_same() -> None:
    for name in ("number", "exact", "choice"):
        (score,) = Opened(make_verifier(name)).score([Completion(Prompt("p", "?", "B"), "B", opens="<think>")])
        assert not score.correct


class Everything:
    """Has every attribute, each another such object."""

    def __getattr__(self, name: str) -> Everything:
        return Everything()

    def __call__(self, prompt: str, completion: str, answer: object) -> float:
        return 1.0


def plain(prompt: str, completion: str, answer: object) -> float:
    return 1.0


def wrapped_in_itself() -> object:
    def function(*values: object) -> float:
        return 1.0

    function.__wrapped__ = function  # type: ignore[attr-defined]
    function.func = function  # type: ignore[attr-defined]
    return function


@pytest.mark.parametrize(
    "make",
    [
        lambda: Mock(return_value=1.0),
        lambda: MagicMock(return_value=1.0),
        lambda: AsyncMock(return_value=1.0),
        lambda: functools.partial(Mock(return_value=1.0)),
        Everything,
        wrapped_in_itself,
    ],
    ids=["Mock", "MagicMock", "AsyncMock", "partial", "every attribute", "wrapped in itself"],
)
def test_a_grader_that_does_not_tell_its_parameters_is_refused(make) -> None:
    with pytest.raises(RewardError, match="expected"):
        as_reward(make())


def test_a_mock_with_a_signature_grades() -> None:
    reward = as_reward(create_autospec(plain, return_value=1.0))
    assert reward.score([Completion(QUESTION, "4")])[0].total == 1.0
    assert name_of(functools.partial(functools.partial(plain), answer=1)) == "plain"
