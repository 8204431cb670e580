"""Comparing arms: false findings, power, corrections and the summaries of rliable, against known answers."""

from __future__ import annotations

import numpy as np
import pytest

from surefoot.evaluation.comparison import (
    Verdict,
    compare_arms,
    holm,
    interquartile_interval,
    interquartile_mean,
    paired,
    probability_of_improvement,
    seeds_needed,
)
from surefoot.evaluation.crossed import estimate

TRIALS = 400


def runs(rng: np.random.Generator, gain: float, seeds: int = 5, problems: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """An arm and a baseline [S, P], 4 samples a problem; the arm is ``gain`` better, each run by luck of its own."""
    skill = rng.beta(2, 2, size=problems)
    found = []
    for shift in (gain, 0.0):
        chance = np.clip(skill + shift + rng.normal(0, 0.03, size=(seeds, 1)), 0, 1)
        found.append(rng.binomial(4, chance, size=(seeds, problems)) / 4)
    return found[0], found[1]


def test_equal_arms_are_rarely_told_apart() -> None:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(TRIALS):
        (one, base), (two, _) = runs(rng, 0), runs(rng, 0)
        pairs = compare_arms({"base": {"t": base}, "one": {"t": one}, "two": {"t": two}}, "base")
        found.append(any(pair.verdict in (Verdict.BETTER, Verdict.WORSE) for pair in pairs.values()))
    assert np.mean(found) <= 0.07


def test_the_same_run_twice_shows_no_difference() -> None:
    one, _ = runs(np.random.default_rng(1), 0)
    (pair,) = compare_arms({"a": {"t": one}, "b": {"t": one.copy()}}, "a").values()
    assert pair.verdict is Verdict.NOT_SHOWN and pair.difference.value == 0 and pair.p_value == 1
    assert pair.seeds_needed is None and pair.improvement == 0.5


def test_planted_difference_is_found_at_the_promised_power() -> None:
    """The number of seeds that a first look asks for gives about the power that it promises."""
    rng = np.random.default_rng(2)
    gain = 0.05
    large = estimate(np.subtract(*runs(rng, gain, seeds=60)))
    number = seeds_needed(large)
    assert number is not None and 4 <= number <= 14
    shown = []
    for _ in range(TRIALS):
        one, base = runs(rng, gain, seeds=number)
        (pair,) = compare_arms({"base": {"t": base}, "one": {"t": one}}, "base").values()
        shown.append(pair.verdict is Verdict.BETTER)
    assert 0.65 <= np.mean(shown) <= 0.95


@pytest.mark.parametrize("seeds", [2, 3, 5, 20])
def test_what_is_not_shown_needs_more_seeds(seeds: int) -> None:
    """A few degrees of freedom make the test ask for much; so must the number of seeds that would pass it."""
    rng = np.random.default_rng(seeds)
    unshown = 0
    for _ in range(20):
        base, tables = runs(rng, 0)[1][:1], {}
        base = np.repeat(base, seeds, axis=0) + rng.normal(0, 0.02, (seeds, 1))
        for name in "abcd":
            tables[name] = base + 0.03 / seeds**0.5 + rng.normal(0, 0.02, (seeds, 1)) + rng.normal(0, 0.1, base.shape)
        pairs = compare_arms({"base": {"t": base}, **{name: {"t": table} for name, table in tables.items()}}, "base")
        for pair in pairs.values():
            if pair.verdict is Verdict.NOT_SHOWN:
                unshown += 1
                assert pair.seeds_needed is None or pair.seeds_needed > seeds
    assert unshown > 20


@pytest.mark.parametrize("shape", [(2, 40), (5, 100), (30, 8), (6, 1)])
def test_as_many_seeds_as_there_are_give_the_variance_that_there_is(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    found = estimate(rng.normal(size=shape) + rng.normal(size=(shape[0], 1)) + rng.normal(size=(1, shape[1])))
    variance, freedom = found.with_seeds(np.array([shape[0]]))
    assert variance[0] == pytest.approx(found.variance) and freedom[0] == pytest.approx(found.freedom)


def test_sign_and_symmetry() -> None:
    one, base = runs(np.random.default_rng(3), 0.2)
    arms = {"base": {"t": base}, "one": {"t": one}}
    up, down = compare_arms(arms, "base")["one"], compare_arms(arms, "one")["base"]
    assert (up.verdict, down.verdict) == (Verdict.BETTER, Verdict.WORSE)
    assert up.difference.value == -down.difference.value and up.difference.low == -down.difference.high
    assert up.improvement == 1.0 and down.improvement == 0.0


@pytest.mark.parametrize("shape", [(2, 1), (2, 8), (3, 4), (5, 200)])
@pytest.mark.parametrize("gain", [0.0, 1 / 3, 0.2, 0.7, 1.0])
@pytest.mark.parametrize("tasks", [1, 2])
def test_verdict_and_interval_agree_where_nothing_varies(shape: tuple[int, int], gain: float, tasks: int) -> None:
    """All cells differ by the same: other problems might not, so few of them show little, and the interval has a width."""
    base = {f"t{i}": np.full(shape, 0.1 if gain < 0.9 else 0.0) for i in range(tasks)}
    one = {task: table + gain for task, table in base.items()}
    (pair,) = compare_arms({"base": base, "one": one}, "base").values()
    low, high = pair.difference.low, pair.difference.high
    assert high - low > 1 / (tasks * shape[1]) and low - 1e-9 <= gain <= high + 1e-9
    assert (pair.verdict is Verdict.BETTER) == (low > 0) == (pair.p_value <= 0.05)
    if shape == (5, 200):
        assert (pair.verdict is Verdict.BETTER) == (gain > 0)


@pytest.mark.parametrize("bad", [np.full((2, 3), np.nan), np.zeros((0, 3)), np.zeros((2, 0))])
def test_tables_without_finite_values_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="needs a finite value for each seed and problem of 't'"):
        compare_arms({"base": {"t": np.zeros(bad.shape)}, "one": {"t": bad}}, "base")


def test_one_seed_is_too_little() -> None:
    one, base = runs(np.random.default_rng(4), 0.3, seeds=1)
    pair = compare_arms({"base": {"t": base}, "one": {"t": one}}, "base")["one"]
    assert pair.verdict is Verdict.UNKNOWN and pair.difference.value > 0.2 and pair.seeds_needed is None
    assert paired({"t": one}, {"t": base}) is None


def test_more_arms_need_more_evidence() -> None:
    rng = np.random.default_rng(5)
    one, base = runs(rng, 0.05)
    others = {f"arm{i}": {"t": runs(rng, 0)[0]} for i in range(8)}
    alone = compare_arms({"base": {"t": base}, "one": {"t": one}}, "base")["one"]
    among = compare_arms({"base": {"t": base}, "one": {"t": one}, **others}, "base")["one"]
    assert alone.p_value == among.p_value == alone.adjusted < among.adjusted


def test_holm_by_hand() -> None:
    """Sorted: 0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1, each at least the one before."""
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}) == pytest.approx(
        {"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02}
    )
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0} and holm({}) == {}


