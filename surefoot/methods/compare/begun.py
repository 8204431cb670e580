"""What an earlier command left of an experiment, and whether it was made with what the experiment says now.

A run is known by its digest, which ``experiment.json`` in its folder keeps from before its first step, and the line of a finished
run in ``finished.jsonl``. Where it is another one than the experiment's, the configurations say what has changed.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from surefoot.config import Section, read_toml, validate
from surefoot.errors import ConfigError, RunFolderError
from surefoot.methods.compare.experiment import Experiment, Job
from surefoot.methods.compare.records import finished_lines
from surefoot.training.config import RunConfig, SftConfig
from surefoot.training.folder import flatten, run_path
from surefoot.training.places import ORIGIN

FINISHED = "finished.jsonl"
SHOWN = 4  # changed keys in a message


def origin(experiment: Experiment, job: Job) -> dict[str, Any]:
    """What a run folder keeps in ``experiment.json``: which run of which experiment it is."""
    return {
        "experiment": experiment.config.name,
        "task": job.task,
        "arm": job.arm,
        "seed": job.seed,
        "control": experiment.control(job.arm),
        "digest": experiment.digest(job),
    }


def finished(experiment: Experiment) -> dict[Job, dict[str, Any]]:
    """The lines of the experiment's finished runs whose folders are there; of several for a run the last counts.

    Raises:
        RunFolderError: a run or a warm-up of this experiment was made with other settings; ``finished.jsonl`` is damaged.
    """
    records, wanted = finished_lines(experiment.folder / FINISHED), set(experiment.jobs())
    lines = {Job(record["task"], record["arm"], record["seed"]): record for record in records}
    found = {
        job: line
        for job, line in lines.items()
        if job in wanted and (run_path(experiment.run(job)) / "result.json").exists()
    }
    _refuse_others(experiment, found)
    return found


def under_way(experiment: Experiment, job: Job) -> int | None:
    """The step that a run goes on from, 0 where it was killed before its first state; None: it has not begun."""
    folder = run_path(experiment.run(job))
    if not (folder / "config.toml").exists():
        return None
    names = (re.fullmatch(r"step-(\d+)", state.name) for state in (folder / "state").glob("step-*"))
    return max((int(name[1]) for name in names if name), default=0)


def warm_up_is_done(experiment: Experiment, task: str, seed: int) -> bool:
    """Whether the warm-up of a seed is there (also where there is none to be made).

    Raises:
        RunFolderError: it was made with other settings.
    """
    config = experiment.warm_up(task, seed)
    if config is None:
        return True
    folder = run_path(config)
    if not ((folder / "result.json").exists() and (folder / "model").exists()):
        return False
    if changed := _changed_warm_up(experiment, task, seed):
        raise RunFolderError(_refusal(experiment, {folder: changed}))
    return True


def _refuse_others(experiment: Experiment, lines: Mapping[Job, Mapping[str, Any]]) -> None:
    """Refuse to compare, or to go on with, what was made with other settings."""
    others: dict[Path, list[str]] = {}
    for job in experiment.jobs():
        folder = run_path(experiment.run(job))
        if (folder / "config.toml").exists() and (changed := _changed(experiment, job, lines.get(job), folder)):
            others[folder] = changed
    for task in experiment.tasks:
        for seed in experiment.seeds:
            if changed := _changed_warm_up(experiment, task, seed):
                config = experiment.warm_up(task, seed)
                assert config is not None
                others[run_path(config)] = changed
    if others:
        raise RunFolderError(_refusal(experiment, others))


def _changed(experiment: Experiment, job: Job, line: Mapping[str, Any] | None, folder: Path) -> list[str]:
    """The keys in which a run that has begun differs, in words; none where it does not."""
    kept = _origin(folder) or line or {}
    if kept.get("digest") == experiment.digest(job):
        return []
    config = experiment.run(job)
    warm = experiment.warm_up(job.task, job.seed)
    ours = ("runs", "name", "train.threads", *(("model.path",) if warm else ()))
    changed = _differences(RunConfig, folder / "config.toml", config, ours)
    if not kept:  # begun by a version that kept no digest
        return changed
    control = experiment.control(job.arm)
    if "control" in kept and kept["control"] != control:
        changed.append(f"control: {kept['control']} -> {control}")
    return changed or _changed_warm_up(experiment, job.task, job.seed) or ["control or [warm_up]"]


def _changed_warm_up(experiment: Experiment, task: str, seed: int) -> list[str]:
    """The keys in which a finished warm-up differs, in words; none where it does not or is not there."""
    config = experiment.warm_up(task, seed)
    if config is None or not (run_path(config) / "result.json").exists():
        return []
    return [
        f"warm_up.{words}" for words in _differences(SftConfig, run_path(config) / "config.toml", config, ("runs",))
    ]


def _differences(schema: type[Section], path: Path, config: RunConfig | SftConfig, ours: Collection[str]) -> list[str]:
    """``"train.steps: 2 -> 3"`` for each key in which a folder's configuration and the wanted one differ."""
    try:
        before, now = (_settings(one) for one in (validate(schema, read_toml(path)), config))
    except ConfigError as error:
        raise RunFolderError(f"the run {path.parent} cannot be compared or gone on with: {error}") from None
    return [
        f"{key}: {before.get(key)} -> {now.get(key)}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key) and key not in ours
    ]


def _settings(config: Any) -> dict[str, Any]:
    return flatten(config.resolved() if isinstance(config, RunConfig) else config.model_dump())


def _origin(folder: Path) -> dict[str, Any]:
    """What a run folder says that it is; nothing where it is older than that or cannot be read."""
    try:
        found = json.loads((folder / ORIGIN).read_bytes())
    except (ValueError, OSError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _refusal(experiment: Experiment, others: Mapping[Path, list[str]]) -> str:
    """How many there are, what has changed, and the one way out for all of them."""
    top = experiment.folder.absolute()
    runs = sum(folder.is_relative_to(top / "arms") for folder in others)
    counts = [f"{runs} of {len(list(experiment.jobs()))} runs"] if runs else []
    warm_ups = len(others) - runs
    counts += [f"{warm_ups} warm-up{'s' * (warm_ups > 1)}"] if warm_ups else []
    changes = list(dict.fromkeys(words for changed in others.values() for words in changed))
    begun = [path.parent for pattern in ("arms/*/*/*", "warm-up/*/*") for path in top.glob(f"{pattern}/config.toml")]
    return (
        f"{' and '.join(counts)} of {experiment.folder} {'was' if len(others) == 1 else 'were'} made with other settings than "
        f"the experiment has now ({_some(changes)}): give the experiment another name, or remove what is to be run again: "
        f"rm -r {' '.join(shlex.quote(str(root)) for root in _roots(others, begun, top))}"
    )


def _roots(others: Collection[Path], begun: Collection[Path], top: Path) -> list[Path]:
    """The fewest folders within ``top`` that hold all of the others and no run besides, as they are seen from here."""

    def climb(folder: Path) -> Path:
        while folder != top and all(run in others for run in begun if run.is_relative_to(folder.parent)):
            folder = folder.parent
        return folder

    here = Path.cwd()
    found = sorted({climb(folder) for folder in others})
    return [folder.relative_to(here) if folder.is_relative_to(here) else folder for folder in found]


def _some(words: Iterable[str]) -> str:
    every = list(words)
    return ", ".join(every[:SHOWN]) + (f" and {len(every) - SHOWN} more" if len(every) > SHOWN else "")
