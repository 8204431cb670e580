"""Runs claims and keeps what they measured: a folder for each, a line for each seed.

``<out>/<claim>/seeds.jsonl`` holds what each seed measured, ``result.json`` the verdict; what claims share (warm starts, training
runs) lies in ``<out>/runs``. A command that was killed goes on with the seed, and within it with the run, that it was at. A seed
that was measured with the numbers that the claim has now is not measured again; the verdict is always made anew, so that a claim
whose threshold changed is judged by the threshold in the code. What was measured on other seeds than those of the claim lies in
``<out>/other-seeds``, in the same order.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field

from surefoot.errors import RunFolderError
from surefoot.files import append_lines, mend_lines, only_writer, write_atomic
from surefoot.methods.reproduce.claim import CONTROL, Claim, Finding, Measured, Verdict, judge
from surefoot.training.folder import versions
from surefoot.training.lines import Amount, Line, checked_lines

QUICK_SEED = 1.0  # seconds; seeds that take less are told of together
SEEDS, RESULT = "seeds.jsonl", "result.json"
OTHER_SEEDS = "other-seeds"


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


class SeedLine(Line):
    """Of ``seeds.jsonl``; what could not be measured is NaN, and the line of a claim's preparation has no seed."""

    digest: str
    seed: int | None
    seconds: Amount
    environment: dict[str, Any] = Field(default_factory=dict)
    values: dict[str, Annotated[list[float], BeforeValidator(_as_list), Field(min_length=1)]]


def _silent(words: str) -> None:
    pass


@dataclass(frozen=True)
class Bench:
    """Where claims are measured.

    Attributes:
        folder: of everything.
        jobs: training runs at a time, one thread each (0: as many as there are free cores).
        say: gets a line whenever something is done.
        other_seeds: whether it holds measurements on seeds that were not fixed beforehand; see :meth:`elsewhere`.
    """

    folder: Path
    jobs: int = 0
    say: Callable[[str], None] = _silent
    other_seeds: bool = False

    def elsewhere(self) -> Bench:
        """Where claims are measured on other seeds: a folder of its own, so that nothing of the record is mixed or lost."""
        return replace(self, folder=self.folder / OTHER_SEEDS, other_seeds=True)

    def of(self, claim: Claim) -> Path:
        return self.folder / claim.name

    @property
    def runs(self) -> Path:
        """Shared by the claims."""
        return self.folder / "runs"


def run_claim(bench: Bench, claim: Claim, *, again: bool = False, second: bool = False) -> dict[str, Any]:
    """Measure what is missing, judge, keep ``result.json`` and return it.

    Args:
        bench: where.
        claim: which.
        again: measure every seed anew; training runs that are finished stay.
        second: look once more, with more seeds, if the intervals leave it inconclusive.
    """
    folder = bench.of(claim)
    with only_writer(folder, f"measuring {folder.name}"):
        if again:
            (folder / SEEDS).unlink(missing_ok=True)
        mend_lines(folder / SEEDS)
        _measure(bench, claim)
        record = result(bench, claim)
        assert record is not None
        if second and undecided(record):
            _measure(bench, claim.second_look())
            record = result(bench, claim)
            assert record is not None
        write_atomic(folder / RESULT, json.dumps(record, indent=1, allow_nan=False) + "\n")
    return record


def undecided(record: Mapping[str, Any]) -> bool:
    """Whether more seeds could decide: the control held, and no more than the intervals' width stands against a verdict."""
    return record["verdict"] == Verdict.INCONCLUSIVE and record["control"]["held"]


def _measure(bench: Bench, claim: Claim) -> None:
    """The seeds that are missing; each that is done is a line."""
    file = bench.of(claim) / SEEDS
    done = measured(bench, claim)
    missing = [seed for seed in claim.seeds if seed not in done]
    if missing and claim.prepare is not None:
        begin = _spent()
        claim.prepare(bench, claim)
        append_lines(file, [_line(claim, None, {}, begin)])
    quick, first = 0, _spent()
    for seed in missing:
        begin = _spent()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tasks and runs; they say nothing of the claim
            values = claim.measure(bench, claim, seed)
        append_lines(file, [_line(claim, seed, values, begin)])
        if _spent() - begin < QUICK_SEED:
            quick += 1
        else:
            bench.say(f"{claim.name}, seed {seed}: {_spent() - begin:.0f} s of the processor")
    if quick:
        bench.say(f"{claim.name}: {quick} seeds in less than a second each, {_spent() - first:.1f} s of the processor")


def _line(claim: Claim, seed: int | None, values: Measured, begin: float) -> dict[str, Any]:
    kept = {key: value if isinstance(value, (int, float)) else list(value) for key, value in values.items()}
    return {
        "digest": claim.digest,
        "seed": seed,
        "seconds": round(_spent() - begin, 2),
        "environment": versions(),
        "values": kept,
    }


def _spent() -> float:
    """Seconds that one core has worked for this process and the runs that it has waited for; other work does not change it."""
    return sum(os.times()[:4])


