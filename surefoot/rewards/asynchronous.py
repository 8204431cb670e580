"""Coroutines as rewards: many completions at once on one event loop, each with a deadline of its own.

The loop runs in one thread for the whole process. A call that is late is cancelled and its sample marked
``Status.TIMEOUT``; one that does not let itself be cancelled is left behind and waited for no longer. Waiting for a place
among the calls that may run at once takes nothing from the deadline. What a coroutine must not do is block (``time.sleep``,
a long computation): the loop stands still meanwhile, for all other calls too.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """How coroutines are called.

    Attributes:
        concurrency: calls of one reward that run at once.
        deadline: seconds that a call may take.
    """

    concurrency: int = 32
    deadline: float = 60.0


DEFAULT = Limits()


class LateError(Exception):
    """A call took longer than its deadline, or gave itself up."""


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine; also for an object with an async ``__call__``, and behind ``partial``."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


@dataclass
class Caller:
    """Calls coroutines of one reward within its limits, from any thread."""

    limits: Limits
    _places: asyncio.Semaphore | None = field(default=None, repr=False)

    def all(self, calls: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
        """The result of every call, in order; the exception of one that raised, :class:`LateError` of one that was late."""
        return run(self._all(calls))

    async def _all(self, calls: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
        return list(await asyncio.gather(*(self._one(call) for call in calls)))

    async def _one(self, call: Callable[[], Awaitable[Any]]) -> Any:
        if self._places is None:  # made on the loop, where nothing comes between the question and the answer
            self._places = asyncio.Semaphore(self.limits.concurrency)
        async with self._places:
            task = asyncio.ensure_future(_awaited(call))
            try:
                await asyncio.wait({task}, timeout=self.limits.deadline)
            finally:
                task.cancel()  # does nothing to one that is done
        if not task.done():
            task.add_done_callback(forget)
            return LateError(f"no result within {self.limits.deadline:g} s")
        if task.cancelled():
            return LateError("the call cancelled itself")
        raised = task.exception()
        return task.result() if raised is None else raised


async def _awaited(call: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await call()
    except (KeyboardInterrupt, SystemExit) as error:  # would end the loop and every call on it
        raise RuntimeError(f"the reward called for the end of the program ({type(error).__name__})") from error


def forget(task: asyncio.Future[Any]) -> None:
    """Take note of how an abandoned call ended, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop and wait for it, from any other thread."""
    future = asyncio.run_coroutine_threadsafe(coroutine, _loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


_lock = threading.Lock()


def _loop() -> asyncio.AbstractEventLoop:
    with _lock:
        return _started(os.getpid())  # a forked process has no thread that runs the loop of its parent


@functools.cache
def _started(process: int) -> asyncio.AbstractEventLoop:
    loop, over = asyncio.new_event_loop(), threading.Event()

    def turn() -> None:
        while not over.is_set():  # a coroutine can stop the loop, and every other call would wait for ever
            loop.run_forever()

    thread = threading.Thread(target=turn, name="surefoot-rewards", daemon=True)
    thread.start()

    def stop() -> None:
        async def cancel() -> None:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)  # a turn for them to end

        with contextlib.suppress(Exception):  # a loop that somebody blocks
            asyncio.run_coroutine_threadsafe(cancel(), loop).result(timeout=1.0)
        over.set()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=1.0)

    atexit.register(stop)
    return loop
