"""Which versions of a run's weights its folder still holds, and what can be made again with them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from surefoot.errors import RunFolderError
from surefoot.files import read_lines


def kept_states(run: Path) -> dict[int, Path]:
    """The run states by their step; folders that are not named as states are none."""
    found = {}
    for path in (run / "state").glob("step-*"):
        digits = path.name.removeprefix("step-")
        if digits.isascii() and digits.isdecimal() and path.is_dir():
            found[int(digits)] = path
    return found


def kept_models(run: Path) -> dict[int, Path]:
    """``best/`` and ``model/`` by the version of their weights, as ``result.json`` tells it."""
    try:
        result: Any = json.loads((run / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(result, dict):
        return {}
    best = result.get("best")
    steps = {"best": best.get("step") if isinstance(best, dict) else None, "model": result.get("steps")}
    return {
        step: run / name
        for name, step in steps.items()
        if isinstance(step, int) and not isinstance(step, bool) and step >= 0 and (run / name).is_dir()
    }


def kept_versions(run: Path) -> list[int]:
    """All versions that are kept; 0 is the model at the start, which is not in the folder and is taken to be there."""
    return sorted({0, *kept_states(run), *kept_models(run)})


def can_be_made(run: Path) -> str:
    """Which samples can be made again, in words.

    A training sample of step n has the weights of version n - 1 (without overlap), one of an evaluation those of its step.
    """
    versions = kept_versions(run)
    trained, evaluated = _steps(run, "metrics"), _steps(run, "evaluations")
    training = [version + 1 for version in versions if version + 1 in trained]
    heldout = [version for version in versions if version in evaluated]
    return f"training samples of {_listed(training)}, and with --heldout those of {_listed(heldout)}"


def steps_done(run: Path) -> int:
    """The last step that is in the metrics; 0 where there is none."""
    return max(_steps(run, "metrics"), default=0)


def _steps(run: Path, log: str) -> set[int]:
    try:
        return {record["step"] for record in read_lines(run / f"{log}.jsonl") if isinstance(record.get("step"), int)}
    except RunFolderError:
        return set()


def _listed(steps: Iterable[int]) -> str:
    numbers = [str(step) for step in steps]
    if not numbers:
        return "no step"
    return f"step{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
