"""Performance against compute: the sigmoid of ScaleRL, its fit, and when not to believe it.

Khatri et al., "The Art of Scaling Reinforcement Learning Compute for LLMs" (arXiv 2510.13786), describe the reward on held-out
problems after compute C as

    R_C = R_0 + (A - R_0) / (1 + (C_mid / C)^B),

R_0 the reward before training (fixed, not fitted), A the reward that it tends to, C_mid the compute at which half of the gain
is reached, and B how steep the rise is. A says how good a recipe can get, B and C_mid how fast; the paper puts the uncertainty
of A at about +-0.02. The early part of a run does not follow the curve: the paper leaves out the first 1500 GPU-hours or so.

C is in whatever unit the points have (GPU-hours, tokens, steps); the default grid is the paper's, in GPU-hours.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from types import ModuleType

import numpy as np

from surefoot.errors import ConfigError, DataError
from surefoot.extras import require

# A, C_mid and B are three numbers: with three points the curve goes through all of them and the fit says nothing.
FEWEST_POINTS = 4

# Of the log odds from the first to the last point, and of the gain so far. A mean reward over fewer than a million completions
# moves by more; what is less is rounding, and says nothing about a curve.
SMALLEST_RISE = 1e-6


@dataclass(frozen=True)
class ScalingFit:
    """A fitted curve.

    Attributes:
        initial: R_0, the reward before training.
        asymptote: A.
        midpoint: C_mid, in the unit of the compute.
        exponent: B.
        squared_error: sum of the squared residuals in reward.
        points: how many points it was fitted to.
    """

    initial: float
    asymptote: float
    midpoint: float
    exponent: float
    squared_error: float
    points: int

    def reward(self, compute: np.ndarray | float) -> np.ndarray:
        """R_C at the given compute, of any shape, positive."""
        return curve(compute, self.initial, self.asymptote, self.midpoint, self.exponent)


def _asymptotes() -> np.ndarray:
    return np.linspace(0.450, 0.800, 71)


def _midpoints() -> np.ndarray:
    return np.linspace(100.0, 40000.0, 100)


@dataclass(frozen=True)
class ScalingGrid:
    """The values of A and C_mid that are tried; B is fitted at each pair of them.

    Attributes:
        asymptotes: ascending, at least 3. By default the paper's .450, .455 ... .800.
        midpoints: ascending and positive, at least 3. By default the paper's 100 values from 100 to 40000, which suits
            GPU-hours; their step, about 403, bounds how exact C_mid can be.

    Raises:
        ConfigError: fewer than three values, values that do not ascend, or what is no finite number.
    """

    asymptotes: np.ndarray = field(default_factory=_asymptotes)
    midpoints: np.ndarray = field(default_factory=_midpoints)

    def __post_init__(self) -> None:
        for name, given in (("asymptotes", self.asymptotes), ("midpoints", self.midpoints)):
            values = _numbers(given)
            ascending = (
                values is not None and values.ndim == 1 and np.isfinite(values).all() and (np.diff(values) > 0).all()
            )
            if values is None or not ascending or len(values) < 3:
                raise ConfigError(
                    f"the grid's {name} must be at least 3 ascending, finite numbers, got {np.size(given)}: {given}"
                )
            object.__setattr__(self, name, values)
        if not self.midpoints[0] > 0:
            raise ConfigError(f"the grid's midpoints are amounts of compute, above 0, got {self.midpoints[0]:g}")


def curve(
    compute: np.ndarray | float,
    initial: float,
    asymptote: float,
    midpoint: np.ndarray | float,
    exponent: np.ndarray | float,
) -> np.ndarray:
    """R_C of the module's equation, for compute (and C_mid and B) of any shapes that go together.

    Computed as a logistic function of log C, which neither overflows nor loses digits for large exponents.
    """
    logit = exponent * (np.log(compute) - np.log(midpoint))
    return initial + (asymptote - initial) * (1 + np.tanh(logit / 2)) / 2


def fit(
    compute_n: np.ndarray, reward_n: np.ndarray, initial: float, *, grid: ScalingGrid | None = None, start: float = 0.0
) -> ScalingFit:
    """The paper's fit: at every A and C_mid of a grid the best B, and of all these the least squared error.

    Args:
        compute_n: [n] compute of each point, positive.
        reward_n: [n] reward of each point.
        initial: R_0, the reward before training.
        grid: values of A and C_mid; the paper's by default. Give your own where compute is not in GPU-hours.
        start: points with less compute are left out.

    Raises:
        DataError: fewer than four points, what is no finite number, a point that is not between R_0 and A, or a reward that does
            not rise (B <= 0, or rounding).
        ConfigError: the best A or C_mid is at the edge of the grid, so a better one may be outside.
        MissingExtraError: SciPy is not installed.
    """
    compute, reward, initial = checked_points(compute_n, reward_n, initial, start, FEWEST_POINTS)
    grid = grid or ScalingGrid()
    optimize = require("scipy.optimize", "fits", "the fit of reward against compute")
    best = ScalingFit(initial, np.nan, np.nan, np.nan, np.inf, len(compute))
    for asymptote in grid.asymptotes.tolist():
        for midpoint in grid.midpoints.tolist():
            error, exponent = _best_exponent(optimize, compute, reward, initial, asymptote, midpoint)
            if error < best.squared_error:
                best = ScalingFit(initial, asymptote, midpoint, exponent, error, len(compute))
    _refuse_no_rise(best.exponent, compute)
    _refuse_edges(grid, best)
    _refuse_above(reward, best.asymptote)
    return best


def fit_at(
    compute_n: np.ndarray, reward_n: np.ndarray, initial: float, asymptote: float, *, start: float = 0.0
) -> ScalingFit:
    """B and C_mid at a given A, without a grid and without SciPy.

    With x = (R_C - R_0) / (A - R_0) the equation is a line, log(x / (1 - x)) = B log C - B log C_mid, which is fitted by least
    squares in these coordinates: exact where the points lie on a curve; where they are noisy, points near R_0 and A weigh more
    than in :func:`fit`.

    Args:
        compute_n, reward_n, initial, start: see :func:`fit`.
        asymptote: A, above every reward.

    Raises:
        DataError: fewer than two amounts of compute, what is no finite number, a point that is not between R_0 and A, a reward
            that does not rise (B <= 0, or rounding), or rises so little that C_mid is no number.
    """
    compute, reward, initial = checked_points(compute_n, reward_n, initial, start, 2)
    asymptote = _number("the asymptote A", asymptote)
    if not asymptote > initial:
        raise DataError(
            f"the asymptote A = {asymptote:g} must be above R_0 = {initial:g}: it is what the reward rises to"
        )
    _refuse_above(reward, asymptote)
    share = (reward - initial) / (asymptote - initial)
    log_odds = np.log(share) - np.log1p(-share)
    log_compute = np.log(compute)
    centred = log_compute - log_compute.mean()
    exponent = float(centred @ log_odds / (centred @ centred))
    _refuse_no_rise(exponent, compute)
    log_midpoint = float(log_compute.mean() - log_odds.mean() / exponent)
    if not np.log(np.finfo(np.float64).tiny) < log_midpoint < np.log(np.finfo(np.float64).max):
        raise DataError(
            f"the reward rises so little (B = {exponent:.3g}) that half of the gain would be reached at a compute of "
            f"exp({log_midpoint:.3g}): give an asymptote nearer to the rewards, or points over more compute"
        )
    midpoint = float(np.exp(log_midpoint))
    residual = curve(compute, initial, asymptote, midpoint, exponent) - reward
    return ScalingFit(initial, asymptote, midpoint, exponent, float(residual @ residual), len(compute))


def _best_exponent(
    optimize: ModuleType, compute: np.ndarray, reward: np.ndarray, initial: float, asymptote: float, midpoint: float
) -> tuple[float, float]:
    """The least squared error at this A and C_mid, and its B; (inf, nan) where the search does not settle."""

    def model(compute: np.ndarray, exponent: float) -> np.ndarray:
        return curve(compute, initial, asymptote, midpoint, exponent)

    try:
        with warnings.catch_warnings():
            # The covariance is not used, and at most places of the grid there is none to estimate.
            warnings.simplefilter("ignore", optimize.OptimizeWarning)
            (exponent,), _ = optimize.curve_fit(model, compute, reward)
    except RuntimeError:
        return float("inf"), float("nan")
    residual = model(compute, exponent) - reward
    return float(residual @ residual), float(exponent)


def checked_points(
    compute_n: np.ndarray, reward_n: np.ndarray, initial: float, start: float, fewest: int, *, all_above: bool = True
) -> tuple[np.ndarray, np.ndarray, float]:
    """The points from ``start`` on, and R_0, in float64.

    Raises:
        DataError: see :func:`fit`; ``fewest`` is how many different amounts of compute there must be, ``all_above`` whether every
            reward must be above R_0, or only their mean.
    """
    initial, start = _number("the reward before training R_0", initial), _number("start", start)
    compute, reward = _numbers(compute_n), _numbers(reward_n)
    if compute is None or reward is None:
        name, given = ("compute", compute_n) if compute is None else ("rewards", reward_n)
        raise DataError(f"a fit needs {name} in numbers, one for each point, got {' '.join(repr(given).split()):.80}")
    if compute.ndim != 1 or compute.shape != reward.shape:
        raise DataError(
            f"a fit needs as many rewards as amounts of compute, got the shapes {reward.shape} and {compute.shape}"
        )
    if not (np.isfinite(compute).all() and np.isfinite(reward).all()):
        raise DataError("a fit needs finite compute and rewards: leave out points that are not")
    if not (compute > 0).all():
        raise DataError(
            f"compute must be above 0, got {compute.min():g}: the point before training, at 0, is R_0, and none lies below it"
        )
    kept = compute >= start
    compute, reward = compute[kept], reward[kept]
    different = len(np.unique(compute))
    if different < fewest:
        raise DataError(
            f"the fit needs at least {fewest} points at different compute and got {different}"
            + (f" from start = {start:g} on" if start > 0 else "")
            + ": add points (of a run: evaluate more often, or train on)"
        )
    if all_above and not reward.min() > initial:
        raise DataError(
            f"every reward must be above R_0 = {initial:g}, and one is {reward.min():g}: leave out the start of the run (start), "
            "or there was no gain"
        )
    if not reward.mean() > initial:
        raise DataError(
            f"the mean reward of {reward.mean():g} is not above R_0 = {initial:g}: there was no gain to fit; leave out the start "
            "of the run (start), or train longer"
        )
    if not np.ptp(reward) > SMALLEST_RISE * (reward.max() - initial):
        raise DataError(
            f"all {len(reward)} rewards are {reward.max():g}: the reward does not rise with compute, so any curve would do"
        )
    return compute, reward, initial


def _numbers(given: object) -> np.ndarray | None:
    """As float64; None for what is not numbers (text, dates, lists of unequal length)."""
    try:
        found = np.asarray(given)
        return found.astype(np.float64) if found.dtype.kind in "biufO" else None
    except (TypeError, ValueError):
        return None


def _number(name: str, given: object) -> float:
    value = _numbers(given)
    if value is None or value.ndim > 0 or not np.isfinite(value):
        raise DataError(f"{name} must be a finite number, got {given!r:.80}")
    return float(value)


def _refuse_no_rise(exponent: float, compute: np.ndarray) -> None:
    if not exponent * np.ptp(np.log(compute)) > SMALLEST_RISE:
        raise DataError(
            f"the best curve has B = {exponent:.3g}: the reward does not rise with compute, or too little to tell where it "
            "tends to"
        )


def _refuse_above(reward: np.ndarray, asymptote: float) -> None:
    if not reward.max() < asymptote:
        raise DataError(
            f"a reward of {reward.max():g} is not below the asymptote A = {asymptote:g}: the points have reached the plateau, "
            "and their mean there is a better estimate of A than a curve"
        )


def _refuse_edges(grid: ScalingGrid, best: ScalingFit) -> None:
    for name, value, values in (("A", best.asymptote, grid.asymptotes), ("C_mid", best.midpoint, grid.midpoints)):
        if value in (values[0], values[-1]):
            raise ConfigError(
                f"the best {name} = {value:g} is at the edge of its grid ({values[0]:g} to {values[-1]:g}), so the best may be "
                "outside: give a wider grid in the unit of your compute, or train on until the curve bends"
            )
