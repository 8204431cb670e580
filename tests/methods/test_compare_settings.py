"""What was made with other settings is refused, with what has changed and the way out, and nothing of it is overwritten."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from surefoot.config import dump_toml, merge
from surefoot.errors import RunFolderError
from surefoot.files import append_lines, read_lines
from surefoot.methods.compare.begun import FINISHED, finished, origin, under_way
from surefoot.methods.compare.experiment import Experiment, Job, make_experiment
from surefoot.methods.compare.schedule import run_one, warm_up
from surefoot.training.folder import run_path
from tests.methods.test_compare_runs import experiment

WARM = {"warm_up": {"steps": 1, "batch": 2, "evaluation": {"problems": 2}}}


def changed(made: Experiment, **changes: Any) -> Experiment:
    return make_experiment(merge(made.config.model_dump(exclude_none=True), changes))


def begin(made: Experiment, job: Job, state: str = "step-000003") -> Path:
    """A run folder as a killed command leaves it, as far as this is about it."""
    folder = run_path(made.run(job))
    (folder / "state" / state).mkdir(parents=True)
    (folder / "config.toml").write_text(dump_toml(made.run(job).resolved()))
    (folder / "experiment.json").write_text(json.dumps(origin(made, job)))
    return folder


def end(made: Experiment, job: Job) -> Path:
    folder = begin(made, job)
    (folder / "result.json").write_text("{}")
    spent = {"steps": 2, "seconds": 1.0, "cpu_seconds": 1.0}
    line = {"task": job.task, "arm": job.arm, "seed": job.seed, "digest": made.digest(job), **spent}
    append_lines(made.folder / FINISHED, [line])
    return folder


def test_a_run_says_of_which_experiment_it_is(tmp_path: Path) -> None:
    made = experiment(tmp_path)
    job = Job("addition", "coin", 1)
    run_one(made, job)
    kept = json.loads((run_path(made.run(job)) / "experiment.json").read_text())
    digest = made.digest(job)
    wanted = {"experiment": "e", "task": "addition", "arm": "coin", "seed": 1, "control": "coin", "digest": digest}
    assert kept == wanted and list(kept) == list(wanted)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"base": {"budget": {"tokens": 20}}}, "budget.tokens: 0 -> 20"),
        (
            {"base": {"train": {"steps": 4}, "optimiser": {"schedule": "linear"}}},
            "constant -> linear, train.steps: 2 -> 4",
        ),
        ({"arms": {"coin": {"control": "shuffled"}}}, "control: coin -> shuffled"),
        ({"warm_up": {"steps": 3}}, "warm_up.steps: 1 -> 3"),
    ],
    ids=["budget", "schedule", "control", "warm-up"],
)
def test_a_run_under_way_is_not_gone_on_with(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    made = experiment(tmp_path, **WARM)
    warm_up(made, "addition", 0)
    folder = begin(made, Job("addition", "coin", 0))
    assert finished(made) == {} and under_way(made, Job("addition", "coin", 0)) == 3
    other = changed(made, **changes)
    with pytest.raises(RunFolderError, match="1 of 4 runs") as error:
        finished(other)
    assert said in str(error.value)
    _, remedy = str(error.value).split("rm -r ")
    for path in shlex.split(remedy):
        shutil.rmtree(path)
    assert finished(other) == {} and not folder.exists()


def test_a_warm_up_of_other_settings_is_not_started_from(tmp_path: Path) -> None:
    """Stopped after the warm-up, before the first run: nothing else says what the model was made with."""
    made = experiment(tmp_path, **WARM)
    assert warm_up(made, "addition", 0) is not None and warm_up(made, "addition", 0) is None
    other = changed(made, warm_up={"steps": 3})
    for act in (finished, lambda of: warm_up(of, "addition", 0)):
        with pytest.raises(RunFolderError, match=r"1 warm-up of .* was made with .*\(warm_up.steps: 1 -> 3\)") as error:
            act(other)
    _, remedy = str(error.value).split("rm -r ")
    shutil.rmtree(remedy)
    summary = warm_up(other, "addition", 0)
    assert summary is not None and summary["steps"] == 3


def test_all_that_changed_is_said_at_once(tmp_path: Path) -> None:
    made = experiment(tmp_path)
    folders = {job: end(made, job) for job in made.jobs()}
    assert set(finished(made)) == set(folders)
    other = changed(made, arms={"coin": {"train": {"steps": 3}}})
    with pytest.raises(RunFolderError) as error:
        finished(other)
    arm = made.folder / "arms" / "addition" / "coin"
    assert "2 of 4 runs" in str(error.value) and "(train.steps: 2 -> 3)" in str(error.value)
    assert str(error.value).endswith(f"rm -r {arm}")  # one folder for both, and none of another arm's
    shutil.rmtree(arm)
    assert {job.arm for job in finished(other)} == {"grpo"}  # the lines of the removed runs count no more
    for job in other.jobs():
        if job.arm == "coin":
            end(other, job)
    assert len(finished(other)) == 4
    with pytest.raises(RunFolderError, match="2 of 4 runs"):
        finished(made)


def test_everything_changed_is_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = experiment(tmp_path)
    for job in made.jobs():
        end(made, job)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunFolderError, match=r"4 of 4 runs.*rm -r e$"):
        finished(changed(made, base={"optimiser": {"lr": 0.5}}))


def test_a_run_begun_without_a_digest_is_known_by_its_configuration(tmp_path: Path) -> None:
    made = experiment(tmp_path)
    folder = begin(made, Job("addition", "grpo", 0))
    (folder / "experiment.json").unlink()
    assert finished(made) == {}
    with pytest.raises(RunFolderError, match=r"train.steps: 2 -> 3"):
        finished(changed(made, base={"train": {"steps": 3}}))


def test_a_line_counts_while_its_run_is_there(tmp_path: Path) -> None:
    made = experiment(tmp_path)
    job = Job("addition", "grpo", 0)
    folder = end(made, job)
    (folder / "result.json").unlink()  # removed, begun again and killed
    assert finished(made) == {} and under_way(made, job) == 3


@pytest.mark.parametrize("name", ["step-000010", "step-1x", "step-", ".step-000011.9.tmp"])
def test_the_step_is_that_of_a_state(tmp_path: Path, name: str) -> None:
    made = experiment(tmp_path)
    job = Job("addition", "grpo", 0)
    folder = begin(made, job)
    (folder / "state" / name).mkdir()
    assert under_way(made, job) == (10 if name == "step-000010" else 3)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda line: "{", "line 1"),
        (lambda line: "[1]", "line 1"),
        (lambda line: json.dumps({**line, "digest": None}), "line 1 is damaged: 'digest' is None"),
        (lambda line: json.dumps({**line, "steps": "2"}), "line 1 is damaged: 'steps' is '2'"),
        (lambda line: json.dumps({**line, "task": [1]}), r"line 1 is damaged: 'task' is \[1\]"),
        (
            lambda line: json.dumps({key: line[key] for key in line if key != "cpu_seconds"}),
            "line 1 is damaged: it has no 'cpu_seconds'",
        ),
    ],
    ids=["cut", "list", "digest", "steps", "task", "seconds"],
)
def test_a_damaged_list_of_finished_runs_is_named(tmp_path: Path, damage: Any, said: str) -> None:
    made = experiment(tmp_path)
    end(made, Job("addition", "grpo", 0))
    end(made, Job("addition", "grpo", 1))
    path = made.folder / FINISHED
    first, second = read_lines(path)
    path.write_text(f"{damage(first)}\n{json.dumps(second)}\n")
    with pytest.raises(RunFolderError, match=said) as error:
        finished(made)
    assert str(path) in str(error.value)