def test_tasks_count_alike() -> None:
    rng = np.random.default_rng(6)
    (one, base), (two, other) = runs(rng, 0.2, problems=20), runs(rng, 0, problems=200)
    arms = {"base": {"few": base, "many": other}, "one": {"few": one, "many": two}}
    pair = compare_arms(arms, "base")["one"]
    assert pair.difference.value == pytest.approx(((one - base).mean() + (two - other).mean()) / 2)


def test_interquartile_mean_leaves_a_quarter_out_at_each_end() -> None:
    assert interquartile_mean([np.array([0.0, 1, 2, 3, 4, 5, 6, 100])]) == pytest.approx((2 + 3 + 4 + 5) / 4)
    assert interquartile_mean([np.array([0.0, 1, 2]), np.array([3.0, 4, 90])]) == pytest.approx(
        (0.5 * 1 + 2 + 3 + 0.5 * 4) / 3
    )
    assert interquartile_mean([np.array([0.25])]) == 0.25
    stats = pytest.importorskip("scipy.stats")
    scores = np.random.default_rng(0).random(40)
    assert interquartile_mean([scores]) == pytest.approx(stats.trim_mean(scores, 0.25))


def test_interquartile_interval_covers() -> None:
    rng = np.random.default_rng(8)
    hits = []
    for i in range(150):
        interval = interquartile_interval([rng.normal(size=40), rng.normal(size=40)], seed=i, resamples=300)
        hits.append(interval.low <= 0 <= interval.high)
    assert 0.88 <= np.mean(hits) <= 0.99


def test_probability_of_improvement_counts_pairs_of_runs() -> None:
    x, y = np.array([[0.1], [0.5], [0.9]]), np.array([[0.2], [0.5]])
    assert probability_of_improvement({"t": x}, {"t": y}) == pytest.approx((0 + 0 + 1 + 0.5 + 1 + 1) / 6)


def test_no_number_of_seeds_makes_up_for_few_problems() -> None:
    rng = np.random.default_rng(9)
    table = 0.01 + rng.normal(size=(1, 20)) + rng.normal(0, 0.01, size=(50, 20))
    assert seeds_needed(estimate(table)) is None


def test_other_problems_are_refused() -> None:
    table = np.zeros((3, 4))
    with pytest.raises(ValueError, match="other tasks, seeds or problems"):
        compare_arms({"a": {"t": table}, "b": {"t": table[:, :3]}}, "a")
    with pytest.raises(ValueError, match="none of the arms"):
        compare_arms({"a": {"t": table}}, "c")
