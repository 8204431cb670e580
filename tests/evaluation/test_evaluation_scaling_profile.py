"""Fits of reward against compute: planted curves are found with the promised coverage, and open ones are refused."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from surefoot.errors import DataError
from surefoot.evaluation.scaling import curve
from surefoot.evaluation.scaling_check import compare_with_power_law, extrapolate, fit_power_law
from surefoot.evaluation.scaling_grid import EXPONENT_RANGE
from surefoot.evaluation.scaling_profile import CurveFit, fit_curve

TRUTH = (0.2, 0.65, 1500.0, 1.2)  # R_0, A, C_mid, B
COMPUTE = np.geomspace(100, 20000, 20)


def points(seed: int, scatter: float = 0.01, compute: np.ndarray = COMPUTE) -> np.ndarray:
    return curve(compute, *TRUTH) + scatter * np.random.default_rng(seed).normal(size=len(compute))


@pytest.fixture(scope="module")
def fits() -> list[CurveFit]:
    return [fit_curve(COMPUTE, points(seed), TRUTH[0]) for seed in range(120)]


def test_planted_parameters_are_covered(fits: list[CurveFit]) -> None:
    """120 fits: two standard deviations of a share of 0.95 are 0.04."""
    for name, truth in (("asymptote", 0.65), ("midpoint", 1500.0), ("exponent", 1.2)):
        found = [getattr(fit, name) for fit in fits]
        covered = np.mean([one.low <= truth <= one.high for one in found])
        assert 0.90 <= covered <= 0.99, (name, covered)
        assert np.median([one.value for one in found]) == pytest.approx(truth, rel=0.05)
        assert all(one.low <= one.value <= one.high for one in found)


def test_bands_cover_the_curve_and_new_points(fits: list[CurveFit]) -> None:
    places = np.array([300.0, 3000.0, 40000.0])
    truth = curve(places, *TRUTH)
    rng = np.random.default_rng(1)
    of_curve, of_points = [], []
    for fit in fits:
        low, high = fit.band(places)
        of_curve.append((low <= truth) & (truth <= high))
        low, high = fit.band(places, of_points=True)
        new = truth + 0.01 * rng.normal(size=3)
        of_points.append((low <= new) & (new <= high))
    assert 0.90 <= np.mean(of_curve) <= 0.99 and 0.90 <= np.mean(of_points) <= 0.99


def test_without_scatter_the_curve_comes_back() -> None:
    fit = fit_curve(COMPUTE, curve(COMPUTE, *TRUTH), TRUTH[0])
    assert (fit.fit.asymptote, fit.fit.midpoint, fit.fit.exponent) == pytest.approx(TRUTH[1:], rel=1e-3)
    assert fit.scatter < 1e-4 and fit.identified and fit.refusal == ""


def test_the_unit_of_compute_does_not_matter() -> None:
    one, other = fit_curve(COMPUTE, points(0), 0.2), fit_curve(COMPUTE * 1e12, points(0), 0.2)
    assert other.asymptote.value == pytest.approx(one.asymptote.value, rel=1e-6)
    assert other.midpoint.value == pytest.approx(one.midpoint.value * 1e12, rel=1e-6)


def test_a_run_that_has_not_bent_says_nothing_of_its_asymptote() -> None:
    early = np.geomspace(20, 700, 12)
    fit = fit_curve(early, points(3, compute=early), TRUTH[0])
    assert not fit.identified and "do not identify" in fit.refusal and fit.asymptote.high == pytest.approx(1.0)


def test_the_ceiling_closes_an_interval_that_lies_against_it() -> None:
    """A run that is known to end at the largest reward there can be is identified; one that only may end there is not."""
    compute = np.geomspace(100, 60_000, 40)
    rng = np.random.default_rng(0)
    reward = np.minimum(curve(compute, 0.2, 1.0, 800.0, 1.5) + 0.01 * rng.normal(size=40), 0.999)
    fit = fit_curve(compute, reward, 0.2)
    assert fit.identified and fit.asymptote.high == 1.0 and fit.asymptote.low > 0.98
    assert fit_curve(compute, reward, 0.2, ceiling=2.0).asymptote.high < 1.05
    assert not fit_curve(compute[:15], reward[:15], 0.2).identified


def test_a_plateau_from_the_first_point_on_is_no_fall() -> None:
    """Its slope is as often below 0 as above; what is refused is a fall that chance does not make."""
    flat = [0.6 + 0.01 * np.random.default_rng(seed).normal(size=20) for seed in range(5)]
    assert min(np.polyfit(np.log(COMPUTE), reward, 1)[0] for reward in flat) < 0
    for reward in flat:
        fit = fit_curve(COMPUTE, reward, 0.2)
        assert fit.asymptote.low < 0.6 < fit.asymptote.high and fit.midpoint.low_open


def test_a_step_leaves_the_exponent_open_above() -> None:
    compute = np.linspace(100, 2000, 20)
    for scatter in (0.0, 0.001):
        reward = np.where(compute < 1000, 0.21, 0.6) + scatter * np.random.default_rng(0).normal(size=20)
        exponent = fit_curve(compute, reward, 0.2).exponent
        assert exponent.high_open and exponent.low < exponent.value <= exponent.high <= EXPONENT_RANGE[1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("smallest", [1e-50, 1.0, 1e30])
def test_twenty_decades_of_compute_are_fitted_without_a_warning(smallest: float) -> None:
    compute = smallest * np.geomspace(1, 1e19, 24)
    reward = curve(compute, 0.2, 0.6, smallest * 1e9, 0.3)
    assert fit_curve(compute, reward, 0.2).asymptote.value == pytest.approx(0.6, abs=1e-3)
    assert compare_with_power_law(compute, reward, 0.2).better == "sigmoid"


def test_memory_does_not_grow_with_the_points() -> None:
    """All curves of the grid at 1,200 points at once would be 94 MB, and several copies of them."""
    peaks = []
    for number in (200, 1200):
        many = np.geomspace(100, 20000, number)
        tracemalloc.start()
        try:
            fit_curve(many, points(0, compute=many), TRUTH[0])
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] - peaks[0] < 20e6


def test_fewer_scattered_points_give_wider_intervals() -> None:
    wide = fit_curve(COMPUTE[::3], points(5)[::3], 0.2)
    narrow = fit_curve(COMPUTE, points(5), 0.2)
    assert wide.asymptote.high - wide.asymptote.low > narrow.asymptote.high - narrow.asymptote.low
    surer = fit_curve(COMPUTE, points(5), 0.2, confidence=0.99)
    assert surer.asymptote.low <= narrow.asymptote.low and surer.asymptote.high >= narrow.asymptote.high


def test_extrapolation_predicts_the_rest() -> None:
    even = np.linspace(200, 20000, 60)
    found = extrapolate(even, points(7, compute=even), 0.2, share=0.4)
    assert found.until <= 8000 < found.compute.min() and len(found.reward) == len(found.predicted)
    assert found.error < 0.02 and abs(found.bias) < 0.02 and found.inside > 0.8


def test_extrapolation_sees_a_collapse() -> None:
    even = np.linspace(200, 20000, 60)
    reward = points(8, compute=even)
    reward[even > 10000] = 0.3
    found = extrapolate(even, reward, 0.2)
    assert found.inside == 0 and found.bias > 0.2


def test_the_right_curve_wins() -> None:
    even = np.linspace(100, 20000, 60)
    sigmoid = compare_with_power_law(
        even, curve(even, 0.2, 0.65, 9000, 4.0) + 0.003 * np.random.default_rng(0).normal(size=60), 0.19
    )
    assert sigmoid.better == "sigmoid" and len(sigmoid.shares) == len(sigmoid.sigmoid) == len(sigmoid.power_law)
    law = 0.6 - 3 * even**-0.35 + 0.002 * np.random.default_rng(1).normal(size=60)
    assert compare_with_power_law(even, law, law.min() - 0.01).better in ("power law", "neither")


def test_power_law_comes_back() -> None:
    found = fit_power_law(COMPUTE, 0.7 - 5 * COMPUTE**-0.5)
    assert (found.asymptote, found.factor, found.exponent) == pytest.approx((0.7, 5, 0.5), rel=0.03)
    assert np.allclose(found.reward(COMPUTE), 0.7 - 5 * COMPUTE**-0.5, atol=2e-3)
    assert fit_power_law(COMPUTE, 0.9 - 2 * COMPUTE**-0.05, ceiling=0.7).asymptote <= 0.7


@pytest.mark.parametrize(
    ("compute", "reward", "said"),
    [
        (COMPUTE[:4], points(0)[:4], "at least 5 points"),
        (COMPUTE, np.full(20, 0.1), "no gain to fit"),
        (COMPUTE, np.full(20, 0.5), "does not rise"),
        (COMPUTE, points(0) + 0.5, "is above the ceiling"),
        (-COMPUTE, points(0), "compute must be above 0"),
        (COMPUTE, np.full(20, np.nan), "finite"),
        (COMPUTE, np.linspace(0.85, 0.5, 20), "falls with compute"),
        (COMPUTE, points(0)[::-1], "falls with compute"),
        (np.geomspace(1e-140, 1e140, 20), points(0), "at most 20 decades"),
        (np.geomspace(1e60, 1e62, 20), points(0), "at most 20 decades"),
    ],
)
def test_what_cannot_be_fitted_is_refused(compute: np.ndarray, reward: np.ndarray, said: str) -> None:
    with pytest.raises(DataError, match=said):
        fit_curve(compute, reward, 0.2)


def test_shares_and_rests_are_checked() -> None:
    with pytest.raises(DataError, match="between 0 and 1"):
        extrapolate(COMPUTE, points(0), 0.2, share=1.5)
    with pytest.raises(DataError, match="of the compute cannot be fitted"):
        extrapolate(COMPUTE, points(0), 0.2, share=0.01)
    with pytest.raises(DataError, match="evaluate more often"):
        compare_with_power_law(np.array([1.0, 97, 98, 99, 100]), np.array([0.3, 0.4, 0.41, 0.42, 0.43]), 0.2)
