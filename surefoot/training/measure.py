"""Metrics of a rollout batch, over all of its rows, before any selection. Each name says what is averaged over what."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from surefoot.evaluation.evaluate import is_right
from surefoot.metrics import StepReport
from surefoot.training.batch import Batch
from surefoot.types import Finish, Group


def measure_batch(groups: Sequence[Group], batch: Batch) -> StepReport:
    """Rewards over graded samples, lengths over all samples, groups over all groups, entropy over sampled tokens.

    Components of the reward have the prefix ``component/``, so that no name of theirs can meet a metric's; each is
    averaged over the graded samples that have it as a finite number.
    """
    report = StepReport()
    for sample, score in zip(batch.samples, batch.scores, strict=True):
        report.add("reward/ungraded", not score.valid)
        report.add("reward/no_answer", score.status == "no_answer")
        report.add("length/mean", sample.length)
        report.add("length/truncated", sample.finish == Finish.LENGTH)
        # Minus the mean log-probability of sampled tokens estimates the entropy of what was sampled from.
        report.add("rollout/entropy", -float(sample.logp_behaviour[sample.mask].sum()), sample.length)
        if not score.valid:
            continue
        report.add("reward/mean", score.total)
        for name, value in score.components.items():
            if math.isfinite(value):
                report.add(f"component/{name}", value)
        right = is_right(score)
        report.add("reward/correct", right)
        report.add("length/right" if right else "length/wrong", sample.length)
    for group, signal in zip(groups, batch.signal, strict=True):
        verdicts = [is_right(score) for score in group.scores if score.valid]
        report.add("groups/no_signal", not signal)
        report.add("groups/all_right", bool(verdicts) and all(verdicts))
        report.add("groups/all_wrong", bool(verdicts) and not any(verdicts))
    rewards = np.array([score.total for score in batch.scores if score.valid])
    if len(rewards):
        report.add("reward/std", float(rewards.std()))
    report.total("batch/rows", len(batch.samples))
    report.total("batch/rows_kept", int(batch.kept.sum()))
    report.total("batch/rows_with_advantage", int((batch.advantage != 0).sum()))
    report.add("advantage/abs_mean", float(np.abs(batch.advantage).sum()), int(batch.kept.sum()))
    return report


def rounded(metrics: Mapping[str, float]) -> dict[str, float]:
    """In a fixed order, as plain Python numbers, for the log."""
    return {name: float(metrics[name]) for name in sorted(metrics)}
