"""Trackers: what TensorBoard reads back, and that none of them can stop a run."""

from __future__ import annotations

import importlib
import math
import sys
import types
from collections.abc import Mapping
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from surefoot.errors import MissingExtraError
from surefoot.training.config import TrackConfig
from surefoot.training.trackers import Trackers, open_trackers, tracking_id


class Recorder:
    """A tracker that works, until step ``fails_at``."""

    def __init__(self, name: str, fails_at: int = 10**9, error: BaseException | None = None) -> None:
        self.name = name
        self.fails_at = fails_at
        self.error = error or RuntimeError("no\nconnection")
        self.steps: list[int] = []
        self.closed = 0

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if step >= self.fails_at:
            raise self.error
        self.steps.append(step)

    def close(self) -> None:
        self.closed += 1
        if self.fails_at == 10**8:
            raise self.error


def fake_service(runs: list[types.SimpleNamespace]) -> types.ModuleType:
    """A module like wandb and trackio: ``init`` returns a run that records what it is told."""

    def init(**options: object) -> types.SimpleNamespace:
        run = types.SimpleNamespace(options=options, logged=[], finished=False)
        run.log = lambda metrics, step: run.logged.append((step, metrics))
        run.finish = lambda: setattr(run, "finished", True)
        runs.append(run)
        return run

    module = types.ModuleType("service")
    module.init = init  # type: ignore[attr-defined]
    return module


def read_back(run: Path, tag: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_tensorboard_reads_back_what_was_logged(tmp_path: Path) -> None:
    trackers = open_trackers(TrackConfig(tensorboard=True), tmp_path, {"seed": 0})
    for step in (1, 2, 3):
        trackers.log(step, {"reward/mean": step / 4, "policy/entropy": math.nan if step == 2 else 1.0})
    trackers.close()
    assert read_back(tmp_path, "reward/mean") == [(1, 0.25), (2, 0.5), (3, 0.75)]
    assert [step for step, _ in read_back(tmp_path, "policy/entropy")] == [1, 2, 3]


def test_tensorboard_shows_each_step_once_after_a_resume(tmp_path: Path) -> None:
    for first, last, value in ((1, 5, 0.0), (4, 6, 1.0)):  # killed after step 5, resumed from the state of step 3
        trackers = open_trackers(TrackConfig(tensorboard=True), tmp_path, {})
        for step in range(first, last + 1):
            trackers.log(step, {"reward/mean": value})
        trackers.close()
    assert read_back(tmp_path, "reward/mean") == [(1, 0.0), (2, 0.0), (3, 0.0), (4, 1.0), (5, 1.0), (6, 1.0)]


def test_nothing_asked_for_opens_nothing(tmp_path: Path) -> None:
    trackers = open_trackers(TrackConfig(), tmp_path, {})
    trackers.log(1, {"x": 1.0})
    trackers.close()
    assert trackers.trackers == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio"])
def test_a_tracker_that_is_not_installed_is_an_error_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # importing it raises ModuleNotFoundError
    with pytest.raises(MissingExtraError, match=rf"surefoot\[{name}\]"):
        open_trackers(TrackConfig(**{name: True}), tmp_path, {})
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_opened_when_one_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[types.SimpleNamespace] = []
    monkeypatch.setitem(sys.modules, "wandb", fake_service(runs))
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(MissingExtraError, match="trackio"):
        open_trackers(TrackConfig(wandb=True, trackio=True), tmp_path, {})
    assert runs == []


@pytest.mark.parametrize("error", [RuntimeError("no\nconnection"), SystemExit(1), OSError(28, "No space left")])
def test_a_tracker_that_fails_is_reported_once_and_dropped(error: BaseException) -> None:
    said: list[str] = []
    bad, good = Recorder("bad", fails_at=2, error=error), Recorder("good")
    trackers = Trackers([bad, good], warn=said.append)
    for step in (1, 2, 3):
        trackers.log(step, {"x": 1.0})
    trackers.close()
    assert good.steps == [1, 2, 3] and good.closed == 1
    assert bad.steps == [1] and bad.closed == 0
    assert len(said) == 1 and "bad failed at step 2" in said[0] and type(error).__name__ in said[0]
    assert "\n" not in said[0]


def test_a_failure_is_a_python_warning_by_default() -> None:
    trackers = Trackers([Recorder("bad", fails_at=0)])
    with pytest.warns(RuntimeWarning, match="tracker bad failed"):
        trackers.log(1, {})


def test_a_failure_while_closing_is_reported_and_the_others_close() -> None:
    said: list[str] = []
    bad, good = Recorder("bad", fails_at=10**8), Recorder("good")
    trackers = Trackers([bad, good], warn=said.append)
    trackers.close()
    trackers.close()
    assert (bad.closed, good.closed) == (1, 1) and len(said) == 1


def test_the_user_can_still_stop_a_run() -> None:
    trackers = Trackers([Recorder("slow", fails_at=0, error=KeyboardInterrupt())])
    with pytest.raises(KeyboardInterrupt):
        trackers.log(1, {})


def test_a_service_that_cannot_be_opened_does_not_stop_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offline = types.ModuleType("wandb")

    def init(**options: object) -> None:
        raise ConnectionError("offline")

    offline.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", offline)
    said: list[str] = []
    trackers = open_trackers(TrackConfig(wandb=True, tensorboard=True), tmp_path, {}, warn=said.append)
    trackers.log(1, {"x": 2.0})
    trackers.close()
    assert len(said) == 1 and "wandb failed when it was opened" in said[0]
    assert read_back(tmp_path, "x") == [(1, 2.0)]


def test_a_broken_package_does_not_stop_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def broken(name: str, package: str | None = None) -> types.ModuleType:
        if name == "wandb":
            raise ImportError("cannot import name 'x' from 'protobuf'")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", broken)
    said: list[str] = []
    assert open_trackers(TrackConfig(wandb=True), tmp_path, {}, warn=said.append).trackers == []
    assert len(said) == 1 and "protobuf" in said[0]


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_services_get_the_metrics_and_know_a_resumed_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    runs: list[types.SimpleNamespace] = []
    monkeypatch.setitem(sys.modules, name, fake_service(runs))
    for folder in ("a", "a", "b"):
        (tmp_path / folder).mkdir(exist_ok=True)
        trackers = open_trackers(TrackConfig(**{name: True}, project="mine"), tmp_path / folder, {"seed": 3})
        trackers.log(7, {"reward/mean": 0.5})
        trackers.close()
    for run in runs:
        assert run.logged == [(7, {"reward/mean": 0.5})] and run.finished
        assert run.options["project"] == "mine" and run.options["config"] == {"seed": 3}
        assert run.options["resume"] == "allow"
    key = "id" if name == "wandb" else "name"
    assert runs[0].options[key] == runs[1].options[key] != runs[2].options[key]
    assert tracking_id(tmp_path / "a") == tracking_id(tmp_path / "a") != tracking_id(tmp_path / "b")
