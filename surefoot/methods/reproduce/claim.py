"""A claim: hypothesis, quantity, control, seeds and a threshold that stands in the code before anything runs; and its verdict.

A quantity is measured once for each seed. Its interval is over seeds (Student's t), or over seeds and problems where every seed
answers the same problems (:mod:`surefoot.evaluation.crossed`). The verdict follows from it alone:

- *reproduced*: the whole interval of every criterion lies on the claimed side of its threshold, and the control held;
- *not reproduced at this scale*: the whole interval of a criterion lies on the other side, and the control held;
- *inconclusive*: anything else. If the control moved, the experiment shows something else than it set out to, whatever it found.

An inconclusive claim may be looked at once more, with three times as many seeds (those of the first look among them) and
intervals of 97.5 %, so that both looks together err in at most 7.5 % of the cases. The rule is the same for all claims, and the
experiment, its thresholds and its control stay as they are.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from surefoot.errors import ConfigError
from surefoot.evaluation.crossed import crossed_interval, estimate
from surefoot.evaluation.intervals import Interval

if TYPE_CHECKING:
    from surefoot.methods.reproduce.store import Bench

CONTROL = "control"
CONFIDENCE, SECOND_CONFIDENCE = 0.95, 0.975
SECOND_SEEDS = 3  # times as many as at first
MANY_SEEDS = 1000  # more at once are a slip of the pen
LARGEST_SEED = 2**31
Measured = Mapping[str, "float | Sequence[float]"]
"""One seed's values: a number for each quantity, or one for each problem (all seeds the same problems, within [-1, 1])."""


