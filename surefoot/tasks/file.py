"""Problems from a local file: JSON lines, a JSON list, CSV, TSV (each also as ``.gz``) or Parquet.

Without options the columns are ``prompt`` (text or a list of chat messages), ``answer`` (the gold answer), ``completion``
(a worked solution for supervised training), ``system`` and ``metadata`` (a table for the verifier and the report), of which
only ``prompt`` is needed; :class:`surefoot.tasks.columns.Columns` names others. What else a row has is metadata too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from surefoot.errors import DataError
from surefoot.tasks.base import Task, is_heldout
from surefoot.tasks.columns import Columns, to_prompt
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.generate import read_options
from surefoot.tasks.overlap import problem_key, separate
from surefoot.tasks.readers import KINDS, SEPARATED, Row, kind_of, read_file
from surefoot.types import Prompt


@dataclass
class Rows:
    """The prompts of one source, each once.

    Attributes:
        source: what they were read from, for messages.
        prompts: prompt_id -> prompt, in the order of the source.
        row: prompt_id -> number of its row, from 1.
        duplicates: rows left out because their prompt stood before.
        contradictions: those of them with another answer.
        unusable: rows left out because they hold no problem that can be graded.
    """

    source: str
    prompts: dict[str, Prompt] = field(default_factory=dict)
    row: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    contradictions: int = 0
    unusable: int = 0

    def add(self, prompt: Prompt, number: int) -> None:
        known = self.prompts.setdefault(prompt.prompt_id, prompt)
        self.row.setdefault(prompt.prompt_id, number)
        if known is not prompt:
            self.duplicates += 1
            self.contradictions += known.answer != prompt.answer

    def notes(self) -> list[str]:
        """What was left out."""
        notes = []
        if self.unusable:
            notes.append(f"{self.source}: {self.unusable} rows have no answer that could be graded and were left out")
        if self.duplicates:
            note = f"{self.source}: {self.duplicates} rows repeat the prompt of an earlier row and were left out"
            other = f", {self.contradictions} of them with another answer" if self.contradictions else ""
            notes.append(note + other)
        return notes


def build(config: TaskConfig) -> Task:
    """The task 'file': at most ``train_size`` and ``heldout_size`` problems, in the order of the file.

    With ``heldout_path`` all problems of ``path`` are for training, and a problem that stands in both files is refused.
    Without it the hash of a problem decides for ever on which side it lies, whatever else is in the file. Copies that
    differ in wording marks alone (:func:`surefoot.tasks.overlap.normal_form`) lie on the same side.

    Raises:
        DataError: a file that is missing, of an unknown kind, malformed or empty, or a part that gets no problems.
        MissingExtraError: a Parquet file without pyarrow.
    """
    if config.path is None:
        raise DataError(f"the task 'file' needs task.path: give {KINDS}")
    columns = read_options(Columns, config)
    rows = read_rows(Path(config.path), "task.path", columns)
    heldout = None
    if config.heldout_path is not None:
        heldout = read_rows(Path(config.heldout_path), "task.heldout_path", columns)
    return task_of(config, rows, heldout, verifier=columns.verifier)


def task_of(config: TaskConfig, rows: Rows, other: Rows | None, *, verifier: str) -> Task:
    """Training and held-out problems of one source, divided by hash, or of two that must not overlap."""
    notes = rows.notes()
    if other is not None:
        notes += other.notes()
        heldout = list(other.prompts.values())
        train, left_out = separate(
            list(rows.prompts.values()),
            heldout,
            drop=config.overlap == "drop",
            where=f"{rows.source} and {other.source}",
            rows=(rows.row, other.row),
        )
        notes += left_out
    else:
        train, heldout = divide(config, rows)
    train, heldout = train[: config.train_size], heldout[: config.heldout_size]
    worked = bool(train) and all("completion" in prompt.metadata for prompt in train)
    return Task(
        config.name,
        tuple(train),
        tuple(heldout),
        demonstrate=demonstrate if worked else None,
        notes=tuple(notes),
        verifier=verifier,
    )


def divide(config: TaskConfig, rows: Rows) -> tuple[list[Prompt], list[Prompt]]:
    """Training and held-out problems by the hash of each.

    Raises:
        DataError: a part that is wanted gets none.
    """
    train: list[Prompt] = []
    heldout: list[Prompt] = []
    for prompt in rows.prompts.values():
        (heldout if is_heldout(problem_key(prompt), config.heldout_share) else train).append(prompt)
    if not train or (config.heldout_size and not heldout):
        raise DataError(
            f"{rows.source} has {len(rows.prompts)} problems, of which the hash keeps {len(heldout)} for held-out "
            f"use and {len(train)} for training (task.heldout_share = {config.heldout_share}): give "
            f"task.heldout_path, change task.heldout_share, or set task.heldout_size = 0"
        )
    return train, heldout


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


def read_rows(path: Path, option: str, columns: Columns) -> Rows:
    """Read a file of problems.

    Args:
        path: the file.
        option: the configuration key it came from, for the messages.
        columns: which column is what.
    """
    records = read_file(path, option)
    return collect(str(path), option, records, columns, cells=kind_of(path) in SEPARATED)


def collect(
    source: str, option: str, records: Iterable[Row], columns: Columns, *, name: str = "file", cells: bool = False
) -> Rows:
    """The problems of rows, whatever they were read from.

    Raises:
        DataError: a row that holds no problem, or no row at all.
    """
    rows = Rows(source)
    for place, number, record in records:
        rows.add(to_prompt(place, record, columns, name=name, cells=cells), number)
    if not rows.prompts:
        raise DataError(f"{option} = {source!r} holds no problems: it is empty")
    return rows
