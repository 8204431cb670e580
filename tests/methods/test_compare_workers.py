"""Worker processes: outcomes as they come, one that is killed costs its own item only, and Ctrl-C ends all at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

from surefoot.errors import DataError
from surefoot.methods.compare.workers import THREADS, workers

Outcomes = dict[Any, tuple[Any, str]]


def outcomes(found: Iterator[tuple[Any, Any, str]]) -> Outcomes:
    return {item: (result, trouble) for item, result, trouble in found}


def divide(by: int) -> tuple[float, str]:
    if by < 0:
        raise DataError("give a number that is not negative")
    return 1 / by, os.environ.get(THREADS[0], "")


def killed(path: Path) -> str:
    """Dies at the first try where the name says so, and at every one of ``always``; says which others ran beside it."""
    tried = path.with_suffix(".tried")
    if path.name == "always" or (path.name == "once" and not tried.exists()):
        tried.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    running = path.with_suffix(".running")
    running.touch()
    time.sleep(0.3)
    others = sorted(file.stem for file in path.parent.glob("*.running") if file != running)
    running.unlink()
    return ", ".join(others)


def sleep(path: Path) -> None:
    path.touch()
    time.sleep(600)


@pytest.mark.parametrize("number", [1, 2])
def test_every_item_has_an_outcome(number: int) -> None:
    before = dict(os.environ)
    with workers(number) as each:
        found = outcomes(each(divide, [4, -1, 0]))
        again = outcomes(each(divide, [2]))
    assert found[4][0][0] == 0.25 and found[4][1] == "" and again[2][0][0] == 0.5
    assert found[-1] == (None, "give a number that is not negative")
    assert found[0][0] is None and found[0][1].endswith("ZeroDivisionError: division by zero")
    assert found[0][1].startswith("Traceback")
    if number > 1:
        assert found[4][0][1] == "1"
    assert dict(os.environ) == before and not active_children()


def test_a_worker_that_is_killed_costs_its_own_item_only(tmp_path: Path) -> None:
    names = ("always", "once", "a", "b", "c")
    with workers(2) as each:
        found = outcomes(each(killed, [tmp_path / name for name in names]))
    assert found[tmp_path / "once"] == ("", "")  # tried again, and nothing ran beside it
    result, trouble = found[tmp_path / "always"]
    assert result is None and trouble.startswith("its process was ended twice, by SIGKILL")
    assert [found[tmp_path / name][1] for name in "abc"] == ["", "", ""]


def test_who_listens_no_more_ends_the_work(tmp_path: Path) -> None:
    with workers(2) as each:
        for item, _, trouble in each(one_sleeps, [tmp_path / "quick", tmp_path / "slow"]):
            assert (item.name, trouble) == ("quick", "")
            break
    assert not active_children()


def one_sleeps(path: Path) -> None:
    if path.name == "slow":
        time.sleep(600)


PROGRAM = """
import os, signal, sys, threading, time
from multiprocessing import active_children
from pathlib import Path
from surefoot.methods.compare.workers import workers
from tests.methods.test_compare_workers import sleep

def press():
    while len(active_children()) < 2 or not all(item.exists() for item in items[: int(sys.argv[2])]):
        time.sleep(0.01)
    os.killpg(os.getpgid(0), signal.SIGINT)

if __name__ == "__main__":
    items = [Path(sys.argv[1]) / name for name in "abcd"]
    threading.Thread(target=press, daemon=True).start()
    try:
        with workers(2) as each:
            list(each(sleep, items))
    except KeyboardInterrupt:
        print("stopped", active_children())
"""


@pytest.mark.parametrize("begun", [0, 2], ids=["while they start", "while they work"])
def test_ctrl_c_ends_all_workers(tmp_path: Path, begun: int) -> None:
    """Pressed in a terminal it reaches every process of the group: the workers leave it to the command, and say nothing."""
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path), str(begun)]
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=90,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert (done.stdout, done.stderr) == ("stopped []\n", "")
    assert not (tmp_path / "c").exists()
