"""Metrics of a rollout batch, over all of its rows, before any selection. Each name says what is averaged over what."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from surefoot.metrics import StepReport
from surefoot.rewards.grade import is_right
from surefoot.training.batch import Batch
from surefoot.training.collect import Rollouts
from surefoot.types import FAILED, Finish, Origin, Prompt, Sample, Score


def measure_batch(rollouts: Rollouts, batch: Batch) -> StepReport:
    """Rewards over graded samples, lengths over all samples, groups over all groups, entropy over sampled tokens.

    All of these are over everything that was sampled, whatever a selection then left out; what has ``batch/`` or
    ``advantage/`` in its name is over what the update got. Components of the reward have the prefix ``component/``, so
    that no name of theirs can meet a metric's; each is averaged over the graded samples that have it as a finite number.
    """
    report = StepReport()
    groups = rollouts.everything
    samples = [sample for group in groups for sample in group.samples]
    scores = [score for group in groups for score in group.scores]
    _measure_samples(samples, report)
    _measure_scores(samples, scores, report)
    for group in groups:
        for score in group.scores:
            _measure_part(group.prompt, score, report)
    for group in groups:
        valid = [score for score in group.scores if score.valid]
        verdicts = [is_right(score) for score in valid]
        report.add("groups/no_signal", len({score.total for score in valid}) < 2)
        report.add("groups/all_right", bool(verdicts) and all(verdicts))
        report.add("groups/all_wrong", bool(verdicts) and not any(verdicts))
        if group.greedy is not None:
            report.add("reward/greedy_ungraded", not group.greedy.valid)
            if group.greedy.valid:
                report.add("reward/greedy", group.greedy.total)
    rewards = np.array([score.total for group in groups for score in group.scores if score.valid])
    if len(rewards):
        report.add("reward/std", float(rewards.std()))
    _measure_update(batch, report)
    report.total("rollout/rounds", rollouts.rounds)
    report.total("batch/groups_sampled", len(groups))
    report.total("batch/groups", len(rollouts.groups))
    return report


def _measure_samples(samples: Sequence[Sample], report: StepReport) -> None:
    if not samples:
        return
    generated, count = sum(sample.length for sample in samples), len(samples)
    injected = sum(bool((sample.origin == int(Origin.INJECTED)).any()) for sample in samples)
    report.add("length/mean", generated, count)
    report.add("length/truncated", sum(sample.finish == Finish.LENGTH for sample in samples), count)
    report.add("length/interrupted", injected, count)
    report.total("tokens/generated", generated)
    # Minus the mean log-probability of sampled tokens estimates the entropy of what was sampled from.
    logp = np.concatenate([sample.logp_behaviour[sample.mask] for sample in samples])
    logp = logp[np.isfinite(logp)]
    report.add("rollout/entropy", -float(logp.sum(dtype=np.float64)), len(logp))


def _measure_scores(samples: Sequence[Sample], scores: Sequence[Score], report: StepReport) -> None:
    for sample, score in zip(samples, scores, strict=True):
        report.add("reward/ungraded", not score.valid)
        report.add("reward/no_answer", score.status == "no_answer")
        for name, part in score.parts.items():
            report.add(f"part_failed/{name}", part.status in FAILED)
        if not score.valid:
            continue
        for name, part in score.parts.items():
            report.add(f"part_counts/{name}", part.counts)
        report.add("reward/mean", score.total)
        report.add("reward/steps", len(score.steps))
        for name, value in score.components.items():
            if math.isfinite(value):
                report.add(f"component/{name}", value)
        right = is_right(score)
        report.add("reward/correct", right)
        report.add("length/right" if right else "length/wrong", sample.length)


def _measure_part(prompt: Prompt, score: Score, report: StepReport) -> None:
    """The reward of one part of a mixture."""
    label = prompt.metadata.get("task")
    if isinstance(label, str) and score.valid:
        report.add(f"task/{label}/reward", score.total)
        report.add(f"task/{label}/correct", is_right(score))


def _measure_update(batch: Batch, report: StepReport) -> None:
    """What the update got: rows, shaped rewards and advantages."""
    kept = batch.kept
    report.total("batch/rows", len(batch.samples))
    report.total("batch/rows_kept", int(kept.sum()))
    report.total("batch/rows_with_advantage", int((batch.trained & ~batch.silent).sum()))
    if batch.penalty is not None:
        report.add("reward/kl_penalty", float(batch.penalty.sum()), len(batch.penalty))
    shaped = batch.reward[kept & np.isfinite(batch.reward)]
    report.add("reward/shaped", float(shaped.sum()), len(shaped))
    values = (
        batch.advantage[kept]
        if batch.token_advantage is None
        else np.concatenate(
            [np.zeros(0), *(row for row, keep in zip(batch.token_advantage, kept, strict=True) if keep)]
        )
    )
    # Over rows; over tokens where advantages differ within a row.
    report.add("advantage/abs_mean", float(np.abs(values).sum()), len(values))
    if len(values):
        report.add("advantage/std", float(values.std()))
        report.maximum("advantage/abs_max", float(np.abs(values).max()))


def rounded(metrics: Mapping[str, float]) -> dict[str, float]:
    """In a fixed order, as plain Python numbers, for the log."""
    return {name: float(metrics[name]) for name in sorted(metrics)}
