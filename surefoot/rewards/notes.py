"""What a reward counts while it grades, from whatever thread, for the metrics of the step."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Sequence

from surefoot.metrics import StepReport


class Notes:
    """Sums and means that are taken out once a step. The order in which threads note them changes no bit of either."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._means: dict[str, list[float]] = defaultdict(list)
        self._totals: dict[str, list[float]] = defaultdict(list)

    def add(self, name: str, value: float) -> None:
        """One more value of a mean."""
        with self._lock:
            self._means[name].append(value)

    def total(self, name: str, value: float = 1.0) -> None:
        """Something more of a sum."""
        with self._lock:
            self._totals[name].append(value)

    def take(self) -> StepReport:
        """What was noted since it was last taken."""
        with self._lock:
            means, self._means = self._means, defaultdict(list)
            totals, self._totals = self._totals, defaultdict(list)
        report = StepReport()
        for name, values in means.items():
            report.add(name, _sum(values), len(values))
        for name, values in totals.items():
            report.total(name, _sum(values))
        return report


def _sum(values: Sequence[float]) -> float:
    """NaN where there is none: inf - inf, and sums beyond every double."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return math.nan
