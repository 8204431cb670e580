"""Metrics of a step, merged without ever averaging averages."""

from __future__ import annotations

import math

from torch import Tensor


class StepReport:
    """Metrics of a step: means as (sum, weight) pairs, sums, and extremes, merged over micro-batches and ranks.

    Means are divided once, at the end. A mean of means is the most common wrong number in training logs; a pair cannot
    become one.
    """

    def __init__(self) -> None:
        self.pairs: dict[str, tuple[float, float]] = {}
        self.sums: dict[str, float] = {}
        self.extremes: dict[str, float] = {}
        self.weights: dict[str, tuple[float, float, float]] = {}

    def add(self, name: str, total: float | Tensor, weight: float | Tensor = 1.0) -> None:
        """Add a sum and its weight to a mean."""
        have_total, have_weight = self.pairs.get(name, (0.0, 0.0))
        self.pairs[name] = (have_total + float(total), have_weight + float(weight))

    def total(self, name: str, value: float | Tensor) -> None:
        """Add to a sum."""
        self.sums[name] = self.sums.get(name, 0.0) + float(value)

    def maximum(self, name: str, value: float | Tensor) -> None:
        """Keep the largest value seen."""
        self.extremes[name] = max(self.extremes.get(name, -math.inf), float(value))

    def effective(self, name: str, weight: Tensor) -> None:
        """Add importance weights [M], of which the effective sample size (Kish 1965), as a share of M, is reported."""
        have = self.weights.get(name, (0.0, 0.0, 0.0))
        weight = weight.double()
        new = (float(weight.sum()), float((weight * weight).sum()), float(len(weight)))
        self.weights[name] = (have[0] + new[0], have[1] + new[1], have[2] + new[2])

    def merge(self, other: StepReport) -> None:
        for name, (total, weight) in other.pairs.items():
            self.add(name, total, weight)
        for name, new in other.weights.items():
            have = self.weights.get(name, (0.0, 0.0, 0.0))
            self.weights[name] = (have[0] + new[0], have[1] + new[1], have[2] + new[2])
        for name, value in other.sums.items():
            self.total(name, value)
        for name, value in other.extremes.items():
            self.maximum(name, value)

    def means(self) -> dict[str, float]:
        """The finished numbers; a mean over nothing is left out."""
        means = {name: total / weight for name, (total, weight) in self.pairs.items() if weight > 0}
        shares = {
            name: total * total / (squares * count)
            for name, (total, squares, count) in self.weights.items()
            if squares > 0
        }
        return {**means, **self.sums, **self.extremes, **shares}
