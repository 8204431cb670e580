"""The doctor finds each fault that it claims to look for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from surefoot.config import load, validate
from surefoot.methods import doctor
from surefoot.methods.doctor import Check, agreement, examine, gold_answers, idle_run, wrong_answers
from surefoot.rewards.functions import as_reward
from surefoot.training.assemble import Parts, assemble
from surefoot.training.config import RunConfig
from surefoot.types import Prompt

SMALL = {"task.train_size": 32, "task.heldout_size": 8, "rollout.max_new_tokens": 12}


@pytest.fixture
def config() -> RunConfig:
    return load(RunConfig, [], SMALL)


@pytest.fixture
def parts(config: RunConfig) -> Parts:
    return assemble(config)


def found(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_a_healthy_configuration(config: RunConfig) -> None:
    checks = examine(config)
    assert [check for check in checks if check.outcome == "fail"] == []
    assert all(check.evidence and "\n" not in check.evidence for check in checks)
    assert len(checks) == 11


@pytest.mark.parametrize("options", [{"reward.right": 2.0, "reward.wrong": -1.0}, {"reward.format_weight": 0.1}])
def test_gold_is_worth_what_the_configuration_says(options: dict[str, float]) -> None:
    config = load(RunConfig, [], {**SMALL, **options})
    parts = assemble(config)
    assert gold_answers(config, parts)[0] == "ok"
    assert wrong_answers(config, parts)[0] == "ok"


@pytest.mark.parametrize("verifier", ["math", "boxed", "tag", "number"])
def test_bare_gold_answers_are_written_in_the_form_that_the_verifier_reads(tmp_path: Path, verifier: str) -> None:
    file = tmp_path / "quiz.jsonl"
    rows = [{"prompt": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(40)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    quiz = {"name": "file", "path": str(file), "heldout_share": 0.2, "heldout_size": 2}
    for task in (
        quiz,
        {
            "name": "mixture",
            "parts": [{**quiz, "options": {"verifier": verifier}}, {"name": "addition", "train_size": 8}],
        },
    ):
        config = validate(RunConfig, {"task": task, "reward": {"verifier": verifier if task is quiz else "auto"}})
        outcome, evidence = gold_answers(config, assemble(config))
        assert outcome == "ok", evidence


def test_a_verifier_that_refuses_gold_answers(config: RunConfig, parts: Parts) -> None:
    def strict(prompt: str, completion: str, answer: str) -> bool:
        return completion == "nothing is good enough"

    outcome, evidence = gold_answers(config, replace(parts, reward=as_reward(strict)))
    assert outcome == "fail" and evidence.startswith("40 of 40 gold answers") and "reward.verifier" in evidence


@pytest.mark.parametrize("grader", [lambda p, c, a: True, lambda p, c, a: c == "", lambda p, c, a: c == p])
def test_a_reward_that_can_be_had_for_nothing(config: RunConfig, parts: Parts, grader: Callable[..., bool]) -> None:
    outcome, evidence = wrong_answers(config, replace(parts, reward=as_reward(grader)))
    assert outcome == "fail" and "called right for 40 of 40" in evidence


def test_an_engine_with_other_weights(config: RunConfig, parts: Parts) -> None:
    assert agreement(config, parts)[0] == "ok"
    generate = parts.engine.generate

    def stale(requests: Any) -> Any:
        samples = generate(requests)
        with torch.no_grad():
            for parameter in parts.policy.model.parameters():
                parameter.mul_(1.01)
        return samples

    parts.engine.generate = stale  # type: ignore[method-assign]
    outcome, evidence = agreement(config, parts)
    assert outcome == "fail" and "largest difference" in evidence


def test_an_engine_that_samples_at_another_temperature(
    config: RunConfig, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records say temperature 1 and were made at 1.1: the KL of an idle run shows it."""
    from surefoot.rollout.local import LocalEngine

    assert idle_run(config, parts)[0] == "ok"
    real = LocalEngine.generate

    def hotter(self: LocalEngine, requests: Any) -> Any:
        asked = [replace(r, sampling=replace(r.sampling, temperature=1.1 * r.sampling.temperature)) for r in requests]
        return [tuple(replace(s, temperature=s.temperature / 1.1) for s in group) for group in real(self, asked)]

    monkeypatch.setattr(LocalEngine, "generate", hotter)
    outcome, evidence = idle_run(config, parts)
    assert outcome == "fail" and "disagree" in evidence


