"""Anything that can grade becomes a Reward, and one that breaks its contract is named."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from surefoot.errors import MissingExtraError, RewardError
from surefoot.rewards.base import Completion
from surefoot.rewards.functions import as_reward
from surefoot.rewards.grade import grade
from surefoot.rewards.verifiers import make_verifier
from surefoot.tasks import addition
from surefoot.types import Prompt, Score, Status

PROMPTS = [Prompt(f"p{k}", f"{k} + 1 =", str(k + 1), {"k": k}) for k in range(3)]
COMPLETIONS = [Completion(prompt, text) for prompt, text in zip(PROMPTS, ["1", "2", "x"], strict=True)]
CHAT = Prompt("c", ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1 ="}), 2)


def plain(prompt, completion, answer):
    return float(completion == answer)


def returning(value: Any):
    def reward(prompt, completion, answer):
        return value

    return reward


class TestForms:
    def test_a_plain_function_sees_texts_and_the_gold_answer(self):
        seen = []

        def watch(prompt: str, completion: str, answer: Any) -> float:
            seen.append((prompt, completion, answer))
            return 0.5

        scores = grade(as_reward(watch), [*COMPLETIONS, Completion(CHAT, "2")])
        assert seen == [("0 + 1 =", "1", "1"), ("1 + 1 =", "2", "2"), ("2 + 1 =", "x", "3"), ("1 + 1 =", "2", 2)]
        assert [(s.total, s.correct, s.status, dict(s.components)) for s in scores] == [
            (0.5, None, Status.OK, {"watch": 0.5})
        ] * 4

    def test_any_three_names_will_do(self):
        assert [s.total for s in grade(as_reward(lambda a, b, c: len(b)), COMPLETIONS)] == [1.0, 1.0, 1.0]

    def test_the_three_names_are_filled_by_name_in_any_order(self):
        seen = []

        def answer_first(answer, prompt, completion, /):
            seen.append((prompt, completion, answer))
            return 0.0

        def completion_first(completion, prompt, answer, scale=1.0):
            seen.append((prompt, completion, answer))
            return 0.0

        grade(as_reward(answer_first), COMPLETIONS[2:])
        grade(as_reward(completion_first), COMPLETIONS[2:])
        assert seen == [("2 + 1 =", "x", "3")] * 2

    def test_another_name_leaves_all_three_to_their_position(self):
        seen = []

        def half_named(completion, question, answer):
            seen.append((completion, question, answer))
            return 0.0

        grade(as_reward(half_named), COMPLETIONS[2:])
        assert seen == [("2 + 1 =", "x", "3")]

    def test_a_batch_function_is_filled_by_name_in_any_order(self):
        def batch(answers, completions, prompts):
            assert answers == ["1", "2", "3"] and prompts == [prompt.text for prompt in PROMPTS]
            return [completion == "x" for completion in completions]

        assert [s.total for s in grade(as_reward(batch), COMPLETIONS)] == [0.0, 0.0, 1.0]

    def test_defaults_and_partial_arguments_are_left_alone(self):
        def scaled(prompt, completion, answer, scale=2.0, *rest, **options):
            return scale * (completion == answer)

        assert [s.total for s in grade(as_reward(scaled), COMPLETIONS)] == [2.0, 2.0, 0.0]
        halved = as_reward(functools.partial(scaled, scale=0.5))
        assert halved.name == "scaled"
        assert [s.total for s in grade(halved, COMPLETIONS)] == [0.5, 0.5, 0.0]

    def test_objects_and_methods_that_can_be_called(self):
        class Judge:
            def __call__(self, prompt, completion, answer):
                return 1.0

            def judge(self, prompt, completion, answer):
                return 2.0

        assert as_reward(Judge()).name == "Judge"
        assert grade(as_reward(Judge()), COMPLETIONS)[0].total == 1.0
        assert grade(as_reward(Judge().judge), COMPLETIONS)[0].total == 2.0

    def test_a_verifier_sees_the_whole_prompt(self):
        def verify(prompt: Prompt, text: str) -> Score:
            return Score(float(prompt.metadata["k"]), correct=True, text=text)

        scores = grade(as_reward(verify), COMPLETIONS)
        assert [(s.total, s.text) for s in scores] == [(0.0, "1"), (1.0, "2"), (2.0, "x")]
        sums = Completion(Prompt("s", "347+589=", "936"), ">936")
        assert grade(as_reward(addition.verify), [sums])[0].correct
        assert [s.correct for s in grade(as_reward(make_verifier("number")), COMPLETIONS)] == [True, True, False]
        assert as_reward(make_verifier("number")).name == "number"

    def test_a_batch_function_is_called_once(self):
        calls = []

        def batch(prompts, completions, answers):
            calls.append((prompts, completions, answers))
            return [c == a for c, a in zip(completions, answers, strict=True)]

        scores = grade(as_reward(batch), COMPLETIONS)
        assert calls == [(["0 + 1 =", "1 + 1 =", "2 + 1 ="], ["1", "2", "x"], ["1", "2", "3"])]
        assert [(s.total, s.correct) for s in scores] == [(1.0, True), (1.0, True), (0.0, False)]

    @pytest.mark.parametrize(
        "results", [np.array([1, 2, 3]), torch.tensor([1.0, 2.0, 3.0]), (1, 2, 3), [1, 2.0, np.float32(3)]]
    )
    def test_a_batch_may_come_in_any_sequence_of_numbers(self, results: Any):
        def batch(prompts, completions, answers):
            return results

        assert [s.total for s in grade(as_reward(batch), COMPLETIONS)] == [1.0, 2.0, 3.0]

    def test_a_reward_is_returned_as_it_is(self):
        class Mine:
            name = "mine"

            def score(self, completions: Sequence[Completion]) -> list[Score]:
                return [Score(1.0) for _ in completions]

        mine = Mine()
        assert as_reward(mine) is mine
        assert as_reward(as_reward(plain)).name == "plain"

    @pytest.mark.parametrize(
        ("grader", "words"),
        [
            (lambda: 1, "takes ()"),
            (lambda completion: 1, "takes (completion)"),
            (lambda prompt, completion: 1, "takes (prompt, completion)"),
            (lambda a, b, c, d: 1, "takes (a, b, c, d)"),
            (lambda *everything: 1, "takes ()"),
            (lambda prompt, completion, answer, *, scale: 1, "can only be given by name"),
            (3, "is not a function"),
            ("number", "is not a function"),
            (None, "is not a function"),
            (dict, "is a class: give an object of it, dict(...)"),
        ],
    )
    def test_other_forms_are_refused_with_the_expected_ones(self, grader: Any, words: str):
        with pytest.raises(RewardError) as error:
            as_reward(grader)
        text = str(error.value)
        assert words in text and "\n" not in text
        assert "(prompt, completion, answer) -> float" in text or "is a class" in text


class TestResults:
    @pytest.mark.parametrize(
        ("value", "total", "correct"),
        [
            (1, 1.0, None),
            (-2.5, -2.5, None),
            (0, 0.0, None),
            (True, 1.0, True),
            (False, 0.0, False),
            (np.float32(0.5), 0.5, None),
            (np.int64(3), 3.0, None),
            (np.bool_(True), 1.0, True),
            (np.array(0.25), 0.25, None),
            (torch.tensor(0.75), 0.75, None),
            (torch.tensor(True), 1.0, True),
            (Fraction(1, 4), 0.25, None),
        ],
    )
    def test_numbers(self, value: Any, total: float, correct: bool | None):
        score = grade(as_reward(returning(value)), COMPLETIONS[:1])[0]
        assert (score.total, score.correct, score.status) == (total, correct, Status.OK)
        assert type(score.total) is float and score.components == {"reward": total}

    @pytest.mark.parametrize(
        "value", [None, math.nan, math.inf, -math.inf, np.float32("nan"), torch.tensor(math.nan), 10**400, -(10**400)]
    )
    def test_what_is_no_finite_number_is_invalid(self, value: Any):
        def batch(prompts, completions, answers):
            return [value] * len(prompts)

        for reward in (returning(value), batch):
            for score in grade(as_reward(reward), COMPLETIONS):
                assert score.status is Status.INVALID and not score.valid and math.isnan(score.total) and score.text

    @pytest.mark.parametrize("value", [1e308, -1e308, 1.1e15, 10**200, np.float64(-1e200)])
    def test_a_magnitude_above_1e15_is_invalid(self, value: Any):
        def batch(prompts, completions, answers):
            return [value] * len(prompts)

        for reward in (returning(value), batch):
            score = grade(as_reward(reward), COMPLETIONS)[0]
            assert score.status is Status.INVALID and "above 1e+15 in magnitude" in score.text

    def test_only_that_sample_is_invalid(self):
        def sometimes(prompt, completion, answer):
            return None if completion == "x" else 1.0

        assert [s.valid for s in grade(as_reward(sometimes), COMPLETIONS)] == [True, True, False]

    def test_scores_pass_through(self):
        score = Score(0.5, {"a": 1.0}, True, Status.NO_ANSWER, (), "text")
        assert grade(as_reward(returning(score)), COMPLETIONS) == [score] * 3

    @pytest.mark.parametrize(
        "value", ["1.0", [1.0], {"total": 1}, 1j, object(), np.array([1.0]), torch.ones(1), "long " * 100]
    )
    def test_other_results_are_refused_with_name_and_value(self, value: Any):
        with pytest.raises(RewardError) as error:
            grade(as_reward(returning(value)), COMPLETIONS)
        text = str(error.value)
        assert (
            "the reward 'reward' gave" in text and type(value).__name__ in text and len(text) < 300 and "\n" not in text
        )

    @pytest.mark.parametrize("value", [None, 1.0, "abc", {"a": 1}, np.float64(1.0), iter([1, 2, 3])])
    def test_a_batch_that_is_no_list_is_refused(self, value: Any):
        def batch(prompts, completions, answers):
            return value

        with pytest.raises(RewardError, match=r"the reward 'batch' gave .*; expected a list"):
            grade(as_reward(batch), COMPLETIONS)

    @pytest.mark.parametrize("n", [0, 2, 4])
    def test_a_batch_of_another_length_is_refused(self, n: int):
        def batch(prompts, completions, answers):
            return [1.0] * n

        with pytest.raises(RewardError, match=f"the reward 'batch' gave {n} scores for 3 completions"):
            grade(as_reward(batch), COMPLETIONS)


class TestExceptions:
    def test_one_sample_that_raises_is_marked_alone(self):
        def fragile(prompt, completion, answer):
            return float(completion == answer) / (completion != "x")

        scores = grade(as_reward(fragile), COMPLETIONS)
        assert [s.status for s in scores] == [Status.OK, Status.OK, Status.ERROR]
        assert scores[2].text == "ZeroDivisionError: float division by zero" and not scores[2].valid

    def test_a_reward_that_always_raises_is_broken(self):
        def broken(prompt, completion, answer):
            raise KeyError(f"no\n{completion}")

        with pytest.raises(RewardError, match="'broken' failed on all 3 completions: KeyError") as error:
            grade(as_reward(broken), COMPLETIONS)
        assert "\n" not in str(error.value) and isinstance(error.value.__cause__, KeyError)

    def test_a_batch_that_raises_is_broken(self):
        def batch(prompts, completions, answers):
            raise ValueError("no server")

        with pytest.raises(RewardError, match="'batch' failed on a batch of 3 completions: ValueError: no server"):
            grade(as_reward(batch), COMPLETIONS)

    def test_what_a_person_can_mend_is_not_swallowed(self):
        def needs(prompt, completion, answer):
            if completion == "x":
                raise MissingExtraError("pip install something")
            return 1.0

        with pytest.raises(MissingExtraError):
            grade(as_reward(needs), COMPLETIONS)

    def test_an_interrupt_is_not_swallowed(self):
        def interrupted(prompt, completion, answer):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            grade(as_reward(interrupted), COMPLETIONS)

    def test_nothing_to_grade(self):
        assert grade(as_reward(plain), []) == []
        assert as_reward(plain).score([]) == []
