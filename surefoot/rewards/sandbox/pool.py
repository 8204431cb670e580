"""The sandbox: a pool of warm workers behind one method."""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from surefoot.errors import SandboxError
from surefoot.rewards.sandbox.backends import backend
from surefoot.rewards.sandbox.config import SandboxConfig
from surefoot.rewards.sandbox.levels import choose
from surefoot.rewards.sandbox.limits import Limits
from surefoot.rewards.sandbox.results import Call, Checks, Ending, Job, Result
from surefoot.rewards.sandbox.worker import Worker, WorkerFailure

ATTEMPTS = 2  # a job whose worker fails is given to another once


class Sandbox:
    """Runs programs that a model wrote, each in a process of its own, as many at once as there are workers.

    Usable from several threads. Workers start with the first jobs, and one that fails is replaced.

    Args:
        config: level, number of workers, limits; the defaults where it is left out.

    Raises:
        SandboxError: the level cannot be had on this machine.
    """

    def __init__(self, config: SandboxConfig | None = None, **options: Any) -> None:
        self.config = config or SandboxConfig(**options)
        self.isolation = choose(self.config)
        self.limits = self.config.limits()
        self.workers = self.config.workers or len(os.sched_getaffinity(0))
        self._free: queue.LifoQueue[Worker | None] = queue.LifoQueue()
        self._started: set[Worker] = set()
        self._lock = threading.Lock()
        for _ in range(self.workers):
            self._free.put(None)
        self._finalizer = weakref.finalize(self, _close_all, self._started)

    def run(
        self,
        program: str,
        stdin: str | bytes = "",
        *,
        task: Call | Checks | None = None,
        prelude: str = "",
        limits: Limits | None = None,
    ) -> Result:
        """Run one program; see :class:`~surefoot.rewards.sandbox.results.Job` for the arguments.

        Returns:
            The result. Its status is ``Ending.ERROR`` where the sandbox itself failed, twice.
        """
        return self.run_job(Job(program, stdin, task, prelude, limits))

    def run_many(self, jobs: Iterable[Job | str]) -> list[Result]:
        """Run programs side by side; the results are in the order of the jobs."""
        made = [job if isinstance(job, Job) else Job(job) for job in jobs]
        with ThreadPoolExecutor(self.workers) as threads:
            return list(threads.map(self.run_job, made))

    def run_job(self, job: Job) -> Result:
        """Run one job on the next worker that is free."""
        limits = job.limits or self.limits
        if limits.processes > 1 and self.isolation != "namespaces":
            raise SandboxError(
                f"Limits(processes={limits.processes}) needs the level 'namespaces', not '{self.isolation}'"
            )
        text = ""
        for _ in range(ATTEMPTS):
            worker = self._free.get()
            try:
                worker = worker or self._start()
                return worker.run(job, limits)
            except WorkerFailure as failure:
                text = str(failure)
                self._drop(worker)
                worker = None
            except BaseException:  # an interrupt between the job and its reply
                self._drop(worker)
                worker = None
                raise
            finally:
                self._free.put(worker)
        return Result(Ending.ERROR, text=text)

    def close(self) -> None:
        """End all workers. The sandbox may be used again; it then starts new ones."""
        with self._lock:
            workers = list(self._started)
            self._started.clear()
        held: Sequence[Worker | None] = [self._free.get() for _ in range(self.workers)]  # wait for running jobs
        for worker in workers:
            worker.close()
        for _ in held:
            self._free.put(None)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> Worker:
        worker = Worker(backend(self.isolation, self.config))
        with self._lock:
            self._started.add(worker)
        return worker

    def _drop(self, worker: Worker | None) -> None:
        if worker is not None:
            with self._lock:
                self._started.discard(worker)
            worker.close()


def _close_all(workers: set[Worker]) -> None:
    for worker in list(workers):
        worker.close()


def shared(config: SandboxConfig) -> Sandbox:
    """The sandbox of this configuration that all of this process use; it lives as long as the process."""
    key = config.model_dump_json()
    with _shared_lock:
        if key not in _shared:
            _shared[key] = Sandbox(config)
        return _shared[key]


_shared: dict[str, Sandbox] = {}
_shared_lock = threading.Lock()
