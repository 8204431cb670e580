"""Intervals: published values, coverage in simulation, and what happens where nothing varies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from surefoot.evaluation.intervals import Interval, bootstrap, mean_interval, paired_interval, wilson

TRIALS = 1000
RESAMPLES = 1000  # a tenth of the default: quick, and close enough for coverage


def coverage(draw: Callable[[np.random.Generator], Interval], truth: float) -> float:
    rng = np.random.default_rng(0)
    intervals = [draw(rng) for _ in range(TRIALS)]
    return float(np.mean([interval.low <= truth <= interval.high for interval in intervals]))


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_equals_published_values(successes: int, trials: int, low: float, high: float) -> None:
    """Newcombe 1998, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17, table I."""
    interval = wilson(successes, trials)
    assert interval.value == successes / trials
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)


def test_wilson_is_symmetric_and_bounded() -> None:
    for trials in (1, 7, 500):
        for successes in range(trials + 1):
            interval, mirror = wilson(successes, trials), wilson(trials - successes, trials)
            assert 0 <= interval.low <= interval.value <= interval.high <= 1
            assert interval.low == pytest.approx(1 - mirror.high, abs=1e-12)
    assert wilson(50, 100, confidence=0.99).high > wilson(50, 100, confidence=0.9).high


@pytest.mark.parametrize("p", [0.02, 0.3, 0.85])
def test_coverage_with_one_sample_per_problem(p: float) -> None:
    observed = coverage(lambda rng: mean_interval(rng.binomial(1, p, size=120)), p)
    assert 0.92 <= observed <= 0.98


@pytest.mark.parametrize(("a", "b"), [(2.0, 2.0), (0.3, 1.2), (5.0, 1.0), (0.04, 1.96), (0.95, 0.05)])
def test_coverage_with_several_samples_per_problem(a: float, b: float) -> None:
    """Problems of different difficulty, four samples each: 480 samples must not pass for 480 problems."""

    def draw(rng: np.random.Generator) -> Interval:
        return mean_interval(rng.binomial(4, rng.beta(a, b, size=120)) / 4)

    assert 0.92 <= coverage(draw, a / (a + b)) <= 0.98


def test_one_right_answer_leaves_a_width() -> None:
    """24 problems, 4 samples each: with the first right answer the interval must not shrink to next to nothing."""
    none, one = np.zeros(24), np.zeros(24)
    one[0] = 0.25
    assert 0.04 < mean_interval(one).high < mean_interval(none).high
    assert mean_interval(one).low < 0.01 and mean_interval(1 - one).low == pytest.approx(1 - mean_interval(one).high)


def test_one_sample_per_problem_is_wilsons_interval() -> None:
    right = np.random.default_rng(0).integers(0, 2, size=50)
    assert mean_interval(right) == pytest.approx(wilson(int(right.sum()), 50))


def test_counting_samples_as_problems_would_cover_too_little() -> None:
    def draw(rng: np.random.Generator) -> Interval:
        correct = rng.binomial(4, rng.beta(0.3, 1.2, size=120))
        return wilson(int(correct.sum()), 480)

    assert coverage(draw, 0.2) < 0.9


@pytest.mark.parametrize("samples", [1, 4])
def test_coverage_of_a_paired_difference(samples: int) -> None:
    """Two policies on the same problems of widely different difficulty; the second is better by 0.06 on average."""

    def draw(rng: np.random.Generator) -> Interval:
        base = rng.beta(0.4, 0.6, size=150)
        better = base + 0.15 * (1 - base) * np.where(rng.random(150) < 2 / 3, 1, 0)
        seed = int(rng.integers(2**31))
        return paired_interval(
            rng.binomial(samples, better) / samples,
            rng.binomial(samples, base) / samples,
            seed=seed,
            resamples=RESAMPLES,
        )

    assert 0.92 <= coverage(draw, 0.15 * 0.6 * 2 / 3) <= 0.98


def test_coverage_of_a_large_paired_difference() -> None:
    """70 % of the problems got better, 10 % worse, 5 % are right and 15 % wrong both times."""

    def draw(rng: np.random.Generator) -> Interval:
        u = rng.random(60)
        return paired_interval(u < 0.75, (u > 0.7) & (u < 0.85))

    assert 0.92 <= coverage(draw, 0.75 - 0.15) <= 0.98


def test_pairing_sees_what_two_intervals_do_not() -> None:
    rng = np.random.default_rng(0)
    baseline = rng.integers(0, 8, size=200) / 8
    values = baseline + (rng.random(200) < 0.3) / 8
    assert mean_interval(values).low < mean_interval(baseline).high
    difference = paired_interval(values, baseline)
    assert difference.low > 0
    assert difference.value == pytest.approx((values - baseline).mean())


def test_a_paired_difference_changes_its_sign_with_the_order() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, size=90), rng.integers(0, 2, size=90)
    ab, ba = paired_interval(a, b), paired_interval(b, a)
    assert (ab.value, ab.low, ab.high) == pytest.approx((-ba.value, -ba.high, -ba.low))


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_equal_values_still_have_a_width(value: float) -> None:
    values = np.full(40, value)
    interval = mean_interval(values)
    assert interval.value == value
    assert interval.high - interval.low > 0.05
    same = paired_interval(values, values)
    assert same.value == 0 and same.low < -0.01 and same.high > 0.01


def test_widths_shrink_with_the_problems_and_grow_with_the_confidence() -> None:
    values = np.tile([0.0, 0.25, 0.5, 1.0], 50)
    wide, narrow = bootstrap(values[:40]), bootstrap(values)
    assert narrow.high - narrow.low == pytest.approx((wide.high - wide.low) / np.sqrt(5), rel=0.1)
    sure = bootstrap(values, confidence=0.99)
    assert sure.high - sure.low == pytest.approx((narrow.high - narrow.low) * 2.576 / 1.96, rel=0.1)


def test_the_bootstrap_is_that_of_resampled_problems() -> None:
    rng = np.random.default_rng(3)
    values = rng.integers(0, 5, size=60) / 4
    means = values[rng.integers(0, 60, size=(20_000, 60))].mean(axis=1)
    interval = bootstrap(values, resamples=20_000)
    assert (interval.low, interval.high) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=5e-3)
    assert interval.value == values.mean()


def test_the_seed_decides() -> None:
    values = np.random.default_rng(0).random(80)
    assert bootstrap(values, seed=1) == bootstrap(values, seed=1)
    assert bootstrap(values, seed=1) != bootstrap(values, seed=2)


def test_values_that_are_no_shares_are_refused() -> None:
    for bad in ([], [0.5, 1.5], [np.nan, 0.5]):
        with pytest.raises(ValueError, match="at least one value"):
            mean_interval(np.array(bad))
    with pytest.raises(ValueError, match="same problems, got 2 and 3"):
        paired_interval(np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="5 of 4"):
        wilson(5, 4)
