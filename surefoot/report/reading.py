"""Reading a run folder, whatever state it is in: what is there is returned, what is missing or damaged is said.

A report is asked for most urgently when a run went wrong, so nothing here raises because of what a file holds: a torn
line, bytes that are not UTF-8, half of a surrogate pair and numbers that are not finite all have a place.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.errors import RunFolderError
from surefoot.training.places import Place, instead, place

Record = dict[str, Any]

_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_FILES = {
    "metrics.jsonl": "the training curves",
    "timings.jsonl": "where the time went",
    "evaluations.jsonl": "held-out accuracy over the run",
    "result.json": "the outcome (the run has not finished)",
    "card.md": "the objective",
    "config.toml": "the configuration",
    "environment.json": "versions and command",
}


@dataclass(frozen=True)
class RunFiles:
    """The small files of a run.

    Attributes:
        folder: the run folder.
        metrics, timings, evaluations: one record per step, sorted by step; of two with one step the later line counts.
        warnings: in the order in which they were given.
        card: markdown.
        config_text: the resolved configuration as written; ``config``: the same, parsed.
        environment, result: as written; empty where missing.
        gaps: a sentence for everything that is missing or was left out.
    """

    folder: Path
    metrics: list[Record] = field(default_factory=list)
    timings: list[Record] = field(default_factory=list)
    evaluations: list[Record] = field(default_factory=list)
    warnings: list[Record] = field(default_factory=list)
    card: str = ""
    config_text: str = ""
    config: Record = field(default_factory=dict)
    environment: Record = field(default_factory=dict)
    result: Record = field(default_factory=dict)
    gaps: tuple[str, ...] = ()

    @property
    def place(self) -> Place | None:
        """Where in an experiment the run lies; None: in none."""
        return place(self.folder)

    @property
    def title(self) -> str:
        """What the run is called among others: its place in its experiment, or its name."""
        return self.place.title if self.place is not None else self.name

    @property
    def name(self) -> str:
        """Name of the run: that of the configuration, else that of the folder."""
        name = self.config.get("name")
        return name if isinstance(name, str) and name else self.folder.resolve().name

    def setting(self, dotted: str) -> Any:
        """A value of the configuration, or None: ``setting("train.steps")``."""
        value: Any = self.config
        for part in dotted.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    @property
    def confidence(self) -> float:
        """Level of the intervals, as configured; 0.95 where the configuration is missing."""
        return number(self.setting("evaluation.confidence")) or 0.95


def read_run(folder: Path) -> RunFiles:
    """Read the small files of a run folder (samples are read apart: they may be large).

    Raises:
        RunFolderError: the folder does not exist, or holds no file of a run at all.
    """
    if not folder.is_dir():
        raise RunFolderError(f"the run folder {folder} does not exist: give the folder that holds metrics.jsonl")
    if not any((folder / name).exists() for name in (*_FILES, "warnings.jsonl", "samples")):
        raise RunFolderError(
            f"{folder} holds no files of a run: give the folder that holds metrics.jsonl.{instead(folder)}"
        )
    gaps = [f"{name} is not there: {what}." for name, what in _FILES.items() if not (folder / name).is_file()]
    config_text = read_text(folder / "config.toml")
    try:
        config = tomllib.loads(config_text)
    except (tomllib.TOMLDecodeError, RecursionError):
        config = {}
        gaps.append("config.toml is not valid TOML: it is shown as it is.")
    return RunFiles(
        folder=folder,
        metrics=_series(folder / "metrics.jsonl", gaps),
        timings=_series(folder / "timings.jsonl", gaps),
        evaluations=_series(folder / "evaluations.jsonl", gaps),
        warnings=read_records(folder / "warnings.jsonl", gaps),
        card=read_text(folder / "card.md"),
        config_text=config_text,
        config=config,
        environment=_read_object(folder / "environment.json", gaps),
        result=_read_object(folder / "result.json", gaps),
        gaps=tuple(gaps),
    )


def read_records(path: Path, gaps: list[str], decode: Callable[[str], Any] | None = None) -> list[Record]:
    """The records of a JSON-lines file; lines that are not JSON objects are counted into ``gaps`` and left out.

    Args:
        path: of the file.
        gaps: receives a sentence where lines were left out.
        decode: makes a value of a line, None where it is not JSON; :func:`parse` by default.
    """
    decode = decode or parse
    records, bad = [], 0
    lines = read_text(path).split("\n")
    for line in lines:
        if not line.strip():
            continue
        value = decode(line)
        if isinstance(value, dict):
            records.append(value)
        else:
            bad += 1
    torn = bool(lines[-1].strip()) and not isinstance(parse(lines[-1]), dict)
    if torn:
        gaps.append(f"The last line of {path.name} is torn (the writer was stopped) and left out.")
    if bad > torn:
        gaps.append(f"{bad - torn} of {len(records) + bad} lines of {path.name} cannot be read and are left out.")
    return records


def read_text(path: Path) -> str:
    """A file's text; NUL and bytes that are not UTF-8 become U+FFFD, a file that cannot be read becomes ''."""
    try:
        return _UNWRITABLE.sub("\ufffd", path.read_bytes().decode("utf-8", errors="replace").replace("\r\n", "\n"))
    except OSError:
        return ""


def parse(text: str) -> Any:
    """A JSON value made of what a page can hold: see :func:`clean`. None where the text is not JSON."""
    try:
        return clean(json.loads(text))
    except (ValueError, RecursionError):
        return None


def clean(value: Any) -> Any:
    """The value with what a page cannot hold replaced: NUL and lone surrogates by U+FFFD, NaN and infinity by None."""
    if isinstance(value, str):
        return _UNWRITABLE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def number(value: Any) -> float | None:
    """The value as a finite float; None where it is none (a text, a bool, infinite)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def step_of(record: Record) -> int | None:
    """The record's step, where it has a sensible one."""
    step = number(record.get("step"))
    return int(step) if step is not None and step == int(step) and step >= 0 else None


def column(records: Iterable[Record], name: str) -> tuple[list[int], list[float]]:
    """Steps and values of one metric, where it was recorded: ([n], [n])."""
    pairs = [(record["step"], number(record.get(name))) for record in records]
    return [step for step, value in pairs if value is not None], [value for _, value in pairs if value is not None]


def _series(path: Path, gaps: list[str]) -> list[Record]:
    steps: dict[int, Record] = {}
    records = read_records(path, gaps)
    for record in records:
        step = step_of(record)
        if step is not None:
            steps[step] = {**record, "step": step}
    lost = sum(step_of(record) is None for record in records)
    if lost:
        gaps.append(
            f"{lost} of {len(records)} records of {path.name} {'has' if lost == 1 else 'have'} no usable step "
            "(a whole number from 0 on): left out."
        )
    return [steps[step] for step in sorted(steps)]


def _read_object(path: Path, gaps: list[str]) -> Record:
    value = parse(read_text(path))
    if isinstance(value, dict):
        return value
    if path.is_file():
        gaps.append(f"{path.name} is not a JSON object and is left out.")
    return {}
