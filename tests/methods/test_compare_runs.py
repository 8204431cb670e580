"""Running an experiment: every run once, killed and gone on with, and the same numbers however many at a time."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.cli.main import run
from surefoot.config import dump_toml
from surefoot.errors import DataError, RunFolderError
from surefoot.files import read_lines
from surefoot.methods.compare import kept, schedule
from surefoot.methods.compare.experiment import Experiment, Job, make_experiment
from surefoot.methods.compare.results import compare, complete_seeds, read_runs, write_comparison
from surefoot.methods.compare.schedule import FINISHED, News, run_all, under_way
from surefoot.methods.compare.sentences import sentences, table
from surefoot.training.folder import run_path
from tests.methods.test_compare_experiment import BASE

ARMS = {"grpo": {"algorithm": {"preset": "grpo"}}, "coin": {"algorithm": {"preset": "grpo"}, "control": "coin"}}


def experiment(folder: Path, **changes: Any) -> Experiment:
    values = copy.deepcopy(BASE) | {"runs": str(folder), "arms": ARMS, "jobs": 1} | changes
    values["base"]["evaluation"] = {"samples": 2, "temperature": 1.0, "every": 1}
    values["base"]["track"] = {"samples_per_step": 0}
    return make_experiment(values)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    made = experiment(tmp_path_factory.mktemp("compare"))
    assert run_all(made) == []
    return made


def test_every_run_is_there_and_none_runs_twice(done: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = read_lines(done.folder / FINISHED)
    assert [(line["arm"], line["seed"]) for line in lines] == [("grpo", 0), ("coin", 0), ("grpo", 1), ("coin", 1)]
    monkeypatch.setattr(schedule, "train", lambda *_, **__: pytest.fail("a finished run was run again"))
    told: list[News] = []
    assert run_all(done, told.append) == [] and told == []


def test_arms_see_the_same_prompts_in_the_same_order(done: Experiment) -> None:
    """The first step samples from the same weights: what was generated is equal, token for token."""
    metrics = {arm: read_lines(run_path(done.run(Job("addition", arm, 1))) / "metrics.jsonl") for arm in ARMS}
    assert metrics["grpo"][0]["rollout/entropy"] == metrics["coin"][0]["rollout/entropy"]
    assert metrics["grpo"][0]["length/mean"] == metrics["coin"][0]["length/mean"]


def test_results_are_those_of_the_files(done: Experiment) -> None:
    found = write_comparison(done)
    assert json.loads((done.folder / "comparison.json").read_text()) == found
    one = found["results"]["addition"]["grpo"]
    rights = [
        read_lines(run_path(done.run(Job("addition", "grpo", s))) / "evaluations.jsonl")[-1]["right"] for s in (0, 1)
    ]
    assert one["accuracy"][0] == pytest.approx(np.mean(rights) / 2)
    assert one["by_seed"] == pytest.approx([np.mean(right) / 2 for right in rights])
    assert one["curve"]["step"] == [0, 1, 2] and one["curve"]["tokens"][0] == 0 < one["curve"]["tokens"][-1]
    assert one["spent"]["tokens"] == one["curve"]["tokens"][-1]
    assert one["samples"] == 2 and one["problems"] == 4 and set(one["pass"]) == {"1", "2"}
    assert set(found["pairs"]) == {"coin"} and found["controls"] == {"coin": "coin"}
    assert one["courses"]["rollout/entropy"]["step"] == [1, 2]


def test_words_and_table(done: Experiment) -> None:
    found = compare(done)
    assert [line.split()[0] for line in sentences(found)] == ["Every", "coin", "Against", "4"]  # none of a budget
    head, *rows = table(found, "addition")
    assert head[1:4] == ["start, %", "accuracy, %", "pass@2, %"]
    assert [len(row) for row in rows] == [len(head)] * 2 and [row[0] for row in rows] == ["grpo", "coin (control)"]
    assert [row[head.index("against grpo, points")] for row in rows if row[0] == "grpo"] == ["baseline"]


def test_a_page_keeps_the_table_the_sentences_and_what_the_runs_that_are_compared_cost(
    done: Experiment, tmp_path: Path
) -> None:
    page, found = tmp_path / "page.md", compare(done)
    page.write_text("Before.\n<!-- results -->\n<!-- /results -->\nAfter.\n")
    kept.keep(page, done, found)
    text = page.read_text()
    assert text.startswith("Before.") and text.endswith("After.\n")
    assert "| grpo |" in text and "| coin (control) |" in text and all(f"- {line}" in text for line in sentences(found))
    seconds = [line["cpu_seconds"] for line in read_lines(done.folder / FINISHED)]
    assert kept.cost(done, [0, 1]).startswith(f"4 runs, {sum(seconds) / 60:.0f} minutes of one core")
    assert kept.cost(done, [1]).startswith("2 runs") and "torch" in kept.cost(done, [1])


def test_what_the_runs_gained_said_and_were_ended_by(done: Experiment) -> None:
    found = compare(done)
    for arm in ARMS:
        lines = [read_lines(run_path(done.run(Job("addition", arm, seed))) / "evaluations.jsonl") for seed in (0, 1)]
        change = [np.mean(one[-1]["right"]) / 2 - np.mean(one[0]["right"]) / 2 for one in lines]
        assert found["gains"][arm]["difference"][0] == pytest.approx(np.mean(change))
        assert found["results"]["addition"][arm]["ended"] == {"steps": 2}
    said = [
        {record["name"] for record in read_lines(run_path(done.run(job)) / "warnings.jsonl")} for job in done.jobs()
    ]
    assert found["warnings"]["runs"] == sum(map(bool, said)) and found["warnings"]["of"] == 4
    assert {kind["name"]: kind["runs"] for kind in found["warnings"]["kinds"]} == Counter(chain(*said))


def test_more_seeds_run_only_what_is_new(done: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    larger = make_experiment(done.config.model_dump() | {"seeds": 3})
    ran = []
    monkeypatch.setattr(schedule, "run_one", lambda _, job: ran.append(job) or {"broken": 1})
    monkeypatch.setattr(schedule, "append_lines", lambda *_: None)
    run_all(larger)
    assert ran == [Job("addition", "grpo", 2), Job("addition", "coin", 2)]
    assert complete_seeds(larger, read_runs(larger)) == (0, 1)
    assert compare(larger)["seeds"] == [0, 1]


def test_changed_settings_are_refused(done: Experiment) -> None:
    values = done.config.model_dump()
    values["base"]["optimiser"] = {"lr": 0.5}
    with pytest.raises(RunFolderError, match="other settings"):
        run_all(make_experiment(values))


def test_a_failing_run_fails_alone_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = experiment(tmp_path, seeds=1)
    real = schedule.run_one

    def fails(of: Experiment, job: Job) -> dict[str, Any]:
        if job.arm == "grpo":
            raise RuntimeError("the disk is on fire")
        return real(of, job)

    monkeypatch.setattr(schedule, "run_one", fails)
    (failure,) = run_all(made)
    assert failure.job.arm == "grpo" and "the disk is on fire" in failure.trouble
    with pytest.raises(DataError, match="no seed of the experiment"):
        compare(made)
    monkeypatch.setattr(schedule, "run_one", real)
    told: list[News] = []
    assert run_all(made, told.append) == []
    assert [str(news.job) for news in told] == ["grpo, addition, seed 0"] and (told[0].done, told[0].of) == (2, 2)


def test_arms_on_other_problems_are_refused(done: Experiment) -> None:
    runs = read_runs(done)
    job = Job("addition", "coin", 1)
    last = {**runs[job].evaluations[-1], "set": "another"}
    runs[job] = type(runs[job])([last], runs[job].metrics, runs[job].timings, runs[job].line)
    with pytest.raises(DataError, match="other held-out problems"):
        compare(done, runs)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda lines: lines[:-1], "evaluated last after step 1, and has 2 steps"),
        (lambda lines: [], "has no evaluations"),
        (lambda lines: [*lines[:-1], lines[-1] | {"right": [3, 0, 0, 0]}], "does not count right samples"),
        (lambda lines: [*lines[:-1], {"step": 2}], "is damaged"),
        (lambda lines: [{"right": [0] * 4}, *lines], "is damaged"),
    ],
    ids=["cut", "empty", "more than all", "without results", "without a step"],
)
def test_a_run_that_somebody_has_changed_is_named(done: Experiment, changed: Any, said: str) -> None:
    path = run_path(done.run(Job("addition", "coin", 1))) / "evaluations.jsonl"
    before = path.read_bytes()
    try:
        path.write_text("".join(json.dumps(line) + "\n" for line in changed(read_lines(path))))
        with pytest.raises(DataError, match=said) as error:
            compare(done)
        assert str(path.parent) in str(error.value)
    finally:
        path.write_bytes(before)


def test_a_warm_up_is_made_once_and_started_from(tmp_path: Path) -> None:
    made = experiment(tmp_path, seeds=1, warm_up={"steps": 2, "batch": 2, "evaluation": {"problems": 2}})
    assert run_all(made) == []
    supervised = made.folder / "warm-up" / "addition" / "seed-0"
    written = (supervised / "result.json").stat().st_mtime_ns
    (made.folder / FINISHED).unlink()
    for arm in ARMS:
        subprocess.run(["rm", "-r", str(run_path(made.run(Job("addition", arm, 0))))], check=True)
    assert run_all(made) == [] and (supervised / "result.json").stat().st_mtime_ns == written


def longer(made: Experiment, steps: int, **changes: Any) -> Experiment:
    values = made.config.model_dump()
    values["base"]["train"]["steps"] = steps
    values["base"]["checkpoint"] = {"every": 1, "keep_best": False}
    values["base"]["evaluation"]["every"] = 0
    return make_experiment(values | changes)


def steps(made: Experiment, job: Job) -> int:
    return len(read_lines(run_path(made.run(job)) / "metrics.jsonl"))


def until(there: Callable[[], bool], running: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + 120
    while not there():
        assert time.monotonic() < deadline and (running is None or running.poll() is None)
        time.sleep(0.02)


def of_group(group: int) -> list[str]:
    """The processes of a group that have not ended: numbers, states and names."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, rest = file.read_text().rsplit(")", 1)
            state, _, its, *_ = rest.split()
            found += [f"{name}) {state}"] if its == str(group) and state not in "ZX" else []
    return found


