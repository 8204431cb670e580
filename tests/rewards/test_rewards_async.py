"""Rewards that are coroutines: many at once, each with its own deadline, and a failure marks one sample."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from typing import Any

import pytest

from surefoot.errors import MissingExtraError, RewardError
from surefoot.rewards.asynchronous import Limits
from surefoot.rewards.base import BrokenRewardError, Completion, threads_of
from surefoot.rewards.functions import as_reward
from surefoot.rewards.grade import grade
from surefoot.types import Prompt, Score, Status

COMPLETIONS = [Completion(Prompt(f"p{k}", f"{k}?", str(k), {"k": k}), str(k)) for k in range(12)]


def totals(scores: list[Score]) -> list[float]:
    return [score.total for score in scores]


class TestForms:
    def test_a_coroutine_of_one_sample(self):
        async def right(prompt: str, completion: str, answer: Any) -> bool:
            await asyncio.sleep(0)
            return completion == answer

        scores = grade(as_reward(right), COMPLETIONS)
        assert [(s.total, s.correct, dict(s.components)) for s in scores] == [(1.0, True, {"right": 1.0})] * 12

    def test_a_coroutine_of_a_batch_is_called_once(self):
        calls = []

        async def batch(prompts, completions, answers):
            calls.append(len(prompts))
            await asyncio.sleep(0)
            return [float(completion) for completion in completions]

        assert totals(grade(as_reward(batch), COMPLETIONS)) == [float(k) for k in range(12)]
        assert calls == [12]

    def test_a_coroutine_that_sees_the_whole_prompt(self):
        async def verify(prompt: Prompt, text: str) -> Score:
            return Score(float(prompt.metadata["k"]))

        assert totals(grade(as_reward(verify), COMPLETIONS[:3])) == [0.0, 1.0, 2.0]

    def test_an_object_with_an_async_call_and_a_partial(self):
        class Later:
            async def __call__(self, prompt, completion, answer, scale=1.0):
                return scale * float(completion)

        assert as_reward(Later()).name == "Later"
        assert totals(grade(as_reward(Later()), COMPLETIONS[:3])) == [0.0, 1.0, 2.0]
        doubled = functools.partial(Later().__call__, scale=2.0)
        assert totals(grade(as_reward(doubled), COMPLETIONS[:3])) == [0.0, 2.0, 4.0]

    def test_they_may_be_called_from_other_threads_and_functions_may_not(self):
        async def later(prompt, completion, answer):
            return 1.0

        async def batch(prompts, completions, answers):
            return [1.0] * len(prompts)

        assert threads_of(as_reward(later)) > 1 and threads_of(as_reward(batch)) > 1
        assert threads_of(as_reward(lambda prompt, completion, answer: 1.0)) == 0


class TestLimits:
    def test_so_many_calls_run_at_once_and_no_more(self):
        running, most = 0, 0

        async def watched(prompt, completion, answer):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            return 1.0

        reward = as_reward(watched, Limits(concurrency=3))
        grade(reward, COMPLETIONS)
        assert most == 3
        # The limit is of the reward, whichever thread calls it.
        most = 0
        threads = [threading.Thread(target=grade, args=(reward, COMPLETIONS)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == 3

    def test_one_that_hangs_is_marked_alone(self):
        async def sticks(prompt, completion, answer):
            await asyncio.sleep(3600 if completion == "4" else 0)
            return 1.0

        begin = time.monotonic()
        scores = grade(as_reward(sticks, Limits(deadline=0.2)), COMPLETIONS)
        assert time.monotonic() - begin < 30
        assert [s.status for s in scores] == [Status.TIMEOUT if k == 4 else Status.OK for k in range(12)]
        assert scores[4].text == "no result within 0.2 s" and not scores[4].valid

    def test_one_that_ignores_its_cancellation_holds_nobody_up(self):
        async def stubborn(prompt, completion, answer):
            while completion == "4":
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    continue
            return 1.0

        scores = grade(as_reward(stubborn, Limits(deadline=0.2)), COMPLETIONS)
        assert [s.status for s in scores].count(Status.OK) == 11 and scores[4].status is Status.TIMEOUT

    def test_waiting_for_a_place_takes_nothing_from_the_deadline(self):
        async def slow(prompt, completion, answer):
            await asyncio.sleep(0.1)
            return 1.0

        scores = grade(as_reward(slow, Limits(concurrency=1, deadline=1.0)), COMPLETIONS)
        assert all(s.status is Status.OK for s in scores)  # 1.2 s in all, 0.1 s each

    def test_a_batch_that_is_late_is_late_as_a_whole(self):
        async def batch(prompts, completions, answers):
            await asyncio.sleep(3600)

        with pytest.raises(BrokenRewardError) as error:
            grade(as_reward(batch, Limits(deadline=0.1)), COMPLETIONS)
        assert [s.status for s in error.value.scores] == [Status.TIMEOUT] * 12


class TestFailures:
    def test_one_that_raises_is_marked_alone(self):
        async def fragile(prompt, completion, answer):
            return 1 / (int(completion) - 4)

        scores = grade(as_reward(fragile), COMPLETIONS)
        assert [s.status for s in scores] == [Status.ERROR if k == 4 else Status.OK for k in range(12)]
        assert scores[4].text == "ZeroDivisionError: division by zero"

    def test_one_that_calls_for_the_end_of_the_program_does_not_end_the_loop(self):
        async def leaves(prompt, completion, answer):
            if completion == "4":
                raise SystemExit(3)
            return 1.0

        for _ in range(2):
            scores = grade(as_reward(leaves), COMPLETIONS)
            assert [s.status for s in scores].count(Status.OK) == 11 and "SystemExit" in scores[4].text

    def test_one_that_stops_the_loop_holds_nobody_up(self):
        async def stops(prompt, completion, answer):
            if completion == "4":
                asyncio.get_running_loop().stop()
            await asyncio.sleep(0)
            return 1.0

        scores: list[Score] = []
        caller = threading.Thread(target=lambda: scores.extend(grade(as_reward(stops), COMPLETIONS)), daemon=True)
        caller.start()
        caller.join(20.0)
        assert totals(scores) == [1.0] * 12

    def test_all_that_raise_are_broken_and_so_is_a_batch(self):
        async def broken(prompt, completion, answer):
            raise KeyError("no")

        async def batch(prompts, completions, answers):
            raise ValueError("no server")

        with pytest.raises(RewardError, match="'broken' failed on all 12 completions: KeyError: 'no'"):
            grade(as_reward(broken), COMPLETIONS)
        with pytest.raises(RewardError, match="'batch' failed on a batch of 12 completions: ValueError: no server"):
            grade(as_reward(batch), COMPLETIONS)

    def test_what_a_person_can_mend_is_not_swallowed(self):
        async def needs(prompt, completion, answer):
            raise MissingExtraError("pip install something")

        with pytest.raises(MissingExtraError):
            grade(as_reward(needs), COMPLETIONS)

    @pytest.mark.parametrize("value", [None, float("nan")])
    def test_what_is_no_number_is_invalid(self, value: Any):
        async def odd(prompt, completion, answer):
            return value if completion == "4" else 1.0

        assert grade(as_reward(odd), COMPLETIONS)[4].status is Status.INVALID
