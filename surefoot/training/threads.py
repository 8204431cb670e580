"""How many threads PyTorch computes with, and how they wait for one another.

Threads that share an operation wait for the slowest of them at its end, thousands of times a step. Where another
process has one of the cores, the slowest is the one that has to wait for its turn there, and the others spin: two
threads were then many times slower than one (docs/performance.md). So a run takes as many threads as there are cores that
nobody else computes on, of those that it may use (affinity, the quota of its control group).

This module imports PyTorch only where it sets something, so that :func:`wait_passively` can come before it.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path

GIVEN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # whoever sets one of these has chosen
WINDOW = 0.2  # seconds over which the load is measured: 20 ticks of a core's clock
BUSY = 0.25  # a core's share in others' work from which it does not count as free
PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Choice:
    """A number of threads, and why in words."""

    threads: int
    reason: str


class _Last:
    """What this module set last, and what it had found before: a program's own ``torch.set_num_threads`` is a ceiling."""

    threads, ceiling = 0, 0


def set_threads(threads: int, *, before: int | None = None) -> Choice:
    """Set the threads of PyTorch.

    Args:
        threads: that many; 0 chooses, see :func:`choose`.
        before: what the run had that is resumed now. Sums depend on the number of threads in their last digits, so that
            with another number the resumed run would not be the same bit for bit.
    """
    import torch

    current = torch.get_num_threads()
    if current != _Last.threads:
        _Last.ceiling = current
    choice = Choice(threads, "set") if threads else choose(_Last.ceiling, before=before)
    if current != choice.threads:
        torch.set_num_threads(choice.threads)
    _Last.threads = choice.threads
    return choice


def choose(ceiling: int, *, before: int | None = None, window: float = WINDOW) -> Choice:
    """As many threads as there are free cores, unless the environment or an earlier part of the run has decided.

    Takes ``window`` seconds, in which it sleeps.

    Args:
        ceiling: the number of threads that PyTorch has by itself, or that the program has set: never more than these.
        before: as in :func:`set_threads`.
    """
    for name in GIVEN:
        if os.environ.get(name):
            return Choice(ceiling, f"{name} = {os.environ[name]}")
    cores = allowed_cores()
    if before is not None and 1 <= before <= min(ceiling, cores):
        return Choice(before, "as when the run began")
    if ceiling == 1 or cores == 1:
        return Choice(1, "one core" if cores == 1 else "set by the program")
    free = free_cores(cores, window)
    reason = "all cores are free" if free == cores else f"{cores - free} of {cores} cores are at work for others"
    return Choice(min(free, ceiling), reason)


def recorded(run: Path) -> int | None:
    """The threads that a run folder's ``environment.json`` tells of, or None."""
    try:
        found = json.loads(_read(run / "environment.json") or "{}").get("threads")
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, int) else None


def free_cores(cores: int, window: float = WINDOW, proc: Path = PROC) -> int:
    """Of so many cores, the number on which nobody else computes, and 1 at the least."""
    return max(1, cores - max(0, math.ceil(busy_cores(window, proc) - BUSY)))


def allowed_cores(proc: Path = PROC, cgroup: Path = CGROUP) -> int:
    """Cores that this process may use: its affinity, or the quota of its control group where that is smaller.

    Hyper-threads are not told apart from cores: what matters here is who runs, not how fast.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = quota_cores(proc, cgroup)
    return max(1, cores if quota is None else min(cores, math.floor(quota + 1e-6)))


def quota_cores(proc: Path = PROC, cgroup: Path = CGROUP) -> float | None:
    """Cores' worth of time that control groups (version 2 or 1) allow; None where they set no limit."""
    found = []
    for line in _read(proc / "self" / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            bases, read = (cgroup, cgroup / "unified"), _quota
        elif "cpu" in controllers.split(","):
            bases, read = (cgroup / controllers, cgroup / "cpu"), _old_quota
        else:
            continue
        inner = Path(path.lstrip("/"))
        for base in bases:
            # A limit of any group above binds as well; inside a container the path may not be there, its root is.
            found += [read(base / place) for place in (inner, *inner.parents)]
    limits = [limit for limit in found if limit is not None]
    return min(limits) if limits else None


def _quota(folder: Path) -> float | None:
    words = _read(folder / "cpu.max").split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0] != "max" else None


def _old_quota(folder: Path) -> float | None:
    quota, period = _read(folder / "cpu.cfs_quota_us").strip(), _read(folder / "cpu.cfs_period_us").strip()
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def busy_cores(window: float = WINDOW, proc: Path = PROC) -> float:
    """Cores' worth of time that others took during the window, on the cores that this process may use.

    0 where the system does not tell. Time that a hypervisor took away counts as others'; time spent waiting for disks
    does not.
    """
    first, own = core_seconds(proc), time.process_time()
    begin = time.perf_counter()
    time.sleep(window)
    last = core_seconds(proc)
    took = time.perf_counter() - begin
    may = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(first)
    busy = sum(max(0.0, last[core] - first[core]) for core in first.keys() & last.keys() & may)
    return max(0.0, busy - (time.process_time() - own)) / took


def core_seconds(proc: Path = PROC) -> dict[int, float]:
    """Seconds that each core has worked since the machine started."""
    tick = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
    seconds = {}
    for line in _read(proc / "stat").splitlines():
        name, *counts = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and len(counts) >= 4:
            user, nice, system, _, *rest = (int(count) for count in counts[:8])
            seconds[int(name[3:])] = (user + nice + system + sum(rest[1:])) / tick
    return seconds


def wait_passively(environment: MutableMapping[str, str] = os.environ) -> bool:
    """Let threads that wait for others give their core away instead of spinning on it; what the user has set stays.

    OpenMP reads these variables when it is loaded, with PyTorch.

    Returns:
        Whether it can still have an effect.
    """
    early = "torch" not in sys.modules
    if early and not any(name in environment for name in ("GOMP_SPINCOUNT", "KMP_BLOCKTIME")):
        environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return early


def waiting(environment: MutableMapping[str, str] = os.environ) -> str:
    """How threads wait, in words."""
    for name in ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_WAIT_POLICY"):
        if name in environment:
            return f"{name} = {environment[name]}"
    return "they spin a while first"


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
