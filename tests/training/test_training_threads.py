"""The number of threads follows the cores that are free, from files that a test can write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from surefoot.training import threads
from surefoot.training.threads import (
    allowed_cores,
    busy_cores,
    choose,
    core_seconds,
    quota_cores,
    recorded,
    set_threads,
)


@pytest.fixture(autouse=True)
def nothing_is_given(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in threads.GIVEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(threads, "quota_cores", lambda *_: None)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def write_stat(proc: Path, *cores: tuple[int, int, int, int, int]) -> None:
    """Ticks of (user, nice, system, idle, steal) of each core, in the form of the kernel."""
    lines = [f"cpu{i} {u} {n} {s} {idle} 50 0 3 {steal} 7 7" for i, (u, n, s, idle, steal) in enumerate(cores)]
    proc.mkdir(exist_ok=True)
    (proc / "stat").write_text("\n".join(["cpu  1 1 1 1 0 0 0 0 0 0", *lines, "intr 123", ""]), encoding="ascii")


def test_seconds_of_cores(tmp_path: Path) -> None:
    """Waiting for disks is no work; interrupts and time that a hypervisor took away are; guests are in user time already."""
    write_stat(tmp_path, (100, 10, 20, 999, 5), (0, 0, 0, 0, 0))
    tick = os.sysconf("SC_CLK_TCK")
    assert core_seconds(tmp_path) == {0: (100 + 10 + 20 + 3 + 5) / tick, 1: 3 / tick}
    assert core_seconds(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    ("busy", "expected"),
    [((0, 0, 0, 0), 0.0), ((100, 0, 0, 0), 1.0), ((50, 50, 100, 0), 2.0), ((100, 100, 100, 100, 100, 100), 4.0)],
)
def test_load_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: tuple[int, ...], expected: float
) -> None:
    """A window of one second; cores 4 and 5 are not for this process."""
    now = [0.0]
    tick = os.sysconf("SC_CLK_TCK")

    def sleep(seconds: float) -> None:
        now[0] += seconds
        write_stat(tmp_path, *((1000 + ticks * tick // 100, 0, 0, 0, 0) for ticks in busy))

    write_stat(tmp_path, *((1000, 0, 0, 0, 0) for _ in busy))
    monkeypatch.setattr(threads.time, "sleep", sleep)
    monkeypatch.setattr(threads.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(threads.time, "process_time", lambda: 0.0)
    assert busy_cores(1.0, tmp_path) == pytest.approx(expected)


def test_own_work_is_not_that_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads of this process may go on in the window."""
    now, own, tick = [0.0], [0.0], os.sysconf("SC_CLK_TCK")

    def sleep(seconds: float) -> None:
        now[0] += seconds
        own[0] += 0.75
        write_stat(tmp_path, (tick, 0, 0, 0, 0))

    write_stat(tmp_path, (0, 0, 0, 0, 0))
    monkeypatch.setattr(threads.time, "sleep", sleep)
    monkeypatch.setattr(threads.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(threads.time, "process_time", lambda: own[0])
    assert busy_cores(1.0, tmp_path) == pytest.approx(0.25)


@pytest.mark.parametrize(("load", "expected"), [(0.0, 4), (0.2, 4), (0.3, 3), (1.0, 3), (1.9, 2), (4.0, 1), (9.0, 1)])
def test_a_thread_for_every_free_core(monkeypatch: pytest.MonkeyPatch, load: float, expected: int) -> None:
    monkeypatch.setattr(threads, "busy_cores", lambda *_: load)
    choice = choose(8)
    assert choice.threads == expected
    assert choice.reason == (
        "all cores are free" if expected == 4 else f"{4 - expected} of 4 cores are at work for others"
    )
    assert choose(2).threads == min(2, expected)


def test_what_has_been_decided_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "busy_cores", lambda *_: pytest.fail("nothing is to be measured"))
    assert choose(8, before=3) == threads.Choice(3, "as when the run began")
    assert choose(1).threads == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert choose(7, before=3) == threads.Choice(7, "OMP_NUM_THREADS = 7")


