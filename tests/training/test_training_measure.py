"""Metrics and sample records: whatever a reward calls its parts, they meet no metric and no number JSON lacks."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.algorithms.presets import PRESETS
from surefoot.rewards.base import Completion
from surefoot.training.batch import make_batch
from surefoot.training.collect import Rollouts
from surefoot.training.loop import train
from surefoot.training.measure import measure_batch, rounded
from surefoot.training.records import sample_record
from surefoot.types import Group, Prompt, Sample, Score, Status
from tests.training.tiny import tiny

TAKEN = ("mean", "std", "correct", "ungraded", "no_answer", "kl_penalty")
SCORES = [
    Score(1.0, {"part": 0.5}, correct=True),
    Score(0.0, {"part": 0.0}, correct=False),
    Score(0.25, {}, correct=True, status=Status.NO_ANSWER),
    Score.failed(Status.ERROR, "broken"),
]


def metrics(scores: Sequence[Score]) -> dict[str, float]:
    samples = tuple(
        Sample.of(np.array([5, 6]), np.arange(7, 9 + i), prompt_id="p", sample_id=i) for i in range(len(scores))
    )
    groups = [Group(Prompt("p", "?"), samples, tuple(scores))]
    return rounded(measure_batch(Rollouts(groups, [], 1), make_batch(PRESETS["grpo"], groups, {})).means())


class Words:
    """Stands for a renderer: the record wants the completion's text only."""

    def decode(self, sample: Sample) -> str:
        return "text"


def test_means_over_graded_samples_and_shares_of_all():
    found = metrics(SCORES)
    assert found["reward/mean"] == pytest.approx(1.25 / 3) and found["reward/correct"] == pytest.approx(2 / 3)
    assert found["reward/std"] == pytest.approx(np.std([1.0, 0.0, 0.25]))
    assert (found["reward/ungraded"], found["reward/no_answer"]) == (0.25, 0.25)
    assert found["component/part"] == 0.25


def test_right_is_what_the_reward_says_and_else_full_marks():
    found = metrics([Score(0.0, correct=True), Score(1.0), Score(0.5), Score(2.0, correct=False)])
    assert found["reward/correct"] == 0.5
    assert metrics([Score(1.0), Score(0.1, correct=True)])["groups/all_right"] == 1.0
    assert metrics([Score(0.9), Score(2.0, correct=False)])["groups/all_wrong"] == 1.0


def test_components_change_no_metric_whatever_their_names():
    plain = metrics(SCORES)
    named = metrics(
        [Score(s.total, {**s.components, **dict.fromkeys(TAKEN, 9.0)}, s.correct, s.status) for s in SCORES]
    )
    assert {name: value for name, value in named.items() if name in plain} == plain
    assert set(named) - set(plain) == {f"component/{name}" for name in TAKEN}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_component_that_is_no_number_is_left_out(value: float):
    found = metrics([Score(1.0, {"part": value}), Score(0.0, {"part": 0.5}), Score(1.0, {"never": value})])
    assert found["component/part"] == 0.5 and "component/never" not in found
    assert found["reward/mean"] == pytest.approx(2 / 3) and found["reward/ungraded"] == 0.0
    json.dumps(found, allow_nan=False)


def test_a_record_has_null_for_a_component_that_is_no_number():
    sample = Sample.of(np.array([5]), np.array([6]), prompt_id="p")
    score = Score(1.0, {"good": 0.5, "bad": math.nan, "worse": -math.inf})
    record: dict[str, Any] = sample_record(1, Prompt("p", "?"), sample, score, Words())  # type: ignore[arg-type]
    assert record["components"] == {"good": 0.5, "bad": None, "worse": None} and record["reward"] == 1.0
    json.dumps(record, allow_nan=False)


class Rough:
    """A reward with everything that a run has to survive, one thing for each of four samples in turn."""

    name = "rough"

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        parts = {"correct": np.float32(0.5), "x\ud800": math.nan, "big": 1e300}
        totals = (np.float64(0.5), 1e308, -1e308, np.float32(0.25))
        return [Score(totals[i % 4], dict(parts), text="\udfff") for i in range(len(completions))]


@pytest.mark.parametrize("preset", ["dr_grpo", "gdpo"])
def test_a_run_with_a_rough_reward_writes_plain_json(tmp_path: Path, preset: str):
    config = tiny(tmp_path, train={"steps": 1}, algorithm={"preset": preset}, evaluation={"every": 0})
    with pytest.warns(UserWarning, match="50 % of the completions could not be graded"):
        train(config, reward=Rough())

    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is no JSON")

    for file in [tmp_path / "tiny" / "metrics.jsonl", *(tmp_path / "tiny" / "samples").glob("*.jsonl")]:
        for line in file.read_text(encoding="utf-8").splitlines():
            record = json.loads(line, parse_constant=refuse)
            if file.name == "metrics.jsonl":
                assert record["reward/ungraded"] == 0.5 and record["reward/mean"] == 0.375
                assert record["reward/correct"] == 0.0 and record["component/correct"] == 0.5
                assert not {name for name in record if name.startswith(("component/x", "component/big"))}