@pytest.mark.timeout(300)
def test_several_at_a_time_give_what_one_at_a_time_gives(tmp_path: Path) -> None:
    """Also where a worker is killed: its run goes on from its last checkpoint, and the others do not notice."""
    whole = longer(experiment(tmp_path / "whole", seeds=1), 15)
    made = longer(experiment(tmp_path / "killed", seeds=1, jobs=2), 15)
    assert run_all(whole) == []

    def kill() -> None:
        until(lambda: all(steps(made, job) > 2 for job in made.jobs()))
        os.kill(active_children()[0].pid or 0, signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    assert run_all(made) == []
    thread.join()
    lines = read_lines(made.folder / FINISHED)
    assert sorted(line["resumed"] for line in lines) == [False, True]
    for one, other in zip(whole.jobs(), made.jobs(), strict=True):
        for name in ("metrics.jsonl", "evaluations.jsonl"):
            kept = [(run_path(of.run(job)) / name).read_bytes() for of, job in ((whole, one), (made, other))]
            assert kept[0] == kept[1]
    found = [compare(of) for of in (whole, made)]
    for arm in ARMS:
        for one_found in found:
            one_found["results"]["addition"][arm].pop("spent")
            one_found["results"]["addition"][arm]["curve"].pop("seconds")
    assert found[0] == found[1]


@pytest.mark.timeout(300)
def test_ctrl_c_stops_the_command(tmp_path: Path) -> None:
    """The key reaches all processes; none trains on, none says anything but the command, and what was done is kept."""
    made = longer(experiment(tmp_path, seeds=2, jobs=2), 100_000)
    (tmp_path / "e.toml").write_text(dump_toml(made.config.model_dump()))
    command = [sys.executable, "-m", "surefoot", "compare", str(tmp_path / "e.toml")]
    running = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    try:
        first, second, *rest = made.jobs()
        until(lambda: steps(made, first) > 2 and steps(made, second) > 2, running)
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=90)
        until(lambda: not of_group(running.pid))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 130
    assert said.splitlines() == [
        "0 of 4 runs are done, 4 to do",
        "surefoot: stopped; the same command goes on from the last saved steps",
    ]
    assert all((under_way(made, job) or 0) > 1 for job in (first, second))
    assert all(under_way(made, job) is None for job in rest)


