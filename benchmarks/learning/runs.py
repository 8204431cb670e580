"""Runs what is not done yet, each run on one thread, and writes a line for each that is finished."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.learning.settings import CONTROL, digest, learning_config
from surefoot.errors import SurefootError
from surefoot.files import append_lines, mend_lines, only_writer, read_lines
from surefoot.methods.compare.workers import workers
from surefoot.methods.demo import warm_up_config
from surefoot.rewards.base import Completion, Reward
from surefoot.rewards.build import build_reward
from surefoot.seeds import generator
from surefoot.tasks.build import build_task
from surefoot.training.config import RunConfig, SftConfig
from surefoot.training.folder import run_path, versions
from surefoot.training.loop import train
from surefoot.training.sft import sft
from surefoot.types import Score

FINISHED = "finished.jsonl"
ENDS = 5  # steps at the beginning and at the end of a run over which its metrics are averaged
COURSE = (
    "reward/correct",
    "groups/no_signal",
    "advantage/abs_mean",
    "optimiser/grad_norm",
    "rollout/entropy",
    "length/mean",
    "length/truncated",
    "length/interrupted",
    "rollout/rounds",
    "batch/groups",
    "critic/explained_variance",
)


class Coin:
    """Tosses a coin for the reward and says what is right as the verifier does, so that accuracy means what it should."""

    name = "coin"

    def __init__(self, verifier: Reward, seed: int) -> None:
        self.verifier, self.rng = verifier, generator(seed, "coin")

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        return [replace(score, total=float(self.rng.integers(2))) for score in self.verifier.score(completions)]


@dataclass(frozen=True)
class Plan:
    """What is to be run.

    Attributes:
        out: folder of everything.
        presets: names, with that of the control where it is wanted.
        seeds: of each.
        overrides: dotted keys over the settings of every run, for a quicker look.
    """

    out: Path
    presets: tuple[str, ...]
    seeds: tuple[int, ...]
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def warm_up_config(self, seed: int) -> SftConfig:
        return warm_up_config(self.out / "warm-up" / str(seed), seed)

    def config(self, preset: str, seed: int) -> RunConfig:
        model = run_path(self.warm_up_config(seed)) / "model"
        return learning_config(self.out / "runs", preset, seed, model, self.overrides)

    def digest(self, preset: str, seed: int) -> str:
        return digest(self.config(preset, seed), self.warm_up_config(seed))

    def finished(self) -> dict[tuple[str, int], dict[str, Any]]:
        """The records of this plan's finished runs, by preset and seed; those made with other settings do not count."""
        digests = {(preset, seed): self.digest(preset, seed) for preset in self.presets for seed in self.seeds}
        found: dict[tuple[str, int], dict[str, Any]] = {}
        for record in read_lines(self.out / FINISHED):
            key = (record["preset"], record["seed"])
            if digests.get(key) == record["digest"]:
                found[key] = record
        return found


def run_all(plan: Plan, jobs: int, say: Any = print) -> list[tuple[str, int]]:
    """Run what is not finished, ``jobs`` at a time, and return the runs that failed.

    A line is written as soon as a run is done. A run that was killed half-way starts again.
    """
    with only_writer(plan.out):
        mend_lines(plan.out / FINISHED)
        finished = plan.finished()
        todo = [(preset, seed) for seed in plan.seeds for preset in plan.presets if (preset, seed) not in finished]
        say(f"{len(finished)} runs are finished, {len(todo)} to go")
        if not todo:
            return []
        failed = []
        for done, ((preset, seed), record, trouble) in enumerate(_outcomes(plan, todo, jobs), start=1):
            if record is None:
                failed.append((preset, seed))
                say(f"{done}/{len(todo)} {preset}, seed {seed}: failed\n{trouble}")
                continue
            append_lines(plan.out / FINISHED, [record])
            before, after = (sum(record[when]) / len(record[when]) for when in ("right_before", "right_after"))
            took = f"{record['seconds']:.0f} s, {record['cpu_seconds']:.0f} s of the processor"
            say(f"{done}/{len(todo)} {preset}, seed {seed}: {before:.1%} -> {after:.1%} in {took}")
        return failed


def _outcomes(plan: Plan, todo: Sequence[tuple[str, int]], jobs: int) -> Iterator[tuple[tuple[str, int], Any, str]]:
    """Each run with its record, or with None and what went wrong, as soon as it is there."""
    with workers(jobs) as each:
        for seed, _, trouble in each(partial(warm_up, plan), sorted({seed for _, seed in todo})):
            if trouble:
                raise SurefootError(f"the warm start of seed {seed} failed: {trouble}")
        yield from each(partial(run_one, plan), todo)


def warm_up(plan: Plan, seed: int) -> None:
    """The warm start that all presets of a seed share, unless it is there."""
    config = plan.warm_up_config(seed)
    folder = run_path(config)
    if (folder / "result.json").exists() and (folder / "model").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    sft(config)


def run_one(plan: Plan, run: tuple[str, int]) -> dict[str, Any]:
    """Train a preset on a seed, and gather what the table needs from the files of the run."""
    preset, seed = run
    config = plan.config(preset, seed)
    folder = run_path(config)
    shutil.rmtree(folder, ignore_errors=True)  # what a killed run left, or one with other settings
    reward = Coin(build_reward(config.reward, build_task(config.task)), seed) if preset == CONTROL else None
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are in warnings.jsonl
        summary = train(config, reward=reward).summary
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    evaluations = read_lines(folder / "evaluations.jsonl")
    resets = read_lines(folder / "resets.jsonl")
    return {
        "preset": preset,
        "seed": seed,
        "digest": plan.digest(preset, seed),
        "right_before": evaluations[0]["right"],
        "right_after": evaluations[-1]["right"],
        "steps": summary["steps"],
        "updates": summary["updates"],
        "seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
        "tokens_generated": summary["tokens_generated"],
        "resets": len(resets),
        "course": course(read_lines(folder / "metrics.jsonl")),
        "environment": versions(),
    }


def course(metrics: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Means of the first and the last steps, of what shows why a run learns or does not."""
    found = {}
    for name in sorted({name for record in metrics for name in record}):
        if name in COURSE or name.startswith("policy/"):
            ends = [[record[name] for record in part if name in record] for part in (metrics[:ENDS], metrics[-ENDS:])]
            found[name] = [round(sum(part) / len(part), 5) for part in ends if part]
    return found
