"""How sure a fitted curve of reward against compute is: profile intervals, bands, and the refusal where the data leave it open.

:mod:`surefoot.evaluation.scaling` has the curve, R_C = R_0 + (A - R_0) g(C) with g(C) = 1 / (1 + (C_mid / C)^B), and the
paper's own fit. Given C_mid and B the curve is linear in A, so the least squares over all three are found on a grid of the other
two, which has no local minima to be caught in, and the grid is refined around the best.

The interval of a parameter is its profile: all values at which the best curve has a sum of squares of at most

    RSS_min (1 + F / (n - 3)),    F the quantile of Fisher's F(1, n - 3)

(Bates and Watts 1988, "Nonlinear Regression Analysis and Its Applications"). It is not symmetric, and it is open where the data
allow any large value: a run that has not bent yet says how good the recipe is at least, and nothing of its asymptote. An
interval of the asymptote that reaches the ceiling, the largest reward there can be, is closed by it where no more than ``NEAR``
of the gain lies between: such a run is known to end at the ceiling.

Assumed is that the points scatter about the curve independently with one variance. Evaluations of one run share their problems,
which moves them together; the interval then speaks of these problems.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surefoot.errors import DataError
from surefoot.evaluation.scaling import FEWEST_POINTS, ScalingFit, checked_points, curve
from surefoot.evaluation.scaling_grid import Profile, refined, region_within, shapes, wide_grid
from surefoot.extras import require

POINTS = FEWEST_POINTS + 1  # with one more than parameters plus one, the scatter has two degrees of freedom
CEILING = 1.0  # of an accuracy
NEAR = 0.05  # share of the gain
DECADES = 20  # of compute, and SIZES its logarithms, beyond which powers of it are no numbers
SIZES = (-50, 50)
FALL = 0.99  # level at which a reward is said to fall
DRAWS = 400
FAR = 0.9995  # level of the region in which curves for the bands are looked for


@dataclass(frozen=True)
class Range:
    """The interval of a parameter; ``low_open`` and ``high_open`` say that it goes on beyond what was searched."""

    value: float
    low: float
    high: float
    low_open: bool
    high_open: bool


@dataclass(frozen=True)
class CurveFit:
    """A fitted curve with what is known of it.

    Attributes:
        fit: the least squares.
        asymptote, midpoint, exponent: their profile intervals.
        scatter: standard deviation of a point about the curve.
        draws: [D, 3] (A, C_mid, B) of curves fitted to points that the fit could have given, for bands.
        confidence: level.
    """

    fit: ScalingFit
    asymptote: Range
    midpoint: Range
    exponent: Range
    scatter: float
    draws: np.ndarray
    confidence: float

    @property
    def identified(self) -> bool:
        """Whether the data bound the asymptote from above."""
        return not self.asymptote.high_open

    @property
    def refusal(self) -> str:
        """Why the asymptote is not given; "" where it is."""
        if self.identified:
            return ""
        return (
            f"the data do not identify the curve: an asymptote A anywhere from {self.asymptote.low:.3g} up fits within the "
            f"scatter of {self.scatter:.2g}; train on until the reward bends, evaluate on more problems, or run more seeds"
        )

    def band(self, compute: np.ndarray, *, of_points: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """The band of the curve at each compute [k], low and high; with ``of_points`` that of a new point there."""
        rewards = np.stack([curve(compute, self.fit.initial, *draw) for draw in self.draws])
        if of_points:
            rng = np.random.default_rng(0)
            rewards = rewards + self.scatter * rng.standard_normal(rewards.shape)
        tail = (1 - self.confidence) / 2
        low, high = np.quantile(rewards, [tail, 1 - tail], axis=0)
        return low, high


def fit_curve(
    compute_n: np.ndarray,
    reward_n: np.ndarray,
    initial: float,
    *,
    start: float = 0.0,
    ceiling: float = CEILING,
    confidence: float = 0.95,
    seed: int = 0,
) -> CurveFit:
    """Fit R_0 + (A - R_0) / (1 + (C_mid / C)^B), and say how sure each number is.

    Args:
        compute_n: [n] compute of each point, positive, in any unit.
        reward_n: [n] held-out reward of each point.
        initial: R_0, the reward before training; it is not fitted.
        start: points with less compute are left out.
        ceiling: the largest reward that there can be.
        confidence: level of the intervals and bands.
        seed: of the draws for the bands.

    Raises:
        DataError: fewer than five points, points that are no numbers, compute over more than twenty decades, or a reward that
            does not rise.
        MissingExtraError: SciPy is not installed.
    """
    compute, reward, initial = usable_points(compute_n, reward_n, initial, start)
    _refuse_fall(compute, reward)
    if reward.max() > ceiling:
        raise DataError(
            f"a reward of {reward.max():g} is above the ceiling of {ceiling:g}: give the largest reward there can be (--ceiling)"
        )
    profile = refined(compute, reward, initial, ceiling)
    best = profile.best
    scatter = float(np.sqrt(best.squared_error / profile.degrees))
    stats = require("scipy.stats", "fits", "the fit of reward against compute")
    bound, far = (
        best.squared_error * (1 + stats.f.ppf(level, 1, profile.degrees) / profile.degrees)
        for level in (confidence, FAR)
    )
    whole = Profile.of(compute, reward, initial, ceiling, *wide_grid(compute))
    region, opened = region_within(whole, best, bound)
    return CurveFit(
        best,
        _asymptote_range(region, best, bound),
        _grid_range(region.midpoints, region.squares.min(axis=1), best.midpoint, bound, opened[0]),
        _grid_range(region.exponents, region.squares.min(axis=0), best.exponent, bound, opened[1]),
        scatter,
        _draws(region_within(whole, best, far)[0], best, scatter, seed),
        confidence,
    )


def usable_points(
    compute_n: np.ndarray, reward_n: np.ndarray, initial: float, start: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Points that the curves can be fitted to, as float64, and R_0.

    Raises:
        DataError: see :func:`fit_curve`.
    """
    compute, reward, initial = checked_points(compute_n, reward_n, initial, start, POINTS, all_above=False)
    low, high = (float(np.log10(end)) for end in (compute.min(), compute.max()))
    if high - low > DECADES or low < SIZES[0] or high > SIZES[1]:
        raise DataError(
            f"the compute goes from {compute.min():.1e} to {compute.max():.1e}: expected at most {DECADES} decades, between "
            f"1e{SIZES[0]} and 1e{SIZES[1]}, all in one unit"
        )
    return compute, reward, initial