def test_killed_it_goes_on(tmp_path: Path) -> None:
    """Killed with SIGKILL in the middle, the command finishes what is left, and no process of it survives."""
    values = experiment(tmp_path, seeds=1).config.model_dump()
    values["base"]["train"]["steps"] = 40
    values["base"]["checkpoint"] = {"every": 1}
    made = make_experiment(values)
    program = "import json, sys; from surefoot.methods.compare.experiment import make_experiment as m; "
    program += "from surefoot.methods.compare.schedule import run_all; run_all(m(json.loads(sys.argv[1])))"
    command = [sys.executable, "-c", program, json.dumps(values)]
    started = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
    metrics = run_path(made.run(Job("addition", "grpo", 0))) / "metrics.jsonl"
    deadline = time.monotonic() + 90
    while not (metrics.exists() and len(read_lines(metrics)) > 3):
        assert time.monotonic() < deadline and started.poll() is None
        time.sleep(0.02)
    started.send_signal(signal.SIGKILL)
    started.wait()
    steps = len(read_lines(metrics))
    assert steps < 40
    told: list[News] = []
    assert run_all(made, told.append) == []
    assert told[0].record is not None and told[0].record["resumed"] and told[0].record["steps"] == 40
    assert [record["step"] for record in read_lines(metrics)] == list(range(1, 41))


