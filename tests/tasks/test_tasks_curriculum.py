"""Levels of difficulty: problems of each, a run that rises from one to the next, and a resume that rises alike."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.algorithms import prompts
from surefoot.algorithms.prompts import Level, PromptTable, rise
from surefoot.errors import AlgorithmError, DataError
from surefoot.rewards.functions import as_reward
from surefoot.tasks.base import Task
from surefoot.tasks.build import build_task
from surefoot.tasks.config import TaskConfig
from surefoot.training.loop import train
from surefoot.training.prompts import PromptSource
from surefoot.training.state import RunState
from surefoot.types import Group, Prompt, Sample, Score
from tests.training.tiny import tiny

LEVELS = {"levels": 3}


def gym(name: str = "chain_sum", options: dict[str, Any] | None = None, **over: Any) -> Task:
    sizes = {"train_size": 60, "heldout_size": 9}
    return build_task(TaskConfig(**{"name": f"gym:{name}", "options": options or LEVELS, **sizes, **over}))


def test_levels_are_those_of_the_data_sets_own_curriculum() -> None:
    task = gym()
    assert Counter(p.metadata["difficulty"] for p in task.train).keys() == {0, 1, 2}
    for level in range(3):
        own = [p for p in task.train if p.metadata["difficulty"] == level]
        assert {p.metadata["num_terms"] for p in own} == {2 + level}, "each level has its own number of terms alone"
        assert all("attributes" in p.metadata for p in own)
    assert min(Counter(p.metadata["difficulty"] for p in task.train).values()) >= 15


def test_every_level_has_its_scorer_and_options_hold_at_each() -> None:
    for name, options in (
        ("chain_sum", {"levels": 3, "allow_negation": True}),
        ("gcd", LEVELS),
        ("spell_backward", LEVELS),
    ):
        task = gym(name, options, train_size=30, heldout_size=3)
        assert task.verify is not None and task.gold is not None
        for prompt in task.train:
            assert task.verify(prompt, task.gold(prompt)).correct
            assert not task.verify(prompt, "<answer>zzz</answer>").correct
    negative = gym("chain_sum", {"levels": 2, "allow_negation": True})
    assert any("-" in str(p.metadata["expression"]).replace(" - ", "") for p in negative.train)


def test_levels_can_be_tables_of_options() -> None:
    own = [{"min_terms": 2, "max_terms": 2}, {"min_terms": 5, "max_terms": 6}]
    task = gym("chain_sum", {"levels": own, "max_digits": 2})
    terms = {
        level: {p.metadata["num_terms"] for p in task.train if p.metadata["difficulty"] == level} for level in (0, 1)
    }
    assert terms == {0: {2}, 1: {5, 6}}


def test_more_problems_append_and_the_split_stays() -> None:
    small, large = gym(), gym(train_size=120, heldout_size=20)
    assert large.train[:60] == small.train and large.heldout[:9] == small.heldout
    assert small.fingerprint == gym().fingerprint != gym(options={"levels": 2}).fingerprint


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("chain_sum", {"levels": 1}, "expected a number of levels from 2 on"),
        ("chain_sum", {"levels": True}, "expected a number of levels from 2 on"),
        ("chain_sum", {"levels": [{"min_terms": 2}]}, "expected a number of levels from 2 on"),
        ("chain_sum", {"levels": 99}, "the curriculum of 'gym:chain_sum' has 11"),
        ("chain_sum", {"levels": 2, "min_term": 2}, r"unknown option 'min_term'"),
        ("chain_sum", {"levels": [{"min_terms": 2}, {"max_term": 2}]}, r"unknown option 'max_term'"),
        ("composite", LEVELS, "has no curriculum of its own"),
    ],
)
def test_levels_that_cannot_be_are_one_line(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        gym(name, options)


# The part that goes by them.


def table(labels: list[float], level: int) -> PromptTable:
    zeros = np.zeros(len(labels), dtype=np.int64)
    return PromptTable(zeros, zeros, np.array(labels), 1, level)


def test_prompts_of_the_level_and_some_from_before() -> None:
    labels = [2.0, 1.0, 1.0, 5.0, np.nan]
    part = prompts.levels(review=0.25)
    assert part(table(labels, 0)).tolist() == [0, 0.5, 0.5, 0, 0]
    assert part(table(labels, 1)).tolist() == [0.75, 0.125, 0.125, 0, 0]
    assert part(table(labels, 2)).tolist() == pytest.approx([0.25 / 3, 0.25 / 3, 0.25 / 3, 0.75, 0])
    assert part(table(labels, 3))[4] == 0.75 == part(table(labels, 9))[4], "no label: the last level"
    assert prompts.levels(review=0)(table(labels, 1)).tolist() == [1, 0, 0, 0, 0]


def test_the_level_rises_once_it_is_mastered() -> None:
    options = {"rate": 0.5, "samples": 10, "last": 2}
    assert rise(Level(), 8, 8, **options) == Level(0, 8, 1.0), "too few answers so far"
    assert rise(Level(0, 8, 1.0), 8, 0, **options) == Level(0, 16, pytest.approx(0.2))
    assert rise(Level(0, 8, 1.0), 2, 0, **options) == Level(1)
    assert rise(Level(2, 50, 1.0), 8, 8, **options) == Level(2, 58, 1.0), "the last one stays"
    assert rise(Level(0, 8, 1.0), 0, 0, **options) == Level(0, 8, 1.0)
    level = Level()
    for _ in range(3):
        level = rise(level, 3, 1, rate=0.9, samples=100, last=1)
    assert level == Level(0, 9, pytest.approx(1 / 3)), "at first the plain mean"


def group(prompt: Prompt, right: int, of: int) -> Group:
    ids = np.zeros(1, dtype=np.int64)
    samples = tuple(Sample.of(ids, ids, prompt_id=prompt.prompt_id, sample_id=i) for i in range(of))
    return Group(prompt, samples, tuple(Score(float(i < right), correct=i < right) for i in range(of)))


def test_only_answers_at_the_level_count_and_the_state_is_all(tmp_path: Path) -> None:
    problems = [Prompt(f"p{i}", "?", metadata={"difficulty": i // 5}) for i in range(15)]
    kind = {"kind": "levels", "rate": 0.6, "samples": 8, "review": 0.5}
    part = tiny(tmp_path, algorithm={"prompts": kind}).algorithm.build().prompts
    state = RunState()
    source = PromptSource(part, problems, 0, state)
    assert set(source.take(5, 1, 1)) == set(range(5))
    source.learn([0, 1], [group(problems[0], 3, 4), group(problems[1], 4, 4)])
    assert source.level == Level(1) and source.measure().sums["prompts/level"] == 1
    source.learn([0, 5], [group(problems[0], 4, 4), group(problems[5], 1, 4)])
    assert source.level == Level(1, 4, 0.25), "an answer of the level before says nothing of this one"
    assert source.measure().means()["prompts/level_accuracy"] == 0.25
    again = PromptSource(part, problems, 0, RunState(**json.loads(json.dumps(state.__dict__))))
    assert again.level == source.level and again.take(6, 3, 1) == source.take(6, 3, 1)
    with pytest.raises(AlgorithmError, match="none has a label"):
        PromptSource(part, [Prompt("p", "?")], 0, RunState())


def test_a_run_rises_and_a_resumed_one_rises_alike(tmp_path: Path) -> None:
    def right(prompt: str, completion: str, answer: str) -> bool:
        return len(completion) % 3 > 0  # about two of three, whatever the policy learns

    def run(name: str, steps: int, resume: bool = False) -> Path:
        kind = {"kind": "levels", "rate": 0.4, "samples": 24}
        config = tiny(
            tmp_path / name,
            algorithm={"prompts": kind},
            train={"steps": steps},
            checkpoint={"every": 1},
            evaluation={"every": 3, "problems": 2},
        )
        task = TaskConfig(name="gym:chain_sum", options=LEVELS, train_size=60, heldout_size=6, template="plain")
        return train(config.model_copy(update={"task": task}), reward=as_reward(right), resume=resume).folder

    whole, cut = run("whole", 6), run("cut", 3)
    levels = [json.loads(line)["prompts/level"] for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert levels[0] == 0 and levels[-1] == 2 and levels == sorted(levels)
    assert levels[2] == levels[3] == 1, "the cut lies within a level"
    run("cut", 6, resume=True)
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        assert (whole / name).read_text() == (cut / name).read_text()
    for file in sorted((whole / "samples").glob("step-*")):
        assert file.read_text() == (cut / "samples" / file.name).read_text()