def _refuse_fall(compute: np.ndarray, reward: np.ndarray) -> None:
    """The curve can only rise, and would be fitted to a falling reward as a plateau from the start."""
    found = require("scipy.stats", "fits", "the fit of reward against compute").linregress(
        np.log(compute), reward, alternative="less"
    )
    if found.pvalue < 1 - FALL:
        raise DataError(
            f"the reward falls with compute (by {-found.slope * np.log(10):.2g} in a decade): there is no rise to fit; leave out "
            "the part that falls, or look into why it does"
        )


def _asymptote_range(region: Profile, best: ScalingFit, bound: float) -> Range:
    """All A with a curve of the region within the bound. At a point of the grid, they lie on both sides of its best A."""
    inside = region.squares <= bound
    # RSS(A) at a grid point is a parabola about its unclipped best; where it stays within the bound is an interval of A.
    centre = region.inner / region.square
    depth = region.total - region.inner**2 / region.square
    half = np.sqrt(np.maximum(bound - depth, 0.0) / region.square)
    most = region.ceiling - region.initial
    low = float(np.min((centre - half)[inside], initial=best.asymptote - region.initial))
    high = float(np.max(np.minimum(centre + half, most)[inside], initial=best.asymptote - region.initial))
    at_ceiling = high >= most * (1 - 1e-9)
    far = most - low > NEAR * (best.asymptote - region.initial)
    return Range(best.asymptote, region.initial + max(low, 0.0), region.initial + high, False, at_ceiling and far)


def _grid_range(values: np.ndarray, squares: np.ndarray, best: float, bound: float, opened: tuple[bool, bool]) -> Range:
    """The values within the bound, and one cell more at each end, in which the bound is crossed."""
    inside = np.flatnonzero(squares <= bound)
    if not len(inside):
        return Range(best, best, best, *opened)
    low, high = values[max(0, inside[0] - 1)], values[min(len(values) - 1, inside[-1] + 1)]
    return Range(best, float(min(low, best)), float(max(high, best)), *opened)


def _draws(region: Profile, best: ScalingFit, scatter: float, seed: int) -> np.ndarray:
    """[D, 3]: new points about the fitted curve, and the least squares of each on the grid of the region.

    The scatter is drawn too, since it is estimated: from the scaled inverse chi-squared distribution of its degrees of freedom.
    """
    rng = np.random.default_rng(seed)
    fitted = best.reward(region.compute) - region.initial
    spread = scatter * np.sqrt(region.degrees / rng.chisquare(region.degrees, size=(DRAWS, 1)))
    gains = fitted + spread * rng.standard_normal((DRAWS, len(fitted)))
    square = region.square.ravel()
    inner = np.zeros((DRAWS, square.size))
    for points, shape in shapes(region.compute, region.midpoints, region.exponents):
        inner += gains[:, points] @ shape.reshape(len(shape), -1)
    gain = np.clip(inner / square, 0.0, region.ceiling - region.initial)
    place = (gain**2 * square - 2 * gain * inner).argmin(axis=1)
    i, j = np.unravel_index(place, region.squares.shape)
    return np.stack([gain[np.arange(DRAWS), place] + region.initial, region.midpoints[i], region.exponents[j]], axis=1)
