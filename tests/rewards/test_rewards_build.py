"""From the configuration to a reward: which verifier, which weights, and components that stay visible."""

from __future__ import annotations

from typing import Any

import pytest

from surefoot.errors import ConfigError, RewardError
from surefoot.rewards.base import Completion
from surefoot.rewards.build import build_reward
from surefoot.rewards.config import RewardConfig
from surefoot.rewards.grade import grade
from surefoot.tasks.base import Task
from surefoot.tasks.build import build_task
from surefoot.tasks.config import TaskConfig
from surefoot.types import Prompt, Score, Status

SUMS = build_task(TaskConfig(train_size=4, heldout_size=2))


def task(*answers: Any, heldout: tuple[Any, ...] = (), verify: Any = None) -> Task:
    def prompts(prefix: str, golds: tuple[Any, ...]) -> tuple[Prompt, ...]:
        return tuple(Prompt(f"{prefix}{k}", f"{k}?", gold) for k, gold in enumerate(golds))

    return Task("file", prompts("t", answers), prompts("h", heldout), verify)


def scores(config: RewardConfig, made: Task, *texts: str) -> list[Score]:
    return grade(build_reward(config, made), [Completion(made.train[0], text) for text in texts])


@pytest.mark.parametrize(
    ("config", "right", "wrong", "none"),
    [
        ({}, 1.0, 0.0, 0.0),
        ({"right": 2.0}, 2.0, 0.0, 0.0),
        ({"wrong": -1.0}, 1.0, -1.0, -1.0),
        ({"right": 5.0, "wrong": -2.0}, 5.0, -2.0, -2.0),
        ({"format_weight": 0.25}, 1.25, 0.25, 0.0),
        ({"right": 1.0, "wrong": -1.0, "format_weight": -0.5}, 0.5, -1.5, -1.0),
    ],
)
def test_every_weight_changes_the_total_and_the_components_stay(
    config: dict[str, float], right: float, wrong: float, none: float
):
    prompt = SUMS.train[0]
    found = scores(RewardConfig(**config), SUMS, f">{prompt.answer}", ">0", "")
    assert [s.total for s in found] == pytest.approx([right, wrong, none])
    assert [dict(s.components) for s in found] == [
        {"accuracy": 1.0, "format": 1.0},
        {"accuracy": 0.0, "format": 1.0},
        {"accuracy": 0.0, "format": 0.0},
    ]
    assert [s.correct for s in found] == [True, False, False]
    assert [s.status for s in found] == [Status.OK, Status.OK, Status.NO_ANSWER]
    assert found[0].text == prompt.answer


def test_steps_survive_the_weights():
    assert SUMS.demonstrate is not None
    score = scores(RewardConfig(right=3.0), SUMS, SUMS.demonstrate(SUMS.train[0], 0, 0.0))[0]
    assert [step.value for step in score.steps] == [1.0, 1.0, 1.0]


def test_auto_is_the_tasks_own_verifier():
    assert build_reward(RewardConfig(), SUMS).name == "addition"
    answer = SUMS.train[0].answer
    assert scores(RewardConfig(), SUMS, answer)[0].status is Status.NO_ANSWER  # no marker
    assert scores(RewardConfig(verifier="number"), SUMS, answer)[0].correct


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (task("1", 2, "3/4", heldout=("1,234",)), "number"),
        (task("1", "two"), "exact"),
        (task("1", True), "exact"),
        (task("1", heldout=("two",)), "exact"),
    ],
)
def test_auto_for_a_task_without_a_verifier(made: Task, name: str):
    assert build_reward(RewardConfig(), made).name == name


@pytest.mark.parametrize("name", ["exact", "number", "boxed", "tag"])
def test_every_verifier_can_be_chosen(name: str):
    wording = {"exact": "{}", "number": "It is {}.", "boxed": r"\boxed{{{}}}", "tag": "<answer>{}</answer>"}
    reward = RewardConfig(verifier=name)
    assert [s.correct for s in scores(reward, task(5), wording[name].format(5), wording[name].format(6))] == [
        True,
        False,
    ]
    others = [w.format(5) for other, w in wording.items() if other != name]
    if name != "number":
        assert not any(s.correct for s in scores(reward, task(5), *others))


def test_an_unknown_verifier_names_the_nearest():
    with pytest.raises(ConfigError, match=r"reward\.verifier = 'numbr': unknown verifier\. Did you mean 'number'\?"):
        build_reward(RewardConfig(verifier="numbr"), SUMS)


@pytest.mark.parametrize(
    ("config", "made", "words"),
    [
        ({}, task(None), "'t0' .*|the problem t0 .*has no gold answer"),
        ({}, task("1", heldout=(None,)), "the problem h0 .*has no gold answer"),
        ({"verifier": "number"}, task("1", "two"), "the gold answer 'two' of the problem t1 is not a number"),
    ],
)
def test_a_task_without_usable_gold_answers_is_refused(config: dict[str, str], made: Task, words: str):
    with pytest.raises(RewardError, match=words):
        build_reward(RewardConfig(**config), made)


def test_a_verifier_that_does_not_say_correct_is_scaled():
    made = task(1, verify=lambda prompt, text: Score(0.25))
    assert scores(RewardConfig(right=3.0, wrong=-1.0), made, "x")[0].total == pytest.approx(0.0)


def test_components_of_the_verifier_stay():
    made = task(1, verify=lambda prompt, text: Score(0.0, {"accuracy": 0.0, "partial": 0.5}, False))
    assert scores(RewardConfig(), made, "x")[0].components == {"accuracy": 0.0, "partial": 0.5, "format": 1.0}


def test_verdicts_that_could_not_be_reached_stay():
    def verify(prompt: Prompt, text: str) -> Score:
        if text == "boom":
            raise ValueError("broken")
        return Score.failed(Status.TIMEOUT, "late") if text == "late" else Score(float(text), correct=True)

    found = scores(RewardConfig(format_weight=0.5), task(1, verify=verify), "boom", "late", "nan", "1")
    assert [s.status for s in found] == [Status.ERROR, Status.TIMEOUT, Status.INVALID, Status.OK]
    assert [s.valid for s in found] == [False, False, False, True]
    assert found[3].total == 1.5
    assert [dict(s.components) for s in found[:3]] == [{}, {}, {}]
    with pytest.raises(RewardError, match="the reward 'file' failed on all 2 completions: ValueError: broken"):
        scores(RewardConfig(), task(1, verify=verify), "boom", "boom")
