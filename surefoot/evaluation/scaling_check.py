"""Whether a curve of reward against compute says anything about what comes next: extrapolation, and the power law beside it.

A fit is judged by points that it has not seen. :func:`extrapolate` fits the first part of a run and predicts the rest, as
ScaleRL (arXiv 2510.13786) does to choose among recipes early; :func:`compare_with_power_law` does so from several places on and
sets the sigmoid against R_C = A - D C^(-B), which has as many parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from surefoot.errors import DataError
from surefoot.evaluation.scaling_grid import refined
from surefoot.evaluation.scaling_profile import CEILING, POINTS, CurveFit, fit_curve, usable_points

SHARES = (0.4, 0.5, 0.6, 0.7, 0.8)
EXPONENTS = np.geomspace(0.02, 5.0, 200)
Predictor = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Extrapolation:
    """A fit of the first part of a run against the rest of it.

    Attributes:
        fit: of the first part.
        until: the most compute that the fit saw.
        compute, reward, predicted: [m] of the rest.
        low, high: [m] where a new point was expected, with the fit's confidence.
    """

    fit: CurveFit
    until: float
    compute: np.ndarray
    reward: np.ndarray
    predicted: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def error(self) -> float:
        """Mean absolute error of the predictions."""
        return float(np.abs(self.predicted - self.reward).mean())

    @property
    def bias(self) -> float:
        """Mean of prediction minus reward."""
        return float((self.predicted - self.reward).mean())

    @property
    def inside(self) -> float:
        """Share of the points that lie where they were expected."""
        return float(((self.low <= self.reward) & (self.reward <= self.high)).mean())


def extrapolate(
    compute_n: np.ndarray,
    reward_n: np.ndarray,
    initial: float,
    *,
    share: float = 0.5,
    start: float = 0.0,
    ceiling: float = CEILING,
    confidence: float = 0.95,
) -> Extrapolation:
    """Fit the points up to a share of the largest compute, and predict those beyond.

    Args:
        compute_n, reward_n, initial, start, ceiling, confidence: see :func:`fit_curve`.
        share: of the largest compute, between 0 and 1.

    Raises:
        DataError: as :func:`fit_curve`, of the first part; no point is left to predict; a share that is none.
    """
    if not 0 < share < 1:
        raise DataError(f"the part to fit is {share:g} of the compute: expected a share between 0 and 1")
    compute, reward, initial = usable_points(compute_n, reward_n, initial, start)
    seen = compute <= share * compute.max()
    if seen.all():
        raise DataError(
            f"no point lies beyond {100 * share:g} % of the compute: evaluate more often, or fit less of the run"
        )
    try:
        fit = fit_curve(compute[seen], reward[seen], initial, ceiling=ceiling, confidence=confidence)
    except DataError as error:
        raise DataError(f"the first {100 * share:g} % of the compute cannot be fitted: {error}") from error
    rest = compute[~seen]
    low, high = fit.band(rest, of_points=True)
    return Extrapolation(fit, float(compute[seen].max()), rest, reward[~seen], fit.fit.reward(rest), low, high)


@dataclass(frozen=True)
class PowerLaw:
    """R_C = A - D C^(-B)."""

    asymptote: float
    factor: float
    exponent: float
    squared_error: float

    def reward(self, compute: np.ndarray) -> np.ndarray:
        return self.asymptote - self.factor * np.asarray(compute, dtype=np.float64) ** -self.exponent


def fit_power_law(compute: np.ndarray, reward: np.ndarray, *, ceiling: float = CEILING) -> PowerLaw:
    """Least squares: A and D in closed form at each B of a grid, A at most the ceiling.

    Args:
        compute: [n] positive.
        reward: [n].
        ceiling: the largest reward that there can be.
    """
    best = PowerLaw(np.nan, np.nan, np.nan, np.inf)
    scale = float(np.exp(np.log(compute).mean()))  # keeps C^(-B) near 1
    for exponent in EXPONENTS.tolist():
        falls = (compute / scale) ** -exponent
        centred = falls - falls.mean()
        slope = float(centred @ reward / (centred @ centred))
        asymptote = float(reward.mean() - slope * falls.mean())
        if asymptote > ceiling:
            asymptote = ceiling
            slope = float(falls @ (reward - asymptote) / (falls @ falls))
        error = float(((asymptote + slope * falls - reward) ** 2).sum())
        if error < best.squared_error:
            best = PowerLaw(asymptote, -slope * scale**exponent, exponent, error)
    return best


@dataclass(frozen=True)
class Contest:
    """Errors of prediction of both curves, from the same first parts.

    Attributes:
        shares: parts of the compute that were fitted.
        sigmoid, power_law: [k] root mean squared error of the points beyond each.
    """

    shares: tuple[float, ...]
    sigmoid: np.ndarray
    power_law: np.ndarray

    @property
    def better(self) -> str:
        """``"sigmoid"`` or ``"power law"``, by the mean error; ``"neither"`` within a tenth of one another."""
        sigmoid, power = float(self.sigmoid.mean()), float(self.power_law.mean())
        if abs(sigmoid - power) <= 0.1 * max(sigmoid, power):
            return "neither"
        return "sigmoid" if sigmoid < power else "power law"


def compare_with_power_law(
    compute_n: np.ndarray, reward_n: np.ndarray, initial: float, *, start: float = 0.0, ceiling: float = CEILING
) -> Contest:
    """Cross-validation forwards in compute: fit what lies below a share of it, predict what lies above, for several shares.

    Args:
        compute_n, reward_n, initial, start, ceiling: see :func:`fit_curve`.

    Raises:
        DataError: no share leaves enough points to fit and one to predict.
    """
    compute, reward, initial = usable_points(compute_n, reward_n, initial, start)
    shares, errors = [], []
    for share in SHARES:
        seen = compute <= share * compute.max()
        if len(np.unique(compute[seen])) < POINTS or seen.all() or not reward[seen].mean() > initial:
            continue
        predictors: tuple[Predictor, ...] = (
            refined(compute[seen], reward[seen], initial, ceiling).best.reward,
            fit_power_law(compute[seen], reward[seen], ceiling=ceiling).reward,
        )
        shares.append(share)
        errors.append([np.sqrt(((found(compute[~seen]) - reward[~seen]) ** 2).mean()) for found in predictors])
    if not errors:
        raise DataError(
            f"a comparison of curves needs {POINTS} points in the first {100 * SHARES[-1]:g} % of the compute: "
            "evaluate more often"
        )
    table = np.array(errors)
    return Contest(tuple(shares), table[:, 0], table[:, 1])
