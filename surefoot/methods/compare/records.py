"""Reading what an experiment's runs wrote: ``finished.jsonl``, and the logs of a finished run, checked line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, create_model

from surefoot.errors import DataError, RunFolderError
from surefoot.training.lines import Amount, Count, Evaluated, Line, Metrics, Number, Timing, by_step, checked_lines

COURSES = (
    "reward/correct", "rollout/entropy", "policy/entropy", "length/mean", "length/right", "length/wrong", "length/truncated",
    "groups/no_signal", "optimiser/grad_norm",
)  # fmt: skip
"""Metrics of training that are shown for every arm."""


class Finished(Line):
    """Of ``finished.jsonl``."""

    task: str
    arm: str
    seed: int
    digest: str
    steps: Count
    cpu_seconds: Amount


class Compared(Evaluated):
    """An evaluation that can be compared, problem by problem."""

    samples: int = Field(ge=1)
    right: list[Count] = Field(min_length=1)


_course = {f"course_{i}": (Number | None, Field(None, alias=name)) for i, name in enumerate(COURSES)}
_KINDS: dict[str, Any] = {
    "evaluations": Compared,
    "metrics": create_model("Course", __base__=Metrics, **_course),  # type: ignore[call-overload]
    "timings": Timing,
}


@dataclass(frozen=True)
class RunRecord:
    """A finished run, as far as a comparison needs it.

    Attributes:
        evaluations: lines of ``evaluations.jsonl``, by step.
        metrics: lines of ``metrics.jsonl``, by step.
        timings: lines of ``timings.jsonl``, by step.
        line: of ``finished.jsonl``.
    """

    evaluations: Sequence[Mapping[str, Any]]
    metrics: Sequence[Mapping[str, Any]]
    timings: Sequence[Mapping[str, Any]]
    line: Mapping[str, Any]

    @property
    def right(self) -> np.ndarray:
        """[P] int64, right samples of each held-out problem at the end."""
        return np.asarray(self.evaluations[-1]["right"], dtype=np.int64)

    @property
    def samples(self) -> int:
        return int(self.evaluations[-1]["samples"])

    @property
    def problems(self) -> str:
        """Which held-out problems they were."""
        return str(self.evaluations[-1].get("set", ""))

    def spent(self, name: str, step: int) -> float:
        """The sum of a column of the timings up to a step."""
        return float(sum(record.get(name, 0) for record in self.timings if record["step"] <= step))

    def flops(self, step: int) -> float:
        """Estimated operations of generation, passes and updates, up to a step."""
        return float(sum(record.get("compute/flops", 0.0) for record in self.metrics if record["step"] <= step))

    def seconds(self, step: int) -> float:
        """Seconds of all phases but the evaluations, up to a step."""
        return float(
            sum(
                value
                for record in self.timings
                if record["step"] <= step
                for name, value in record.items()
                if name not in ("step", "evaluate") and not name.startswith("tokens_")
            )
        )


def finished_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of ``finished.jsonl``; none where there is no file yet.

    Raises:
        RunFolderError: a line is damaged.
    """
    remedy = "remove that line, and run 'surefoot compare' again: it writes the line anew from the run's folder"
    return checked_lines(path, Finished, remedy)


def read_run_record(folder: Path, line: Mapping[str, Any]) -> RunRecord:
    """The logs of a finished run.

    Args:
        folder: of the run.
        line: its line of ``finished.jsonl``.

    Raises:
        DataError: they are damaged, or not those of a finished run.
    """
    remedy = f"remove the folder {folder}, and its line in finished.jsonl, and run it again"
    try:
        evaluations, metrics, timings = (
            by_step(checked_lines(folder / f"{name}.jsonl", kind, remedy)) for name, kind in _KINDS.items()
        )
    except RunFolderError as error:
        raise DataError(str(error)) from None
    done = metrics[-1]["step"] if metrics else 0
    why = _unfinished(evaluations, metrics, timings)
    if not why and done != line["steps"]:
        why = f"has {done} steps, and its line in finished.jsonl says {line['steps']}"
    if why:
        raise DataError(f"the run {folder} {why}: {remedy}")
    return RunRecord(evaluations, metrics, timings, line)


def _unfinished(
    evaluations: Sequence[Mapping[str, Any]], metrics: Sequence[Mapping[str, Any]], timings: Sequence[Mapping[str, Any]]
) -> str:
    """Why these are not the logs of a finished run; "" where they are."""
    if not evaluations:
        return "has no evaluations (evaluations.jsonl)"
    evaluated, trained = evaluations[-1]["step"], metrics[-1]["step"] if metrics else 0  # a budget may end a run early
    if evaluated != trained:
        return f"was evaluated last after step {evaluated}, and has {trained} steps"
    steps = [record["step"] for record in evaluations]
    if steps[0] != 0 or len(set(steps)) < len(steps):
        return (
            f"has evaluations after the steps {_some(steps)}, expected one of each step, from 0 on (evaluations.jsonl)"
        )
    for name, records in (("metrics", metrics), ("timings", timings)):
        found = [record["step"] for record in records]
        if found != list(range(1, trained + 1)):
            return f"has {name}.jsonl with the steps {_some(found) or 'none'}, expected each from 1 to {trained} once"
    for record in evaluations:
        if max(record["right"]) > record["samples"]:
            return f"has an evaluation after step {record['step']} that does not count right samples of each problem"
        if len(record["right"]) != len(evaluations[-1]["right"]) or record.get("set") != evaluations[-1].get("set"):
            return f"was evaluated after step {record['step']} on other problems than at the end"
    return ""


def _some(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps[:8])) + (", ..." if len(steps) > 8 else "")
