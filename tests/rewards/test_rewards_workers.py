"""The pool of workers: a job that hangs, raises, dies or eats memory costs itself and no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from surefoot.errors import RewardError
from surefoot.rewards.workers import Outcome, WorkerPool

JOBS = "hostile_jobs"
HERE = str(Path(__file__).parent)


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    sys.path.insert(0, HERE)
    made = WorkerPool([JOBS], workers=2, deadline=20.0, memory=512)
    yield made
    made.close()
    sys.path.remove(HERE)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pids: list[int]) -> bool:
    until = time.monotonic() + 30
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(map(alive, pids))


def test_results_come_in_the_order_of_the_jobs(pool: WorkerPool):
    outcomes = pool.run(f"{JOBS}:double", [(k,) for k in range(300)])
    assert [outcome.value for outcome in outcomes] == [2 * k for k in range(300)]
    assert all(outcome.status == "ok" and outcome.seconds >= 0 for outcome in outcomes)
    assert pool.run(f"{JOBS}:double", []) == []


def test_both_workers_work_and_stay(pool: WorkerPool):
    before = set(pool.processes())
    # Jobs that wait, so that no worker can do them all before the other one has its turn on a busy core.
    outcomes = pool.run(f"{JOBS}:who", [(k, 0.02) for k in range(100)])
    assert {outcome.value[1] for outcome in outcomes} == before and len(before) == 2


@pytest.mark.parametrize("what", ["raise", "memory", "die", "exit", "print", "deep", "odd", "large"])
def test_a_job_that_misbehaves_costs_no_other(pool: WorkerPool, what: str):
    outcomes = pool.run(f"{JOBS}:act", [("", k) if k != 3 else (what, k) for k in range(8)])
    assert [outcome.value for k, outcome in enumerate(outcomes) if k != 3] == [0, 1, 2, 4, 5, 6, 7]
    expected = {"print": "ok", "large": "ok"}.get(what, "error")
    assert outcomes[3].status == expected
    assert expected == "ok" or outcomes[3].text
    if what == "raise":
        assert outcomes[3].text == "ValueError: broken 3"
    if what == "memory":
        assert "MemoryError" in outcomes[3].text


@pytest.mark.parametrize("what", ["hang", "spin", "power"])
def test_a_job_that_hangs_is_ended_and_the_pool_is_whole(pool: WorkerPool, what: str):
    jobs = [("", 0), (what, 1), *[("", k) for k in range(2, 30)], (what, 30), ("", 31)]
    outcomes = pool.run(f"{JOBS}:act", jobs, deadline=0.7)
    late = [k for k, outcome in enumerate(outcomes) if outcome.status == "timeout"]
    assert {1, 30} == set(late)
    assert outcomes[1] == Outcome("timeout", None, "not graded within 0.7 seconds", 0.7)
    assert [o.value for k, o in enumerate(outcomes) if k not in late] == [k for k in range(32) if k not in late]
    assert [outcome.value for outcome in pool.run(f"{JOBS}:double", [(k,) for k in range(20)])] == list(range(0, 40, 2))


def test_large_messages_pass_both_ways(pool: WorkerPool):
    texts = ["x" * n for n in (3_000_000, 10, 200_000, 0)]
    assert [o.value for o in pool.run(f"{JOBS}:length", [(text,) for text in texts])] == [len(text) for text in texts]


def test_workers_killed_from_outside_are_replaced(pool: WorkerPool):
    pool.run(f"{JOBS}:double", [(k,) for k in range(10)])
    for pid in pool.processes():  # while they wait
        os.kill(pid, signal.SIGKILL)
    assert [o.value for o in pool.run(f"{JOBS}:double", [(k,) for k in range(50)])] == list(range(0, 100, 2))

    def kill_one() -> None:
        for pid in pool.processes()[:1]:
            os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(0.2, kill_one)  # while they work
    timer.start()
    outcomes = pool.run("time:sleep", [(0.05,)] * 16)
    timer.join()
    assert [outcome.status for outcome in outcomes] == ["ok"] * 16


def test_threads_take_turns(pool: WorkerPool):
    found: dict[int, list[int]] = {}

    def use(n: int) -> None:
        found[n] = [o.value for o in pool.run(f"{JOBS}:double", [(n + k,) for k in range(40)])]

    threads = [threading.Thread(target=use, args=(n,)) for n in range(0, 400, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: [2 * (n + k) for k in range(40)] for n in range(0, 400, 100)}


def test_workers_start_late_are_few_and_load_no_torch(pool: WorkerPool):
    fresh = WorkerPool([JOBS], workers=4)
    assert fresh.processes() == []
    torch.ones(200, 200) @ torch.ones(200, 200)  # threads of PyTorch run in this process
    assert fresh.run(f"{JOBS}:torch_is_loaded", [(0,)])[0].value is False
    assert len(fresh.processes()) == 1
    pids = fresh.processes()
    fresh.close()
    assert gone(pids)
    assert fresh.run(f"{JOBS}:double", [(1,)])[0].value == 2
    fresh.close()


def test_workers_are_replaced_after_so_many_jobs(pool: WorkerPool):
    short = WorkerPool([JOBS], workers=1, recycle=5)
    outcomes = short.run(f"{JOBS}:who", [(k,) for k in range(12)])
    assert [outcome.value[0] for outcome in outcomes] == list(range(12))
    assert len({outcome.value[1] for outcome in outcomes}) == 3
    short.close()


def test_an_interrupt_leaves_no_old_answers(pool: WorkerPool):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            pool.run(f"{JOBS}:act", [("hang", 0), ("hang", 1)])
    finally:
        signal.signal(signal.SIGALRM, old)
    assert [o.value for o in pool.run(f"{JOBS}:double", [(k,) for k in range(20)])] == list(range(0, 40, 2))


CHILD = """
import os, sys, time
sys.path.insert(0, {here!r})
from surefoot.rewards.workers import WorkerPool
pool = WorkerPool(["hostile_jobs"], workers=2, deadline={deadline})
pool.run("hostile_jobs:double", [(1,), (2,)])
print(*pool.processes(), flush=True)
{then}
"""


def run_child(then: str, deadline: float = 60.0) -> subprocess.Popen[str]:
    code = textwrap.dedent(CHILD).format(here=HERE, then=then, deadline=deadline)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_nothing_is_left_at_exit():
    child = run_child("")
    pids = [int(pid) for pid in child.communicate(timeout=60)[0].split()]
    assert pids and child.returncode == 0 and gone(pids)


def test_nothing_is_left_where_the_parent_is_killed():
    child = run_child("pool.run('hostile_jobs:act', [('', 0), ('spin', 1)])", deadline=1.0)
    assert child.stdout is not None
    pids = [int(pid) for pid in child.stdout.readline().split()]
    child.kill()
    child.communicate()
    assert pids and gone(pids)


def test_a_fork_starts_workers_of_its_own():
    then = """
