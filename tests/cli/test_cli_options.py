"""Dotted options on the command line: both spellings, in every place, over the files, and what a wrong one says."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from surefoot.cli.options import gather, read
from surefoot.errors import ConfigError
from surefoot.training.config import RunConfig
from tests.cli.conftest import Outcome

OWN = {"--dry-run": False, "--task": True, "--help": False}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a.toml", "--train.lr", "1e-4"], ["a.toml", "--set", "train.lr=1e-4"]),
        (["--train.lr=1e-4", "a.toml"], ["--set", "train.lr=1e-4", "a.toml"]),
        (["--reward.wrong", "-1", "a.toml"], ["--set", "reward.wrong=-1", "a.toml"]),
        (["--task", "addition", "--seed", "3"], ["--task", "addition", "--set", "seed=3"]),
        (["--dry-run", "a.toml", "--name", "x"], ["--dry-run", "a.toml", "--set", "name=x"]),
        (["--task.prompt", "a = {prompt}"], ["--set", "task.prompt=a = {prompt}"]),
        (["--a.b", "--dry-run"], ["--set", "a.b", "--dry-run"]),
        (["--", "--a.b", "c"], ["--", "--a.b", "c"]),
        (["-q", "a.toml"], ["-q", "a.toml"]),
    ],
)
def test_what_a_command_does_not_declare_is_a_key(words: list[str], expected: list[str]) -> None:
    assert gather(words, OWN) == expected


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("train.step=3", "unknown option --train.step. Did you mean '--train.steps'?"),
        ("train.lr=3", "unknown option --train.lr. Did you mean '--critic.lr' or '--optimiser.lr'?"),
        ("lr=3", "unknown option --lr. Did you mean '--critic.lr' or '--optimiser.lr'?"),
        ("dry-rnu", "unknown option --dry-rnu. Did you mean '--dry-run'?"),
        ("track.tensorboard", "the option --track.tensorboard has no value"),
    ],
)
def test_a_wrong_option_names_the_nearest(pair: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read([pair], RunConfig, OWN)
    assert str(caught.value).startswith(message)


def test_free_tables_and_whole_tables_are_keys() -> None:
    pairs = ["task.options.digits=3", "algorithm.trust.high=0.3", "train={ steps = 3 }"]
    assert list(read(pairs, RunConfig)) == ["task.options.digits", "algorithm.trust.high", "train"]


def test_options_come_over_files_and_files_over_one_another(surefoot: Callable[..., Outcome], workplace: Path) -> None:
    (workplace / "over.toml").write_text("[train]\nsteps = 5\n[optimiser]\nlr = 0.5\n")
    words = [
        "--optimiser.lr",
        "1e-4",
        "--track.tensorboard=false",
        "--algorithm.trust.high=0.28",
        "--task.options.digits",
        "1",
    ]
    done = surefoot(
        "train", "tiny.toml", "over.toml", "--dry-run", "--task.heldout_size=2", "--task.train_size=20", *words
    )
    assert (done.code, done.err) == (0, "")
    config = tomllib.loads(done.out.split("\nBatch\n")[0])
    assert (config["train"]["steps"], config["train"]["group_size"], config["optimiser"]["lr"]) == (5, 2, 1e-4)
    assert config["track"]["tensorboard"] is False
    assert config["algorithm"]["trust"] == {"kind": "clip", "low": 0.2, "high": 0.28}
    assert config["task"]["options"] == {"digits": 1}


def test_the_resolved_configuration_describes_the_same_run(surefoot: Callable[..., Outcome], workplace: Path) -> None:
    first = surefoot("train", "tiny.toml", "--dry-run", "--algorithm.preset", "rloo")
    (workplace / "resolved.toml").write_text(first.out.split("\nBatch\n")[0])
    assert surefoot("train", "resolved.toml", "--dry-run").out == first.out


def test_the_examples_in_the_help_are_keys() -> None:
    import re

    from surefoot.cli.commands import EPILOGS
    from surefoot.config import keys
    from surefoot.methods.compare.experiment import ExperimentConfig
    from surefoot.training.config import RunConfig, SftConfig

    for command, text in EPILOGS.items():
        known = keys({"sft": SftConfig, "compare": ExperimentConfig}.get(command, RunConfig))
        free = {"compare": "base"}.get(command, "task.options")  # a table of keys that this section does not know
        named = re.findall(r"--([\w.]+)", text)
        assert named
        assert all(name in known or (free in known and name.startswith(f"{free}.")) for name in named)
