"""Worker processes that each have one item at a time, and stop at once.

Nothing waits in a queue of theirs, so that Ctrl-C ends them all and a worker that dies takes only its own item with it: that
item is tried once more, when no other runs beside it (the usual cause is memory), and then given up.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from surefoot.errors import SurefootError

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PATIENCE = 5.0  # seconds that a worker has to end before it is killed

T = TypeVar("T")
Each = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[tuple[Any, Any, str]]]
"""Of work and items: each item with what the work gave, or with None and what went wrong, as soon as it is there."""


@contextmanager
def workers(number: int) -> Iterator[Each]:
    """A context with what does work for items, ``number`` at a time; one at a time in this process.

    Work and items travel between processes, so both can be pickled. An exception of the work is an outcome, Ctrl-C is none.
    """
    if number == 1:
        yield _here
        return
    pool = Workers(number)
    try:
        yield pool.each
    finally:
        pool.stop()


def _here(work: Callable[[T], Any], items: Sequence[T]) -> Iterator[tuple[T, Any, str]]:
    for item in items:
        yield (item, *attempt(work, item))


def attempt(work: Callable[[T], Any], item: T) -> tuple[Any, str]:
    """What the work gives and "", or None and what went wrong: a message for a person, the traceback of a defect."""
    try:
        return work(item), ""
    except SurefootError as error:
        return None, str(error)
    except Exception as error:
        return None, "".join(traceback.format_exception(error)).strip()


@dataclass(frozen=True)
class Worker:
    """A process and the line to it."""

    process: BaseProcess
    line: Connection


class Workers:
    """At most ``number`` processes, started as they are needed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.every: list[Worker] = []
        self.idle: list[Worker] = []

    def each(self, work: Callable[[T], Any], items: Sequence[T]) -> Iterator[tuple[T, Any, str]]:
        """See :data:`Each`."""
        busy: dict[Connection, tuple[Worker, T]] = {}
        waiting = deque(items)
        again: deque[T] = deque()
        tried: list[T] = []

        def begin(item: T) -> None:
            if not self.idle:
                self._start()
            worker = self.idle.pop()
            busy[worker.line] = worker, item
            with suppress(OSError):  # of one that died in the meantime its end is read below
                worker.line.send((work, item))

        while waiting or again or busy:
            while waiting and len(busy) < self.number:
                begin(waiting.popleft())
            if again and not busy:
                tried.append(again.popleft())
                begin(tried[-1])
            for line in wait(list(busy)):
                assert isinstance(line, Connection)
                worker, item = busy.pop(line)
                try:
                    result, trouble = line.recv()
                except (EOFError, OSError):
                    self.every.remove(worker)
                    how = _end(worker)
                    if item in tried:
                        yield item, None, f"its process was ended twice, {how}: where memory is short, set fewer 'jobs'"
                    else:
                        again.append(item)
                    continue
                self.idle.append(worker)
                yield item, result, trouble

    def stop(self) -> None:
        """End all processes, whatever they are at."""
        for worker in self.every:
            worker.process.terminate()
        for worker in self.every:
            _end(worker)
        self.every, self.idle = [], []

    def _start(self) -> None:
        """One more process, which computes with one thread, and which Ctrl-C does not reach: its command ends it."""
        context = get_context("spawn")
        line, its = context.Pipe()
        worker = Worker(context.Process(target=_serve, args=(its,)), line)
        before = {name: os.environ.get(name) for name in THREADS}
        os.environ.update(dict.fromkeys(THREADS, "1"))
        resource_tracker.ensure_running()  # which would unblock the signal if it had to start below
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited, from the first moment on
        try:
            worker.process.start()
            self.every.append(worker)
            self.idle.append(worker)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
        its.close()


def _end(worker: Worker) -> str:
    """Wait for a worker that is ending, and say how it ended."""
    worker.process.join(PATIENCE)
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join()
    worker.line.close()
    code = worker.process.exitcode or 0
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with the exit code {code}"


def _serve(line: Connection) -> None:
    end_with_parent()
    while True:
        try:
            work, item = line.recv()
        except EOFError:
            return
        line.send(attempt(work, item))


def end_with_parent() -> None:
    """A worker whose command was killed would otherwise finish its run and then wait for ever."""

    def watch(parent: BaseProcess) -> None:
        parent.join()
        os._exit(1)

    parent = parent_process()
    if parent is not None:
        threading.Thread(target=watch, args=(parent,), daemon=True).start()
