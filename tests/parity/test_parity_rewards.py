"""TRL's own reward functions, unchanged, give here what they give there. Run with ``make parity``."""

from __future__ import annotations

import math
from typing import Any

import pytest

from surefoot.rewards.base import Completion
from surefoot.rewards.functions import as_reward
from surefoot.rewards.grade import grade
from surefoot.types import Prompt, Status
from tests.parity import peers

pytestmark = pytest.mark.parity

TEXTS = [
    r"<think>a third</think>\boxed{\frac{1}{3}}",
    r"<think>a half</think>\boxed{\frac{1}{2}}",
    "no answer at all",
    "again and again and again and again",
]
GOLDS = [r"\frac{1}{3}", r"\frac{1}{2}", "not parseable ((", "x"]


@pytest.fixture(scope="module", autouse=True)
def libraries() -> None:
    peers.load()


def functions() -> dict[str, Any]:
    from trl import rewards

    return {
        "accuracy_reward": rewards.accuracy_reward,
        "reasoning_accuracy_reward": rewards.reasoning_accuracy_reward,
        "think_format_reward": rewards.think_format_reward,
        "get_cosine_scaled_reward": rewards.get_cosine_scaled_reward(max_len=10),
        "get_soft_overlong_punishment": rewards.get_soft_overlong_punishment(max_completion_len=8, soft_punish_cache=4),
        "get_repetition_penalty_reward": rewards.get_repetition_penalty_reward(2, -1.0),
    }


def test_every_function_of_its_room_is_here() -> None:
    from trl import rewards

    assert sorted(functions()) == sorted(name for names in rewards._import_structure.values() for name in names)


@pytest.mark.parametrize(
    "name",
    [
        "accuracy_reward", "reasoning_accuracy_reward", "think_format_reward", "get_cosine_scaled_reward",
        "get_soft_overlong_punishment", "get_repetition_penalty_reward",
    ],
)  # fmt: skip
def test_the_same_numbers(name: str) -> None:
    function = functions()[name]
    ids = [[1] * length for length in (2, 6, 8, 9)]
    messages = [[{"role": "assistant", "content": text}] for text in TEXTS]
    expected = function(completions=messages, solution=GOLDS, completion_ids=ids)
    completions = [
        Completion(
            Prompt(f"p{k}", ({"role": "user", "content": "?"},), GOLDS[k]), text, length=len(ids[k]), ids=tuple(ids[k])
        )
        for k, text in enumerate(TEXTS)
    ]
    scores = grade(as_reward(function), completions)
    for score, value in zip(scores, expected, strict=True):
        if value is None:
            assert score.status is Status.NOT_APPLICABLE and math.isnan(score.total)
        else:
            assert score.total == value
    assert len(set(expected)) > 1
