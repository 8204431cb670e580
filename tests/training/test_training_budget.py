"""Budgets: a run ends at the first step after which one is used up, with everything that an end has, resumed or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from surefoot.config import merge, validate
from surefoot.files import read_lines
from surefoot.policy.loading import load_policy
from surefoot.training.budget import BudgetConfig, parameters
from surefoot.training.config import RunConfig
from surefoot.training.loop import RunResult, train
from surefoot.training.progress import Progress

BASE: dict[str, Any] = {
    "task": {"name": "addition", "options": {"digits": 1}, "train_size": 24, "heldout_size": 4},
    "rollout": {"max_new_tokens": 4},
    "train": {"steps": 9, "prompts_per_step": 2, "group_size": 3, "threads": 1},
    "algorithm": {"preset": "rloo"},
    "evaluation": {"every": 0},
    "checkpoint": {"every": 1},
    "track": {"samples_per_step": 0},
}


def run(folder: Path, changes: dict[str, Any], *, resume: bool = False) -> RunResult:
    return train(validate(RunConfig, merge(BASE | {"runs": str(folder)}, changes)), resume=resume)


@pytest.mark.parametrize(
    ("budget", "steps"),
    [
        ({"samples": 18}, 3),
        ({"samples": 19}, 4),
        ({"tokens": 1}, 1),
        ({"flops": 1.0}, 1),
        ({"seconds": 1e-6}, 1),
        ({}, 9),
    ],
)
def test_a_run_ends_when_its_budget_is_used_up(tmp_path: Path, budget: dict[str, float], steps: int) -> None:
    result = run(tmp_path, {"budget": budget})
    assert result.summary["steps"] == steps
    assert result.summary["ended"] == next((f"budget.{unit}" for unit in budget), "steps")
    assert [record["step"] for record in read_lines(result.folder / "evaluations.jsonl")] == [0, steps]
    assert (result.model / "model.safetensors").exists()


def test_the_time_left_follows_the_budget(tmp_path: Path) -> None:
    """18 samples are 3 of 9 steps: after one, what is left takes two such steps, and after three nothing."""
    told: list[Progress] = []
    result = train(
        validate(RunConfig, merge(BASE | {"runs": str(tmp_path)}, {"budget": {"samples": 18}})), watch=told.append
    )
    first = read_lines(result.folder / "timings.jsonl")[0]
    one = sum(value for key, value in first.items() if key != "step" and not key.startswith("tokens_"))
    left = [news.seconds_left for news in told if news.phase == "train"]
    assert left[0] == pytest.approx(2 * one) and left[-1] == 0


def test_what_was_spent_is_counted(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        {
            "train": {"steps": 2, "updates_per_step": 2},
            "algorithm": {"preset": "grpo", "kl": {"kind": "in_loss", "coef": 0.1}},
        },
    )
    metrics = read_lines(result.folder / "metrics.jsonl")
    spent = result.summary["spent"]
    assert spent["samples"] == 12
    assert (
        spent["tokens"] == sum(record["tokens/generated"] for record in metrics) == result.summary["tokens_generated"]
    )
    assert spent["flops"] == pytest.approx(sum(record["compute/flops"] for record in metrics))
    config = validate(RunConfig, BASE)
    size = parameters(load_policy(config.model).model)
    for record in metrics:
        prompts = record["compute/flops"] / (2 * size) - record["tokens/generated"] - record["tokens/scored"]
        prompts -= 3 * record["tokens/updated"]
        assert prompts == pytest.approx(round(prompts), abs=1e-6) and 2 * 3 <= prompts <= 2 * 8
        assert (
            record["tokens/scored"] >= record["tokens/updated"] > record["tokens/trained"]
        )  # the reference, the old policy


def test_a_resumed_run_spends_what_is_left(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", {"budget": {"samples": 30}})
    first = run(tmp_path / "parts", {"budget": {"samples": 12}})
    assert first.summary["steps"] == 2
    again = run(tmp_path / "parts", {"budget": {"samples": 30}}, resume=True)
    assert again.summary["steps"] == whole.summary["steps"] == 5
    assert again.summary["spent"] == whole.summary["spent"]
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        kept = [record for record in read_lines(again.folder / name) if record["step"] != 2 or name == "metrics.jsonl"]
        assert kept == read_lines(whole.folder / name)


def test_a_finished_budget_is_not_exceeded_by_a_resume(tmp_path: Path) -> None:
    run(tmp_path, {"budget": {"samples": 12}})
    assert run(tmp_path, {"budget": {"samples": 12}}, resume=True).summary["steps"] == 2


def test_shares_of_a_budget() -> None:
    budget = BudgetConfig(samples=10, tokens=100)
    assert budget.share({"samples": 5, "tokens": 80}) == 0.8 and budget.share({"samples": 30}) == 1.0
    assert not budget.used_up({"samples": 9, "tokens": 99}) and budget.used_up({"tokens": 100})
    assert BudgetConfig().share({"samples": 5}) == 0.0 and not BudgetConfig().used_up({"samples": 5})


@pytest.mark.parametrize(
    "end",
    [{"budget": {"samples": 1}}, {"budget": {"seconds": 1e-6}}, {"train": {"steps": 2}}],
    ids=["samples", "seconds", "steps"],
)
def test_a_run_resumed_into_its_end_is_evaluated_there(tmp_path: Path, end: dict[str, Any]) -> None:
    """Killed after step 2 of 9, and resumed with less to spend than it has spent: it ends there, as any run ends."""

    class Killed(Exception):
        pass

    def kill(news: Progress) -> None:
        if news.step == 2 and news.phase == "train":
            raise Killed

    config = validate(RunConfig, BASE | {"runs": str(tmp_path)})
    with pytest.raises(Killed):
        train(config, watch=kill)
    result = run(tmp_path, end, resume=True)
    evaluations = read_lines(result.folder / "evaluations.jsonl")
    assert result.summary["steps"] == 2 and [record["step"] for record in evaluations] == [0, 2]
    assert result.summary["after"]["step"] == 2 and result.summary["difference"] is not None
    best = max(evaluations, key=lambda record: record["accuracy"])
    assert result.summary["best"] == {"step": best["step"], "accuracy": best["accuracy"]}
    again = run(tmp_path, end, resume=True)
    assert read_lines(result.folder / "evaluations.jsonl") == evaluations
    assert again.summary["best"] == result.summary["best"] and again.summary["after"] == result.summary["after"]


def test_the_best_is_that_of_the_log(tmp_path: Path) -> None:
    """The evaluation that a resume ends with is in no state: what goes on from there knows it from the log."""
    run(tmp_path, {"train": {"steps": 2}})
    file = tmp_path / "run" / "evaluations.jsonl"
    records = read_lines(file)
    records[-1]["accuracy"] = 0.875
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert run(tmp_path, {"train": {"steps": 2}}, resume=True).summary["best"] == {"step": 2, "accuracy": 0.875}