pid = os.fork()
mine = [o.value for o in pool.run("hostile_jobs:double", [(k,) for k in range(20)])] == list(range(0, 40, 2))
if pid == 0:
    os._exit(0 if mine else 1)
print(mine, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    out = run_child(then).communicate(timeout=60)[0]
    assert out.splitlines()[-1] == "True 0"


def test_what_cannot_work_is_said():
    with pytest.raises(
        RewardError, match="could not import what it needs: ModuleNotFoundError: No module named 'nonesuch'"
    ):
        WorkerPool(["nonesuch"], workers=1).run("nonesuch:f", [()])
    for wrong in ({"workers": 0}, {"deadline": 0.0}, {"memory": -1}, {"recycle": 0}):
        with pytest.raises(RewardError, match="expected at least one worker, a positive deadline"):
            WorkerPool(**wrong)  # type: ignore[arg-type]


def test_a_worker_killed_while_it_starts_is_replaced(pool: WorkerPool) -> None:
    killed: list[int] = []

    def kill_the_first() -> None:
        while not pool.processes():
            time.sleep(0.001)
        killed.append(pool.processes()[0])
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill_the_first)
    thread.start()
    outcomes = pool.run(f"{JOBS}:double", [(k,) for k in range(20)])
    thread.join()
    assert [outcome.value for outcome in outcomes] == list(range(0, 40, 2)) and killed
