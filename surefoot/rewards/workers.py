"""Worker processes for grading that may hang, raise or eat memory: each job has a deadline, enforced from outside.

A worker is a fresh interpreter (never a fork, so threads of PyTorch do not matter) that imports named modules, answers
one job at a time and knows nothing else. Jobs and results are JSON, in frames of a length and a body over its pipes:
nothing that a worker sends is ever unpickled or evaluated. A job that passes its deadline is ended by SIGKILL and its
worker replaced; a limit on CPU time, set by the worker itself, ends it even where the parent is gone. A job whose
worker died without a deadline (killed by hand, or by the kernel for memory) is tried once more, and then is an error.

Importing this module is cheap, and neither it nor a worker imports PyTorch.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import selectors
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from surefoot.errors import RewardError
from surefoot.rewards.worker_handle import START_SECONDS, WorkerHandle

_TRIES = 2
_LOST_STARTS = 3


@dataclass(frozen=True)
class Outcome:
    """What became of one job.

    Attributes:
        status: "ok", "timeout" (the deadline passed) or "error" (it raised, ran out of memory, or its worker died).
        value: what the function returned, where the status is "ok".
        text: why there is no value.
        seconds: how long it took, measured inside the worker; the deadline where it passed.
    """

    status: str
    value: Any = None
    text: str = ""
    seconds: float = 0.0


class WorkerPool:
    """Processes that call functions by name.

    Args:
        modules: modules that a worker imports before its first job; the time that takes counts for no job.
        workers: processes; None for one per CPU this process may use, at most 8. They start when they are needed.
        deadline: seconds of wall time for each job, counted from when a worker got it.
        memory: MiB of address space of a worker; 0 for no limit.
        recycle: jobs after which a worker is replaced, so that nothing that a library keeps can grow for ever.

    A pool may be used by several threads, which take turns, and by a forked child, which starts workers of its own. It
    closes at exit, and workers end by themselves when their parent is gone.
    """

    def __init__(
        self,
        modules: Sequence[str] = (),
        *,
        workers: int | None = None,
        deadline: float = 5.0,
        memory: int = 1024,
        recycle: int = 5000,
    ):
        if (workers is not None and workers < 1) or deadline <= 0 or memory < 0 or recycle < 1:
            raise RewardError(
                f"a pool of workers={workers}, deadline={deadline}, memory={memory}, recycle={recycle}: expected at "
                f"least one worker, a positive deadline in seconds, memory in MiB or 0, and at least one job"
            )
        self.modules = tuple(modules)
        self.size = workers or min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
        self.deadline, self.memory, self.recycle = deadline, memory, recycle
        self._lock = threading.Lock()
        self._workers: list[WorkerHandle] = []
        _POOLS.add(self)

    def run(self, function: str, jobs: Sequence[Sequence[Any]], deadline: float | None = None) -> list[Outcome]:
        """Call ``function`` ("package.module:name") with each job's arguments, in any order and in parallel.

        Arguments and results are what JSON can hold (a tuple comes back as a list).

        Returns:
            One outcome per job, in the order of the jobs.

        Raises:
            RewardError: workers cannot be started.
        """
        if not jobs:
            return []
        with self._lock:
            batch = _Batch(self, function, jobs, deadline or self.deadline)
            try:
                return batch.run()
            finally:  # also on an interrupt: no worker may answer an old job later
                self._workers = [worker for worker in self._workers if not worker.stop_if_busy()]

    def processes(self) -> list[int]:
        """Process ids of the workers that are running."""
        return [worker.process.pid for worker in self._workers if worker.process.poll() is None]

    def close(self) -> None:
        """End the workers. The pool can be used again, and then starts new ones."""
        with self._lock:
            for worker in self._workers:
                worker.stop()
            self._workers = []

    def _forget(self) -> None:
        """In a forked child: the workers belong to the parent, and another thread may have held the lock."""
        self._lock, self._workers = threading.Lock(), []


@functools.cache
def shared_pool(modules: tuple[str, ...], workers: int = 0, memory: int = 1024) -> WorkerPool:
    """The one pool of this process with these properties; ``workers = 0`` is one per CPU, at most 8."""
    return WorkerPool(modules, workers=workers or None, memory=memory)


@dataclass
class _Batch:
    """One call of :meth:`WorkerPool.run`: hands out jobs, watches deadlines, collects outcomes."""

    pool: WorkerPool
    function: str
    jobs: Sequence[Sequence[Any]]
    deadline: float
    outcomes: list[Outcome | None] = field(init=False)
    waiting: deque[int] = field(init=False)
    tries: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.outcomes = [None] * len(self.jobs)
        self.waiting = deque(range(len(self.jobs)))
        self.tries = [0] * len(self.jobs)
        self.left = len(self.jobs)
        self.lost_starts = 0
        self.selector = selectors.DefaultSelector()

    def run(self) -> list[Outcome]:
        with self.selector:
            for worker in [w for w in self.pool._workers if w.process.poll() is not None]:
                self._drop(worker)
            for worker in self.pool._workers:
                self._watch(worker)
            while self.left:
                self._hire()
                self._hand_out()
                self._listen()
                self._enforce()
        return [outcome for outcome in self.outcomes if outcome is not None]

    def _watch(self, worker: WorkerHandle) -> None:
        self.selector.register(worker.stdout, selectors.EVENT_READ, worker)

    def _hire(self) -> None:
        """As many workers as jobs could use now."""
        wanted = min(self.pool.size, len(self.waiting) + sum(w.job is not None for w in self.pool._workers))
        while len(self.pool._workers) < wanted:
            worker = WorkerHandle(self.pool.modules, self.pool.memory)
            self.pool._workers.append(worker)
            self._watch(worker)

    def _hand_out(self) -> None:
        for worker in self.pool._workers:
            if worker.ready and worker.job is None and self.waiting:
                job = self.waiting.popleft()
                self.tries[job] += 1
                message = [self.function, list(self.jobs[job]), self.deadline]
                worker.give(job, json.dumps(message).encode(), self.deadline)
                if worker.outgoing:
                    self.selector.register(worker.stdin, selectors.EVENT_WRITE, worker)

    def _listen(self) -> None:
        ends = [w.until for w in self.pool._workers if w.job is not None or not w.ready]
        pause = max(0.0, min(ends) - time.monotonic()) if ends else 0.0
        for key, events in self.selector.select(pause):
            worker: WorkerHandle = key.data
            if worker not in self.pool._workers:  # dropped for an event before this one
                continue
            if events & selectors.EVENT_WRITE:
                worker.push()
                if not worker.outgoing:
                    self.selector.unregister(worker.stdin)
            else:
                self._receive(worker)

    def _receive(self, worker: WorkerHandle) -> None:
        messages = worker.pull()
        for message in messages or ():
            if not worker.ready:
                worker.ready = True
                if message[0] != "ready":
                    raise RewardError(f"a worker process could not import what it needs: {message[1]}")
            elif worker.job is not None:
                self._settle(worker.job, Outcome(message[0], message[1], message[2], message[3]))
                worker.job, worker.done = None, worker.done + 1
        if messages is None:
            self._buried(worker)
        elif worker.done >= self.pool.recycle and worker.job is None:
            self._drop(worker)

    def _buried(self, worker: WorkerHandle) -> None:
        """A worker that died: its job is tried once more."""
        code = worker.process.wait()
        job = worker.job
        self._drop(worker)
        if job is None:
            self.lost_starts += not worker.ready
            # One that was killed from outside says nothing of the next; one that ends by itself, or is killed each time, does.
            if not worker.ready and (code >= 0 or self.lost_starts > _LOST_STARTS):
                raise RewardError(f"a worker process ended while it started (exit code {code})")
        elif code == -signal.SIGXCPU:  # its own limit on CPU time
            self._settle(job, self._late())
        elif self.tries[job] < _TRIES:
            self.waiting.appendleft(job)
        else:
            self._settle(job, Outcome("error", None, f"its worker process ended (exit code {code})"))

    def _settle(self, job: int, outcome: Outcome) -> None:
        self.outcomes[job] = outcome
        self.left -= 1

    def _late(self) -> Outcome:
        return Outcome("timeout", None, f"not graded within {self.deadline:g} seconds", self.deadline)

    def _enforce(self) -> None:
        now = time.monotonic()
        for worker in list(self.pool._workers):
            if now < worker.until or (worker.ready and worker.job is None):
                continue
            if worker.job is not None:
                # An answer may lie in the pipe already where this process was late, not the worker.
                self._receive(worker)
                if worker not in self.pool._workers or worker.job is None:
                    continue
                self._settle(worker.job, self._late())
            else:
                raise RewardError(f"a worker process did not start within {START_SECONDS:g} seconds")
            self._drop(worker)

    def _drop(self, worker: WorkerHandle) -> None:
        for pipe in (worker.stdout, worker.stdin):
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(pipe)
        self.pool._workers.remove(worker)
        worker.stop()


_POOLS: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pool in list(_POOLS):
        pool.close()


def _forget_all() -> None:
    for pool in list(_POOLS):
        pool._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
