"""Standard output that cannot be written: a run goes on, and the exit code says what was lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from surefoot.cli.output import forgiving_output
from surefoot.errors import RunFolderError
from tests.cli.conftest import Outcome

ROOT = Path(__file__).parents[2]
FULL = "No space left on device"


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of the shell in which $S is the command ``surefoot``."""
    return subprocess.run(
        ["bash", "-c", f'S="{sys.executable} -m surefoot"; set -o pipefail; {line}'],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("where", [">/dev/full", ">&- 2>&-", "2>/dev/full | head -c 1"])
def test_a_run_does_not_end_with_its_output(where: str, workplace: Path) -> None:
    done = shell(f"$S train tiny.toml {where}", workplace)
    assert done.returncode == 0, done.stderr
    assert (workplace / "runs" / "tiny" / "result.json").exists()
    assert (FULL in done.stderr) == (where == ">/dev/full")
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_a_command_that_only_prints_fails_where_it_cannot(workplace: Path) -> None:
    done = shell("$S cards grpo >/dev/full", workplace)
    assert done.returncode == 2
    assert done.stderr == f"surefoot: error: the output cannot be written: {FULL}\n"


def test_a_reader_that_has_gone_is_no_error(workplace: Path) -> None:
    done = shell("$S cards | true", workplace)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_streams_are_given_back() -> None:
    before = sys.stdout, sys.stderr
    with forgiving_output():
        assert sys.stdout is not before[0]
    assert (sys.stdout, sys.stderr) == before


def test_a_report_that_finds_no_space_is_a_warning(
    surefoot: Callable[..., Outcome], workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path) -> None:
        raise RunFolderError("no space left while writing report.html")

    monkeypatch.setattr("surefoot.api.write_report", full)
    done = surefoot("train", "tiny.toml", "--quiet")
    assert done.code == 0
    assert "surefoot: warning: no report was written: no space left while writing report.html" in done.err
