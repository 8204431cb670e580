"""The fit of performance against compute: the worked case, curves that it must find again, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.errors import ConfigError, DataError
from surefoot.evaluation.scaling import ScalingFit, ScalingGrid, curve, fit, fit_at

GOLDEN = Path(__file__).parent.parent / "algorithms" / "golden.json"
CASE = next(case for case in json.loads(GOLDEN.read_text(encoding="utf-8")) if case["id"] == "scalerl_fit")
COMPUTE, REWARD = np.array(CASE["inputs"]["C"]), np.array(CASE["inputs"]["R"])
INITIAL = CASE["inputs"]["R0"]
SMALL = ScalingGrid(np.linspace(0.4, 0.9, 11), np.linspace(10.0, 200.0, 20))


def test_the_default_grid_is_the_papers() -> None:
    grid = ScalingGrid()
    assert len(grid.asymptotes) == 71 and len(grid.midpoints) == 100
    assert grid.asymptotes[[0, 1, -1]] == pytest.approx([0.450, 0.455, 0.800])
    assert grid.midpoints[[0, -1]] == pytest.approx([100, 40000])


def test_worked_fit_on_the_papers_grid() -> None:
    best = CASE["expected"]["grid_best"]
    found = fit(COMPUTE, REWARD, INITIAL)
    assert found.asymptote == pytest.approx(best["A"], abs=1e-9)
    assert found.midpoint == pytest.approx(best["C_mid"], rel=1e-9)
    assert found.exponent == pytest.approx(best["B"], rel=1e-8)
    assert found.squared_error == pytest.approx(best["sse"], rel=1e-8)
    assert found.points == len(COMPUTE) and found.initial == INITIAL


def test_worked_line_at_the_true_asymptote() -> None:
    want = CASE["expected"]["loglinear_at_true_A"]
    found = fit_at(COMPUTE, REWARD, INITIAL, 0.61)
    assert found.exponent == pytest.approx(want["B"], rel=1e-9)
    assert found.midpoint == pytest.approx(want["C_mid"], rel=1e-9)
    assert found.squared_error < 1e-20
    assert float(found.reward(want["C_mid"])) == pytest.approx(CASE["expected"]["value_at_Cmid"], abs=1e-9)
    assert float(found.reward(1e5)) == pytest.approx(CASE["expected"]["value_at_100k"], abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.floats(0.0, 0.3), st.floats(0.4, 1.0), st.floats(10.0, 1e5), st.floats(0.1, 5.0))
def test_half_of_the_gain_is_reached_at_the_midpoint(
    initial: float, asymptote: float, midpoint: float, exponent: float
) -> None:
    found = ScalingFit(initial, asymptote, midpoint, exponent, 0.0, 0)
    assert float(found.reward(midpoint)) == pytest.approx((initial + asymptote) / 2, rel=1e-12)
    compute = midpoint * np.array([0.1, 0.5, 2.0, 10.0])
    want = initial + (asymptote - initial) / (1 + (midpoint / compute) ** exponent)
    assert found.reward(compute) == pytest.approx(want, rel=1e-10)
    # Where the printed form overflows, the curve is at its ends.
    assert found.reward(np.array([1e-300, 1e300])) == pytest.approx([initial, asymptote], abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.0, 0.3), st.floats(0.4, 1.0), st.floats(20.0, 5e3), st.floats(0.3, 3.0))
def test_the_line_finds_every_curve_again(initial: float, asymptote: float, midpoint: float, exponent: float) -> None:
    compute = np.geomspace(midpoint / 8, 8 * midpoint, 7)
    found = fit_at(compute, curve(compute, initial, asymptote, midpoint, exponent), initial, asymptote)
    assert found.exponent == pytest.approx(exponent, rel=1e-6)
    assert found.midpoint == pytest.approx(midpoint, rel=1e-6)


def test_a_curve_on_the_grid_is_found_again_and_noise_moves_it_little() -> None:
    compute = np.linspace(20, 600, 12)
    truth = curve(compute, 0.1, 0.65, 90.0, 1.5)
    found = fit(compute, truth, 0.1, grid=SMALL)
    assert (found.asymptote, found.midpoint) == pytest.approx((0.65, 90.0))
    assert found.exponent == pytest.approx(1.5, rel=1e-6)
    noisy = truth + 0.003 * np.random.default_rng(0).standard_normal(12)
    found = fit(compute, noisy, 0.1, grid=SMALL)
    assert found.asymptote == pytest.approx(0.65, abs=0.051)
    assert found.squared_error <= float(((noisy - truth) ** 2).sum()) + 1e-12


def test_points_before_the_start_are_left_out() -> None:
    compute = np.linspace(20, 600, 12)
    reward = curve(compute, 0.1, 0.65, 90.0, 1.5)
    early = reward.copy()
    early[:3] = 0.05  # below R_0: the reward fell before it rose
    with pytest.raises(DataError, match="above R_0"):
        fit(compute, early, 0.1, grid=SMALL)
    found = fit(compute, early, 0.1, grid=SMALL, start=compute[3])
    assert found.points == 9
    assert found == fit(compute[3:], reward[3:], 0.1, grid=SMALL)
    assert fit_at(compute, early, 0.1, 0.65, start=compute[3]).points == 9


def points(count: int = 12, **changes: float) -> tuple[np.ndarray, np.ndarray]:
    numbers = {"initial": 0.1, "asymptote": 0.65, "midpoint": 90.0, "exponent": 1.5, **changes}
    compute = np.linspace(20, 600, count)
    return compute, curve(compute, **numbers)


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"count": 3}, DataError, "at least 4 points"),
        ({"exponent": -1.5}, DataError, "does not rise"),
        ({"midpoint": 20000.0}, DataError, "too little"),
        ({"midpoint": 300.0}, ConfigError, "C_mid = 200 is at the edge"),
        ({"midpoint": 5.0}, ConfigError, "C_mid = 10 is at the edge"),
        ({"asymptote": 0.99}, ConfigError, "A = 0.9 is at the edge"),
        ({"asymptote": 0.35}, ConfigError, "A = 0.4 is at the edge"),
        ({"initial": 0.0}, DataError, "above R_0"),
    ],
)
def test_a_fit_that_means_nothing_is_refused(changes: dict[str, Any], error: type[Exception], says: str) -> None:
    compute, reward = points(**changes)
    with pytest.raises(error, match=says) as caught:
        fit(compute, reward, 0.1, grid=SMALL)
    assert "\n" not in str(caught.value)


def test_a_point_above_the_asymptote_is_refused() -> None:
    compute, reward = points(exponent=8.0, midpoint=60.0)
    reward[-4:] += [0.02, -0.02, 0.02, -0.02]
    with pytest.raises(DataError, match="not below the asymptote"):
        fit(compute, reward, 0.1, grid=SMALL)
    with pytest.raises(DataError, match="not below the asymptote"):
        fit_at(compute, reward, 0.1, 0.65)


@pytest.mark.parametrize(
    ("compute", "reward", "says"),
    [
        ([1.0, 2.0], [0.2], "shapes"),
        ([0.0, 2.0], [0.2, 0.3], "the point before training, at 0, is R_0"),
        ([1.0, 2.0], [0.2, float("nan")], "finite"),
        ([2.0, 2.0], [0.2, 0.3], "at least 2 points at different compute and got 1"),
        ([1.0, 2.0], [0.3, 0.2], "does not rise"),
        ([1.0, 10.0, 100.0], [0.2, 0.3, 0.2], "does not rise"),
        ([1.0, 2.0], [0.3, 0.30001], r"half of the gain would be reached at a compute of exp\("),
        ([1.0, 2.0], [0.55, 0.55001], r"half of the gain would be reached at a compute of exp\(-"),
        (["a", "b"], [0.2, 0.3], r"compute in numbers, one for each point, got \['a', 'b'\]"),
        ([1.0, 2.0], ["0.2", "0.3"], "rewards in numbers"),
        ([[1.0], [2.0, 3.0]], [0.2, 0.3], "compute in numbers"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_points_that_cannot_be_fitted_are_refused(compute: Any, reward: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        fit_at(compute, reward, 0.1, 0.6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("level", [0.1000001, 0.2, 0.25, 0.3, 0.39, 0.5, 0.59])
@pytest.mark.parametrize("noise", [0.0, 1e-15])
def test_a_flat_reward_has_no_curve(level: float, noise: float) -> None:
    compute = np.linspace(20, 600, 12)
    reward = np.full(12, level) + noise * np.arange(12)
    with pytest.raises(DataError, match="does not rise"):
        fit_at(compute, reward, 0.1, 0.65)
    with pytest.raises(DataError, match="does not rise"):
        fit(compute, reward, 0.1, grid=SMALL)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("given", [float("nan"), float("inf"), -float("inf"), "0.65", None, [0.65]])
def test_numbers_that_are_none_are_refused(given: Any) -> None:
    compute, reward = points()
    for name, numbers in (
        ("asymptote A", {"initial": 0.1, "asymptote": given}),
        ("R_0", {"initial": given, "asymptote": 0.65}),
        ("start", {"initial": 0.1, "asymptote": 0.65, "start": given}),
    ):
        with pytest.raises(DataError, match=f"{name} must be a finite number, got "):
            fit_at(compute, reward, **numbers)


def test_an_asymptote_below_the_start_is_no_plateau() -> None:
    with pytest.raises(DataError, match=r"A = 0.05 must be above R_0 = 0.1"):
        fit_at(*points(), 0.1, 0.05)


def test_plain_lists_are_numbers_too() -> None:
    compute, reward = points()
    assert fit_at(compute.tolist(), reward.tolist(), 0.1, 0.65) == fit_at(compute, reward, 0.1, 0.65)  # type: ignore[arg-type]
    grid = ScalingGrid(SMALL.asymptotes.tolist(), SMALL.midpoints.tolist())  # type: ignore[arg-type]
    assert fit(compute, reward, 0.1, grid=grid) == fit(compute, reward, 0.1, grid=SMALL)


@pytest.mark.parametrize(
    ("asymptotes", "midpoints"),
    [
        ([0.5, 0.6], [1, 2, 3]),
        ([0.5, 0.6, 0.6], [1, 2, 3]),
        ([0.5, 0.6, 0.7], [0, 1, 2]),
        ([0.5, 0.6, 0.7], [[1, 2, 3]]),
        ([0.5, 0.6, float("inf")], [1, 2, 3]),
        ([0.5, 0.6, 0.7], [1, 2, float("inf")]),
        (["a", "b", "c"], [1, 2, 3]),
    ],
)
def test_grids_without_an_inside_are_refused(asymptotes: Any, midpoints: Any) -> None:
    with pytest.raises(ConfigError, match="grid"):
        ScalingGrid(np.array(asymptotes), np.array(midpoints))
