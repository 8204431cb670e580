"""Running command lines in the process of the test, in a folder of their own."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from surefoot.cli.main import run

# A run of the embedded model that takes about a second.
TINY = """
name = "tiny"
[task]
name = "addition"
train_size = 64
heldout_size = 8
options = { digits = 2 }
[rollout]
max_new_tokens = 8
[train]
steps = 2
prompts_per_step = 2
group_size = 2
[evaluation]
problems = 4
"""


@dataclass(frozen=True)
class Outcome:
    """What a command line came to."""

    code: int
    out: str
    err: str


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with the configuration ``tiny.toml``, and ``file.toml`` for other tasks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "tiny.toml").write_text(TINY, encoding="utf-8")
    without_options = TINY.replace("options = { digits = 2 }\n", "")
    (tmp_path / "file.toml").write_text(without_options, encoding="utf-8")
    return tmp_path


@pytest.fixture
def surefoot(workplace: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """``surefoot("train", "tiny.toml")`` runs that command line; what C code prints is seen as well."""

    def call(*words: str | os.PathLike[str]) -> Outcome:
        capfd.readouterr()
        code = run([os.fspath(word) for word in words])
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return call
