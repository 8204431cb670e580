"""Runs what is not done yet, several runs at a time with one thread each, and writes a line for each that is finished.

The command can be killed at any point. A run that is finished is never run again, one that was under way goes on from its
last checkpoint, and a run made with other settings is refused rather than overwritten.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from surefoot.files import append_lines, explained, mend_lines, only_writer, write_atomic
from surefoot.methods.compare.begun import FINISHED, finished, origin, under_way, warm_up_is_done
from surefoot.methods.compare.check import check
from surefoot.methods.compare.experiment import Experiment, Job
from surefoot.methods.compare.workers import Each, workers
from surefoot.rewards.build import build_reward
from surefoot.rewards.controls import make_control
from surefoot.tasks.build import build_task
from surefoot.training.folder import run_path
from surefoot.training.loop import train
from surefoot.training.places import ORIGIN
from surefoot.training.sft import sft
from surefoot.training.threads import allowed_cores, free_cores

__all__ = ["FINISHED", "News", "WarmedUp", "finished", "run_all", "run_one", "under_way", "warm_up"]


@dataclass(frozen=True)
class News:
    """What happened to a run: how many are done of how many, its record, or what went wrong."""

    job: Job
    done: int
    of: int
    record: dict[str, Any] | None
    trouble: str = ""


@dataclass(frozen=True)
class WarmedUp:
    """A warm-up that was made: its steps, and its sampled held-out accuracy in [0, 1] where there are held-out problems."""

    task: str
    seed: int
    steps: int
    accuracy: float | None


Start = tuple[str, int]
"""A task and a seed, whose arms share a warm-up."""


def run_all(
    experiment: Experiment,
    say: Callable[[News], None] = lambda news: None,
    warmed: Callable[[WarmedUp], None] = lambda news: None,
) -> list[News]:
    """Run what is not finished and return what failed; the rest goes on.

    Args:
        experiment: what is to be run.
        say: called after each run.
        warmed: called after each warm-up that was made. All of them come before the first run.

    Raises:
        ConfigError: something that no run could begin with, before the first.
        RunFolderError: there is a run of this experiment that was made with other settings.
    """
    with only_writer(experiment.folder):
        done = finished(experiment)
        mend_lines(experiment.folder / FINISHED)
        todo = [job for job in experiment.jobs() if job not in done]
        if todo:
            check(experiment)
        failed, every = [], len(done) + len(todo)
        with closing(_outcomes(experiment, todo, warmed)) as outcomes:
            for number, (job, record, trouble) in enumerate(outcomes, start=len(done) + 1):
                if record is not None:
                    append_lines(experiment.folder / FINISHED, [record])
                news = News(job, number, every, record, trouble)
                failed += [news] if trouble else []
                say(news)
    return failed


def _outcomes(
    experiment: Experiment, todo: Sequence[Job], warmed: Callable[[WarmedUp], None]
) -> Generator[tuple[Job, dict[str, Any] | None, str]]:
    """Each run with its record, or with what went wrong, as soon as it is there."""
    number = min(experiment.config.jobs or free_cores(allowed_cores()), max(1, len(todo)))
    with workers(number) as each:
        cold = _warm_up_all(experiment, todo, each, warmed)
        for job in todo:
            if trouble := cold.get((job.task, job.seed)):
                yield job, None, trouble
        yield from each(partial(run_one, experiment), [job for job in todo if (job.task, job.seed) not in cold])


def _warm_up_all(
    experiment: Experiment, todo: Sequence[Job], each: Each, warmed: Callable[[WarmedUp], None]
) -> dict[Start, str]:
    """Make the warm-ups of the runs; returns what went wrong, for those without one."""
    starts = sorted({(job.task, job.seed) for job in todo}, key=lambda start: (start[1], start[0]))
    missing = [start for start in starts if not warm_up_is_done(experiment, *start)]
    cold: dict[Start, str] = {}
    for (task, seed), summary, trouble in each(partial(_warm_up_start, experiment), missing):
        if trouble:
            cold[task, seed] = f"its warm-up failed: {trouble}"
            continue
        if summary is None:  # its process was killed when it was done, and the second found nothing to do
            continue
        accuracy = summary["after"]["accuracy"] if summary["after"] else None
        _say_if_short(experiment, task, seed, accuracy)
        warmed(WarmedUp(task, seed, summary["steps"], accuracy))
    return cold


def _warm_up_start(experiment: Experiment, start: Start) -> dict[str, Any] | None:
    return warm_up(experiment, *start)


def _say_if_short(experiment: Experiment, task: str, seed: int, accuracy: float | None) -> None:
    """A target that was asked for and missed changes what the arms start from."""
    config = experiment.warm_up(task, seed)
    assert config is not None
    if "target_accuracy" in config.model_fields_set and accuracy is not None and accuracy < config.target_accuracy <= 1:
        warnings.warn(
            f"the warm-up of {task}, seed {seed}, reached {accuracy:.1%} of right answers in {config.steps} steps, and "
            f"warm_up.target_accuracy is {config.target_accuracy:.1%}: the arms start from less than was asked for",
            stacklevel=2,
        )


def warm_up(experiment: Experiment, task: str, seed: int) -> dict[str, Any] | None:
    """Make the supervised run that all arms of a task and seed start from.

    Returns:
        Its summary; None where it is done already, or where there is none to be made.

    Raises:
        RunFolderError: it was made with other settings.
    """
    config = experiment.warm_up(task, seed)
    if config is None or warm_up_is_done(experiment, task, seed):
        return None
    shutil.rmtree(run_path(config), ignore_errors=True)  # supervised runs start anew
    return sft(config).summary


def run_one(experiment: Experiment, job: Job) -> dict[str, Any]:
    """Train, or go on with what a killed command left, and return the line for ``finished.jsonl``."""
    config = experiment.run(job)
    folder = run_path(config)
    resumed = under_way(experiment, job) is not None
    if not resumed:
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / ORIGIN, json.dumps(origin(experiment, job)) + "\n")
    control = experiment.control(job.arm)
    reward = None
    if control is not None:
        reward = make_control(control, build_reward(config.reward, build_task(config.task)), job.seed)
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are in warnings.jsonl
        summary = train(config, reward=reward, resume=resumed).summary
    return {
        "task": job.task,
        "arm": job.arm,
        "seed": job.seed,
        "digest": experiment.digest(job),
        "steps": summary["steps"],
        "tokens_generated": summary["tokens_generated"],
        "seconds": round(time.perf_counter() - wall, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "resumed": resumed,
    }
