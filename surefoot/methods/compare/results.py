"""What an experiment came to, from the files of its runs: ``comparison.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from surefoot.errors import DataError
from surefoot.evaluation.comparison import Pair, compare_arms, interquartile_interval
from surefoot.evaluation.crossed import crossed_interval
from surefoot.evaluation.passk import ladder, pass_at_k
from surefoot.files import write_atomic
from surefoot.methods.compare.aside import endings, warned
from surefoot.methods.compare.experiment import Experiment, Job
from surefoot.methods.compare.records import COURSES, RunRecord, read_run_record
from surefoot.methods.compare.schedule import finished
from surefoot.training.folder import run_path

FILE = "comparison.json"
Runs = dict[Job, RunRecord]


def read_runs(experiment: Experiment) -> Runs:
    """The finished runs of an experiment.

    Raises:
        DataError: the files of one are damaged, or not those of a finished run.
    """
    return {job: read_run_record(run_path(experiment.run(job)), line) for job, line in finished(experiment).items()}


def complete_seeds(experiment: Experiment, runs: Runs) -> tuple[int, ...]:
    """Seeds whose every arm on every task is finished: only they can be paired."""
    return tuple(
        seed
        for seed in experiment.seeds
        if all(Job(task, arm, seed) in runs for task in experiment.tasks for arm in experiment.arms)
    )


def compare(experiment: Experiment, runs: Runs | None = None) -> dict[str, Any]:
    """The content of ``comparison.json``.

    Raises:
        DataError: no seed is complete, or arms were evaluated on different problems.
    """
    runs = read_runs(experiment) if runs is None else runs
    seeds = complete_seeds(experiment, runs)
    if not seeds:
        raise DataError(
            f"no seed of the experiment '{experiment.config.name}' is finished for every arm: let `surefoot compare` run on"
        )
    level = experiment.config.level
    tables = {arm: _tables(experiment, runs, arm, seeds) for arm in experiment.arms}
    _refuse_other_problems(experiment, runs, seeds)
    pairs = compare_arms(tables, experiment.baseline, level=level)
    by_task = {
        task: compare_arms(
            {arm: {task: tables[arm][task]} for arm in experiment.arms}, experiment.baseline, level=level
        )
        for task in (experiment.tasks if len(experiment.tasks) > 1 else ())
    }
    return {
        "name": experiment.config.name,
        "baseline": experiment.baseline,
        "arms": list(experiment.arms),
        "controls": {arm: kind for arm in experiment.arms if (kind := experiment.control(arm))},
        "tasks": list(experiment.tasks),
        "seeds": list(seeds),
        "seeds_planned": list(experiment.seeds),
        "level": level,
        "results": {
            task: {
                arm: _result(tables[arm][task], _of(runs, task, arm, seeds), level)
                | {"ended": endings(experiment, [Job(task, arm, seed) for seed in seeds])}
                for arm in experiment.arms
            }
            for task in experiment.tasks
        },
        "interquartile_mean": {
            arm: list(
                interquartile_interval([table.mean(axis=1) for table in tables[arm].values()], confidence=1 - level)
            )
            for arm in experiment.arms
        },
        "pairs": {arm: pair_record(pair) for arm, pair in pairs.items()},
        "gains": {arm: pair_record(_gain(experiment, runs, arm, seeds, tables[arm])) for arm in experiment.arms},
        "warnings": warned(experiment, [job for job in experiment.jobs() if job.seed in seeds]),
        "pairs_by_task": {
            task: {arm: pair_record(pair) for arm, pair in found.items()} for task, found in by_task.items()
        },
    }


def write_comparison(experiment: Experiment) -> dict[str, Any]:
    """Compare what is finished and keep it as ``comparison.json``."""
    found = compare(experiment)
    write_atomic(experiment.folder / FILE, json.dumps(found, indent=1, allow_nan=False) + "\n")
    return found


def pair_record(pair: Pair) -> dict[str, Any]:
    return {
        "difference": list(pair.difference),
        "p_value": pair.p_value,
        "adjusted": pair.adjusted,
        "verdict": str(pair.verdict),
        "seeds_needed": pair.seeds_needed,
        "improvement": pair.improvement,
    }


def _of(runs: Runs, task: str, arm: str, seeds: Sequence[int]) -> list[RunRecord]:
    return [runs[Job(task, arm, seed)] for seed in seeds]


def _tables(experiment: Experiment, runs: Runs, arm: str, seeds: Sequence[int]) -> dict[str, np.ndarray]:
    """task -> [S, P], shares of right samples."""
    found = {}
    for task in experiment.tasks:
        rows = [run.right / run.samples for run in _of(runs, task, arm, seeds)]
        if len({len(row) for row in rows}) > 1:
            raise DataError(
                f"the runs of the arm '{arm}' on '{task}' have different numbers of problems: they cannot be compared"
            )
        found[task] = np.stack(rows)
    return found


def _refuse_other_problems(experiment: Experiment, runs: Runs, seeds: Sequence[int]) -> None:
    for task in experiment.tasks:
        sets = {(run.problems, run.samples): job for job, run in runs.items() if job.task == task and job.seed in seeds}
        if len(sets) > 1:
            one, other = list(sets.values())[:2]
            raise DataError(
                f"the runs ({one}) and ({other}) were evaluated on other held-out problems, or with another number of samples: "
                "they cannot be compared"
            )


def _gain(experiment: Experiment, runs: Runs, arm: str, seeds: Sequence[int], end: Mapping[str, np.ndarray]) -> Pair:
    """An arm against its own start, on the same problems at the same seeds."""
    start = {task: _at(_of(runs, task, arm, seeds), 0) for task in experiment.tasks}
    return compare_arms({"start": start, "end": end}, "start", level=experiment.config.level)["end"]


def _result(table_sp: np.ndarray, runs: Sequence[RunRecord], level: float) -> dict[str, Any]:
    samples = runs[0].samples
    confidence = 1 - level
    right = np.stack([run.right for run in runs])
    passed = {k: np.stack([pass_at_k(row, samples, k) for row in right]) for k in ladder(samples)}
    return {
        "accuracy": list(crossed_interval(table_sp, confidence=confidence)),
        "before": list(crossed_interval(_at(runs, 0), confidence=confidence)),
        "pass": {str(k): list(crossed_interval(table, confidence=confidence)) for k, table in passed.items()},
        "by_seed": table_sp.mean(axis=1).tolist(),
        "samples": samples,
        "problems": table_sp.shape[1],
        "curve": _curve(runs, confidence),
        "courses": {name: course for name in COURSES if (course := _course(runs, name))},
        "spent": _spent(runs),
    }


def _at(runs: Sequence[RunRecord], number: int) -> np.ndarray:
    """[S, P], shares of right samples at the evaluation of this number."""
    found = [run.evaluations[number] for run in runs]
    return np.stack([np.asarray(record["right"]) / record["samples"] for record in found])


def _curve(runs: Sequence[RunRecord], confidence: float) -> dict[str, list[float]]:
    """Held-out accuracy and the mean cost until then, at the evaluations that all seeds have and at the last of each."""
    curve: dict[str, list[float]] = {
        name: [] for name in ("step", "accuracy", "low", "high", "tokens", "flops", "seconds")
    }
    for number in (*range(min(len(run.evaluations) for run in runs) - 1), -1):
        steps = [int(run.evaluations[number]["step"]) for run in runs]
        interval = crossed_interval(_at(runs, number), confidence=confidence)
        point = {
            "step": _mean(steps),
            "accuracy": interval.value,
            "low": interval.low,
            "high": interval.high,
            "tokens": float(
                np.mean([run.spent("tokens_generated", step) for run, step in zip(runs, steps, strict=True)])
            ),
            "flops": float(np.mean([run.flops(step) for run, step in zip(runs, steps, strict=True)])),
            "seconds": float(np.mean([run.seconds(step) for run, step in zip(runs, steps, strict=True)])),
        }
        for name, value in point.items():
            curve[name].append(value)
    return curve


def _course(runs: Sequence[RunRecord], name: str) -> dict[str, list[float]]:
    """Mean over the seeds and the range of them, at every step that all have."""
    by_run = [{record["step"]: record[name] for record in run.metrics if record.get(name) is not None} for run in runs]
    steps = sorted(set.intersection(*(set(found) for found in by_run)))
    if not steps:
        return {}
    table = np.array([[found[step] for step in steps] for found in by_run], dtype=np.float64)
    return {
        "step": [float(step) for step in steps],
        "mean": table.mean(axis=0).tolist(),
        "low": table.min(axis=0).tolist(),
        "high": table.max(axis=0).tolist(),
    }


def _spent(runs: Sequence[RunRecord]) -> dict[str, float]:
    """Means over the seeds."""
    pairs = [(run, int(run.line["steps"])) for run in runs]
    return {
        "steps": _mean(step for _, step in pairs),
        "tokens": _mean(run.spent("tokens_generated", step) for run, step in pairs),
        "trained": _mean(run.spent("tokens_trained", step) for run, step in pairs),
        "flops": _mean(run.flops(step) for run, step in pairs),
        "seconds": _mean(run.seconds(step) for run, step in pairs),
        "cpu_seconds": _mean(run.line["cpu_seconds"] for run in runs),
    }


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
