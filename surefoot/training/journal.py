"""What a run writes down: metrics, times, evaluations, samples, warnings; and what it tells whoever watches."""

from __future__ import annotations

import json
import statistics
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from surefoot.evaluation.config import EvaluationConfig
from surefoot.evaluation.evaluate import Evaluation
from surefoot.evaluation.intervals import paired_interval
from surefoot.files import write_atomic
from surefoot.metrics import StepReport
from surefoot.rewards.base import notes_of
from surefoot.training.assemble import Parts
from surefoot.training.batch import Batch
from surefoot.training.clock import Clock
from surefoot.training.collect import Rollouts
from surefoot.training.config import RunConfig
from surefoot.training.details import Details
from surefoot.training.folder import RunFolder
from surefoot.training.health import check, rises_alone
from surefoot.training.measure import rounded
from surefoot.training.progress import Progress
from surefoot.training.records import batch_records, heldout_records
from surefoot.training.state import RunState
from surefoot.training.trackers import open_trackers

HELDOUT_SAMPLES = 64


class Journal:
    """Keeps the files of a run up to date."""

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        parts: Parts,
        state: RunState,
        clock: Clock,
        watch: Callable[[Progress], None] | None,
    ) -> None:
        self.config, self.folder, self.parts, self.state, self.clock = config, folder, parts, state, clock
        self.algorithm = config.algorithm.build()
        self.watch = watch
        self.evaluations = folder.read("evaluations")
        for record in self.evaluations:  # the state has not seen the last, if a resume ended the run with it
            if record.get("accuracy", -1.0) > state.best:
                state.best, state.best_step = record["accuracy"], record["step"]
        self.times = folder.read("timings")
        self.reward: float | None = None
        self.tokens = {"tokens_generated": 0, "tokens_trained": 0}
        self.trackers = open_trackers(config.track, folder.path, config.resolved())

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.trackers.close()

    def step(self, rollouts: Rollouts, batch: Batch, report: StepReport, details: Details | None = None) -> None:
        """Write down what a step did."""
        with self.clock.phase("write"):
            self.tokens = {
                f"tokens_{what}": int(report.sums.get(f"tokens/{what}", 0.0)) for what in ("generated", "trained")
            }
            metrics = rounded(report.means())
            self.reward = metrics.get("reward/mean")
            self.folder.log("metrics", {"step": self.state.step, **metrics})
            limit = self.config.track.samples_per_step
            records = batch_records(self.state.step, rollouts.groups, batch, limit, self.parts.renderer, details)
            if records:
                self.folder.write_samples(f"step-{self.state.step:06d}", records)
            for name, text in check(metrics, self.state, self.config, self.algorithm):
                self._warn(name, text)
            self.trackers.log(self.state.step, metrics)

    def evaluate(self) -> None:
        """Measure held-out accuracy; keep the best model."""
        if not self.parts.heldout:
            return
        if not self.evaluations:
            self.tell("evaluate")
        with self.clock.phase("evaluate"):
            evaluation = self.parts.evaluate(self.config, self.state.step)
        with self.clock.phase("write"):
            record = evaluation.record(self.state.step)
            if noted := notes_of(self.parts.reward).means():
                record["reward"] = rounded(noted)
            self.folder.log("evaluations", record)
            self.evaluations.append(record)
            name = f"heldout-{self.state.step:06d}"
            single = self.config.track.token_details
            records = heldout_records(self.state.step, evaluation, self.parts.renderer, HELDOUT_SAMPLES, single)
            self.folder.write_samples(name, records)
            self.trackers.log(self.state.step, {"heldout/accuracy": record["accuracy"]})
        self._say_if_nothing_is_called_right(evaluation)
        self._say_if_the_reward_rises_alone()
        if evaluation.accuracy > self.state.best:
            self.state.best, self.state.best_step = evaluation.accuracy, self.state.step
            if self.config.checkpoint.keep_best:
                with self.clock.phase("save"):
                    self.parts.save(self.folder.path / "best")
        self.tell("evaluate")

    def note_reset(self) -> None:
        """Write down that the reference or the optimiser was reset after this step."""
        part = self.algorithm.reset
        what = [name for name in ("reference", "optimiser") if getattr(part, name)]
        self.folder.log("resets", {"step": self.state.step, "what": what, "number": self.state.resets})

    def _say_if_nothing_is_called_right(self, evaluation: Evaluation) -> None:
        scores = [score for scores in evaluation.scores for score in scores]
        if (
            "correct" in self.state.warned
            or evaluation.accuracy > 0
            or any(score.correct is not None for score in scores)
        ):
            return
        self.state.warned.append("correct")
        self._warn(
            "correct",
            "the reward never says which answers are right, and none earned 1 or more, so accuracy means nothing: return "
            "Score(total, correct=...) from it",
        )

    def _say_if_the_reward_rises_alone(self) -> None:
        rewards = [record["reward/mean"] for record in self.folder.read("metrics") if "reward/mean" in record]
        now = self.evaluations[-1]
        change = difference(self.evaluations[0], now, self.config.evaluation)
        if "hacking" in self.state.warned or change is None:
            return
        if text := rises_alone(rewards, change, now["accuracy"], self.config):
            self.state.warned.append("hacking")
            self._warn("hacking", text)

    def _warn(self, name: str, text: str) -> None:
        self.folder.log("warnings", {"step": self.state.step, "name": name, "text": text})
        warnings.warn(f"step {self.state.step}: {text}", stacklevel=3)

    def end_step(self) -> None:
        """Write down where the time of the step went."""
        record = {"step": self.state.step, **self.clock.take(), **self.tokens}
        self.folder.log("timings", record)
        self.times.append(record)
        self.tell("train")

    def ended(self) -> str | None:
        """What ends the run here: ``"steps"``, ``"prompts"`` (none is left), ``"budget.tokens"`` ...; None: it goes on."""
        if self.state.step >= self.config.train.steps:
            return "steps"
        if self.state.exhausted:
            return "prompts"
        unit = self.config.budget.used_up(self.spent())
        return None if unit is None else f"budget.{unit}"

    def spent(self) -> dict[str, float]:
        """What counts against the budget. Seconds come from the log, and from the clock for the step under way."""
        done = self.times[-1]["step"] if self.times else 0
        records = [*self.times, self.clock.seconds] if self.state.step > done else self.times
        seconds = sum(_seconds(record) - record.get("evaluate", 0.0) for record in records)
        return {**self.state.spent, "seconds": seconds}

    def seconds_left(self) -> float | None:
        """From the median step so far, for the steps that remain or for what remains of the budget, whichever is less."""
        if not self.times:
            return None
        steps = float(self.config.train.steps - self.state.step)
        if share := self.config.budget.share(self.spent()):
            steps = min(steps, self.state.step * (1 - share) / share)
        return statistics.median(_seconds(record) for record in self.times) * steps

    def finish(self) -> dict[str, Any]:
        """Write and return ``result.json``."""
        seconds: dict[str, float] = {}
        for record in [*self.times, self.clock.take()]:
            for phase, value in record.items():
                if phase != "step" and not phase.startswith("tokens_"):
                    seconds[phase] = seconds.get(phase, 0.0) + value
        before, after = (self.evaluations[0], self.evaluations[-1]) if self.evaluations else (None, None)
        result = {
            "before": _numbers(before),
            "after": _numbers(after),
            "difference": difference(before, after, self.config.evaluation),
            "best": {"step": self.state.best_step, "accuracy": self.state.best} if self.evaluations else None,
            "steps": self.state.step,
            "ended": self.ended(),
            "updates": self.state.updates,
            "seconds": seconds,
            "spent": self.state.spent,
            "tokens_generated": sum(record.get("tokens_generated", 0) for record in self.times),
            "tokens_trained": sum(record.get("tokens_trained", 0) for record in self.times),
        }
        write_atomic(self.folder.path / "result.json", json.dumps(result, indent=1) + "\n")
        return result

    def tell(self, phase: str) -> None:
        if self.watch is None:
            return
        accuracy = self.evaluations[-1]["accuracy"] if self.evaluations else None
        self.watch(
            Progress(self.state.step, self.config.train.steps, self.reward, accuracy, self.seconds_left(), phase)
        )


def _numbers(record: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """An evaluation without its list of problems, which evaluations.jsonl has."""
    return None if record is None else {key: value for key, value in record.items() if key != "right"}


def difference(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, config: EvaluationConfig
) -> dict[str, float] | None:
    """Accuracy after minus before, paired by problem, with its interval; None without two evaluations."""
    if before is None or after is None or before["step"] == after["step"]:
        return None
    shares = [np.asarray(record["right"]) / record["samples"] for record in (after, before)]
    found = paired_interval(*shares, confidence=config.confidence, seed=config.seed)
    return {"value": found.value, "low": found.low, "high": found.high}


def _seconds(record: Mapping[str, float]) -> float:
    return sum(value for key, value in record.items() if key != "step" and not key.startswith("tokens_"))
