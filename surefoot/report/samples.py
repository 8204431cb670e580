"""The samples of a run for the reader in the page: a small table of all, and their texts and tokens in packs.

A page may hold 5,000 samples of 2,000 tokens. What the list and the filters need of every sample is plain JSON; texts and
tokens lie compressed in packs, which the reader opens when it shows or searches them.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.report.reading import Record, clean, number, read_records
from surefoot.report.token_table import mean_of, token_table

BUDGET = 512 * 2**20
"""Bytes of sample files that a page is made from; a run with more is thinned evenly over its steps."""

PACK = 256 * 2**10
"""Characters of JSON from which on a pack is closed."""

FIELDS = (
    "set", "step", "prompt_id", "sample_id", "prompt", "tail", "reward", "components", "correct", "status", "finish",
    "length", "advantage", "seed", "version", "entropy", "text", "tokens",
)  # fmt: skip
_NUMBERS = ("step", "reward", "length", "advantage")
_TEXTS = ("prompt_id", "status", "finish")
_FILE = re.compile(r"(step|heldout)-(\d+)\.jsonl")
_EXACT = 2**53
_TAIL = 90


@dataclass(frozen=True)
class SampleFile:
    """One file of samples: ``kind`` is 'step' (training) or 'heldout', ``size`` is in bytes."""

    path: Path
    kind: str
    step: int
    size: int


@dataclass
class SampleTable:
    """Samples as the page holds them.

    Attributes:
        rows: a row for each sample, values in the order of ``FIELDS``: ``prompt`` numbers the prompts, ``text`` and
            ``tokens`` are (pack, place in it), ``tokens`` None for a sample without.
        prompts: how many different prompts there are.
        packs: base64 of JSON compressed with zlib; a list whose items are ``[prompt, completion, answer, note]`` for texts,
            :func:`surefoot.report.token_table.token_table` for tokens.
    """

    rows: list[list[Any]] = field(default_factory=list)
    prompts: dict[str, int] = field(default_factory=dict)
    packs: list[str] = field(default_factory=list)

    @property
    def index(self) -> Record:
        """The table without its packs."""
        return {"fields": list(FIELDS), "rows": self.rows}


class _Packer:
    """Puts items into the last pack until that is full."""

    def __init__(self, table: SampleTable) -> None:
        self.table, self.items, self.size, self.number = table, list[str](), 0, -1

    def add(self, item: Any) -> tuple[int, int]:
        if self.number < 0:
            self.number = len(self.table.packs)
            self.table.packs.append("")
        text = json.dumps(item, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        self.items.append(text)
        self.size += len(text)
        place = self.number, len(self.items) - 1
        if self.size >= PACK:
            self.close()
        return place

    def close(self) -> None:
        if self.number >= 0:
            data = zlib.compress(f"[{','.join(self.items)}]".encode(), 5)
            self.table.packs[self.number] = base64.b64encode(data).decode()
        self.items, self.size, self.number = [], 0, -1


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


def sample_table(folder: Path, gaps: list[str], budget: int = BUDGET) -> SampleTable:
    """All samples of a run that fit the budget.

    Args:
        folder: the run folder.
        gaps: receives a sentence for everything that is missing or was left out.
        budget: bytes of sample files to read.
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
    return pack_samples(chosen, gaps)


def pack_samples(files: Sequence[SampleFile], gaps: list[str]) -> SampleTable:
    """The samples of these files, in their order."""
    table = SampleTable()
    texts, tokens = _Packer(table), _Packer(table)
    for file in files:
        for record in read_records(file.path, gaps, _parse):
            words = [readable(record.get(name)) for name in ("prompt", "completion", "answer", "note")]
            values = _values(file, record, words)
            values["prompt"] = table.prompts.setdefault(words[0], len(table.prompts))
            values["text"] = texts.add(words)
            found = token_table(record["tokens"], words[1])
            values["tokens"] = None if found is None else tokens.add(found)
            values["entropy"] = None if found is None else mean_of(found, "entropy", 100)
            table.rows.append([values[name] for name in FIELDS])
    texts.close()
    tokens.close()
    return table


def _parse(text: str) -> Any:
    """A line as :func:`surefoot.report.reading.parse` reads it, its many tokens left for :func:`token_table` to check."""
    try:
        value = json.loads(text)
        tokens = value.pop("tokens", None) if isinstance(value, dict) else None
        value = clean(value)
    except (ValueError, RecursionError):
        return None
    return {**value, "tokens": tokens} if isinstance(value, dict) else value


def _values(file: SampleFile, record: Record, words: Sequence[str]) -> Record:
    values: Record = {name: record.get(name) for name in FIELDS}
    values |= {name: number(record.get(name)) for name in _NUMBERS}
    values |= {name: readable(record.get(name)) for name in _TEXTS}
    values |= {name: _exact(record.get(name)) for name in ("sample_id", "seed", "version")}
    values["set"] = "heldout" if file.kind == "heldout" else "train"
    values["step"] = file.step
    values["tail"] = _tail(words[1])
    values["correct"] = record["correct"] if isinstance(record.get("correct"), bool) else None
    components, parts = (table if isinstance(table := record.get(key), dict) else {} for key in ("components", "parts"))
    values["components"] = {_label(str(name), parts.get(name)): number(value) for name, value in components.items()}
    return values


def _tail(text: str) -> str:
    """The last line that is not empty, or the end of it."""
    last = text.rstrip().rsplit("\n", 1)[-1].strip()
    return f"…{last[-_TAIL:]}" if len(last) > _TAIL else last


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