def test_more_threads_than_before_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that had 16 threads goes on, on a smaller machine, with what there is."""
    monkeypatch.setattr(threads, "busy_cores", lambda *_: 0.0)
    assert choose(4, before=16).threads == 4


def test_setting_and_choosing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy first run does not bind the second one; a number that the program sets between them does."""
    load = [2.0]
    monkeypatch.setattr(threads, "busy_cores", lambda *_: load[0])
    torch.set_num_threads(4)
    assert set_threads(0).threads == 2 == torch.get_num_threads()
    load[0] = 0.0
    assert set_threads(0).threads == 4 == torch.get_num_threads()
    assert set_threads(3).threads == 3 == torch.get_num_threads()
    assert set_threads(0).threads == 4
    torch.set_num_threads(2)
    assert set_threads(0).threads == 2


GROUPS = {
    "none": ({}, "0::/a/b\n", None),
    "two": ({"a/b/cpu.max": "150000 100000"}, "0::/a/b\n", 1.5),
    "two-no-limit": ({"a/b/cpu.max": "max 100000"}, "0::/a/b\n", None),
    "two-above": ({"a/b/cpu.max": "max 100000", "a/cpu.max": "200000 100000"}, "0::/a/b\n", 2.0),
    "two-container": ({"cpu.max": "300000 100000"}, "0::/somewhere/on/the/host\n", 3.0),
    "one": ({"cpu,cpuacct/a/cpu.cfs_quota_us": "250000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/a\n", 2.5),
    "one-link": ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, "2:cpuacct:/\n1:cpu:/\n0::/\n", 1.0),
    "one-no-limit": ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "1:cpu:/\n", None),
    "malformed": ({"cpu.max": "many"}, "0::/\nnonsense\n", None),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_quota_of_control_groups(tmp_path: Path, name: str) -> None:
    files, own, expected = GROUPS[name]
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(own, encoding="ascii")
    for file, content in files.items():
        (tmp_path / "groups" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / file).write_text(content + "\n", encoding="ascii")
    assert quota_cores(tmp_path / "proc", tmp_path / "groups") == expected


@pytest.mark.parametrize(("quota", "expected"), [(None, 4), (8.0, 4), (2.5, 2), (0.5, 1)])
def test_cores_that_may_be_used(monkeypatch: pytest.MonkeyPatch, quota: float | None, expected: int) -> None:
    monkeypatch.setattr(threads, "quota_cores", lambda *_: quota)
    assert allowed_cores() == expected


def test_what_a_run_had_before(tmp_path: Path) -> None:
    assert recorded(tmp_path) is None
    for content, expected in (({"threads": 3}, 3), ({}, None), ({"threads": "3"}, None), ([], None)):
        (tmp_path / "environment.json").write_text(json.dumps(content), encoding="utf-8")
        assert recorded(tmp_path) == expected
    (tmp_path / "environment.json").write_text("{", encoding="utf-8")
    assert recorded(tmp_path) is None


def test_waiting_is_passive_unless_the_user_has_set_it() -> None:
    """In a process of its own: what a loaded OpenMP reads can no longer be changed."""
    program = (
        "from surefoot.training.threads import wait_passively, waiting\n"
        "import sys\n"
        "assert 'torch' not in sys.modules\n"
        "empty, chosen, active = {}, {'GOMP_SPINCOUNT': '5'}, {'OMP_WAIT_POLICY': 'ACTIVE'}\n"
        "assert waiting(empty) == 'they spin a while first'\n"
        "assert wait_passively(empty) and empty == {'OMP_WAIT_POLICY': 'PASSIVE'}\n"
        "assert wait_passively(chosen) and chosen == {'GOMP_SPINCOUNT': '5'}\n"
        "assert wait_passively(active) and active == {'OMP_WAIT_POLICY': 'ACTIVE'}\n"
        "assert waiting(active) == 'OMP_WAIT_POLICY = ACTIVE'\n"
        "import torch\n"
        "late = {}\n"
        "assert not wait_passively(late) and late == {}\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