class Verdict(StrEnum):
    """What came out."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced at this scale"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Criterion:
    """A quantity and what it must be.

    Attributes:
        key: its name among the measured values.
        quantity: what is measured, with its unit, in words.
        side: on which side of the threshold the claim says that it lies.
        threshold: fixed before the run.
        why: why this threshold.
    """

    key: str
    quantity: str
    side: Literal["above", "below"]
    threshold: float
    why: str

    def judge(self, found: Interval) -> Verdict:
        """By the interval alone; one that holds the threshold, or that is not finite, decides nothing."""
        if not all(map(math.isfinite, found)):
            return Verdict.INCONCLUSIVE
        if self.side == "above":
            there, elsewhere = found.low > self.threshold, found.high <= self.threshold
        else:
            there, elsewhere = found.high < self.threshold, found.low >= self.threshold
        if there:
            return Verdict.REPRODUCED
        return Verdict.NOT_REPRODUCED if elsewhere else Verdict.INCONCLUSIVE


@dataclass(frozen=True)
class Control:
    """What must not move if the experiment shows what it says.

    Attributes:
        quantity: what is measured, in words.
        low, high: where the mean over the seeds must lie, both included.
    """

    quantity: str
    low: float
    high: float

    def held(self, found: Interval) -> bool:
        """Whether the mean lies within the bounds. Something that was not measured has not held."""
        return self.low <= found.value <= self.high


@dataclass(frozen=True)
class Claim:
    """A claim of a paper as an experiment.

    Attributes:
        name: on the command line.
        title: in a few words.
        paper: title and arXiv id.
        hypothesis: one sentence.
        criteria: all of them must come out.
        control: what must not move.
        seeds: each is measured.
        seconds: what it takes with training runs of its own on two free cores, the warm starts being there.
        measure: ``(bench, claim, seed) -> values`` for every criterion, the control, and what else is worth keeping.
        settings: the numbers of the experiment.
        prepare: makes what all seeds need (training runs), before they are measured.
        confidence: of the intervals.
    """

    name: str
    title: str
    paper: str
    hypothesis: str
    criteria: tuple[Criterion, ...]
    control: Control
    seeds: tuple[int, ...]
    seconds: float
    measure: Callable[[Bench, Claim, int], Measured] = field(repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[Bench, Claim], None] | None = field(default=None, repr=False)
    confidence: float = CONFIDENCE

    def but(self, *, seeds: Sequence[int] | None = None, **settings: Any) -> Claim:
        """The claim with other seeds or other numbers, for a quicker look."""
        return replace(
            self, seeds=self.seeds if seeds is None else tuple(seeds), settings={**self.settings, **settings}
        )

    def second_look(self) -> Claim:
        """The claim with three times as many seeds and wider intervals."""
        more = range(max(self.seeds) + 1, max(self.seeds) + 1 + (SECOND_SEEDS - 1) * len(self.seeds))
        return replace(self, seeds=(*self.seeds, *more), confidence=SECOND_CONFIDENCE)

    def with_seeds(self, text: str) -> Claim:
        """The claim on other seeds than those that were fixed beforehand.

        Args:
            text: ``1000:1005`` (1000 to 1004, as Python counts) or ``1000,1001``; both may be mixed.

        Raises:
            ConfigError: no such list, a seed that comes twice, or fewer than two of them.
        """
        return self.but(seeds=read_seeds(text))

    @property
    def digest(self) -> str:
        """What a measured seed is known by: the numbers of the experiment. Thresholds are not among them: they judge."""
        content = json.dumps([self.name, self.settings], sort_keys=True, default=str)
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Finding:
    """A claim and what came of it.

    Attributes:
        intervals: of every quantity that was measured, the control's among them.
        verdicts: of each criterion.
        held: whether the control did.
        verdict: of the claim.
    """

    claim: Claim
    intervals: Mapping[str, Interval]
    verdicts: Mapping[str, Verdict]
    held: bool
    verdict: Verdict


def judge(claim: Claim, measured: Sequence[Measured]) -> Finding:
    """The verdict over what the seeds measured.

    Raises:
        ValueError: fewer than two seeds, or a quantity that was not measured.
    """
    if len(measured) < 2:
        raise ValueError(f"{claim.name}: an interval over seeds needs two of them, got {len(measured)}")
    keys = [criterion.key for criterion in claim.criteria] + [CONTROL]
    for key in keys:
        if any(key not in values for values in measured):
            raise ValueError(f"{claim.name}: '{key}' was not measured with every seed")
    others = [key for key in measured[0] if key not in keys and all(key in values for values in measured)]
    intervals = {key: interval([values[key] for values in measured], claim.confidence) for key in [*keys, *others]}
    verdicts = {criterion.key: criterion.judge(intervals[criterion.key]) for criterion in claim.criteria}
    held = claim.control.held(intervals[CONTROL])
    return Finding(claim, intervals, verdicts, held, _together(list(verdicts.values()), held))


def _together(verdicts: Sequence[Verdict], held: bool) -> Verdict:
    if not held:
        return Verdict.INCONCLUSIVE
    for verdict in (Verdict.NOT_REPRODUCED, Verdict.INCONCLUSIVE):
        if verdict in verdicts:
            return verdict
    return Verdict.REPRODUCED


def read_seeds(text: str) -> tuple[int, ...]:
    """Seeds from ``1000:1005`` or ``1000,1001``.

    >>> read_seeds("1000:1003"), read_seeds("7,3,10:12")
    ((1000, 1001, 1002), (7, 3, 10, 11))

    Raises:
        ConfigError: as in :meth:`Claim.with_seeds`.
    """
    wanted = "expected 1000:1005 (1000 to 1004) or 1000,1001"
    seeds: list[int] = []
    for part in text.split(","):
        first, colon, end = (piece.strip() for piece in part.partition(":"))
        whole = [first, end] if colon else [first]
        if not all(piece.isascii() and piece.isdigit() and int(piece) <= LARGEST_SEED for piece in whole):
            raise ConfigError(f"--seeds {text}: '{part.strip()}' is no seed and no range of them, {wanted}")
        begin, stop = int(first), int(end) if colon else int(first) + 1
        if not begin < stop <= begin + MANY_SEEDS:
            raise ConfigError(f"--seeds {text}: the range '{part.strip()}' has {stop - begin} seeds, {wanted}")
        seeds += range(begin, stop)
    if len(set(seeds)) != len(seeds):
        raise ConfigError(f"--seeds {text}: a seed comes twice, and would count as two measurements; {wanted}")
    if len(seeds) < 2:
        raise ConfigError(f"--seeds {text}: an interval over seeds needs two of them at least, {wanted}")
    return tuple(seeds)


def interval(values: Sequence[float | Sequence[float]], confidence: float = CONFIDENCE) -> Interval:
    """The mean over seeds with its interval: over seeds, or over seeds and problems where there is a number for each problem.

    Not finite, and so deciding nothing, where a value is not: what could not be measured is NaN.
    """
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if not np.isfinite(table).all():
        return Interval(math.nan, math.nan, math.nan)
    if np.ndim(values[0]) == 1:
        return crossed_interval(table, paired=True, confidence=confidence)
    return estimate(table.reshape(-1, 1)).interval(confidence)
