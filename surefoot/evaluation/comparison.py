"""Which of several arms is better, from their results on the same problems at the same seeds.

An arm's result on a task is a table [S, P]: the share of right samples of each problem (or any other number in [0, 1] for it,
such as pass@k), a row for each seed. Two arms are compared cell by cell, so that what a seed or a problem does to both cancels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np

from surefoot.evaluation.crossed import Estimate, combine, estimate, same
from surefoot.evaluation.intervals import Interval, paired_interval
from surefoot.extras import require
from surefoot.seeds import generator

POWER = 0.8
MOST_SEEDS = 1000  # beyond this it is said that seeds alone will not do
Tables = Mapping[str, np.ndarray]  # task -> [S, P]


class Verdict(StrEnum):
    """What the data show of an arm against the baseline."""

    BETTER = "better"
    WORSE = "worse"
    NOT_SHOWN = "no difference shown"
    UNKNOWN = "too little data"


@dataclass(frozen=True)
class Pair:
    """An arm against the baseline.

    Attributes:
        difference: arm minus baseline, mean over tasks, seeds and problems, with its interval.
        p_value: two-sided; ``adjusted`` is Holm's, over all arms of the comparison.
        verdict: by the adjusted p-value.
        seeds_needed: seeds with which a difference of the size that was seen would be shown with 80 % power on these
            problems; None where no number of seeds would do (the problems are too few), or where nothing was seen.
        improvement: the chance that a run of the arm is better than a run of the baseline, see
            :func:`probability_of_improvement`.
    """

    difference: Interval
    p_value: float
    adjusted: float
    verdict: Verdict
    seeds_needed: int | None
    improvement: float


def compare_arms(arms: Mapping[str, Tables], baseline: str, *, level: float = 0.05) -> dict[str, Pair]:
    """Every arm but the baseline against it.

    Args:
        arms: name -> task -> [S, P]; the same tasks, seeds and problems for all.
        baseline: one of the names.
        level: the largest adjusted p-value at which a difference counts as shown; intervals have the confidence 1 - level.

    Raises:
        ValueError: an unknown baseline, or tables that are not of the same tasks and shapes.
    """
    base = _checked(arms, baseline)
    others = [name for name in arms if name != baseline]
    found = {name: paired(arms[name], base) for name in others}
    raw = {name: None if one is None else one.p_value() for name, one in found.items()}
    adjusted = holm({name: value for name, value in raw.items() if value is not None})
    pairs = {}
    for name, one in found.items():
        mean = float(np.mean([(arms[name][task] - base[task]).mean() for task in base]))
        better = probability_of_improvement(arms[name], base)
        if one is None:
            pairs[name] = Pair(Interval(mean, -1.0, 1.0), 1.0, 1.0, Verdict.UNKNOWN, None, better)
            continue
        verdict = Verdict.NOT_SHOWN
        if adjusted[name] <= level:
            verdict = Verdict.BETTER if mean > 0 else Verdict.WORSE
        interval = one.interval(1 - level)
        pairs[name] = Pair(
            Interval(interval.value, max(-1.0, interval.low), min(1.0, interval.high)),
            one.p_value(),
            adjusted[name],
            verdict,
            seeds_needed(one, level=level / max(1, len(others))),
            better,
        )
    return pairs


def paired(arm: Tables, baseline: Tables) -> Estimate | None:
    """The mean difference over tasks; None where a table has one seed, so that nothing is known of other seeds."""
    differences = [np.asarray(arm[task], dtype=np.float64) - baseline[task] for task in baseline]
    if any(len(table) < 2 for table in differences):
        return None
    return combine([_unvaried(table) if same(table) else estimate(table) for table in differences])


def _unvaried(table_sp: np.ndarray) -> Estimate:
    """All cells differ alike, which does not mean that others could not: the variance of :func:`paired_interval`, which knows
    what values in [0, 1] can do. It is one of problems, so more seeds do not make it less."""
    mean, (seeds, problems) = float(table_sp.mean()), table_sp.shape
    by_problem = np.full(problems, mean)
    interval = paired_interval(np.maximum(by_problem, 0), np.maximum(-by_problem, 0))
    half = max(interval.high - mean, mean - interval.low)
    variance = float((half / NormalDist().inv_cdf(0.975)) ** 2)
    return Estimate(mean, variance, np.inf, 0.0, variance * problems, 0.0, (seeds, problems))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """P-values adjusted so that the chance of any false finding stays below the level (Holm 1979, "A Simple Sequentially
    Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6).

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    order = sorted(p_values, key=lambda name: p_values[name])
    adjusted, largest = {}, 0.0
    for rank, name in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[name]))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}


