"""The samples that an engine has made so far, handed on as soon as a request has all of its own."""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.rollout.engine import Finished, Request
from surefoot.rollout.rows import Rows
from surefoot.types import Sample


class Made:
    """Takes the samples out of one wave after another.

    Args:
        requests: what was asked for.
        finished: told of every request that is finished; None: nobody wants to know, and nothing is looked at before the
            end of a wave.
    """

    def __init__(self, requests: Sequence[Request], finished: Finished | None) -> None:
        self._finished = finished
        self._samples: list[list[Sample | None]] = [[None] * len(request.seeds) for request in requests]
        self._missing = [len(request.seeds) for request in requests]

    def begin(self, rows: Rows, version: int) -> None:
        """A wave of these rows begins, with weights of this version."""
        self._rows, self._version = rows, version
        self._left = set(range(len(rows.wave.parts)))

    def look(self) -> None:
        """Take what is over, in the middle of a wave."""
        if self._finished is not None:
            for number in self._rows.complete():
                if number in self._left:
                    self._take(number, number + 1)

    def end(self) -> None:
        """Take the rest of the wave."""
        if len(self._left) == len(self._rows.wave.parts):
            self._take(0, len(self._left))
        for number in sorted(self._left):
            self._take(number, number + 1)

    def groups(self) -> list[tuple[Sample, ...]]:
        """For each request its samples, in the order of its seeds."""
        return [tuple(sample for sample in group if sample is not None) for group in self._samples]

    def _take(self, first: int, stop: int) -> None:
        """The samples of the parts ``first`` to ``stop`` (exclusive) of the wave."""
        samples = iter(self._rows.samples(self._version, first, stop))
        self._left -= set(range(first, stop))
        for part in self._rows.wave.parts[first:stop]:
            held = self._samples[part.index]
            for place in range(part.first, part.stop):
                held[place] = next(samples)
            self._missing[part.index] -= part.stop - part.first
            if not self._missing[part.index] and self._finished is not None:
                self._finished(part.index, tuple(sample for sample in held if sample is not None))
