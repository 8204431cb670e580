"""Reading an experiment's folder, whatever state it is in."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from surefoot.errors import RunFolderError
from surefoot.report.differences import OWN, differences
from surefoot.report.reading import Record, RunFiles, parse, read_records, read_run, read_text
from surefoot.training.places import COMPARISON, is_experiment

__all__ = ["ExperimentFiles", "RunState", "arm_differences", "is_experiment", "read_experiment", "tally"]

_PER_SEED = (*OWN, "seed", "model.path", "model.seed", "train.threads", "task.name")


@dataclass(frozen=True)
class RunState:
    """One run of an experiment: where it lies, and how far it is."""

    task: str
    arm: str
    seed: str
    folder: Path
    steps: int
    planned: int | None
    finished: bool


@dataclass(frozen=True)
class ExperimentFiles:
    """What an experiment's folder holds.

    Attributes:
        folder: of the experiment.
        comparison: content of ``comparison.json``; empty where there is none that can be read.
        runs: all runs that were begun.
        gaps: a sentence for everything that is missing or was left out.
    """

    folder: Path
    comparison: Record
    runs: tuple[RunState, ...]
    gaps: tuple[str, ...]

    @property
    def name(self) -> str:
        name = self.comparison.get("name")
        return name if isinstance(name, str) and name else self.folder.resolve().name

    def examples(self) -> dict[str, RunFiles]:
        """For each arm the files of one of its runs: its card and its configuration are those of the arm."""
        found: dict[str, RunFiles] = {}
        order = {arm: i for i, arm in enumerate(self.comparison.get("arms", ()))}
        for run in sorted(self.runs, key=lambda run: order.get(run.arm, len(order))):
            if run.arm not in found:
                with suppress(RunFolderError):  # it has just begun
                    found[run.arm] = read_run(run.folder)
        return found


def read_experiment(folder: Path) -> ExperimentFiles:
    """Read an experiment's folder; nothing in it raises."""
    gaps: list[str] = []
    comparison: Record = {}
    if not (folder / COMPARISON).is_file():
        gaps.append("comparison.json is not there: no seed is finished for every arm yet.")
    else:
        found = parse(read_text(folder / COMPARISON))
        wrong = _wrong(found)
        if wrong:
            gaps.append(
                f"comparison.json is damaged or of another version ({wrong}): the table and its curves are left out; "
                "'surefoot compare EXPERIMENT.toml --show' writes it again."
            )
        else:
            comparison = found
    finished = read_records(folder / "finished.jsonl", gaps)
    done = {(str(line.get("task")), str(line.get("arm")), f"seed-{line.get('seed')}") for line in finished}
    runs = tuple(_state(path, done) for path in sorted((folder / "arms").glob("*/*/*")) if path.is_dir())
    return ExperimentFiles(folder, comparison, runs, tuple(gaps))


class _Comparison(BaseModel):
    """What every part of the page relies on; the rest is read where it is shown."""

    model_config = ConfigDict(strict=True, extra="allow")

    name: str
    baseline: str
    arms: list[str]
    tasks: list[str]
    seeds: list[int]
    seeds_planned: list[int] | None = None
    level: float
    controls: dict[str, str] = Field(default_factory=dict)
    results: dict[str, dict[str, dict[str, Any]]]
    pairs: dict[str, dict[str, Any]]


def _wrong(found: Any) -> str:
    """What is wrong with the content of ``comparison.json``; "" where nothing is."""
    try:
        _Comparison.model_validate(found)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        return ": ".join(
            [*(["'" + ".".join(map(str, problem["loc"])) + "'"] if problem["loc"] else []), problem["msg"]]
        )
    return ""


def arm_differences(examples: dict[str, RunFiles]) -> list[tuple[str, list[str]]]:
    """The settings in which the arms differ: (key, value of each arm)."""
    return differences({arm: files.config for arm, files in examples.items()}, _PER_SEED)


def tally(runs: Iterable[RunState]) -> tuple[int, int]:
    """How many runs are finished, and how many were begun."""
    states = [run.finished for run in runs]
    return sum(states), len(states)


def _state(path: Path, done: set[tuple[str, str, str]]) -> RunState:
    task, arm, seed = path.parts[-3:]
    steps, planned = 0, None
    try:
        files = read_run(path)
        steps = int(files.metrics[-1]["step"]) if files.metrics else 0
        wanted = files.setting("train.steps")
        planned = wanted if isinstance(wanted, int) else None
    except RunFolderError:  # an empty folder: the run has just begun
        pass
    return RunState(task, arm, seed, path, steps, planned, (task, arm, seed) in done)
