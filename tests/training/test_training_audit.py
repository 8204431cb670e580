"""The audit before a run, and the sign of a reward that is fooled during one."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path

import pytest

from surefoot.config import validate
from surefoot.errors import RewardError
from surefoot.rewards.base import Reward
from surefoot.rewards.functions import as_reward
from surefoot.tasks.config import TaskConfig
from surefoot.training import audit as audit_module
from surefoot.training.config import RunConfig
from surefoot.training.health import rises_alone
from surefoot.training.loop import train
from tests.training.tiny import digits_reward, tiny


def contains() -> Reward:
    return as_reward(lambda prompt, completion, answer: answer in completion)


def logs(folder: Path) -> list[str]:
    return [(folder / name).read_text() for name in ("metrics.jsonl", "evaluations.jsonl")]


def test_a_leaky_reward_stops_a_run_before_it_has_a_folder(tmp_path: Path) -> None:
    with pytest.raises(RewardError, match=r"inside: .*audit\.before = 'warn'"):
        train(tiny(tmp_path, audit={"before": "stop", "seconds": 600}), reward=contains())
    assert not (tmp_path / "tiny").exists()


def test_a_reward_that_could_not_be_tried_is_a_warning(tmp_path: Path) -> None:
    def slow(prompt: str, completion: str, answer: str) -> bool:
        time.sleep(0.01)
        return completion == answer

    with pytest.warns(UserWarning, match="time: nothing was tried: one grading takes"):
        train(tiny(tmp_path, audit={"before": "stop", "seconds": 0.01}, train={"steps": 1}), reward=as_reward(slow))


def test_worked_solutions_that_say_the_answer_twice_pass_the_audit_before_a_run(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"{a}+{b}=", "answer": str(a + b), "completion": f"{a}+{b}={a + b}\nThe answer is {a + b}"}
        for a in range(10)
        for b in range(5)
    ]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {
        "name": "file",
        "path": str(tmp_path / "sums.jsonl"),
        "heldout_share": 0.2,
        "heldout_size": 4,
        "options": {},
    }
    config = tiny(tmp_path, audit={"before": "stop", "seconds": 600}, train={"steps": 1})
    config = config.model_copy(update={"task": validate(TaskConfig, task)})
    report = json.loads((train(config).folder / "audit.json").read_text())
    assert report["failed"] is False and report["prompts"] > 0


def test_a_leaky_reward_is_a_warning_where_that_is_asked(tmp_path: Path) -> None:
    config = tiny(tmp_path, audit={"before": "warn", "seconds": 600}, train={"steps": 1})
    with pytest.warns(UserWarning, match="audit of the reward .*listing"):
        folder = train(config, reward=contains()).folder
    assert json.loads((folder / "audit.json").read_text())["failed"] is True


def test_a_run_is_the_same_with_and_without_an_audit(tmp_path: Path) -> None:
    audited = train(tiny(tmp_path / "a", audit={"before": "stop", "seconds": 600}), reward=digits_reward()).folder
    plain = train(tiny(tmp_path / "b"), reward=digits_reward()).folder
    assert logs(audited) == logs(plain)
    report = json.loads((audited / "audit.json").read_text())
    assert report["failed"] is False and report["prompts"] == 30
    assert not (plain / "audit.json").exists()


def test_the_verifier_of_the_task_passes_and_the_audit_is_not_repeated_on_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny(tmp_path, audit={"before": "stop", "seconds": 600}, train={"steps": 2}))
    before = (tmp_path / "tiny" / "audit.json").read_bytes()

    def never(*_: object, **__: object) -> None:
        raise AssertionError("audited again")

    monkeypatch.setattr(audit_module, "audit_reward", never)
    result = train(tiny(tmp_path, audit={"before": "stop", "seconds": 600}, train={"steps": 4}), resume=True)
    assert result.summary["steps"] == 4 and (tmp_path / "tiny" / "audit.json").read_bytes() == before


def test_heldout_samples_can_be_judged_by_another_verifier(tmp_path: Path) -> None:
    everything = as_reward(lambda prompt, completion, answer: True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same = train(tiny(tmp_path / "a", train={"steps": 1}), reward=everything)
        honest = train(tiny(tmp_path / "b", train={"steps": 1}, evaluation={"verifier": "auto"}), reward=everything)
    assert same.summary["after"]["accuracy"] == 1.0 and honest.summary["after"]["accuracy"] == 0.0


RISING = [0.2, 0.2, 0.3, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
STILL = {"value": 0.0, "low": -0.05, "high": 0.05}


class TestRewardThatRisesAlone:
    def test_is_said(self) -> None:
        text = rises_alone(RISING, STILL, 0.1, RunConfig())
        assert "rose from 0.23 to 0.70" in text and "evaluation.verifier" in text
        judged = RunConfig(evaluation={"verifier": "auto"})
        assert "judge held-out samples" not in rises_alone(RISING, STILL, 0.1, judged)

    def test_is_not_said_where_accuracy_rises_or_may_have(self) -> None:
        assert rises_alone(RISING, {"value": 0.4, "low": 0.3, "high": 0.5}, 0.6, RunConfig()) == ""
        assert rises_alone(RISING, {"value": 0.0, "low": -0.4, "high": 0.4}, 0.1, RunConfig()) == ""

    def test_is_not_said_where_samples_only_come_closer_to_greedy_ones(self) -> None:
        assert rises_alone(RISING, STILL, 0.95, RunConfig()) == ""

    def test_is_not_said_of_small_rises_or_short_runs(self) -> None:
        assert rises_alone([0.2] * 9, STILL, 0.1, RunConfig()) == ""
        assert rises_alone([0.1, 0.9], STILL, 0.1, RunConfig()) == ""
        assert rises_alone(RISING, STILL, 0.1, RunConfig(health={"reward_rise_above": 0.5})) == ""

    def test_a_run_says_it_once(self, tmp_path: Path) -> None:
        over = {
            "task": {"heldout_size": 40},
            "evaluation": {"verifier": "auto", "problems": 40},  # few of them would leave open whether accuracy rose
            "train": {"steps": 12},
            "optimiser": {"lr": 1e-2},
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            folder = train(tiny(tmp_path, **over), reward=digits_reward()).folder
        said = [json.loads(line) for line in (folder / "warnings.jsonl").read_text().splitlines()]
        assert [one["name"] for one in said].count("hacking") == 1
