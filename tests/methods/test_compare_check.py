"""What no run could begin with is found before the first, by the dry run too, and names the table that it is in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from surefoot.cli.main import run
from surefoot.config import dump_toml, merge
from surefoot.errors import ConfigError
from surefoot.methods.compare import check as checks
from surefoot.methods.compare.check import check
from surefoot.methods.compare.experiment import make_experiment
from surefoot.methods.compare.schedule import run_all
from tests.methods.test_compare_experiment import BASE

ADDITION = {"name": "addition", "options": {"digits": 1}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"base": {"task": {"name": "addision"}}}, "base.task: unknown task 'addision'. Did you mean 'addition'"),
        ({"base": {"task": {"heldout_size": 0}}}, "base.task: the task has no held-out problems"),
        ({"base": {"task": {"train_size": 4000}}}, "base.task: the task 'addition'.*100 different problems"),
        ({"tasks": {"one": {}, "two": {"options": {"digits": 0}}}}, "tasks.two: "),
        ({"arms": {"dapo": {"reward": {"verifier": "nonsense"}}}}, "arm 'dapo', task 'addition': .*'nonsense'"),
        ({"base": {"evaluation": {"verifier": "nonsense"}}}, "arm 'grpo', task 'addition': .*'nonsense'"),
        ({"arms": {"dapo": {"model": {"path": "/nonexistent"}}}}, "arm 'dapo'.*'/nonexistent' does not exist"),
        ({"base": {"model": {"path": "no/such-model"}}}, "arm 'grpo'.*'no/such-model' is neither a folder nor a model"),
        ({"warm_up": {"model": {"path": "./none"}}}, "warm_up, task 'addition': .*'./none' does not exist"),
        ({"warm_up": {"reward": {"verifier": "nonsense"}}}, "warm_up, task 'addition': .*'nonsense'"),
        ({"base": {"task": {"name": "file", "path": "rows.jsonl"}}, "warm_up": {}}, "warm_up.*no demonstrations"),
        ({"base": {"reward": {"verifier": "model", "options": {"path": "./none"}}}}, "reward model './none'"),
        ({"base": {"reward": {"verifier": "model"}}}, "the options of the reward model"),
    ],
    ids=lambda value: None if isinstance(value, str) else json.dumps(value)[:60],
)
def test_mistakes_are_found_before_the_first_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(40)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = merge(BASE, changes)
    if changes.get("base", {}).get("task", {}).get("name", "addition") != "addition":
        del values["base"]["task"]["options"]
    made = make_experiment(values)
    with pytest.raises(ConfigError, match=said):
        run_all(made)
    assert not list(made.folder.glob("[!.]*"))  # nothing but the lock
    Path("e.toml").write_text(dump_toml(values))
    assert run(["compare", "e.toml", "--dry-run"]) == 2
    assert capsys.readouterr().err.startswith("surefoot: error: ")


def test_a_good_experiment_passes_and_builds_each_task_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    real = checks.build_task
    monkeypatch.setattr(checks, "build_task", lambda config: built.append(config.name) or real(config))
    check(make_experiment(merge(BASE, {"warm_up": {"steps": 1}, "tasks": {"one": {}, "two": {"train_size": 8}}})))
    assert built == ["addition"] * 2


def test_a_dry_run_lists_what_there_is_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("e.toml").write_text(dump_toml(merge(BASE, {"arms": {"dapo": {"control": "coin"}}, "warm_up": {"steps": 1}})))
    assert run(["compare", "e.toml", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "to do  grpo, addition, seed 0"
    assert run(["compare", "e.toml", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["name"] == "e" and found["warm_ups"] == [{"task": "addition", "seed": seed} for seed in (0, 1)]
    assert [(one["arm"], one["seed"], one["control"], one["state"]) for one in found["runs"]] == [
        ("grpo", 0, None, "to do"),
        ("dapo", 0, "coin", "to do"),
        ("grpo", 1, None, "to do"),
        ("dapo", 1, "coin", "to do"),
    ]
    assert not Path("runs").exists()


def test_a_dry_run_of_training_is_json_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.toml").write_text(dump_toml(BASE["base"]))
    assert run(["train", "t.toml", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["config"]["train"]["steps"] == 2 and found["config"]["algorithm"]["preset"]
    assert found["batch"]["sequences"] == 4 and found["batch"]["train_size"] == 16
    assert found["memory"]["weights"] > 0
