"""The limits and walls of one process, put up by itself before it reads a line that a model wrote."""

from __future__ import annotations

import fcntl
import math
import os
import resource
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from . import filter, kernel, landlock, root, stand_ins

Limits = Mapping[str, Any]
FILES = 64  # open at once: each may have a buffer in the kernel, which no other limit counts
SIGNALS = 64  # waiting, and timers
STACK = 64 << 20


def arrange(wanted: Sequence[int]) -> None:
    """Make ``wanted[n]`` file descriptor n, and close every other."""
    out_of_the_way = [fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in wanted]
    for number, fd in enumerate(out_of_the_way):
        os.dup2(fd, number)
    os.closerange(len(wanted), 1 << 16)


def confine(spec: Mapping[str, Any], limits: Limits, folder: str, writable: Sequence[str]) -> None:
    """Confine this process: a session and a folder of its own, limits, and the walls that ``spec`` names.

    Raises:
        OSError: a wall that cannot be put up; nothing may run then.
    """
    os.setsid()
    os.umask(0o077)
    os.environ.clear()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the zygote ignores it
    alone = bool(spec["namespaces"])
    if spec.get("become_nobody"):
        root.become_nobody()
        alone = True
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    os.chdir(folder)
    set_limits(limits, alone)
    if not spec["filter"]:
        return
    # Closed to its own user, or, with Landlock against other programs, open to the supervisor that counts what it holds.
    kernel.prctl(kernel.PR_SET_DUMPABLE, int(bool(spec["landlock"] and writable)))
    if spec["landlock"]:
        landlock.restrict([*spec["readable"], "/dev/urandom"], [*writable, "/dev/null"])
    kernel.drop_capabilities()
    stand_ins.forks = limits["processes"] > 1
    filter.install(forks=stand_ins.forks, own_world=bool(spec["namespaces"]), sockets=bool(spec["sockets"]))


def set_limits(limits: Limits, alone: bool) -> None:
    """The limits of the kernel; ``alone``: no other process of the machine counts under this user."""
    cpu = math.ceil(limits["cpu_seconds"])
    wanted = [
        (resource.RLIMIT_CORE, 1, 1),  # at 0 a memory image is still piped to a program that collects them
        (resource.RLIMIT_CPU, cpu, cpu + 1),
        (resource.RLIMIT_FSIZE, limits["disk"], limits["disk"]),
        (resource.RLIMIT_NOFILE, FILES, FILES),
        (resource.RLIMIT_AS, *2 * (limits["memory"] // limits["processes"],)),
        (resource.RLIMIT_STACK, STACK, STACK),
        (resource.RLIMIT_SIGPENDING, SIGNALS, SIGNALS),
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_MSGQUEUE, 0, 0),
    ]
    if alone:
        # The zygote, its parent and the supervisor, and perhaps the tests, count under the same user.
        tasks = limits["processes"] + limits["threads"] + 4
        wanted.append((resource.RLIMIT_NPROC, tasks, tasks))
    for kind, soft, hard in wanted:
        ceiling = resource.getrlimit(kind)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(kind, (soft, hard))