def measured(bench: Bench, claim: Claim) -> dict[int, Measured]:
    """What each seed of the claim measured with the numbers that the claim has now.

    Raises:
        RunFolderError: a line is damaged, or the seeds did not measure the same.
    """
    found = {line["seed"]: line["values"] for line in _lines(bench, claim) if line["seed"] in claim.seeds}
    wanted = [*(criterion.key for criterion in claim.criteria), CONTROL]
    first: Measured = next(iter(found.values()), {})
    for seed, values in found.items():
        for key in {*wanted, *(values.keys() & first.keys())}:
            wrong = "was not measured" if key not in values else ""
            if not wrong and np.shape(values[key]) != np.shape(
                first[key]
            ):  # the first seed has them all, or was refused
                wrong = "has another number of values than that of the other seeds"
            if wrong:
                raise RunFolderError(
                    f"{bench.of(claim) / SEEDS}: '{key}' of seed {seed} {wrong}: {_remedy(bench, claim)}"
                )
    return found


def _lines(bench: Bench, claim: Claim) -> list[dict[str, Any]]:
    lines = checked_lines(bench.of(claim) / SEEDS, SeedLine, _remedy(bench, claim))
    return [line for line in lines if line["digest"] == claim.digest]


def _remedy(bench: Bench, claim: Claim) -> str:
    seeds = f" --seeds {','.join(map(str, claim.seeds))}" if bench.other_seeds else ""
    return f"remove the line, or measure every seed anew (surefoot reproduce {claim.name}{seeds} --again)"


def result(bench: Bench, claim: Claim) -> dict[str, Any] | None:
    """The verdict over what was measured, at the second look where that was needed and is there; None while a seed is missing."""
    first = _judged(bench, claim)
    if first is None or not undecided(first):
        return first
    return _judged(bench, claim.second_look()) or first


def _judged(bench: Bench, claim: Claim) -> dict[str, Any] | None:
    values = measured(bench, claim)
    if any(seed not in values for seed in claim.seeds):
        return None
    finding = judge(claim, [values[seed] for seed in claim.seeds])
    lines = [line for line in _lines(bench, claim) if line["seed"] is None or line["seed"] in claim.seeds]
    made = next((line["environment"] for line in reversed(lines) if line.get("environment")), None)
    return record(
        finding,
        [values[seed] for seed in claim.seeds],
        sum(line["seconds"] for line in lines),
        made or _made_before(bench, claim),
    ) | ({"other_seeds": True} if bench.other_seeds else {})


def _made_before(bench: Bench, claim: Claim) -> dict[str, Any]:
    """What the verdict that is kept was made with, where the lines of an earlier version do not say."""
    try:
        kept = json.loads((bench.of(claim) / RESULT).read_text(encoding="utf-8"))["environment"]
    except (OSError, ValueError, KeyError, TypeError):
        return versions()
    return kept if isinstance(kept, dict) else versions()


def record(finding: Finding, values: list[Measured], seconds: float, made: dict[str, Any]) -> dict[str, Any]:
    """A finding as plain values, for ``result.json`` and for the table."""
    claim = finding.claim
    return {
        "claim": claim.name,
        "title": claim.title,
        "paper": claim.paper,
        "hypothesis": claim.hypothesis,
        "verdict": str(finding.verdict),
        "criteria": [
            {
                "key": criterion.key,
                "quantity": criterion.quantity,
                "side": criterion.side,
                "threshold": criterion.threshold,
                "why": criterion.why,
                "interval": _finite(finding.intervals[criterion.key]),
                "verdict": str(finding.verdicts[criterion.key]),
            }
            for criterion in claim.criteria
        ],
        "control": {
            "quantity": claim.control.quantity,
            "low": _bound(claim.control.low),
            "high": _bound(claim.control.high),
            "interval": _finite(finding.intervals[CONTROL]),
            "held": finding.held,
        },
        "also": {
            key: _finite(found)
            for key, found in finding.intervals.items()
            if key != CONTROL and key not in finding.verdicts
        },
        "seeds": list(claim.seeds),
        "confidence": claim.confidence,
        "by_seed": [{key: _mean(value) for key, value in one.items()} for one in values],
        "settings": json.loads(json.dumps(dict(claim.settings), default=str)),
        "seconds": round(seconds, 1),
        "environment": made,
    }


def _finite(numbers: Any) -> list[float | None]:
    return [float(number) if math.isfinite(number) else None for number in numbers]


def _bound(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _mean(value: Any) -> float | None:
    found = sum(value) / len(value) if hasattr(value, "__len__") else float(value)
    return found if math.isfinite(found) else None


def results(bench: Bench, claims: Mapping[str, Claim]) -> Iterator[dict[str, Any]]:
    """The verdicts of the claims whose every seed was measured; of several a damaged one is left out with a warning.

    Raises:
        RunFolderError: the file of the only claim is damaged.
    """
    for claim in claims.values():
        try:
            found = result(bench, claim)
        except RunFolderError as error:
            if len(claims) == 1:
                raise
            warnings.warn(f"{claim.name} is left out: {error}", stacklevel=2)
            continue
        if found is not None:
            yield found
