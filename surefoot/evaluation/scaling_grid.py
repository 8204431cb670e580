"""Least squares of the curve over a grid of C_mid and B, with A in closed form: no local minima to be caught in.

The grid is refined around the best (:func:`refined`), and laid over all curves that fit within a bound (:func:`region_within`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surefoot.evaluation.scaling import ScalingFit, curve

MIDPOINTS, EXPONENTS = 121, 81
EXPONENT_RANGE = (0.1, 12.0)
TINY = 1e-200
BLOCK = 64  # points whose curves are in memory at a time


@dataclass(frozen=True)
class Profile:
    """Least squares over a grid of (C_mid, B), with A in closed form.

    Attributes:
        compute, reward: [n] the points.
        initial: R_0.
        ceiling: the largest A.
        midpoints, exponents: the grid's axes.
        inner: [M, E] sum over points of g * (R - R_0).
        square: [M, E] sum over points of g^2.
        total: sum over points of (R - R_0)^2.
    """

    compute: np.ndarray
    reward: np.ndarray
    initial: float
    ceiling: float
    midpoints: np.ndarray
    exponents: np.ndarray
    inner: np.ndarray
    square: np.ndarray
    total: float

    @classmethod
    def of(
        cls,
        compute: np.ndarray,
        reward: np.ndarray,
        initial: float,
        ceiling: float,
        midpoints: np.ndarray,
        exponents: np.ndarray,
    ) -> Profile:
        gain = reward - initial
        inner, square = np.zeros((2, len(midpoints), len(exponents)))
        for points, shape in shapes(compute, midpoints, exponents):
            inner += np.tensordot(gain[points], shape, axes=1)
            square += (shape**2).sum(axis=0)
        return cls(
            compute,
            reward,
            initial,
            ceiling,
            midpoints,
            exponents,
            inner,
            np.maximum(square, TINY),  # a curve that rises only beyond all points is 0 at each
            float(gain @ gain),
        )

    @property
    def degrees(self) -> int:
        return len(self.compute) - 3

    @cached_property
    def gain(self) -> np.ndarray:
        """[M, E] the best A - R_0 at each point of the grid, at most up to the ceiling."""
        return np.clip(self.inner / self.square, 0.0, self.ceiling - self.initial)

    @cached_property
    def squares(self) -> np.ndarray:
        """[M, E] sum of the squared residuals at the best A."""
        return np.maximum(self.total - 2 * self.gain * self.inner + self.gain**2 * self.square, 0.0)

    @cached_property
    def best(self) -> ScalingFit:
        i, j = np.unravel_index(int(self.squares.argmin()), self.squares.shape)
        return ScalingFit(
            self.initial,
            float(self.initial + self.gain[i, j]),
            float(self.midpoints[i]),
            float(self.exponents[j]),
            float(self.squares[i, j]),
            len(self.compute),
        )


def shapes(compute: np.ndarray, midpoints: np.ndarray, exponents: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """The curves g of a grid at some points at a time: which, and [k, M, E]; of all points they would be gigabytes."""
    for first in range(0, len(compute), BLOCK):
        points = slice(first, first + BLOCK)
        yield points, curve(compute[points, None, None], 0.0, 1.0, midpoints[None, :, None], exponents[None, None, :])


def wide_grid(compute: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values of C_mid from a hundredth of the least compute to a thousand times the most, and of B; evenly in the logarithm."""
    midpoints = np.geomspace(compute.min() / 100, compute.max() * 1000, MIDPOINTS)
    return midpoints, np.geomspace(*EXPONENT_RANGE, EXPONENTS)


def refined(compute: np.ndarray, reward: np.ndarray, initial: float, ceiling: float, times: int = 4) -> Profile:
    """The grid around the best of the wide one, closer each time."""
    whole = axes = wide_grid(compute)
    profile = Profile.of(compute, reward, initial, ceiling, *axes)
    for _ in range(times):
        best = profile.best
        steps = [axis[1] / axis[0] for axis in axes]
        axes = tuple(  # type: ignore[assignment]
            np.geomspace(max(value / step**2, wide[0]), min(value * step**2, wide[-1]), 41)
            for value, step, wide in zip((best.midpoint, best.exponent), steps, whole, strict=True)
        )
        profile = Profile.of(compute, reward, initial, ceiling, *axes)
    return profile


def region_within(whole: Profile, best: ScalingFit, bound: float) -> tuple[Profile, list[tuple[bool, bool]]]:
    """A grid over the box of (C_mid, B) around all curves within the bound, and whether the box ends at the wide grid's ends."""
    profile, opened = whole, [(False, False), (False, False)]
    for _ in range(3):
        inside = profile.squares <= bound
        boxes = []
        for axis, (values, value) in enumerate(
            ((profile.midpoints, best.midpoint), (profile.exponents, best.exponent))
        ):
            found = np.flatnonzero(inside.any(axis=1 - axis))
            nearest = int(np.abs(np.log(values / value)).argmin())
            first, last = (int(found[0]), int(found[-1])) if len(found) else (nearest, nearest)
            first, last = min(first, nearest), max(last, nearest)
            if profile is whole:
                opened[axis] = (first == 0, last == len(values) - 1)
            first, last = max(0, first - 1), min(len(values) - 1, last + 1)
            boxes.append(np.geomspace(values[first], values[last], len(values)))
        profile = Profile.of(whole.compute, whole.reward, whole.initial, whole.ceiling, *boxes)
    return profile, opened
