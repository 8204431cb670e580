"""Where the time goes, by phase."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Adds up wall seconds by phase; a phase inside another is taken out of the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[float] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        self._open.append(0.0)
        try:
            yield
        finally:
            took = time.perf_counter() - begin
            self.seconds[name] += took - self._open.pop()
            if self._open:
                self._open[-1] += took

    def take(self) -> dict[str, float]:
        """The seconds so far, and start again from zero."""
        seconds, self.seconds = dict(self.seconds), defaultdict(float)
        return seconds