def test_an_optimiser_that_moves_at_rate_0(config: RunConfig, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    from surefoot.training import learner

    real = learner.take_step

    def moved(optimiser: Any, model: torch.nn.Module, **options: Any) -> Any:
        norm = real(optimiser, model, **options)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        return norm

    monkeypatch.setattr(learner, "take_step", moved)
    outcome, evidence = idle_run(config, parts)
    assert outcome == "fail", evidence


def test_a_model_that_is_not_there_leaves_the_rest(tmp_path: Path) -> None:
    checks = examine(load(RunConfig, [], {**SMALL, "model.path": str(tmp_path / "nowhere")}))
    assert [check.name for check in checks] == ["versions", "threads", "extras", "sandbox", "model and task"]
    assert checks[-1].outcome == "fail" and "does not exist" in checks[-1].evidence


def test_a_tracker_without_its_package(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.util, "find_spec", lambda name: None if name == "wandb" else object())
    asked = load(RunConfig, [], {**SMALL, "track.wandb": "true"})
    assert doctor.extras(config)[0] == "ok"
    outcome, evidence = doctor.extras(asked)
    assert outcome == "fail" and "pip install 'surefoot[wandb]'" in evidence


def test_other_versions_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "2.14.0" if name == "torch" else "5.24.0")
    assert doctor.versions()[0] == "warn"


@pytest.mark.parametrize(("threads", "free", "outcome"), [(1, 1, "ok"), (2, 2, "ok"), (2, 1, "warn"), (9, 8, "warn")])
def test_threads_against_the_cores_that_are_free(
    monkeypatch: pytest.MonkeyPatch, threads: int, free: int, outcome: str
) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(doctor, "allowed_cores", lambda: 8)
    monkeypatch.setattr(doctor, "free_cores", lambda cores: free)
    try:
        found, evidence = doctor.threads(threads)
    finally:
        torch.set_num_threads(before)
    assert found == outcome
    assert evidence.startswith(
        f"{threads} threads of PyTorch (train.threads = {threads}), {free} of 8 cores free; waiting: "
    )
    assert (f"set train.threads to {free}" in evidence) == (outcome == "warn")


def test_threads_that_are_chosen_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))
    assert f"(OMP_NUM_THREADS = {torch.get_num_threads()})" in doctor.threads()[1]


def test_gold_of_a_task_without_anything_to_grade(config: RunConfig, parts: Parts) -> None:
    prompts = [Prompt("p", "Say something.")]
    task = replace(parts.task, train=prompts, heldout=prompts, demonstrate=None, gold=None)
    outcome, evidence = gold_answers(config, replace(parts, task=task))
    assert outcome == "warn" and "none of 2 problems" in evidence


@pytest.mark.parametrize(
    "preset", ["ppo", "dapo", "prorl", "scalerl", "kimi_k15", "remax", "dppo_topk", "high_entropy"]
)
def test_the_short_run_takes_every_kind_of_recipe(preset: str) -> None:
    algorithm: dict[str, Any] = {"preset": preset}
    if preset == "scalerl":
        algorithm["interruption"] = {"phrase": "=", "close": ""}
    config = load(RunConfig, [], {**SMALL, "rollout.max_new_tokens": 40, "algorithm": algorithm})
    parts = assemble(config)
    for outcome, evidence in (agreement(config, parts), idle_run(config, parts)):
        assert outcome == "ok", evidence
