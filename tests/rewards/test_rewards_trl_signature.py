"""Reward functions written for TRL's trainer work unchanged: what they are called with, and what becomes of a None."""

from __future__ import annotations

import asyncio
import json
import math
import re
from typing import Any

import pytest

from surefoot.errors import RewardError
from surefoot.rewards.base import Completion, notes_of, threads_of
from surefoot.rewards.compose import Composed, Part
from surefoot.rewards.functions import as_reward
from surefoot.rewards.grade import grade
from surefoot.rewards.trl import TrlReward
from surefoot.types import Finish, Prompt, Score, Status

TEXT = [
    Completion(
        Prompt(f"t{k}", f"{k} + 1 =", str(k + 1), {"task": "math" if k else "code", "level": k}),
        text,
        Finish.STOP,
        3,
        (7, 8, 9),
        step=5,
        steps=20,
    )
    for k, text in enumerate(["<think>a</think>\n1", "2", "longer text"])
]
CHAT = [
    Completion(
        Prompt("c", ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1 ="}), "2"),
        "It is 2",
    )
]


def totals(grader: Any, completions: list[Completion]) -> list[float]:
    return [score.total for score in grade(as_reward(grader), completions)]


class TestTheFormsOfItsDocumentation:
    """The ways in which such functions are written: by what they name, and what they leave to ``**kwargs``."""

    def test_ids_alone(self):
        def length(completion_ids, **kwargs):
            return [float(len(ids)) for ids in completion_ids]

        assert totals(length, TEXT) == [3.0, 3.0, 3.0]

    def test_texts_alone(self):
        def form(completions, **kwargs):
            return [1.0 if re.match(r"^<think>.*?</think>\n", text) else 0.0 for text in completions]

        assert totals(form, TEXT) == [1.0, 0.0, 0.0]

    def test_messages_of_a_chat(self):
        seen = []

        def reward(prompts, completions, **kwargs):
            seen.append((prompts, completions))
            return [float(completion[0]["content"].endswith("2")) for completion in completions]

        assert totals(reward, CHAT) == [1.0]
        assert seen == [
            (
                [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1 ="}]],
                [[{"role": "assistant", "content": "It is 2"}]],
            )
        ]

    def test_a_column_of_the_data_set(self):
        def by_task(prompts, completions, task, **kwargs):
            assert prompts == [completion.prompt.text for completion in TEXT]
            return [1.0 if name == "math" else None for name in task]

        scores = grade(as_reward(by_task), TEXT)
        assert [s.status for s in scores] == [Status.NOT_APPLICABLE, Status.OK, Status.OK]
        assert math.isnan(scores[0].total) and not scores[0].valid

    @pytest.mark.parametrize("name", ["answer", "solution", "ground_truth", "target"])
    def test_the_gold_answer_under_its_usual_names(self, name: str):
        space: dict[str, Any] = {}
        exec(f"def reward(completions, {name}, **kwargs):\n    return [float(x) for x in {name}]", space)
        assert totals(space["reward"], TEXT) == [1.0, 2.0, 3.0]

    def test_without_kwargs_it_gets_what_it_names(self):
        def named(completions, level):
            return level

        assert totals(named, TEXT) == [0.0, 1.0, 2.0]

    def test_the_state_of_the_trainer(self):
        def later(completions, trainer_state, **kwargs):
            return [trainer_state.global_step / trainer_state.max_steps] * len(completions)

        assert totals(later, TEXT) == [0.25] * 3

    def test_everything_that_is_passed(self):
        seen: dict[str, Any] = {}

        def everything(**kwargs):
            seen.update(kwargs)
            return [0.0] * len(kwargs["completions"])

        TrlReward("everything", everything).score(TEXT)
        assert sorted(seen) == [
            "answer", "completion_ids", "completions", "level", "log_extra", "log_metric", "prompts", "task",
            "trainer_state",
        ]  # fmt: skip
        assert seen["completion_ids"] == [[7, 8, 9]] * 3 and seen["level"] == [0, 1, 2]

    def test_an_async_function_and_an_object(self):
        async def later(prompts, completions, **kwargs):
            await asyncio.sleep(0)
            return [len(text) / 100 for text in completions]

        class Scaled:
            __name__ = "scaled"

            def __call__(self, completions, solution, completion_ids, **kwargs):
                return [len(ids) * float(gold) for ids, gold in zip(completion_ids, solution, strict=True)]

        assert totals(later, TEXT)[1] == 0.01 and threads_of(as_reward(later)) > 1
        assert totals(Scaled(), TEXT) == [3.0, 6.0, 9.0] and as_reward(Scaled()).name == "scaled"
        assert threads_of(as_reward(Scaled())) == 0

    def test_columns_that_it_logs_are_in_the_notes_and_metrics_in_the_metrics(self):
        def logs(completions, log_extra=None, log_metric=None, **kwargs):
            log_extra("parsed", [text[:1] for text in completions])
            log_extra("size", [len(text) for text in completions])
            log_metric("accuracy", 0.25)
            log_metric("accuracy", 0.75)
            return [1.0] * len(completions)

        reward = as_reward(logs)
        scores = grade(reward, TEXT)
        assert scores[1].text == "parsed: 2; size: 1"
        assert notes_of(reward).means() == {"accuracy": 0.5} and notes_of(reward).means() == {}


class TestNone:
    def test_in_a_sum_it_adds_nothing(self):
        def math_only(completions, task, **kwargs):
            return [1.0 if name == "math" else None for name in task]

        def code_only(completions, task, **kwargs):
            return [2.0 if name == "code" else None for name in task]

        def always(completions, **kwargs):
            return [0.5] * len(completions)

        scores = grade(as_reward([math_only, (code_only, 3.0), always]), TEXT)
        assert [s.total for s in scores] == [6.5, 1.5, 1.5]
        assert math.isnan(scores[0].components["math_only"]) and scores[0].valid

    def test_where_all_give_none_the_sample_has_no_reward(self):
        def never(completions, **kwargs):
            return [None] * len(completions)

        scores = grade(Composed((Part("a", never), Part("b", never))), TEXT)
        assert {s.status for s in scores} == {Status.NOT_APPLICABLE} and not any(s.valid for s in scores)

    def test_nan_is_no_none(self):
        def odd(completions, **kwargs):
            return [float("nan")] * len(completions)

        assert grade(as_reward(odd), TEXT)[0].status is Status.INVALID


class TestMistakes:
    def test_a_column_that_is_not_there_is_named_with_those_that_are(self):
        def wants(completions, difficulty, **kwargs):
            return [0.0] * len(completions)

        with pytest.raises(RewardError, match=r"takes 'difficulty'.*they have answer, level, log_extra"):
            grade(as_reward(wants), TEXT)

    @pytest.mark.parametrize("count", [0, 2, 4])
    def test_another_number_of_rewards(self, count: int):
        def short(completions, **kwargs):
            return [1.0] * count

        with pytest.raises(RewardError, match=f"the reward 'short' gave {count} scores for 3 completions"):
            grade(as_reward(short), TEXT)

    def test_a_column_of_another_length(self):
        def logs(completions, log_extra, **kwargs):
            log_extra("parsed", ["a"])
            return [1.0] * len(completions)

        with pytest.raises(RewardError, match="logs 1 values of 'parsed' for 3 completions"):
            grade(as_reward(logs), TEXT)

    def test_messages_can_be_had_for_a_plain_prompt(self):
        def content(completions, **kwargs):
            return [float(completion[0]["content"] == "2") for completion in completions]

        with pytest.raises(RewardError, match="'content' failed on a batch of 3 completions: TypeError"):
            grade(as_reward(content), TEXT)
        assert [s.total for s in grade(TrlReward("content", content, chat=True), TEXT)] == [0.0, 1.0, 0.0]


def test_a_prompt_that_lacks_a_column_gets_none():
    mixed = [TEXT[0], Completion(Prompt("x", "x", None, {"other": 1}), "x")]

    def seen(completions, level, other, **kwargs):
        return [json.dumps([a, b]) == "[0, null]" for a, b in zip(level, other, strict=True)]

    assert totals(seen, mixed) == [1.0, 0.0]


def test_the_words_of_surefoot_stay_what_they_are():
    def batch(prompts, completions, answers):
        return [Score(1.0) for _ in prompts]

    assert type(as_reward(batch)).__name__ == "BatchReward"


def test_metrics_that_have_no_sum_break_nothing():
    """Infinities of both signs, over the calls of a step."""
    values = iter([math.inf, -math.inf])

    def logs(completions, log_metric, **columns):
        log_metric("odd", next(values))
        return [1.0] * len(completions)

    reward = as_reward(logs)
    for _ in range(2):
        assert grade(reward, [Completion(Prompt("p", "?"), "x")])[0].total == 1.0
    assert math.isnan(notes_of(reward).pairs["odd"][0])
