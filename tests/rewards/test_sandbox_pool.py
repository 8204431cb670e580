"""The pool: right answers in order, limits per job, a failed worker is replaced and its job done again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from surefoot.errors import SandboxError
from surefoot.rewards.sandbox import Call, Checks, Ending, Job, Limits, Sandbox
from surefoot.rewards.sandbox import pool as pool_module
from surefoot.rewards.sandbox.worker import Worker, WorkerFailure
from tests.rewards.sandboxes import at_each_level

KIND = {
    "stdin": ("import sys\nprint(len(sys.stdin.read()))", "é" * 300_000, "300000\n"),
    "no input": ("import sys\nprint(repr(sys.stdin.read()))", "", "''\n"),
    "unread input": ("print('x')", "y" * 1_000_000, "x\n"),
    "input that is no text": ("import sys\nprint(len(sys.stdin.buffer.read()))", b"\xff\x00", "2\n"),
    "main": ("print(__name__)", "", "__main__\n"),
    "threads": (
        "import threading\nt = threading.Thread(target=print, args=('in a thread',))\nt.start()",
        "",
        "in a thread\n",
    ),
    "asyncio": ("import asyncio\nasync def f(): return 7\nprint(asyncio.run(f()))", "", "7\n"),
    "asyncio over a pair of sockets": (
        "import asyncio, socket\nasync def main():\n    ends = socket.socketpair()\n"
        "    (_, out), (into, _) = [await asyncio.open_connection(sock=end) for end in ends]\n"
        "    async def send():\n        for _ in range(30):\n            out.writelines([bytes(9000)] * 3)\n"
        "            await out.drain()\n        out.close()\n"
        "    task = asyncio.create_task(send())\n    print(len(await into.read()), await asyncio.to_thread(len, 'abc'))\n"
        "    await task\nasyncio.run(main())",
        "",
        "810000 3\n",
    ),
    "messages of several parts": (
        "import socket\na, b = socket.socketpair()\nprint(a.sendmsg([b'one', memoryview(b'two')]), b.recvmsg(9)[0])\n"
        "a.sendall(b'x')\na.shutdown(socket.SHUT_WR)\nprint(b.recv(9), b.recv(9))",
        "",
        "6 b'onetwo'\nb'x' b''\n",
    ),
    "pipes of multiprocessing": (
        "import multiprocessing as m\na, b = m.Pipe()\na.send([1])\nc, d = m.Pipe(False)\nd.send({2})\nprint(b.recv(), c.recv())",
        "",
        "[1] {2}\n",
    ),
    "memory without a file": (
        "import mmap\nm = mmap.mmap(-1, 100 << 20)\nm[-3:] = b'end'\nm.resize(8192)\n"
        "n = mmap.mmap(-1, 99, access=mmap.ACCESS_WRITE)\n"
        "o = mmap.mmap(-1, 9, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE)\n"
        "p = mmap.mmap(-1, 9, flags=mmap.MAP_PRIVATE)\nn.write(b'abc')\no[0] = p[0] = 7\n"
        "print(len(m), n[:3], o[0], p[0], type(m).__name__, isinstance(m, mmap.mmap))",
        "",
        "8192 b'abc' 7 7 mmap True\n",
    ),
    "memory with a file": (
        "import mmap\nwith open('f', 'w+b') as f:\n    f.write(b'abc')\n    f.flush()\n    m = mmap.mmap(f.fileno(), 0)\n"
        "    m[0] = 65\n    m.flush()\n    print(m.find(b'c'), f.seek(0), f.read())\n"
        "    print(mmap.mmap(f.fileno(), 3, access=mmap.ACCESS_READ)[:])",
        "",
        "2 0 b'Abc'\nb'Abc'\n",
    ),
    "a data base": (
        "import sqlite3\nfor mode in ('delete', 'wal'):\n    a, b = sqlite3.connect(mode), sqlite3.connect(mode)\n"
        "    a.execute(f'pragma journal_mode={mode}')\n    a.execute('create table t (x)')\n"
        "    a.execute('insert into t values (3)')\n    a.commit()\n    print(b.execute('select * from t').fetchall())",
        "",
        "[(3,)]\n[(3,)]\n",
    ),
    "locks": (
        "import fcntl\nwith open('f', 'w') as f:\n    fcntl.lockf(f, fcntl.LOCK_EX)\n    fcntl.lockf(f, fcntl.LOCK_UN)\n"
        "    fcntl.flock(f, fcntl.LOCK_EX)\nprint('ok')",
        "",
        "ok\n",
    ),
    "copies and moves": (
        "import os, shutil\nopen('a', 'wb').write(bytes(300_000))\nshutil.copyfile('a', 'b')\nos.mkdir('d')\n"
        "shutil.copytree('d', 'e')\nos.replace('a', 'd/a')\nshutil.move('d/a', 'e')\n"
        "print(os.path.getsize('e/a'), os.path.getsize('b'))",
        "",
        "300000 300000\n",
    ),
    "temporary folders": (
        "import tempfile\nwith tempfile.TemporaryDirectory() as d, tempfile.NamedTemporaryFile(dir=d) as f:\n"
        "    f.write(b'x')\nwith tempfile.SpooledTemporaryFile(9) as f: f.write(bytes(99))\nprint('ok')",
        "",
        "ok\n",
    ),
    "waiting, past many looks": (
        "import queue, select, signal, threading, time\nbegan = time.monotonic()\ntime.sleep(0.12)\nselect.epoll().poll(0.12)\n"
        "threading.Event().wait(0.12)\ntry: queue.Queue().get(timeout=0.12)\nexcept queue.Empty: pass\n"
        "print(0.48 <= time.monotonic() - began, signal.sigtimedwait([signal.SIGUSR1], 0.12))",
        "",
        "True None\n",
    ),
    "temporary files": (
        "import tempfile\nwith tempfile.TemporaryFile('w+') as f:\n    f.write('x'); f.seek(0); print(f.read())",
        "",
        "x\n",
    ),
    "copies with modes": ("import shutil\nopen('a', 'w').close()\nshutil.copy('a', 'b')\nprint('ok')", "", "ok\n"),
    "deep recursion that is right": (
        "import sys\nsys.setrecursionlimit(200000)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(50000))",
        "",
        "50000\n",
    ),
    "hash of texts": ("print(hash('surefoot'))", "", None),
    "random numbers": ("import random\nprint(random.random())", "", None),
    "empty environment": ("import os\nprint(dict(os.environ))", "", "{}\n"),
    "standard library alone": ("import numpy", "", ""),
    "exits late": ("import atexit\natexit.register(print, 'bye')", "", "bye\n"),
    "exit of success": ("print('x')\nraise SystemExit", "", "x\n"),
}


@at_each_level
@pytest.mark.parametrize("name", KIND)
def test_ordinary_programs_run_and_run_alike(sandbox: Sandbox, name: str) -> None:
    program, given, printed = KIND[name]
    first, second = sandbox.run_many([Job(program, given), Job(program, given)])
    assert first.status is (Ending.FAILED if printed == "" else Ending.OK), first
    assert first.stdout == second.stdout
    assert printed is None or first.stdout == printed


@at_each_level
def test_results_are_in_the_order_of_the_jobs(sandbox: Sandbox) -> None:
    jobs = [Job("import time\ntime.sleep(int(input()) % 3 / 100)\nprint(input())", f"{9 - n}\n{n}") for n in range(10)]
    assert [result.stdout for result in sandbox.run_many(jobs)] == [f"{n}\n" for n in range(10)]
    assert [result.stdout for result in sandbox.run_many(["print(1)", "print(2)"])] == ["1\n", "2\n"]
    assert sandbox.run_many([]) == []


@at_each_level
def test_calls_return_plain_values(sandbox: Sandbox) -> None:
    echo = "def echo(*x): return x"
    given = (
        None,
        True,
        10**40,
        -0.5,
        float("inf"),
        "é\ud800",
        b"\0",
        [1, (2,)],
        {3, 4},
        frozenset({5}),
        {(6,): {}},
        1j,
    )
    result = sandbox.run(echo, task=Call("echo", given))
    assert result.ok and result.returned and result.value == given
    assert [type(one) for one in result.value] == [type(one) for one in given]
    method = sandbox.run("class Solution:\n    def f(self, x): return x + 1", task=Call("f", (1,)))
    assert method.value == 2
    assert sandbox.run("def f(): pass", task=Call("g")).status is Ending.FAILED
    odd = sandbox.run("class X(int):\n    def __eq__(self, other): return True\ndef f(): return X(3)", task=Call("f"))
    assert odd.value == 3 and type(odd.value) is int
    assert sandbox.run("def f(): return object()", task=Call("f")).status is Ending.FAILED
    assert sandbox.run("x = []\nx.append(x)\ndef f(): return x", task=Call("f")).status is Ending.FAILED


@at_each_level
def test_a_call_that_never_returns_has_no_value(sandbox: Sandbox) -> None:
    for program in ("import os\nos._exit(0)", "def f():\n    raise SystemExit(0)", "import sys\nsys.exit(0)"):
        result = sandbox.run(program, task=Call("f"))
        assert result.status is Ending.FAILED and not result.returned and result.value is None


@at_each_level
def test_limits_of_one_job_are_its_own(sandbox: Sandbox) -> None:
    small, large = Limits(output=10), Limits(output=1 << 20)
    program = "print('x' * 100_000)"
    assert sandbox.run(program, limits=small).stdout == "x" * 10
    assert sandbox.run(program, limits=small).status is Ending.OUTPUT
    assert len(sandbox.run(program, limits=large).stdout) == 100_001
    assert sandbox.run("print('x' * 9)", limits=small).ok  # exactly the limit


@at_each_level
def test_processes_are_refused_where_they_cannot_be_ended(sandbox: Sandbox) -> None:
    limits = Limits(processes=3)
    program = (
        "import os\npid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\n    print('parent')\nelse:\n    print('child')"
    )
    if sandbox.isolation == "namespaces":
        assert sandbox.run(program, limits=limits).stdout == "child\nparent\n"
    else:
        with pytest.raises(SandboxError, match="processes=3"):
            sandbox.run(program, limits=limits)


@at_each_level
def test_processes_work_together_where_they_are_allowed(sandbox: Sandbox) -> None:
    if sandbox.isolation != "namespaces":
        refused = sandbox.run("import os\nos.fork()")
        assert refused.status is Ending.FAILED and "PermissionError" in refused.text
        return
    program = (
        "import mmap, multiprocessing as m, os, fcntl\ncontext = m.get_context('fork')\nqueue = context.Queue()\n"
        "def f(n):\n    with context.Lock(): queue.put(n)\n    return n * n\n"
        "with context.Pool(2) as pool: print(pool.map(f, [1, 2, 3]))\nprint(sorted(queue.get() for _ in range(3)))\n"
        "held, file = mmap.mmap(-1, 4096), open('f', 'w')\nfcntl.lockf(file, fcntl.LOCK_EX)\nif os.fork() == 0:\n"
        "    try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n    except OSError: held[0] = 9\n    os._exit(0)\n"
        "os.wait()\nprint(held[0])"
    )
    result = sandbox.run(program, limits=Limits(processes=4, memory=1 << 30, seconds=60))
    assert result.stdout == "[1, 4, 9]\n[1, 2, 3]\n9\n", result


@at_each_level
def test_many_threads_share_a_sandbox(sandbox: Sandbox) -> None:
    def work(n: int) -> str:
        return sandbox.run("print(int(input()) ** 2)", str(n)).stdout

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(24))) == [f"{n * n}\n" for n in range(24)]


@at_each_level
def test_a_worker_that_dies_is_replaced_and_its_job_done_again(sandbox: Sandbox) -> None:
    with Sandbox(sandbox.config.model_copy(update={"workers": 1})) as one:
        assert one.run("print(1)").stdout == "1\n"
        (worker,) = one._started
        worker.process.kill()
        worker.process.wait()
        assert one.run("print(2)").stdout == "2\n"
        (second,) = one._started
        assert second is not worker
        timer = threading.Timer(0.3, second.process.kill)
        timer.start()
        result = one.run("import time\ntime.sleep(1)\nprint(3)")
        timer.join()
        assert result.ok and result.stdout == "3\n"
        assert len(one._started) == 1


@at_each_level
def test_a_sandbox_that_is_closed_starts_again(sandbox: Sandbox) -> None:
    one = Sandbox(sandbox.config.model_copy(update={"workers": 2}))
    assert one.run("print(1)").stdout == "1\n"
    one.close()
    one.close()
    assert not one._started
    assert one.run("print(2)").stdout == "2\n"
    one.close()


@at_each_level
def test_a_failure_of_the_sandbox_is_no_result_of_the_program(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Worker):
        def run(self, job: Job, limits: Limits) -> Any:
            raise WorkerFailure("the machine is on fire")

    monkeypatch.setattr(pool_module, "Worker", Broken)
    with Sandbox(sandbox.config.model_copy(update={"workers": 1})) as one:
        result = one.run("print(1)")
    assert result.status is Ending.ERROR and "on fire" in result.text and not result.ok


@at_each_level
def test_tests_that_cannot_run_are_an_error(sandbox: Sandbox) -> None:
    program = "class C: pass\ndef f(x): return x"
    for tests in (
        Checks(("assert f(1) == 1",), setup="import nothing_of_that_name"),
        Checks(("import sys\nassert f(sys)",)),
        Checks(("class A(C): pass\nassert A",)),
        Checks(("assert f(1 ==",)),
    ):
        assert sandbox.run(program, task=tests).status is Ending.ERROR


@at_each_level
def test_installed_packages_are_there_when_asked_for(sandbox: Sandbox) -> None:
    config = sandbox.config.model_copy(update={"workers": 1, "preload": ["numpy"], "memory_mb": 4096})
    with Sandbox(config) as one:
        result = one.run("import numpy as np\ndef f(x): return np.arange(x) + np.float64(0.5)", task=Call("f", (2,)))
        assert result.value == [0.5, 1.5], result
    missing = sandbox.config.model_copy(update={"workers": 1, "preload": ["no_such_package"]})
    with Sandbox(missing) as one:
        result = one.run("1")
        assert result.status is Ending.ERROR and "no_such_package" in result.text
