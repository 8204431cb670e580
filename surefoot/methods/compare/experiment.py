"""An experiment: arms x tasks x seeds over one base configuration, read from a TOML file and checked before anything runs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from surefoot.algorithms.algorithm import resolve
from surefoot.config import Section, merge, nearest, validate
from surefoot.errors import ConfigError, SurefootError
from surefoot.training.config import FOLDER, NAME, RunConfig, SftConfig
from surefoot.training.folder import run_path

CONTROLS = ("coin", "shuffled")
# What must be the same in all arms, or they could not be compared problem by problem.
SHARED = ("seed", "task", "evaluation")
OURS = ("name", "runs")
SEEDS = 1000  # at most
SEED = 2**32  # every seed is below
LONGEST = 120  # characters of a folder's name
EMBEDDED = "embedded"  # the default of model.path


class ExperimentConfig(Section):
    """What is compared.

    ``base`` holds the keys of a run (``[base.train] steps = 60``), an arm what differs from it, a task the keys of ``[task]``,
    ``warm_up`` the keys of ``surefoot sft`` for a supervised run whose model all arms of a seed start from.
    """

    name: str = Field(
        "comparison", max_length=120, pattern=NAME, description="name of the experiment and of its folder"
    )
    runs: str = Field("runs", min_length=1, pattern=FOLDER, description="folder that holds the experiment's folder")
    seeds: int | tuple[int, ...] = Field(5, description="how many seeds (0, 1, ...), or a list of them")
    baseline: str = Field("", description="the arm that the others are compared with (none: the first)")
    jobs: int = Field(0, ge=0, description="runs at a time, one thread each (0: as many as there are free cores)")
    level: float = Field(
        0.05, gt=0, lt=1, description="largest corrected p-value at which a difference counts as shown"
    )
    base: dict[str, Any] = Field(default_factory=dict, description="keys of a run, for all arms")
    arms: dict[str, dict[str, Any]] = Field(
        description="for each arm the keys of a run that differ; control = 'coin' or 'shuffled'"
    )
    tasks: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="for each task the keys of [task] (none: base.task)"
    )
    warm_up: dict[str, Any] | None = Field(None, description="keys of a supervised run that every seed starts from")

    @field_validator("seeds")
    @classmethod
    def _some_seeds(cls, value: int | tuple[int, ...]) -> int | tuple[int, ...]:
        count = value if isinstance(value, int) else len(value)
        if not 0 < count <= SEEDS or not (isinstance(value, int) or len(set(value)) == count):
            raise ValueError(f"expected a number of seeds from 1 to {SEEDS}, or a list of different seeds")
        if not isinstance(value, int) and not all(0 <= seed < SEED for seed in value):
            raise ValueError(f"expected seeds from 0 to {SEED - 1}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> ExperimentConfig:
        if len(self.arms) < 2:
            raise ValueError(f"there is nothing to compare: give two or more tables [arms.NAME], got {len(self.arms)}")
        if self.baseline and self.baseline not in self.arms:
            raise ValueError(f"baseline = '{self.baseline}' is none of the arms." + nearest(self.baseline, self.arms))
        for name in [*self.arms, *self.tasks]:
            validate(RunConfig, {"name": name})  # it names a folder
        _check_base(self.base, self.warm_up)
        for name, table in self.arms.items():
            _check_arm(name, table, warm=self.warm_up is not None)
        return self


def _check_base(base: Mapping[str, Any], warm_up: Mapping[str, Any] | None) -> None:
    """Refuse what the experiment would replace."""
    for name in ("task", "model", "train"):
        if not isinstance(base.get(name, {}), Mapping):
            raise ValueError(f"base.{name} = {base[name]!r}: expected a table [base.{name}]")
    for table, values in (("base", base), ("warm_up", warm_up or {})):
        for key in OURS:
            if key in values:
                raise ValueError(f"{table}.{key} is set by the experiment: leave it out")
        if "seed" in values:
            raise ValueError(f"{table}.seed is one of 'seeds': leave it out")
    path = base.get("model", {}).get("path", EMBEDDED)
    if warm_up is None and path == EMBEDDED and _has(base, "model.seed"):
        raise ValueError("base.model.seed is one of 'seeds': leave it out")
    if warm_up is not None and _has(base, "model.path"):
        first = warm_up["model"]["path"] if _has(warm_up, "model.path") else EMBEDDED
        if path != first:
            raise ValueError(
                f"base.model.path = '{path}', but all runs start from the warm-up's model, which starts from '{first}': set "
                "warm_up.model.path, or leave [warm_up] out"
            )
    if _has(base, "train.threads") and base["train"]["threads"] != 1:
        raise ValueError("base.train.threads is 1 for all runs, of which there are 'jobs' at a time: leave it out")


def _check_arm(name: str, table: Mapping[str, Any], *, warm: bool) -> None:
    """Refuse what an arm cannot have of its own."""
    for key in (*SHARED, *OURS, "model.seed"):
        if _has(table, key):
            raise ValueError(
                f"the arm '{name}' sets '{key}', which must be the same for all arms: set it in [base], in [tasks.NAME] or "
                "in 'seeds'"
            )
    if warm and _has(table, "model.path"):
        raise ValueError(
            f"the arm '{name}' sets 'model.path', but all arms start from the warm-up's model: set warm_up.model.path, or leave "
            "[warm_up] out"
        )
    if _has(table, "train.threads") and table["train"]["threads"] != 1:
        raise ValueError(
            f"the arm '{name}' sets 'train.threads', which is 1 for all runs: set 'jobs', and leave it out"
        )
    if table.get("control", CONTROLS[0]) not in CONTROLS:
        raise ValueError(f"the arm '{name}' has control = {table['control']!r}: expected one of {', '.join(CONTROLS)}")


def _has(table: Mapping[str, Any], key: str) -> bool:
    """Whether a nested table has a dotted key."""
    first, _, rest = key.partition(".")
    inner = table.get(first)
    return first in table if not rest else isinstance(inner, Mapping) and _has(inner, rest)


@dataclass(frozen=True)
class Job:
    """One run of an experiment."""

    task: str
    arm: str
    seed: int

    def __str__(self) -> str:
        return f"{self.arm}, {self.task}, seed {self.seed}"


@dataclass(frozen=True)
class Experiment:
    """A checked experiment and where its runs lie.

    Attributes:
        config: as it was read.
    """

    config: ExperimentConfig

    @property
    def folder(self) -> Path:
        return Path(self.config.runs).expanduser() / self.config.name

    @property
    def arms(self) -> tuple[str, ...]:
        return tuple(self.config.arms)

    @property
    def baseline(self) -> str:
        return self.config.baseline or self.arms[0]

    @property
    def seeds(self) -> tuple[int, ...]:
        given = self.config.seeds
        return tuple(range(given)) if isinstance(given, int) else given

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, which are those of folders; of the only one its own, with dashes for what no folder can have."""
        if self.config.tasks:
            return tuple(self.config.tasks)
        name = re.sub(r"[^\w.\-]", "-", str(self._task("").get("name", "task"))).lstrip("-.")
        return (name[:LONGEST] or "task",)

    def jobs(self) -> Iterator[Job]:
        """All runs, a seed at a time, so that whatever is finished can be compared."""
        for seed in self.seeds:
            for task in self.tasks:
                for arm in self.arms:
                    yield Job(task, arm, seed)

    def control(self, arm: str) -> Literal["coin", "shuffled"] | None:
        """What replaces the reward of an arm that must not learn."""
        return self.config.arms[arm].get("control")

    def warm_up(self, task: str, seed: int) -> SftConfig | None:
        """The supervised run that this seed's arms start from."""
        if self.config.warm_up is None:
            return None
        return validate(SftConfig, self._warm_up(task, seed))

    def _warm_up(self, task: str, seed: int) -> dict[str, Any]:
        given = merge({"task": self._task(task), "model": {"seed": seed}}, self.config.warm_up or {})
        return given | {"name": f"seed-{seed}", "runs": str(self.folder / "warm-up" / task), "seed": seed}

    def run(self, job: Job) -> RunConfig:
        """The configuration of a run."""
        values = merge(
            self.config.base, {key: value for key, value in self.config.arms[job.arm].items() if key != "control"}
        )
        values = merge(values, {"task": self._task(job.task), "train": {"threads": 1}})
        warm_up = self.warm_up(job.task, job.seed)
        if warm_up is not None:
            values = merge(values, {"model": {"path": str(run_path(warm_up) / "model")}})
        elif values.get("model", {}).get("path", EMBEDDED) == EMBEDDED:
            values = merge(values, {"model": {"seed": job.seed}})
        own = {"name": f"seed-{job.seed}", "runs": str(self.folder / "arms" / job.task / job.arm), "seed": job.seed}
        return validate(RunConfig, values | own)

    def _task(self, task: str) -> dict[str, Any]:
        return merge(self.config.base.get("task", {}), self.config.tasks.get(task, {}))

    def digest(self, job: Job) -> str:
        """What a finished run is known by: what it and its warm-up were told, and the parts and numbers of its objective.

        Where the folders lie does not matter, nor do keys that are left at their defaults.
        """
        config, warm_up = self.run(job), self.warm_up(job.task, job.seed)
        algorithm = config.algorithm.build()
        numbers = resolve(algorithm)
        content = {
            "run": config.model_dump(
                exclude_defaults=True, exclude={"name": True, "runs": True, "algorithm": True, "model": {"path"}}
            ),
            "start": None if warm_up else config.model.path,
            "parts": {slot: numbers[slot] for slot, part in algorithm.parts.items() if "idle" not in part.kind.traits},
            "warm-up": warm_up and warm_up.model_dump(exclude_defaults=True, exclude={"runs"}),
            "control": self.control(job.arm),
        }
        return hashlib.blake2b(json.dumps(content, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()


def make_experiment(given: ExperimentConfig | Mapping[str, Any]) -> Experiment:
    """An experiment from its configuration; a run of every arm and task is checked.

    Raises:
        ConfigError: a mistake, with the arm that it is in.
    """
    config = given if isinstance(given, ExperimentConfig) else validate(ExperimentConfig, given)
    experiment = Experiment(config)
    for task in experiment.tasks:
        try:
            experiment.warm_up(task, experiment.seeds[0])
        except SurefootError as error:
            raise ConfigError(f"warm_up, task '{task}': {error}") from error
        for arm in experiment.arms:
            try:
                experiment.run(Job(task, arm, experiment.seeds[0])).evaluation.check()
            except SurefootError as error:
                raise ConfigError(f"arm '{arm}', task '{task}': {error}") from error
    return experiment
