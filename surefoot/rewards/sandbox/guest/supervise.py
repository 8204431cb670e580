"""One job: the supervisor forks the program (and the tests), watches them, ends them, and reports.

The supervisor is forked from the zygote for each job and reads the job itself, after it has forked the others: the
program's memory holds nothing of this job but its own source, and nothing of any other. Where there are namespaces the
supervisor is process 1 of the program's own, so that ending everything is one call and signals from inside do not
reach it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import checker, confine, folder, held, kernel, program, root
from .frames import LARGEST, Closed, read_exactly, read_frame, write_frame

TICK = 0.05  # seconds between two looks at how full the folder is
READY = b"r"


@dataclass
class Child:
    """A confined process that waits for its job."""

    pid: int
    job: int  # file descriptor that its job is written to
    watch: int  # pidfd


@dataclass
class Watch:
    """What is known of a running job."""

    limits: Mapping[str, Any]
    outputs: dict[int, tuple[str, bytearray]]
    outcome: str = ""
    stdin: bytes = b""
    stdin_fd: int = -1
    closed: set[int] = field(default_factory=set)


def run(inlet: int, outlet: int, spec: Mapping[str, Any]) -> None:
    """Read a job from ``inlet``, do it, and write the reply to ``outlet``."""
    header = read_frame(inlet)
    limits, with_tests = header["limits"], header["mode"] == "tests"
    place = _place(spec, limits)
    children: list[Child] = []
    try:
        ends = {name: os.pipe() for name in ("stdin", "stdout", "stderr", "report", "verdict", "calls", "returns")}
        null = os.open("/dev/null", os.O_RDWR)

        def files(*wanted: tuple[str, int]) -> list[int]:
            return [ends[name][side] for name, side in wanted]

        standard = files(("stdin", 0), ("stdout", 1), ("stderr", 1))
        running = _fork(
            program.main,
            standard,
            files(("report", 1), ("calls", 0), ("returns", 1)),
            lambda: confine.confine(spec, limits, place, [place]),
        )
        children.append(running)
        if with_tests:
            own = {**limits, "processes": 1}
            rest = files(("verdict", 1), ("calls", 1), ("returns", 0))
            # Its folder is the root: nothing that the program writes is where the tests look for modules.
            children.append(_fork(checker.main, [null] * 3, rest, lambda: confine.confine(spec, own, "/", [])))
        for name in ("stdin", "stdout", "stderr", "report", "verdict"):
            os.close(ends[name][0 if name == "stdin" else 1])
        for name in ("calls", "returns"):
            os.close(ends[name][0])
            os.close(ends[name][1])
        _await(children, ends)
        job = read_frame(inlet)  # only now: the children's memory was copied before
        write_frame(running.job, {"mode": header["mode"], **job["program"]})
        os.close(running.job)
        if with_tests:
            write_frame(children[1].job, job["tests"])
            os.close(children[1].job)
        outputs = {ends[name][0]: (name, bytearray()) for name in ("stdout", "stderr", "report", "verdict")}
        watch = Watch(limits, outputs, stdin=job["stdin"].encode("latin-1"), stdin_fd=ends["stdin"][1])
        reply = _watch(watch, children, inlet, spec, place)
    finally:
        _end_all(spec, children)
        if not spec["namespaces"]:
            with contextlib.suppress(OSError):  # what resists goes with the worker's folder
                folder.remove(place)
    write_frame(outlet, reply)


def _place(spec: Mapping[str, Any], limits: Mapping[str, Any]) -> str:
    """The program's temporary folder, empty."""
    if spec["namespaces"]:
        root.fresh_tmp(limits["disk"], limits["entries"])
        return "/tmp"
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    place = os.path.join(spec["folder"], os.urandom(16).hex())
    os.mkdir(place, 0o777)
    os.chmod(place, 0o777)  # the program may be another user; the folder above is closed to others
    return place


def _fork(main: Callable[[], Any], standard: list[int], rest: list[int], confined: Callable[[], None]) -> Child:
    """A process that confines itself and then runs ``main``, its job on descriptor 3 and ``rest`` after it."""
    job_end, job = os.pipe()
    pid = os.fork()
    if pid:
        os.close(job_end)
        return Child(pid, job, os.pidfd_open(pid))
    try:
        confine.arrange([*standard, job_end, *rest])
        confined()
        os.write(4, READY)
    except BaseException:
        os.write(4, traceback.format_exc().encode())
        os._exit(1)
    try:
        main()
    finally:
        os._exit(1)


def _await(children: list[Child], ends: Mapping[str, tuple[int, int]]) -> None:
    """Wait until the walls stand.

    Raises:
        RuntimeError: a process could not confine itself.
    """
    for name, _ in zip(("report", "verdict"), children, strict=False):
        first = read_exactly(ends[name][0], 1)
        if first != READY:
            rest = os.read(ends[name][0], 8192)
            raise RuntimeError("the program could not be confined: " + (first + rest).decode(errors="replace"))


