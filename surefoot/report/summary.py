"""The head of a report: held-out accuracy before and after, how fast, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from surefoot.report.reading import Record, RunFiles, number, step_of
from surefoot.report.wording import PHASES


@dataclass(frozen=True)
class Accuracy:
    """One evaluation: accuracy and its interval, all in [0, 1]."""

    value: float
    low: float | None
    high: float | None
    step: int | None = None
    problems: int | None = None
    samples: int | None = None


@dataclass(frozen=True)
class Phase:
    """Seconds that a phase took, and its share of all."""

    key: str
    name: str
    seconds: float
    share: float


@dataclass(frozen=True)
class Summary:
    """What a run came to.

    Attributes:
        before, after: first and last evaluation; ``after`` is None as long as there is only one.
        low, high: interval of the difference between them, paired by problem; None in runs that are not finished.
        steps: steps done.
        seconds: wall time, the sum of all phases.
        phases: where it went, in the order of a step; phases without any time are left out.
        tokens_generated, tokens_trained: totals, rollouts only.
        generated_per_second: tokens per second of the phase ``generate``.
        trained_per_second: tokens per second of the phase ``train``.
        ended: what ended the run: ``"steps"``, ``"prompts"``, ``"budget.tokens"`` ...; empty where it is not known.
    """

    before: Accuracy | None
    after: Accuracy | None
    low: float | None
    high: float | None
    steps: int
    seconds: float
    phases: tuple[Phase, ...]
    tokens_generated: float | None
    tokens_trained: float | None
    generated_per_second: float | None
    trained_per_second: float | None
    ended: str = ""

    @property
    def gain(self) -> float | None:
        """Accuracy after minus before."""
        return self.after.value - self.before.value if self.before and self.after else None

    @property
    def verdict(self) -> str:
        """What the intervals allow to be said: that of the paired difference where there is one, else those of the two."""
        if self.before is None:
            return "No held-out evaluation was recorded."
        if self.after is None:
            return "Only one held-out evaluation was recorded so far."
        if self.low is not None and self.high is not None:
            if self.low > 0:
                return "On the same problems, the interval of the difference lies above 0: the policy got better."
            if self.high < 0:
                return "On the same problems, the interval of the difference lies below 0: the policy got worse."
            return "On the same problems, the interval of the difference holds 0: this run does not show a difference."
        if None in (self.before.low, self.before.high, self.after.low, self.after.high):
            return "Without intervals, the two cannot be told apart from chance."
        if self.after.low > self.before.high:  # type: ignore[operator]
            return "The interval after training lies wholly above the one before."
        if self.after.high < self.before.low:  # type: ignore[operator]
            return "The interval after training lies wholly below the one before: the policy got worse."
        return "The intervals overlap: by them alone, this run does not show a difference."


def from_result(result: Mapping[str, Any]) -> Summary:
    """The summary of a finished run, from the content of ``result.json``; what it lacks is None or 0."""
    before, after = accuracy(result.get("before")), accuracy(result.get("after"))
    if before is not None and before == after:
        after = None  # one evaluation, written down as both ends
    seconds = _seconds(result.get("seconds"))
    generated, trained = number(result.get("tokens_generated")), number(result.get("tokens_trained"))
    paired = result.get("difference")
    ends = [number(paired.get(name)) for name in ("low", "high")] if isinstance(paired, Mapping) else [None, None]
    return Summary(
        before=before,
        after=after,
        low=ends[0] if after is not None else None,
        high=ends[1] if after is not None else None,
        steps=int(number(result.get("steps")) or 0),
        seconds=sum(seconds.values()),
        phases=split(seconds),
        tokens_generated=generated,
        tokens_trained=trained,
        generated_per_second=_rate(generated, seconds.get("generate")),
        trained_per_second=_rate(trained, seconds.get("train")),
        ended=str(result.get("ended") or ""),
    )


def summarise(files: RunFiles) -> Summary:
    """The summary of any run: ``result.json`` where there is one, else what the records of its steps add up to."""
    evaluations = [record for record in files.evaluations if accuracy(record)]
    totals: dict[str, float] = {}
    for record in files.timings:
        for key, value in record.items():
            amount = number(value)
            if key != "step" and amount is not None:
                totals[key] = totals.get(key, 0.0) + amount
    recorded: Record = {
        "before": evaluations[0] if evaluations else None,
        "after": evaluations[-1] if len(evaluations) > 1 else None,
        "steps": max((record["step"] for record in (*files.metrics, *files.timings)), default=0),
        "seconds": {key: value for key, value in totals.items() if not key.startswith("tokens_")},
        "tokens_generated": totals.get("tokens_generated"),
        "tokens_trained": totals.get("tokens_trained"),
    }
    return from_result({**recorded, **{key: value for key, value in files.result.items() if value is not None}})


def accuracy(record: Any) -> Accuracy | None:
    """An evaluation record as an :class:`Accuracy`; None where it holds none."""
    if not isinstance(record, Mapping):
        return None
    value = number(record.get("accuracy"))
    if value is None:
        return None
    counts = [number(record.get(name)) for name in ("problems", "samples")]
    problems, samples = (None if item is None else int(item) for item in counts)
    return Accuracy(
        value, number(record.get("low")), number(record.get("high")), step_of(dict(record)), problems, samples
    )


def split(seconds: Mapping[str, float]) -> tuple[Phase, ...]:
    """Phases in the order of a step, unknown ones before 'other'; shares add up to 1."""
    whole = sum(seconds.values())
    known = [key for key in PHASES if key != "other"]
    order = [*known, *sorted(key for key in seconds if key not in PHASES), "other"]
    present = [(key, seconds[key]) for key in order if seconds.get(key, 0.0) > 0]
    return tuple(Phase(key, PHASES.get(key, key), value, value / whole) for key, value in present)


def _seconds(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        return {}
    numbers = {str(key): number(item) for key, item in value.items()}
    return {key: item for key, item in numbers.items() if item is not None and item >= 0}


def _rate(amount: float | None, seconds: float | None) -> float | None:
    return amount / seconds if amount is not None and seconds else None
