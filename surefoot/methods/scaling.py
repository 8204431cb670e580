"""``surefoot fit``: the curve of held-out reward against compute of runs, or of a CSV file."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.config import nearest
from surefoot.errors import DataError, RunFolderError
from surefoot.evaluation.scaling_check import compare_with_power_law, extrapolate
from surefoot.evaluation.scaling_profile import CEILING, CurveFit, Range, fit_curve
from surefoot.training.lines import Evaluated, Metrics, Timing, by_step, checked_lines
from surefoot.training.places import instead

UNITS = ("tokens", "steps", "seconds", "flops")
REMEDY = "remove the line, or restore the file"


@dataclass(frozen=True)
class Points:
    """Held-out reward after some compute.

    Attributes:
        name: of the run or file.
        compute: [n] in ``unit``, ascending, without the point before training.
        reward: [n] held-out accuracy.
        initial: the reward before training.
        unit: of the compute.
    """

    name: str
    compute: np.ndarray
    reward: np.ndarray
    initial: float
    unit: str


def read_points(path: Path, *, unit: str = "tokens", initial: float | None = None) -> Points:
    """The points of a run folder or of a CSV file.

    Args:
        path: a run folder, or a ``.csv`` file with the columns ``compute`` and ``reward``.
        unit: what counts as compute in a run: generated ``tokens``, ``steps``, ``seconds`` without evaluations, or ``flops``.
        initial: the reward before training; of a run its first evaluation, of a file the row with compute 0.

    Raises:
        RunFolderError: neither a run nor a CSV file, or a damaged line.
        DataError: no evaluations, no records of what the steps cost, or a file that is no such table.
    """
    if path.is_file():
        return _read_csv(path, initial)
    if not (path / "evaluations.jsonl").is_file():
        raise RunFolderError(f"{path} is neither a run folder with evaluations.jsonl nor a .csv file.{instead(path)}")
    if unit not in UNITS:
        raise DataError(f"the unit of compute is '{unit}': expected one of {', '.join(UNITS)}." + nearest(unit, UNITS))
    evaluations = by_step(checked_lines(path / "evaluations.jsonl", Evaluated, REMEDY))
    rewards = {record["step"]: float(record["accuracy"]) for record in evaluations}
    if 0 not in rewards and initial is None:
        raise DataError(f"{path} has no evaluation before training: give the reward before training (--initial)")
    records = _records(path, unit, rewards)
    spent = {step: _spent(records, step, unit) for step in rewards if step > 0}
    return Points(
        path.resolve().name,
        np.array(list(spent.values()), dtype=np.float64),
        np.array([rewards[step] for step in spent], dtype=np.float64),
        rewards[0] if initial is None else initial,
        unit,
    )


def _records(path: Path, unit: str, rewards: dict[int, float]) -> list[dict[str, Any]]:
    """The records that tell what each step cost. An evaluation whose step is not over yet is taken out of ``rewards``."""
    if unit == "steps":
        return []
    file = path / ("metrics.jsonl" if unit == "flops" else "timings.jsonl")
    if not file.is_file():
        raise DataError(f"{file} is not there, and with it what the steps cost: restore it, or fit over --unit steps")
    records = by_step(checked_lines(file, Metrics if unit == "flops" else Timing, REMEDY))
    if not records and max(rewards) > 0:
        raise DataError(f"{file} is empty, and with it what the steps cost: restore it, or fit over --unit steps")
    steps = [record["step"] for record in records]
    if (path / "result.json").is_file():
        last = max(rewards)
    else:  # the step of the newest evaluation may be under way
        last = steps[-1] if steps else 0
        for step in [step for step in rewards if step > last]:
            del rewards[step]
    wrong = next((step for step in range(1, last + 1) if steps.count(step) != 1), None)
    if wrong is not None:
        times = "no line" if wrong not in steps else f"{steps.count(wrong)} lines"
        raise DataError(f"{file} has {times} of step {wrong}: restore it, or fit over --unit steps")
    return records


def _spent(timings: Sequence[dict[str, Any]], step: int, unit: str) -> float:
    before = [record for record in timings if record["step"] <= step]
    if unit == "steps":
        return float(step)
    if unit == "tokens":
        return float(sum(record.get("tokens_generated", 0) for record in before))
    if unit == "flops":
        return float(sum(record.get("compute/flops", 0.0) for record in before))
    counts = ("step", "evaluate")
    return float(
        sum(
            value
            for record in before
            for name, value in record.items()
            if name not in counts and not name.startswith("tokens_")
        )
    )


def _read_csv(path: Path, initial: float | None) -> Points:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [
                {name.strip(): value for name, value in row.items() if name is not None} for row in csv.DictReader(file)
            ]
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as CSV: {error}") from None
    if not rows:
        raise DataError(f"{path} has no rows: expected the columns compute and reward, and a row for each evaluation")
    found: list[tuple[float, float]] = []
    for number, row in enumerate(rows, start=2):
        try:
            found.append((float(row["compute"]), float(row["reward"])))
        except KeyError:
            raise DataError(
                f"{path}: expected the columns compute and reward, found {', '.join(map(str, row))}"
            ) from None
        except (TypeError, ValueError):
            raise DataError(f"{path}, line {number}: compute and reward must be numbers") from None
    found.sort()
    before = [reward for compute, reward in found if compute == 0]
    if initial is None and not before:
        raise DataError(f"{path} has no row with compute 0: add the reward before training, or give it (--initial)")
    after = [pair for pair in found if pair[0] != 0]
    compute, reward = (np.array([pair[i] for pair in after], dtype=np.float64) for i in (0, 1))
    return Points(path.stem, compute, reward, float(np.mean(before)) if initial is None else initial, "compute")


def fit_points(
    points: Points, *, start: float = 0.0, ceiling: float = CEILING, share: float = 0.5, confidence: float = 0.95
) -> tuple[CurveFit, dict[str, Any]]:
    """The fit, and everything about it as a record; what the data do not allow is a sentence in it.

    Raises:
        DataError: the points cannot be fitted at all.
    """
    try:
        fit = fit_curve(
            points.compute, points.reward, points.initial, start=start, ceiling=ceiling, confidence=confidence
        )
    except DataError as error:
        raise DataError(f"{points.name}: {error}") from error
    record: dict[str, Any] = {
        "name": points.name,
        "unit": points.unit,
        "points": fit.fit.points,
        "initial": points.initial,
        "ceiling": ceiling,
        "asymptote": _range(fit.asymptote),
        "midpoint": _range(fit.midpoint),
        "exponent": _range(fit.exponent),
        "scatter": fit.scatter,
        "confidence": confidence,
        "identified": fit.identified,
        "refusal": fit.refusal,
        "extrapolation": None,
        "power_law": None,
        "notes": [],
    }
    given = {"start": start, "ceiling": ceiling}
    try:
        held = extrapolate(points.compute, points.reward, points.initial, share=share, confidence=confidence, **given)
        record["extrapolation"] = {
            "share": share,
            "until": held.until,
            "points": len(held.reward),
            "error": held.error,
            "bias": held.bias,
            "inside": held.inside,
            "identified": held.fit.identified,
        }
    except DataError as error:
        record["notes"].append(f"no extrapolation: {error}")
    try:
        contest = compare_with_power_law(points.compute, points.reward, points.initial, **given)
        record["power_law"] = {
            "shares": list(contest.shares),
            "sigmoid": contest.sigmoid.tolist(),
            "power_law": contest.power_law.tolist(),
            "better": contest.better,
        }
    except DataError as error:
        record["notes"].append(f"no comparison with a power law: {error}")
    return fit, record


def _range(found: Range) -> dict[str, Any]:
    """An end that is open is null."""
    return {
        "value": found.value if math.isfinite(found.value) else None,
        "low": None if found.low_open else found.low,
        "high": None if found.high_open else found.high,
    }
