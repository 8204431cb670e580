"""Problems from a JSONL or Parquet file with the columns ``prompt``, ``answer``, ``metadata`` and ``completion``.

``prompt`` is text or a list of chat messages, ``answer`` the gold answer, ``metadata`` a table for the verifier and the
report, ``completion`` a worked solution for supervised training. Only ``prompt`` is needed; other columns are left out.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.errors import DataError
from surefoot.extras import require
from surefoot.tasks.base import Task, content_id, is_heldout, unreadable
from surefoot.tasks.config import TaskConfig
from surefoot.types import Prompt

KEYS = ("prompt", "answer", "metadata", "completion")
SUFFIXES = {".jsonl": "JSON lines", ".ndjson": "JSON lines", ".parquet": "Parquet"}
ROLES = ("system", "user", "assistant", "tool")


@dataclass
class Rows:
    """The prompts of one file, each once, with the row of its first mention.

    Attributes:
        prompts: in the order of the file.
        row: prompt_id -> row number, from 1.
        duplicates: rows left out because their prompt stood before.
        contradictions: those of them with another answer.
    """

    path: Path
    prompts: dict[str, Prompt] = field(default_factory=dict)
    row: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    contradictions: int = 0


def build(config: TaskConfig) -> Task:
    """The task 'file': at most ``train_size`` and ``heldout_size`` problems, in the order of the file.

    With ``heldout_path`` all problems of ``path`` are for training, and a problem that stands in both files is refused.
    Without it the hash of a prompt decides for ever on which side it lies, whatever else is in the file. Prompts that
    differ in white space alone count as one problem here.

    Raises:
        DataError: a file that is missing, of an unknown kind, malformed or empty, or a part that gets no problems.
        MissingExtraError: a Parquet file without pyarrow.
    """
    if config.path is None:
        raise DataError("the task 'file' needs task.path: give a JSONL or Parquet file")
    if config.options:
        raise DataError(f"unknown option '{next(iter(config.options))}': the task 'file' has no options")
    rows = read_rows(Path(config.path), "task.path")
    notes = _notes(rows)
    train: list[Prompt]
    heldout: list[Prompt]
    if config.heldout_path is not None:
        other = read_rows(Path(config.heldout_path), "task.heldout_path")
        _refuse_overlap(rows, other)
        notes += _notes(other)
        train, heldout = list(rows.prompts.values()), list(other.prompts.values())
    else:
        train, heldout = [], []
        for prompt in rows.prompts.values():
            part = heldout if is_heldout(content_id("file", _key(prompt)), config.heldout_share) else train
            part.append(prompt)
        if not train or (config.heldout_size and not heldout):
            raise DataError(
                f"{rows.path} has {len(rows.prompts)} problems, of which the hash keeps {len(heldout)} for held-out "
                f"use and {len(train)} for training (task.heldout_share = {config.heldout_share}): give "
                f"task.heldout_path, change task.heldout_share, or set task.heldout_size = 0"
            )
    train, heldout = train[: config.train_size], heldout[: config.heldout_size]
    worked = all("completion" in prompt.metadata for prompt in train)
    return Task(
        config.name, tuple(train), tuple(heldout), demonstrate=demonstrate if worked else None, notes=tuple(notes)
    )


def demonstrate(prompt: Prompt, seed: int, error_rate: float) -> str:
    """The row's own ``completion``. It has no mistakes to add: any ``error_rate`` but 0 is refused.

    Raises:
        DataError: the row has no completion, or mistakes were asked for.
    """
    if error_rate:
        raise DataError(
            f"the demonstrations of a file are used as they are: an error rate of {error_rate} is not possible"
        )
    completion = prompt.metadata.get("completion")
    if completion is None:
        raise DataError(f"the problem {prompt.prompt_id} ({prompt.text[:60]!r}) has no 'completion' to learn from")
    return str(completion)


def read_rows(path: Path, option: str) -> Rows:
    """Read a file of problems.

    Args:
        path: a ``.jsonl``, ``.ndjson`` or ``.parquet`` file.
        option: the configuration key it came from, for the messages.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"{option} = {str(path)!r}: unknown kind of file; expected one of {', '.join(SUFFIXES)}")
    try:
        there = path.is_file()
    except OSError as error:
        raise DataError(f"{option} = {str(path)!r} cannot be read: {error.strerror}") from None
    if not there:
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"{option} = {str(path)!r} {what}: give a JSONL or Parquet file")
    rows = Rows(path)
    records = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_json_lines(path)
    for place, number, record in records:
        _refuse_misspelt(place, record)
        prompt = _prompt(place, record)
        known = rows.prompts.get(prompt.prompt_id)
        if known is None:
            rows.prompts[prompt.prompt_id] = prompt
            rows.row[prompt.prompt_id] = number
        else:
            rows.duplicates += 1
            rows.contradictions += known.answer != prompt.answer
    if not rows.prompts:
        raise DataError(f"{option} = {str(path)!r} holds no problems: it is empty")
    return rows