def _watch(watch: Watch, children: list[Child], inlet: int, spec: Mapping[str, Any], place: str) -> dict[str, Any]:
    look = _excess if not spec["namespaces"] else _crowd if watch.limits["processes"] > 1 else None
    began = time.monotonic()
    deadline = began + watch.limits["seconds"]
    poll = select.poll()
    for fd in watch.outputs:
        os.set_blocking(fd, False)
        poll.register(fd, select.POLLIN)
    poll.register(children[-1].watch, select.POLLIN)
    poll.register(inlet, 0)
    os.set_blocking(watch.stdin_fd, False)
    poll.register(watch.stdin_fd, select.POLLOUT)
    ended = False
    while not ended and not watch.outcome:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            watch.outcome = "timeout"
            break
        wait = remaining if look is None else min(remaining, TICK)
        for fd, _ in poll.poll(wait * 1000):
            if fd == inlet:
                raise Closed("nobody waits for the reply")
            elif fd == children[-1].watch:
                ended = True
            elif fd == watch.stdin_fd:
                _feed(watch, poll)
            elif not _drain(watch, fd):
                poll.unregister(fd)
        if look is not None and not watch.outcome:
            watch.outcome = look(watch.limits, spec, children, place)
    seconds = time.monotonic() - began
    return _settle(watch, children[0], seconds, watch.outcome == "timeout")


def _crowd(limits: Mapping[str, Any], spec: Mapping[str, Any], children: list[Child], place: str) -> str:
    """Whether there are too many processes: the kernel counts them together with threads."""
    others = len(children) - 1  # the tests
    return "processes" if root.living_below(spec["proc"]) > limits["processes"] + others else ""


def _excess(limits: Mapping[str, Any], spec: Mapping[str, Any], children: list[Child], place: str) -> str:
    """The limit that is exceeded, of those that the kernel does not count here."""
    pid = children[0].pid
    with held.stopped(pid) as alive:
        if not alive:
            return ""
        try:
            size, entries = folder.used(place, limits["entries"])
            if spec["landlock"] or not spec["filter"]:
                size += held.deleted(pid, place, limits["disk"])
            threads = len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):  # the kernel has ended it meanwhile
                return ""
            raise
    if size > limits["disk"] or entries > limits["entries"]:
        return "disk"
    return "threads" if threads > limits["threads"] + 1 else ""


def _settle(watch: Watch, running: Child, seconds: float, late: bool) -> dict[str, Any]:
    """End the program, read what is left in the pipes, and say how it went."""
    if late or watch.outcome:
        os.kill(running.pid, signal.SIGKILL)
    _stop_others(running)
    _, status, usage = os.wait4(running.pid, 0)
    for fd in watch.outputs:
        _drain(watch, fd, everything=True)
    code = os.waitstatus_to_exitcode(status)
    texts = {name: bytes(text).decode("latin-1") for name, text in watch.outputs.values()}
    cpu = usage.ru_utime + usage.ru_stime
    return {"outcome": watch.outcome or "exited", "code": code, "seconds": seconds, "cpu": cpu, **texts}


def _stop_others(running: Child) -> None:
    """What the program has left behind must not hold its pipes open; the program itself has ended or is ending."""
    if os.getpid() == 1:
        os.kill(-1, signal.SIGKILL)
    else:
        _kill_group(running.pid)


def _drain(watch: Watch, fd: int, everything: bool = False) -> bool:
    """Read what there is, up to the limit; beyond it the program is ended. False at the end of the file."""
    name, held = watch.outputs[fd]
    limit = watch.limits["output"] if name != "verdict" else LARGEST
    while fd not in watch.closed:
        try:
            part = os.read(fd, 1 << 16)
        except BlockingIOError:
            return True
        if not part:
            watch.closed.add(fd)
            break
        room = limit - len(held)
        held += part[:room]
        if len(part) > room:
            watch.outcome = watch.outcome or "output"
            if not everything:
                return True
            watch.closed.add(fd)
    return False


def _feed(watch: Watch, poll: select.poll) -> None:
    """Write what the pipe takes of the standard input; close it at the end, or where the program has closed it."""
    try:
        while watch.stdin:
            watch.stdin = watch.stdin[os.write(watch.stdin_fd, watch.stdin[: 1 << 16]) :]
    except BlockingIOError:
        return
    except OSError:
        pass
    poll.unregister(watch.stdin_fd)
    os.close(watch.stdin_fd)


def _kill_group(pid: int) -> None:
    for end in (os.killpg, os.kill):
        try:
            end(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _end_all(spec: Mapping[str, Any], children: list[Child]) -> None:
    """Nothing that the job started outlives it."""
    if spec["namespaces"]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        return
    for child in children:
        _kill_group(child.pid)
    for _ in range(1000):
        try:
            for orphan in _orphans():
                _kill_group(orphan)
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.001)
        except ChildProcessError:
            return


def _orphans() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []
