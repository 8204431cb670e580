"""The tables of cases under ``data/``: one JSON object a line.

``gold``, ``completion`` (or ``[before, piece, times, after]`` for long runs), ``verdict`` ("right", "wrong" or "no
answer"), and where they matter ``options`` of the verifier and ``metadata`` of the problem.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from surefoot.types import Score, Status

DATA = Path(__file__).parent / "data"


def load(name: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]
    return [{**row, "completion": flat(row["completion"])} for row in rows]


def flat(completion: Any) -> str:
    if isinstance(completion, str):
        return completion
    before, piece, times, after = completion
    return f"{before}{piece * times}{flat(after)}"


def verdict(score: Score) -> str:
    if score.status is Status.NO_ANSWER:
        assert score.total == 0.0
        return "no answer"
    assert score.status is Status.OK, score
    right = score.correct if score.correct is not None else score.total == 1.0
    assert score.total == float(right)
    return "right" if right else "wrong"
