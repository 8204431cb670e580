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

    def merge(self, other: StepReport) -> None:
        for name, (total, weight) in other.pairs.items():
            self.add(name, total, weight)
        for name, value in other.sums.items():
            self.total(name, value)
        for name, value in other.extremes.items():
            self.maximum(name, value)

    def means(self) -> dict[str, float]:
        """The finished numbers; a mean over nothing is left out."""
        means = {name: total / weight for name, (total, weight) in self.pairs.items() if weight > 0}
        return {**means, **self.sums, **self.extremes}
