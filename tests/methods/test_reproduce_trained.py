"""What claims read out of training runs, on planted runs; and in the slow suite all of them on real ones that are tiny."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.errors import DataError
from surefoot.methods.compare.results import RunRecord
from surefoot.methods.compare.schedule import News
from surefoot.methods.reproduce import (
    arms,
    clipping,
    compute,
    course,
    lengths,
    materials,
    mismatch,
    rewards,
    sequence_ratio,
)
from surefoot.methods.reproduce.arms import ARMS, BASES, COIN, COIN_CONTROL, Trained, experiment, preparing
from surefoot.methods.reproduce.catalogue import CLAIMS
from surefoot.methods.reproduce.claim import CONTROL, Claim, Measured
from surefoot.methods.reproduce.store import Bench, run_claim
from surefoot.tasks.build import build_task
from surefoot.tasks.config import TaskConfig

STEPS, SAMPLES, BEFORE = 10, 8, [4, 1, 0, 8]


def planted(right: list[int], **metrics: Any) -> RunRecord:
    """A run of ten steps that ends with these right answers out of 8 to four problems; a metric is a number or a course."""
    by_step = [
        {"step": i + 1} | {name: value[i] if isinstance(value, list) else value for name, value in metrics.items()}
        for i in range(STEPS)
    ]
    lines = [{"step": step, "samples": SAMPLES, "right": found} for step, found in ((0, BEFORE), (STEPS, right))]
    timings = [{"step": i + 1, "tokens_generated": 10} for i in range(STEPS)]
    return RunRecord(lines, by_step, timings, {"steps": STEPS})


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Measured]:
    """Measure a claim on planted runs, by arm; the coin toss gains nothing."""

    def measure(claim: Claim, **runs: RunRecord) -> Measured:
        every = Trained({**runs, COIN: planted(BEFORE)})
        for module in (clipping, compute, course, lengths, mismatch, rewards, sequence_ratio):
            monkeypatch.setattr(module, "trained", lambda *_: every)
        values = claim.measure(Bench(Path(".")), claim, 0)
        assert values[CONTROL] == ([0, 0, 0, 0] if claim.control is COIN_CONTROL else 0)
        return values

    return measure


def test_entropy(plant: Callable[..., Measured]) -> None:
    values = plant(
        clipping.CLIP_HIGHER,
        clip20=planted(BEFORE, **{"rollout/entropy": [9.0] * 5 + [0.2] * 5}),
        clip28=planted(BEFORE, **{"rollout/entropy": [9.0] * 5 + [0.3] * 5}),
    )
    assert values["entropy"] == pytest.approx(0.1)


def test_growth_of_wrong_answers(plant: Callable[..., Measured]) -> None:
    values = plant(
        lengths.WRONG_LENGTH_TRAINED,
        grpo=planted(BEFORE, **{"length/wrong": [20.0] * 5 + [24.0] * 5}),
        dr_grpo=planted(BEFORE, **{"length/wrong": [20.0] * 5 + [21.0] * 5}),
    )
    assert values["grpo"] == pytest.approx(4) and values["difference"] == pytest.approx(3)


def test_truncation_and_length_against_accuracy(plant: Callable[..., Measured]) -> None:
    runs = {
        "grpo": planted([8, 0, 0, 8], **{"length/truncated": 0.3, "length/mean": 30.0}),
        "overlong": planted([8, 4, 0, 8], **{"length/truncated": 0.1}),
        "length_reward": planted([4, 0, 0, 8], **{"length/mean": 24.0}),
    }
    values = plant(lengths.OVERLONG, **runs)
    assert values["truncated"] == pytest.approx(0.2) and values["accuracy"] == [0, 0.5, 0, 0]
    values = plant(lengths.KIMI_LENGTH, **runs)
    assert values["length"] == pytest.approx(0.8) and values["accuracy"] == [-0.5, 0, 0, 0]


def test_signal_of_a_step_and_of_a_sample(plant: Callable[..., Measured]) -> None:
    def run(rows: float, groups: float) -> RunRecord:
        return planted(BEFORE, **{"batch/rows_with_advantage": rows, "batch/groups_sampled": groups})

    values = plant(compute.DYNAMIC_SAMPLING, all_tokens=run(32, 8), refill=run(64, 16))
    assert values["signal"] == pytest.approx(0.5), "of the 64 rows that a step has, 32 more have an advantage"
    assert values["sampled"] == 2 and values[CONTROL] == 0, "twice the signal for twice the samples"


def test_what_solved_prompts_cost(plant: Callable[..., Measured]) -> None:
    def run(late: float, kept: float) -> RunRecord:
        rows = {
            "batch/rows_with_advantage": [99.0] * 5 + [late] * 5,
            "batch/groups_sampled": 8,
            "batch/rows_kept": kept,
        }
        return planted(BEFORE, **rows)

    values = plant(compute.SOLVED_PROMPTS, scalerl=run(48, 50), unfiltered=run(32, 64))
    assert values["worth"] == pytest.approx(0.25) and values["rows"] == pytest.approx(50 / 64)


def test_a_forecast_is_judged_by_what_it_has_not_seen(plant: Callable[..., Measured]) -> None:
    def run(accuracy: Callable[[int], float]) -> RunRecord:
        lines = [{"step": s, "samples": 1000, "right": [round(1000 * accuracy(s))] * 4} for s in range(0, 41, 2)]
        timings = [{"step": s, "tokens_generated": 100} for s in range(1, 41)]
        return RunRecord(lines, [], timings, {"steps": 40})

    sigmoid = run(lambda s: 0.2 + 0.6 / (1 + (15 / s) ** 2) if s else 0.2)
    values = plant(compute.FORECAST, scalerl=sigmoid, unfiltered=sigmoid)
    assert values["error"] < 0.01 < values["stays"] and values["gain"] == pytest.approx(
        values["stays"] - values["error"]
    )
    flat = run(lambda s: 0.2)
    assert math.isnan(plant(compute.FORECAST, scalerl=flat, unfiltered=flat)["error"]), "nothing rises, nothing to fit"


def test_hard_problems_and_pass_at_k(plant: Callable[..., Measured]) -> None:
    values = plant(rewards.MAXRL_PASSK, grpo_once=planted([8, 0, 0, 8]), maxrl_once=planted([8, 4, 0, 8]))
    assert values["passed"] == [0, 1, 0, 0], "the second problem is now solved at least once in 8"
    assert values["hard"] == pytest.approx(0.25), "of the two with at most one right sample before, half of one"


def test_stability_and_kinds_of_tokens(plant: Callable[..., Measured]) -> None:
    mism = {"policy/mismatch": 0.01}
    runs = {
        "dppo": planted(BEFORE),
        "dppo_rounded": planted([8, 1, 0, 8], **mism),
        "clip_rounded": planted([0, 1, 0, 8]),
    }
    values = plant(mismatch.DPPO_STABLE, **runs)
    assert values["stable"] == [0.5, 0, 0, 0] and values["better"] == [1, 0, 0, 0] and values["mismatch"] == 0.01
    tokens = {"all_tokens": planted(BEFORE), "top20": planted([5, 1, 0, 8]), "low80": planted([3, 1, 0, 8])}
    values = plant(course.HIGH_ENTROPY, **tokens)
    assert values["top20"][0] == 1 / 8 == -values["low80"][0]
    sampled = {"reward/correct": [0.5] * 5 + [0.3] * 5}
    values = plant(
        sequence_ratio.GSPO_EXPERTS, token_ratio=planted(BEFORE, **sampled), sequence_ratio=planted([8] * 4, **sampled)
    )
    assert values["fall"] == pytest.approx(0.2) and values["gain"] == [0.5, 7 / 8, 1, 0]


def test_resets(plant: Callable[..., Measured]) -> None:
    values = plant(course.PRORL_RESETS, resets=planted([6, 1, 0, 8]), no_resets=planted(BEFORE))
    assert values["end"] == [0.25, 0, 0, 0]


def test_every_base_is_an_experiment_with_a_coin_toss(tmp_path: Path) -> None:
    claim = CLAIMS["overlong"].but(seeds=(0, 1))
    for base in BASES:
        assert COIN in ARMS[base]
        made = experiment(Bench(tmp_path), claim, base, tuple(ARMS[base]))
        assert made.control(COIN) == "coin" and made.seeds == (0, 1)
        digests = {made.digest(job) for job in made.jobs() if job.seed == 0}
        assert len(digests) == len(made.arms), "no two arms are the same run"
    small = claim.but(base_keys={"train": {"steps": 2}})
    assert experiment(Bench(tmp_path), small, "addition").config.name != "addition", (
        "a quick look has a folder of its own"
    )


def test_idle_characters_say_nothing_of_the_answer(tmp_path: Path) -> None:
    train, heldout = materials.filler_files(tmp_path)
    rows = [json.loads(line) for line in train.read_text().splitlines()]
    idle = np.array([len(row["completion"]) - len(row["completion"].lstrip(".")) for row in rows])
    right = np.array([row["completion"].endswith(f">{row['answer']}") for row in rows])
    assert set(idle) == set(range(materials.MOST_IDLE + 1)) and 0.85 < right.mean() < 0.95
    assert abs(np.corrcoef(idle, right)[0, 1]) < 0.05
    task = build_task(TaskConfig(name="file", path=str(train), heldout_path=str(heldout)))
    assert task.demonstrate is not None and len(task.heldout) == 192
    before = train.read_bytes()
    assert materials.filler_files(tmp_path) == (train, heldout) and train.read_bytes() == before


def test_a_run_that_fails_is_told_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(made: Any, say: Callable[[News], None]) -> list[News]:
        news = News(next(made.jobs()), 1, 1, None, "the disk is on fire")
        say(news)
        return [news]

    monkeypatch.setattr(arms, "run_all", fails)
    told: list[str] = []
    with pytest.raises(DataError, match="the disk is on fire"):
        preparing("filler", "grpo")(Bench(tmp_path, 1, told.append), CLAIMS["overlong"])
    assert "failed" in told[0]


TINY: dict[str, Any] = {
    "base_keys": {
        "train": {"steps": 2, "prompts_per_step": 4, "group_size": 4},
        "evaluation": {"problems": 8, "samples": 4},
        "task": {"heldout_size": 8},
    },
    "warm_keys": {"steps": 4, "batch": 8, "check_every": 4, "target_accuracy": 2.0, "evaluation": {"problems": 8}},
}
LONGER = {"train": {"steps": 14}, "evaluation": {"every": 1}}


def tiny(claim: Claim) -> Claim:
    changes = json.loads(json.dumps(TINY))
    if claim.name in ("scalerl-forecast", "solved-prompts", "prorl-resets"):
        for section, keys in LONGER.items():
            changes["base_keys"][section] |= keys
    return claim.but(seeds=(0, 1), **changes)


def test_a_claim_from_training_runs_end_to_end(tmp_path: Path) -> None:
    bench, told = Bench(tmp_path, 1), []
    record = run_claim(Bench(tmp_path, 1, told.append), tiny(CLAIMS["overlong"]))
    assert record["seeds"] == [0, 1] and record["verdict"] in {
        "reproduced",
        "not reproduced at this scale",
        "inconclusive",
    }
    assert sum("filler" in line or "file" in line for line in told) == 6, "three arms, two seeds"
    told.clear()
    record = run_claim(Bench(tmp_path, 1, told.append), tiny(CLAIMS["kimi-length"]))
    assert sum(": failed" not in line and "/" in line for line in told) == 2, "only the arm that is new"
    assert run_claim(bench, tiny(CLAIMS["kimi-length"]))["criteria"] == record["criteria"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_claim_from_training_runs_on_tiny_ones(tmp_path: Path) -> None:
    for claim in CLAIMS.values():
        if claim.prepare is not None:
            record = run_claim(Bench(tmp_path), tiny(claim))
            assert record["seeds"] == [0, 1], claim.name


@pytest.mark.slow
@pytest.mark.timeout(14400)
def test_the_whole_run(tmp_path: Path) -> None:
    """As `surefoot reproduce --all` runs it, an hour and more: every claim gets a verdict, and no control moves."""
    records = [run_claim(Bench(tmp_path), claim) for claim in CLAIMS.values()]
    assert [record["claim"] for record in records if not record["control"]["held"]] == []