def seeds_needed(found: Estimate, *, level: float = 0.05, power: float = POWER) -> int | None:
    """How many seeds would show a difference as large as the one that was seen, on the same number of problems.

    The components of ``found`` give the variance of a mean over S seeds and its degrees of freedom
    (:meth:`Estimate.with_seeds`). S is enough once the mean is as many standard errors from 0 as the two quantiles of Student's t
    together ask for; it is as rough as the components are.

    Args:
        found: of the paired differences.
        level: of the two-sided test.
        power: chance of showing it.

    Returns:
        None where nothing was seen, or where no number of seeds up to ``MOST_SEEDS`` would do.
    """
    if found.mean == 0:
        return None
    seeds = np.arange(2, MOST_SEEDS + 1)
    variance, freedom = found.with_seeds(seeds)
    t = require("scipy.stats", "fits", "a comparison over seeds").t
    wanted = (t.ppf(1 - level / 2, freedom) + t.ppf(power, freedom)) * np.sqrt(variance)
    enough = seeds[abs(found.mean) >= wanted]
    return int(enough[0]) if len(enough) else None


def probability_of_improvement(arm: Tables, baseline: Tables) -> float:
    """P(X > Y) + P(X = Y) / 2 for a run X of the arm and a run Y of the baseline, averaged over tasks (Agarwal et al. 2021, "Deep
    Reinforcement Learning at the Edge of the Statistical Precipice", arXiv 2108.13264)."""
    shares = []
    for task in baseline:
        x, y = np.asarray(arm[task]).mean(axis=1), np.asarray(baseline[task]).mean(axis=1)
        shares.append(float((np.greater.outer(x, y) + 0.5 * np.equal.outer(x, y)).mean()))
    return float(np.mean(shares))


def interquartile_mean(scores_tr: Sequence[np.ndarray]) -> float:
    """The mean of the middle half of all runs' scores, tasks together (arXiv 2108.13264): a quarter of the sorted scores is left
    out at each end, the scores at the border by their share.

    Args:
        scores_tr: for each task the scores of its runs.
    """
    scores = np.sort(np.concatenate([np.asarray(one, dtype=np.float64) for one in scores_tr]))
    if not len(scores) or not np.isfinite(scores).all():
        raise ValueError("an interquartile mean needs a finite score for each run")
    edges = np.arange(len(scores) + 1) / len(scores)
    share = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0, None)
    return float(scores @ share / share.sum())


def interquartile_interval(
    scores_tr: Sequence[np.ndarray], *, confidence: float = 0.95, seed: int = 0, resamples: int = 4_000
) -> Interval:
    """The interquartile mean with a bootstrap over runs, stratified by task, as in rliable; too narrow where runs are few."""
    rng = generator("interquartile", seed)
    drawn = [np.asarray(one)[rng.integers(len(one), size=(resamples, len(one)))] for one in scores_tr]
    means = [interquartile_mean([task[i] for task in drawn]) for i in range(resamples)]
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(interquartile_mean(scores_tr), float(low), float(high))


def _checked(arms: Mapping[str, Tables], baseline: str) -> Tables:
    if baseline not in arms:
        raise ValueError(f"the baseline '{baseline}' is none of the arms: {', '.join(arms)}")
    base = arms[baseline]
    for name, tables in arms.items():
        for task, table in tables.items():
            if not np.size(table) or not np.isfinite(table).all():
                raise ValueError(f"the arm '{name}' needs a finite value for each seed and problem of '{task}'")
    shapes = {task: np.shape(table) for task, table in base.items()}
    for name, tables in arms.items():
        if {task: np.shape(table) for task, table in tables.items()} != shapes:
            raise ValueError(
                f"the arm '{name}' has other tasks, seeds or problems than '{baseline}': they cannot be paired"
            )
    return base
