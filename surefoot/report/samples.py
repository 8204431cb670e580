"""The samples of a run as one compact table for the reader in the page."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.report.reading import Record, number, read_records

BUDGET = 24 * 2**20
"""Bytes of sample files that a page holds; a run with more is thinned evenly over its steps."""

FIELDS = (
    "set", "step", "prompt_id", "sample_id", "prompt", "completion", "answer", "reward", "components", "correct",
    "status", "finish", "length", "advantage", "seed", "version", "note",
)  # fmt: skip
_NUMBERS = ("step", "reward", "length", "advantage")
_TEXTS = ("prompt_id", "completion", "answer", "status", "finish", "note")
_FILE = re.compile(r"(step|heldout)-(\d+)\.jsonl")
_EXACT = 2**53


@dataclass(frozen=True)
class SampleFile:
    """One file of samples: ``kind`` is 'step' (training) or 'heldout', ``size`` is in bytes."""

    path: Path
    kind: str
    step: int
    size: int


def sample_files(folder: Path) -> list[SampleFile]:
    """The sample files of a run, by kind and step."""
    found = []
    for path in sorted((folder / "samples").glob("*.jsonl")):
        match = _FILE.fullmatch(path.name)
        if match and path.is_file():
            found.append(SampleFile(path, match[1], int(match[2]), path.stat().st_size))
    return sorted(found, key=lambda file: (file.kind, file.step))


def thin(files: Sequence[SampleFile], budget: int) -> list[SampleFile]:
    """Every n-th file and the last of each kind, with the smallest n that fits the budget; first and last stay."""
    longest = max((sum(file.kind == kind for file in files) for kind in ("step", "heldout")), default=0)
    chosen: list[SampleFile] = list(files)
    for stride in range(1, longest + 1):
        chosen = []
        for kind in ("heldout", "step"):
            of_kind = [file for file in files if file.kind == kind]
            chosen += [file for i, file in enumerate(of_kind) if i % stride == 0 or i == len(of_kind) - 1]
        if sum(file.size for file in chosen) <= budget:
            break
    return chosen


def sample_table(folder: Path, gaps: list[str], budget: int = BUDGET) -> Record:
    """All samples that fit the budget, in columns.

    Prompts are kept once and named by index, since a group repeats its prompt.

    Args:
        folder: the run folder.
        gaps: receives a sentence for everything that is missing or was left out.
        budget: bytes of sample files to read.

    Returns:
        ``{"fields": [...], "rows": [[...], ...], "prompts": [...]}``; a row holds ``FIELDS`` in order, a prompt as an
        index into ``prompts``, integers that JavaScript cannot hold exactly as text.
    """
    files = sample_files(folder)
    chosen = thin(files, budget)
    if not files:
        gaps.append("samples/ holds no samples: there is nothing to read.")
    elif len(chosen) < len(files):
        gaps.append(
            f"The page holds the samples of {len(chosen)} of {len(files)} files, evenly spaced over the run; "
            f"the others are in samples/."
        )
    prompts: dict[str, int] = {}
    rows = []
    for file in chosen:
        for record in read_records(file.path, gaps):
            rows.append(_row(file, record, prompts))
    return {"fields": list(FIELDS), "rows": rows, "prompts": list(prompts)}


def _row(file: SampleFile, record: Record, prompts: dict[str, int]) -> list[Any]:
    values: Record = {name: record.get(name) for name in FIELDS}
    values |= {name: number(record.get(name)) for name in _NUMBERS}
    values |= {name: readable(record.get(name)) for name in _TEXTS}
    values |= {name: _exact(record.get(name)) for name in ("sample_id", "seed", "version")}
    values["set"] = "heldout" if file.kind == "heldout" else "train"
    values["step"] = file.step
    values["prompt"] = prompts.setdefault(readable(record.get("prompt")), len(prompts))
    values["correct"] = record["correct"] if isinstance(record.get("correct"), bool) else None
    components, parts = (table if isinstance(table := record.get(key), dict) else {} for key in ("components", "parts"))
    values["components"] = {_label(str(name), parts.get(name)): number(value) for name, value in components.items()}
    return [values[name] for name in FIELDS]


def _label(name: str, part: Any) -> str:
    """A component's name; of a part of a sum of rewards with its weight, and whether it did not count."""
    if not isinstance(part, dict):
        return name
    weight = number(part.get("weight"))
    factor = "" if weight is None or weight == 1 else f" x {weight:g}"
    return name + factor + (" (does not count here)" if part.get("counts") is False else "")


def readable(value: Any) -> str:
    """Any JSON value as text: a text as it is, chat messages under the names of their roles, else JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(m, dict) and "content" in m for m in value):
        return "\n\n".join(f"[{readable(m.get('role'))}]\n{readable(m['content'])}" for m in value)
    return json.dumps(value, ensure_ascii=False)


def _exact(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < _EXACT else str(value)
    return readable(value)
