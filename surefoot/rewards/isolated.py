"""A plain function in worker processes: whatever it does, its deadline is kept and no other sample is touched.

A function in the trainer's own process cannot be ended from outside: one that never returns holds the run for ever. Here
each completion is a job for a process of its own kind (:mod:`surefoot.rewards.workers`), which is killed when it is late.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from surefoot.errors import RewardError
from surefoot.rewards.asynchronous import LateError
from surefoot.rewards.base import Completion
from surefoot.rewards.functions import name_of, scores_of
from surefoot.rewards.workers import Outcome, WorkerPool
from surefoot.types import Score


@dataclass(frozen=True)
class Isolated:
    """``(prompt, completion, answer) -> number`` as a reward, called in worker processes.

    A worker imports the function by its name, so it stands at the top level of a module that can be imported (not in the
    script that is run, not inside another function). What goes in and out is what JSON can hold.

    Attributes:
        function: takes the prompt's text, the completion and the gold answer; gives a number, a bool or None.
        deadline: seconds for one completion.
        workers: processes; 0: one per core, at most 8.
        memory: MiB of address space of each; 0: no limit.

    Raises:
        RewardError: a function that no other process can import.
    """

    function: Callable[[str, str, Any], Any]
    deadline: float = 5.0
    workers: int = 0
    memory: int = 0
    threads: int = 1
    pool: WorkerPool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        module, name = self.function.__module__, self.function.__qualname__
        if module == "__main__" or getattr(importlib.import_module(module), name, None) is not self.function:
            raise RewardError(
                f"the reward '{name}' of {module} cannot be imported by a worker process: put it at the top level of a module"
            )
        pool = WorkerPool([module], workers=self.workers or None, deadline=self.deadline, memory=self.memory)
        object.__setattr__(self, "pool", pool)

    @property
    def name(self) -> str:
        return name_of(self.function)

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        jobs = [(item.prompt.text, item.text, item.prompt.answer) for item in completions]
        try:
            json.dumps(jobs)
        except (TypeError, ValueError) as error:
            raise RewardError(
                f"a gold answer cannot be sent to the worker of the reward '{self.name}': {error}"
            ) from error
        function = f"{self.function.__module__}:{self.function.__qualname__}"
        return scores_of(self.name, [_result(outcome) for outcome in self.pool.run(function, jobs)])


class WorkerFailedError(Exception):
    """The function raised, or its process ended."""

    def __str__(self) -> str:
        return str(self.args[0])


def _result(outcome: Outcome) -> Any:
    if outcome.status == "ok":
        return outcome.value
    return LateError(outcome.text) if outcome.status == "timeout" else WorkerFailedError(outcome.text)
