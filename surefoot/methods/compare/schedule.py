"""Runs what is not done yet, several runs at a time with one thread each, and writes a line for each that is finished.

The command can be killed at any point. A run that is finished is never run again, one that was under way goes on from its
last checkpoint, and a run made with other settings is refused rather than overwritten.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from typing import Any

from surefoot.errors import RunFolderError
from surefoot.files import append_lines, mend_lines, only_writer
from surefoot.methods.compare.experiment import Experiment, Job
from surefoot.methods.compare.records import finished_lines
from surefoot.rewards.build import build_reward
from surefoot.rewards.controls import make_control
from surefoot.tasks.build import build_task
from surefoot.training.folder import run_path
from surefoot.training.loop import train
from surefoot.training.sft import sft
from surefoot.training.threads import allowed_cores, free_cores

FINISHED = "finished.jsonl"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class News:
    """What happened to a run: how many are done of how many, its record, or what went wrong."""

    job: Job
    done: int
    of: int
    record: dict[str, Any] | None
    trouble: str = ""


def finished(experiment: Experiment) -> dict[Job, dict[str, Any]]:
    """The records of the experiment's finished runs.

    Raises:
        RunFolderError: a run of this experiment was made with other settings, or a line is damaged.
    """
    found: dict[Job, dict[str, Any]] = {}
    wanted = set(experiment.jobs())
    for record in finished_lines(experiment.folder / FINISHED):
        job = Job(record["task"], record["arm"], record["seed"])
        if job not in wanted:
            continue
        if record["digest"] != experiment.digest(job):
            raise RunFolderError(
                f"{run_path(experiment.run(job))} was made with other settings than the experiment has now: give the experiment "
                "another name, or remove that folder and its line in finished.jsonl"
            )
        found[job] = record
    return found


def run_all(experiment: Experiment, say: Callable[[News], None] = lambda news: None) -> list[News]:
    """Run what is not finished and return what failed; the rest goes on.

    Args:
        experiment: what is to be run.
        say: called after each run.
    """
    with only_writer(experiment.folder):
        mend_lines(experiment.folder / FINISHED)
        done = finished(experiment)
        todo = [job for job in experiment.jobs() if job not in done]
        failed, every = [], len(done) + len(todo)
        for number, (job, record, trouble) in enumerate(_outcomes(experiment, todo), start=len(done) + 1):
            if record is not None:
                append_lines(experiment.folder / FINISHED, [record])
            news = News(job, number, every, record, trouble)
            failed += [news] if trouble else []
            say(news)
    return failed


def _outcomes(experiment: Experiment, todo: Sequence[Job]) -> Iterator[tuple[Job, dict[str, Any] | None, str]]:
    """Each run with its record, or with what went wrong, as soon as it is there."""
    jobs = min(experiment.config.jobs or free_cores(allowed_cores()), max(1, len(todo)))
    starts = sorted({(job.task, job.seed) for job in todo}, key=lambda start: (start[1], start[0]))
    if jobs == 1:
        for task, seed in starts:
            warm_up(experiment, task, seed)
        for job in todo:
            try:
                yield job, run_one(experiment, job), ""
            except Exception as error:
                yield job, None, _told(error)
        return
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
            list(pool.map(warm_up, *zip(*[(experiment, task, seed) for task, seed in starts], strict=True)))
            running = {pool.submit(run_one, experiment, job): job for job in todo}
            try:
                for future in as_completed(running):
                    trouble = future.exception()
                    yield (
                        running[future],
                        future.result() if trouble is None else None,
                        "" if trouble is None else _told(trouble),
                    )
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).strip()


def end_with_parent() -> None:
    """A worker whose command was killed would otherwise finish its run and then wait for ever."""

    def watch(parent: BaseProcess) -> None:
        parent.join()
        os._exit(1)

    parent = parent_process()
    if parent is not None:
        threading.Thread(target=watch, args=(parent,), daemon=True).start()


def warm_up(experiment: Experiment, task: str, seed: int) -> None:
    """The supervised run that all arms of a task and seed start from, unless there is none or it is done."""
    config = experiment.warm_up(task, seed)
    if config is None:
        return
    folder = run_path(config)
    if (folder / "result.json").exists() and (folder / "model").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)  # supervised runs start anew
    sft(config)


def under_way(experiment: Experiment, job: Job) -> int | None:
    """The step that a run goes on from, 0 where it was killed before its first state; None: it has not begun."""
    folder = run_path(experiment.run(job))
    if not (folder / "config.toml").exists():
        return None
    return max((int(state.name.removeprefix("step-")) for state in (folder / "state").glob("step-*")), default=0)


def run_one(experiment: Experiment, job: Job) -> dict[str, Any]:
    """Train, or go on with what a killed command left, and return the line for ``finished.jsonl``."""
    config = experiment.run(job)
    resumed = under_way(experiment, job) is not None  # train refuses to go on with other settings
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