def test_the_command_says_what_failed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No seed is complete: that is for want of the runs that failed, and the exit code is theirs."""

    def fails(of: Experiment, job: Job) -> dict[str, Any]:
        raise OSError("the disk is on fire")

    monkeypatch.setattr(schedule, "run_one", fails)
    (tmp_path / "e.toml").write_text(dump_toml(experiment(tmp_path, seeds=1).config.model_dump()))
    assert run(["compare", str(tmp_path / "e.toml"), "--quiet"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "surefoot: 2 runs failed (OSError: the disk is on fire): grpo, addition, seed 0; coin, addition, seed 0",
        "surefoot: the same command tries them again",
    ]


def test_a_warm_up_is_told_of_and_its_failure_is_that_of_its_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from surefoot.cli.experiments import _Told

    made = experiment(tmp_path, warm_up={"steps": 2, "target_accuracy": 0.9})

    def half(of: Experiment, task: str, seed: int) -> dict[str, Any]:
        if seed == 1:
            raise DataError("no demonstrations today")
        return {"steps": 2, "after": {"accuracy": 0.253}}

    monkeypatch.setattr(schedule, "warm_up", half)
    monkeypatch.setattr(schedule, "run_one", lambda of, job: {"seconds": 1.0})
    monkeypatch.setattr(schedule, "append_lines", lambda *_: None)
    told = _Told()
    told.begins(made)
    told.begin -= 3600
    with pytest.warns(UserWarning, match=r"seed 0, reached 25.3% .* in 2 steps, and warm_up.target_accuracy is 90.0%"):
        failed = run_all(made, told, told.warmed)
    assert [(news.job.arm, news.job.seed) for news in failed] == [("grpo", 1), ("coin", 1)]
    assert {news.trouble for news in failed} == {"its warm-up failed: no demonstrations today"}
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:3] == [
        "warm-ups to make first: 2",
        "warm-up, addition, seed 0: 2 steps, 25.3 % of sampled answers right",
    ]
    (estimate,) = [line for line in lines if line.startswith("3/4")]
    assert "min" not in estimate and " h " not in estimate  # the hour of the warm-ups is not extrapolated


def test_the_command_says_what_there_is_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from surefoot.cli.experiments import _Told

    made = experiment(tmp_path)
    first, second, *rest = made.jobs()
    for job, states in ((first, ["step-000002", "step-000010", ".step-000011.9.tmp"]), (second, [])):
        folder = run_path(made.run(job))
        for name in states:
            (folder / "state" / name).mkdir(parents=True)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text(dump_toml(made.run(job).resolved()))
    assert [under_way(made, job) for job in (first, second, *rest)] == [10, 0, *[None] * len(rest)]
    _Told().begins(made)
    assert capsys.readouterr().err.splitlines() == [
        "0 of 4 runs are done, 4 to do",
        f"{first}: goes on from step 10",
        f"{second}: goes on from step 0",
    ]