def _refuse_misspelt(place: str, record: Any) -> None:
    """A row that lacks a key and has one that is nearly spelt like it."""
    if not isinstance(record, dict):
        return
    for missing in [key for key in KEYS if key not in record]:
        for close in difflib.get_close_matches(
            missing, [str(key) for key in record if key not in KEYS], n=1, cutoff=0.8
        ):
            raise DataError(f"{place}: unknown key '{close}'. Did you mean '{missing}'?")


def _read_json_lines(path: Path) -> Iterator[tuple[str, int, Any]]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                place = f"{path}, line {number}"
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise DataError(f"{place} is not valid JSON: {error}; expected one object per line") from None
                yield place, number, record
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def _read_parquet(path: Path) -> Iterator[tuple[str, int, Any]]:
    parquet = require("pyarrow.parquet", "files", f"the Parquet file {path}")
    arrow = require("pyarrow", "files", f"the Parquet file {path}")
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            known = [name for name in KEYS if name in file.schema_arrow.names]
            columns = known if "prompt" in known else None
            for batch in file.iter_batches(columns=columns):
                for record in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", number, record
    except (arrow.ArrowException, OSError) as error:
        text = str(error).split("\n")[0]
        raise DataError(f"{path} is not a Parquet file that can be read: {text}") from None


def _prompt(place: str, record: Any) -> Prompt:
    if not isinstance(record, Mapping):
        raise DataError(f"{place} is {_kind(record)}; expected an object with 'prompt' and 'answer'")
    content = _content(place, record)
    metadata = record.get("metadata")
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, Mapping):
        raise DataError(f"{place}: 'metadata' is {_kind(metadata)}; expected an object")
    completion = record.get("completion")
    if completion is not None:
        if not isinstance(completion, str):
            raise DataError(f"{place}: 'completion' is {_kind(completion)}; expected text")
        _refuse_unreadable(f"{place}: 'completion'", completion)
        metadata = {**metadata, "completion": completion}
    plain = content if isinstance(content, str) else [dict(message) for message in content]
    return Prompt(content_id("file", plain), content, record.get("answer"), dict(metadata))


def _content(place: str, record: Mapping[str, Any]) -> str | tuple[Mapping[str, str], ...]:
    if record.get("prompt") is None:
        columns = ", ".join(map(str, record)) or "nothing"
        raise DataError(f"{place} has no 'prompt' (it has {columns}): name the column of the problem 'prompt'")
    content = record["prompt"]
    if isinstance(content, str):
        if not content.strip():
            raise DataError(f"{place}: 'prompt' is empty; expected text or a list of messages")
        _refuse_unreadable(f"{place}: 'prompt'", content)
        return content
    if not isinstance(content, Sequence) or not content:
        raise DataError(f"{place}: 'prompt' is {_kind(content)}; expected text or a list of messages")
    messages = []
    for message in content:
        role, text = (message.get("role"), message.get("content")) if isinstance(message, Mapping) else (None, None)
        if role not in ROLES or not isinstance(text, str):
            raise DataError(
                f"{place}: a message of 'prompt' is {str(message)[:80]}; expected an object with 'role' "
                f"({', '.join(ROLES)}) and 'content' (text)"
            )
        _refuse_unreadable(f"{place}: 'prompt'", text)
        messages.append({"role": role, "content": text})
    if messages[-1]["role"] not in ("user", "tool") or not any(m["role"] == "user" for m in messages):
        raise DataError(
            f"{place}: the last message of 'prompt' is of '{messages[-1]['role']}'; expected 'user' to speak last"
        )
    return tuple(messages)


def _refuse_unreadable(place: str, text: str) -> None:
    if trouble := unreadable(text):
        raise DataError(f"{place}: {trouble}")


def _key(prompt: Prompt) -> Any:
    """What makes two prompts the same problem: their text without regard to white space."""
    if isinstance(prompt.content, str):
        return " ".join(prompt.content.split())
    return [[message["role"], " ".join(message["content"].split())] for message in prompt.content]


def _refuse_overlap(train: Rows, heldout: Rows) -> None:
    where = {content_id("file", _key(prompt)): train.row[name] for name, prompt in train.prompts.items()}
    shared = [
        (where[key], heldout.row[name])
        for name, prompt in heldout.prompts.items()
        if (key := content_id("file", _key(prompt))) in where
    ]
    if shared:
        raise DataError(
            f"{len(shared)} problems stand in both {train.path} and {heldout.path} (first: row {shared[0][0]} and row "
            f"{shared[0][1]}): held-out problems must never be trained on, remove them from task.path"
        )


def _notes(rows: Rows) -> list[str]:
    if not rows.duplicates:
        return []
    note = f"{rows.path}: {rows.duplicates} rows repeat the prompt of an earlier row and were left out"
    if rows.contradictions:
        note += f", {rows.contradictions} of them with another answer"
    return [note]


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {str: "text", list: "a list", dict: "an object", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), f"a {type(value).__name__}") + (" without entries" if value in ([], {}) else "")
