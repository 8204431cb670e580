"""Several rewards at once: the total is the sum it says it is, and what has no value never becomes a zero."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from surefoot.config import load, validate
from surefoot.errors import ConfigError, RewardError
from surefoot.metrics import StepReport
from surefoot.rewards.base import BrokenRewardError, Completion, notes_of, threads_of
from surefoot.rewards.build import build_reward
from surefoot.rewards.compose import Composed, Part, compose
from surefoot.rewards.config import RewardConfig
from surefoot.rewards.functions import as_reward
from surefoot.rewards.grade import grade
from surefoot.tasks.base import Task
from surefoot.training.config import RunConfig
from surefoot.types import PartScore, Prompt, Score, Status

PROMPT = Prompt("p", "1 + 1 =", "2")


def completions(*texts: str) -> list[Completion]:
    return [Completion(PROMPT, text) for text in texts]


def table(**scores: Any) -> Callable[[Prompt, str], Any]:
    """A verifier that gives each text the score of its name."""

    def verify(prompt: Prompt, text: str) -> Any:
        score = scores[text]
        if isinstance(score, Exception):
            raise score
        return score

    return verify


def total(*parts: Part, text: str = "a") -> Score:
    (score,) = grade(Composed(parts), completions(text))
    return score


FAILED = {status: Score.failed(status, "why") for status in (Status.INVALID, Status.TIMEOUT, Status.ERROR)}


class TestSum:
    def test_the_total_is_the_weighted_sum_and_everything_stays_readable(self):
        score = total(
            Part("accuracy", table(a=Score(1.0, {"accuracy": 1.0}, True, text="2"))),
            Part("format", table(a=0.5), weight=0.2),
            Part("short", table(a=Score(-3.0, {"tokens": 40.0})), weight=0.1, when="accuracy"),
        )
        assert score.total == pytest.approx(1.0 * 1.0 + 0.2 * 0.5 + 0.1 * -3.0)
        assert score.components == {"accuracy": 1.0, "format": 0.5, "short": -3.0}
        assert score.parts == {
            "accuracy": PartScore(1.0),
            "format": PartScore(0.5, 0.2),
            "short": PartScore(-3.0, 0.1, True, Status.OK, {"tokens": 40.0}),
        }
        assert (score.correct, score.status, score.text) == (True, Status.OK, "2")

    def test_a_part_counts_only_where_its_condition_holds(self):
        parts = [
            Part("accuracy", table(a=1.0, b=0.0, c=0.5)),
            Part("short", table(a=2.0, b=2.0, c=2.0), when="accuracy"),
            Part("style", table(a=4.0, b=4.0, c=4.0), when="accuracy", at_least=0.5),
        ]
        scores = grade(Composed(tuple(parts)), completions("a", "b", "c"))
        assert [s.total for s in scores] == [7.0, 0.0, 4.5]
        assert [[s.parts[name].counts for name in s.parts] for s in scores] == [
            [True, True, True],
            [True, False, False],
            [True, False, True],
        ]
        assert all(s.components["short"] == 2.0 for s in scores)  # the raw value, whether it counts or not

    def test_the_first_part_that_says_so_says_what_is_right(self):
        silent, right = table(a=1.0), table(a=Score(0.0, correct=True))
        assert total(Part("x", silent), Part("y", right)).correct is True
        assert total(Part("x", silent)).correct is None

    def test_each_reward_grades_once(self):
        calls = []

        def counted(prompt, completion, answer):
            calls.append(completion)
            return 1.0

        reward = as_reward(counted)
        score = total(Part("x", reward), Part("y", reward, 0.5), Part("z", reward, when="x"))
        assert calls == ["a"] and score.total == 2.5

    def test_a_list_is_a_sum_by_the_names_of_its_functions(self):
        def short(prompt, completion, answer):
            return 1.0

        reward = as_reward([short, (table(a=3.0), 0.5), (short, 2)])
        assert reward.name == "short + 0.5 verify + 2 short#2"
        (score,) = grade(reward, completions("a"))
        assert score.total == 4.5 and score.components == {"short": 1.0, "verify": 3.0, "short#2": 1.0}


class TestWithoutValue:
    @pytest.mark.parametrize("status", list(FAILED))
    def test_a_part_that_fails_takes_the_sample_out_and_is_no_zero(self, status: Status):
        score = total(Part("x", table(a=1.0)), Part("y", table(a=FAILED[status])))
        assert score.status is status and not score.valid and math.isnan(score.total)
        assert score.text == "y: why"
        assert score.components["x"] == 1.0 and math.isnan(score.components["y"])
        assert score.parts["y"].status is status

    def test_only_that_sample(self):
        scores = grade(
            Composed((Part("x", table(a=1.0, b=2.0)), Part("y", table(a=ValueError("no"), b=1.0)))),
            completions("a", "b"),
        )
        assert [s.status for s in scores] == [Status.ERROR, Status.OK] and scores[1].total == 3.0

    def test_a_part_that_does_not_count_may_fail_unless_a_condition_asks_it(self):
        wrong, broken = table(a=0.0), table(a=FAILED[Status.ERROR])
        passed = total(Part("x", wrong), Part("y", broken, when="x"))
        assert passed.valid and passed.total == 0.0 and passed.parts["y"].status is Status.ERROR
        asked = total(Part("x", wrong), Part("y", broken, when="x"), Part("z", table(a=1.0), when="y"))
        assert asked.status is Status.ERROR

    def test_no_answer_counts_with_its_value(self):
        score = total(Part("x", table(a=Score(-1.0, correct=False, status=Status.NO_ANSWER))), Part("y", table(a=0.5)))
        assert (score.total, score.status, score.correct, score.valid) == (-0.5, Status.NO_ANSWER, False, True)

    def test_what_does_not_apply_adds_nothing_and_nothing_at_all_is_no_zero(self):
        aside = table(a=Score.failed(Status.NOT_APPLICABLE, ""))
        score = total(Part("x", table(a=1.0)), Part("y", aside), Part("z", table(a=5.0), when="y"))
        assert score.total == 1.0 and score.valid and math.isnan(score.components["y"])
        nothing = total(Part("x", aside), Part("y", aside))
        assert nothing.status is Status.NOT_APPLICABLE and not nothing.valid

    def test_a_part_that_fails_everywhere_is_broken(self):
        reward = Composed((Part("x", table(a=1.0, b=1.0)), Part("y", table(a=OSError("gone"), b=OSError("gone")))))
        with pytest.raises(BrokenRewardError, match="failed on all 2 completions: OSError: gone") as error:
            grade(reward, completions("a", "b"))
        assert [s.components["x"] for s in error.value.scores] == [1.0, 1.0]


class TestThreads:
    class Slow:
        """Counts how many threads are in it at once."""

        name = "slow"

        def __init__(self, threads: int) -> None:
            self.threads, self.inside, self.most = threads, 0, 0
            self.lock = threading.Lock()

        def score(self, graded: Sequence[Completion]) -> list[Score]:
            with self.lock:
                self.inside += 1
                self.most = max(self.most, self.inside)
            threading.Event().wait(0.02)
            with self.lock:
                self.inside -= 1
            return [Score(1.0)] * len(graded)

        def take_notes(self) -> StepReport:
            report = StepReport()
            report.total("slow/most", self.most)
            return report

    def test_no_part_is_called_from_more_threads_than_it_takes(self):
        one, many = self.Slow(1), self.Slow(4)
        reward = Composed((Part("one", one), Part("many", many)))
        assert reward.threads == 4
        threads = [threading.Thread(target=grade, args=(reward, completions("a"))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert one.most == 1 and many.most >= 1
        assert notes_of(reward).sums == {"slow/most": float(one.most + many.most)}

    def test_one_part_that_takes_no_other_thread_keeps_all_of_them(self):
        assert Composed((Part("many", self.Slow(4)), Part("plain", table(a=1.0)))).threads == 0


class TestConfiguration:
    PARTS = """
    [reward.parts.accuracy]
    verifier = "number"
    [reward.parts.exactly]
    verifier = "exact"
    weight = 0.5
    when = "accuracy"
    """

    def test_from_a_file_to_a_total(self, tmp_path):
        (tmp_path / "run.toml").write_text(self.PARTS)
        config = load(RunConfig, [tmp_path / "run.toml"], {"reward.parts.exactly.weight": "0.25"})
        reward = build_reward(config.reward, Task("t", (PROMPT,), ()))
        scores = grade(reward, completions("2", "it is 2", "3"))
        assert [s.total for s in scores] == [1.25, 1.0, 0.0]
        assert [s.parts["exactly"].counts for s in scores] == [True, True, False]
        assert reward.name == "accuracy + 0.25 exactly [accuracy >= 1]"

    def test_parts_of_one_verifier_and_options_share_it(self):
        config = validate(RewardConfig, {"parts": {"a": {"verifier": "number"}, "b": {"verifier": "number"}}})
        reward = build_reward(config, Task("t", (PROMPT,), ()))
        assert isinstance(reward, Composed) and reward.rewards["a"] is reward.rewards["b"]

    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ({"parts": {"a": {"when": "b"}}}, "counts when 'b' is met, which is no other part"),
            ({"parts": {"a": {}, "accuracy": {}, "b": {"when": "acuracy"}}}, "Did you mean 'accuracy'"),
            ({"parts": {"a": {"when": "a"}}}, "counts when 'a' is met"),
            ({"parts": {"a": {}}, "right": 2.0}, "reward.right and reward.parts are both set"),
            ({"parts": {"a": {}}, "verifier": "exact"}, "reward.verifier and reward.parts are both set"),
        ],
    )
    def test_what_makes_no_sum_is_refused(self, values: dict[str, Any], words: str):
        with pytest.raises((ConfigError, RewardError), match=words):
            validate(RewardConfig, values)

    def test_an_unknown_verifier_or_key_is_named_with_its_place(self):
        config = validate(RewardConfig, {"parts": {"a": {"verifier": "numbr"}}})
        with pytest.raises(ConfigError, match=r"reward\.parts\.a\.verifier = 'numbr': .*Did you mean 'number'"):
            build_reward(config, Task("t", (PROMPT,), ()))
        with pytest.raises(ConfigError, match=r"unknown key 'reward\.parts\.a\.weigth'.*weight"):
            validate(RunConfig, {"reward": {"parts": {"a": {"weigth": 1.0}}}})

    def test_programs_are_a_part_like_any_other(self):
        prompt = Prompt("p", "Print n + 1.", None, {"inputs": ["1\n", "5\n"], "outputs": ["2\n", "6\n"]})
        parts = {
            "code": {"verifier": "code", "options": {"score_by": "share"}},
            "short": {"verifier": "length", "weight": 0.5},
        }
        reward = build_reward(validate(RewardConfig, {"parts": parts}), Task("t", (prompt,), ()))
        texts = ["```python\nprint(int(input()) + 1)\n```", "```python\nprint(2)\n```", "no program"]
        scores = grade(reward, [Completion(prompt, text, length=5) for text in texts])
        assert [s.components["code"] for s in scores] == [1.0, 0.5, 0.0]
        assert [s.status for s in scores] == [Status.OK, Status.OK, Status.NO_ANSWER]
        assert threads_of(reward) == 1

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"score": "all"}, "no option 'score'. Did you mean 'score_by'"),
            ({"score_by": "most"}, "expected 'all' or 'share'"),
            ({"sandbox": {"seconds": 0}}, "seconds"),
        ],
    )
    def test_options_of_programs(self, options: dict[str, Any], words: str):
        config = validate(RewardConfig, {"verifier": "code", "options": options})
        with pytest.raises((ConfigError, RewardError), match=words):
            build_reward(config, Task("t", (Prompt("p", "x", None, {"inputs": ["1"], "outputs": ["2"]}),), ()))

    @pytest.mark.parametrize(
        ("parts", "words"),
        [
            ((), "no part"),
            ((Part("x", len), Part("x", len)), "2 parts of the reward are called 'x'"),
            ((Part("x", lambda p, c, a: 1.0, math.inf),), "expected finite numbers"),
        ],
    )
    def test_sums_made_in_python_are_checked_too(self, parts: tuple[Part, ...], words: str):
        with pytest.raises(RewardError, match=words):
            compose(parts)
