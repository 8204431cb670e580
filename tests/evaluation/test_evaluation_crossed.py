"""Intervals over seeds and problems: coverage in simulation, textbook values, and tables in which nothing varies."""

from __future__ import annotations

import numpy as np
import pytest

from surefoot.evaluation.crossed import combine, crossed_bootstrap, crossed_interval, estimate
from surefoot.evaluation.intervals import mean_interval, paired_interval

TRIALS = 1000
# Standard deviations of what a seed, a problem and a cell add.
WORLDS = {"problems": (0.1, 0.3, 1.0), "seeds": (0.3, 0.1, 1.0), "both": (0.3, 0.3, 0.3)}


def tables(world: str, seeds: int, problems: int, trials: int = TRIALS) -> np.ndarray:
    """[trials, S, P] with mean 0."""
    rng = np.random.default_rng(7)
    of_seed, of_problem, rest = WORLDS[world]
    return (
        of_seed * rng.normal(size=(trials, seeds, 1))
        + of_problem * rng.normal(size=(trials, 1, problems))
        + rest * rng.normal(size=(trials, seeds, problems))
    )


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("seeds", "problems"), [(5, 64), (10, 256)])
def test_coverage_is_nominal(world: str, seeds: int, problems: int) -> None:
    found = [estimate(table).interval() for table in tables(world, seeds, problems)]
    assert 0.93 <= np.mean([one.low <= 0 <= one.high for one in found]) <= 0.97


@pytest.mark.parametrize("world", WORLDS)
def test_coverage_with_three_seeds(world: str) -> None:
    found = [estimate(table).interval() for table in tables(world, 3, 64)]
    assert 0.91 <= np.mean([one.low <= 0 <= one.high for one in found]) <= 0.98


def test_no_more_coverage_than_needed_where_only_cells_vary() -> None:
    rng = np.random.default_rng(3)
    found = [estimate(rng.normal(size=(5, 64))).interval() for _ in range(TRIALS)]
    assert 0.95 <= np.mean([one.low <= 0 <= one.high for one in found]) <= 0.995


def test_coverage_of_right_and_wrong_answers() -> None:
    """Two policies of equal accuracy whose seeds and problems differ: the differences are -1, 0 and 1."""
    rng = np.random.default_rng(5)
    hits = []
    for _ in range(TRIALS):
        problem = rng.normal(0, 1.5, size=(1, 128))
        one, other = (
            rng.random((5, 128)) < 1 / (1 + np.exp(-(problem + rng.normal(0, 0.4, size=(5, 1))))) for _ in range(2)
        )
        interval = crossed_interval(one.astype(float) - other, paired=True)
        hits.append(interval.low <= 0 <= interval.high)
    assert 0.93 <= np.mean(hits) <= 0.975


@pytest.mark.parametrize("world", WORLDS)
def test_bootstrap_covers_where_the_plain_one_does_not(world: str) -> None:
    drawn = tables(world, 5, 64, trials=300)
    scaled = [crossed_bootstrap(table, resamples=500, seed=i) for i, table in enumerate(drawn)]
    assert np.mean([one.low <= 0 <= one.high for one in scaled]) >= 0.90
    if world == "both":
        rng = np.random.default_rng(0)
        plain = []
        for table in drawn:
            of_seeds = rng.multinomial(5, [0.2] * 5, size=500) / 5
            of_problems = rng.multinomial(64, [1 / 64] * 64, size=500) / 64
            low, high = np.quantile(((of_seeds @ table) * of_problems).sum(1), [0.025, 0.975])
            plain.append(low <= 0 <= high)
        assert np.mean(plain) < 0.9


def test_mean_squares_by_hand() -> None:
    """[[1, 2, 6], [3, 6, 6]]: row means 3 and 5, column means 2, 4, 6, mean 4."""
    found = estimate(np.array([[1.0, 2.0, 6.0], [3.0, 6.0, 6.0]]))
    of_seeds, of_problems, rest = 3 * (1 + 1) / 1, 2 * (4 + 0 + 4) / 2, (0 + 1 + 1 + 0 + 1 + 1) / 2
    assert found.mean == 4
    assert found.variance == pytest.approx(max(of_seeds + of_problems - rest, of_seeds, of_problems) / 6)
    assert (found.seeds, found.problems, found.rest) == pytest.approx(
        ((of_seeds - rest) / 3, (of_problems - rest) / 2, rest)
    )
    parts = np.array([of_seeds, of_problems, rest]) / 6
    assert found.freedom == pytest.approx(found.variance**2 / (parts**2 / [1, 2, 2]).sum())


def test_one_problem_is_students_t_over_seeds() -> None:
    """t(0.975; 3) = 3.182446 (tables)."""
    found = estimate(np.array([[1.0], [2.0], [3.0], [6.0]]))
    half = 3.182446 * np.std([1, 2, 3, 6], ddof=1) / 2
    assert found.interval() == pytest.approx((3.0, 3.0 - half, 3.0 + half), rel=1e-6)
    at_the_edge = estimate(np.array([[1.0], [2.0], [3.0], [6.0]]) - 3 + half)
    assert at_the_edge.p_value() == pytest.approx(0.05, rel=1e-5)


def test_variance_components_are_found() -> None:
    found = [estimate(table) for table in tables("both", 10, 100, trials=300)]
    for name in ("seeds", "problems", "rest"):
        assert np.mean([getattr(one, name) for one in found]) == pytest.approx(0.09, rel=0.1)


@pytest.mark.parametrize(
    ("mean", "spread", "least"), [(0.02, 2.0, 0.90), (0.05, 0.5, 0.90), (0.95, 1.0, 0.90), (0.02, 0.2, 0.87)]
)
def test_coverage_of_rare_and_of_common_answers(mean: float, spread: float, least: float) -> None:
    """Near 0 and 1 the mean is skewed, and Student's t covers less. In the last case a problem in fifty is nearly always
    solved and the others never: of 64 there is one or none, and 95 % are not to be had."""
    rng = np.random.default_rng(11)
    inside, by_t = [], []
    for _ in range(500):
        chance = np.broadcast_to(rng.beta(mean * spread, (1 - mean) * spread, size=64), (4, 64))
        table = rng.binomial(4, chance) / 4
        interval, other = (
            crossed_interval(table),
            crossed_interval(table) if np.ptp(table) == 0 else estimate(table).interval(),
        )
        inside.append(interval.low <= mean <= interval.high)
        by_t.append(other.low <= mean <= other.high)
    assert least <= np.mean(inside) <= 0.995 and np.mean(inside) >= np.mean(by_t)


def test_order_of_seeds_and_problems_does_not_matter() -> None:
    table = tables("both", 4, 30, trials=1)[0]
    rng = np.random.default_rng(1)
    mixed = table[rng.permutation(4)][:, rng.permutation(30)]
    assert estimate(mixed).interval() == pytest.approx(estimate(table).interval(), abs=1e-12)


def test_one_seed_speaks_for_the_problems_only() -> None:
    right = np.random.default_rng(0).integers(0, 2, size=(1, 40)).astype(float)
    assert crossed_interval(right) == mean_interval(right[0])
    assert crossed_interval(right - 1, paired=True) == paired_interval(right[0], np.ones(40))


def test_equal_values_keep_a_width() -> None:
    for value in (0.0, 1.0):
        interval = crossed_interval(np.full((5, 50), value))
        assert interval.value == value and 0.05 < interval.high - interval.low < 0.15
    same = crossed_interval(np.zeros((5, 50)), paired=True)
    assert same.low < 0 < same.high


def test_bounds_stay_where_values_can_be() -> None:
    table = np.array([[1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    assert crossed_interval(table).high == 1.0
    assert crossed_interval(-table, paired=True).low == -1.0


def test_tasks_together() -> None:
    one, other = (estimate(table) for table in tables("both", 5, 50, trials=2))
    both = combine([one, other])
    assert both.mean == pytest.approx((one.mean + other.mean) / 2)
    assert both.variance == pytest.approx((one.variance + other.variance) / 4)
    assert both.freedom >= min(one.freedom, other.freedom)
    assert combine([one]) is one
    with pytest.raises(ValueError, match="at least one task"):
        combine([])


@pytest.mark.parametrize("bad", [np.zeros((0, 3)), np.zeros(5), np.array([[np.nan, 1.0]]), np.zeros((1, 1))])
def test_what_is_no_table_is_refused(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"table|expected numbers"):
        estimate(bad)
    with pytest.raises(ValueError, match="two of each"):
        crossed_bootstrap(np.zeros((1, 5)))
