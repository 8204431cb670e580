"""Data sets of the Hugging Face hub by name: ``hub:gsm8k``, ``hub:openai/gsm8k``, or any other with its columns.

They are loaded with the package ``datasets`` (extra ``hub``), or with ``task.path`` from a copy on this machine: a file, or a
folder as ``hf download --repo-type dataset`` makes it. Both give the same problems.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from surefoot.config import nearest
from surefoot.errors import DataError
from surefoot.extras import require
from surefoot.tasks.base import Task
from surefoot.tasks.columns import Columns
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.file import Rows, collect, task_of
from surefoot.tasks.generate import read_options
from surefoot.tasks.hub_table import SCHEMAS, SHORT, Schema
from surefoot.tasks.readers import Row, kind_of, read_file, short_floats

PREFIX = "hub:"


class HubOptions(Columns):
    """Options of a data set of the hub: the columns, and where its problems are."""

    train: str | None = Field(None, description="split of the training problems ('': none)")
    heldout: str | None = Field(None, description="split of the held-out problems ('': by hash)")
    subset: str | None = Field(None, description="configuration of the data set")
    revision: str | None = Field(None, description="commit or tag of the data set")


def known_names() -> list[str]:
    """Names of data sets whose columns are known."""
    return list(SCHEMAS)


def build(config: TaskConfig) -> Task:
    """At most ``train_size`` and ``heldout_size`` problems of a data set, in its order.

    A data set that has a split of its own for evaluation keeps it; of another the hash of a problem decides. Data sets for
    evaluation only give held-out problems alone, unless ``options.train`` names a split to train on.

    Raises:
        DataError: an unknown name or option, a row that does not have the columns, a hub that cannot be reached, a copy
            that holds no such split.
        MissingExtraError: no package ``datasets``, and no ``task.path``.
    """
    schema, options = _schema(config)
    source = _Source(config, schema, options)
    if not schema.train and not schema.heldout:
        raise DataError(f"'{config.name}': neither task.options.train nor task.options.heldout names a split")
    heldout = source.rows(schema.heldout, config.heldout_path) if schema.heldout or config.heldout_path else None
    if not schema.train:
        assert heldout is not None
        problems = tuple(heldout.prompts.values())[: config.heldout_size]
        return Task(config.name, (), problems, notes=tuple(heldout.notes()), verifier=schema.verifier)
    return task_of(config, source.rows(schema.train, config.path), heldout, verifier=schema.verifier)


def _schema(config: TaskConfig) -> tuple[Schema, HubOptions]:
    """What is known of the data set, with what the options say over it."""
    name = config.name.removeprefix(PREFIX)
    options = read_options(HubOptions, config)
    given = options.model_fields_set
    known = SCHEMAS.get(name)
    if known is None:
        if "/" not in name:
            raise DataError(
                f"unknown data set '{config.name}'." + nearest(name, SHORT) + " Others are named 'hub:<owner>/<name>'."
            )
        if not given & {"prompt", "answer"}:
            raise DataError(
                f"the columns of '{config.name}' are not known: say in task.options which is the problem and which the "
                "answer, for instance { prompt = 'question', answer = 'answer' }" + nearest(name, SCHEMAS)
            )
        known = Schema(name, verifier="auto")
    if given & {"prompt", "answer", "completion", "system", "metadata"}:  # the columns as the options have them
        known = replace(known, mend=None)
    changes: dict[str, Any] = {
        key: getattr(options, key) or "" for key in ("train", "heldout", "verifier") if key in given
    }
    if options.subset is not None:
        changes["subsets"] = (options.subset,)
    if known.train and config.path is not None and config.heldout_path is None and not Path(config.path).is_dir():
        changes.setdefault("heldout", "")  # one file is one split
    return replace(known, **changes), options


class _Source:
    """The rows of the splits of one data set, from the hub or from a copy."""

    def __init__(self, config: TaskConfig, schema: Schema, options: HubOptions) -> None:
        self.config, self.schema, self.options = config, schema, options
        columns = {key: getattr(options, key) for key in options.model_fields_set & set(Columns.model_fields)}
        self.columns = Columns(**{**schema.columns, **columns})

    def rows(self, split: str, path: str | None) -> Rows:
        """The problems of a split; those of one file, where ``path`` names a file."""
        local = path if path is not None else self.config.path
        if local is None:
            source, records = f"{self.config.name}, split {split}", self._download(split)
        else:
            option = "task.path" if local == self.config.path else "task.heldout_path"
            source, records = self._copy(Path(local), split, option)
        left_out = [0]
        rows = collect(source, "task.name", self._mended(records, left_out), self.columns, name=self.schema.repo)
        rows.unusable = left_out[0]
        return rows

    def _mended(self, records: Iterator[Row], left_out: list[int]) -> Iterator[Row]:
        for place, number, record in records:
            if self.schema.mend is None:
                yield place, number, record
                continue
            try:
                mended = self.schema.mend(record)
            except DataError as error:
                raise DataError(f"{place}: {error}") from error
            except Exception as error:
                have = ", ".join(map(str, record)) if isinstance(record, dict) else type(record).__name__
                raise DataError(
                    f"{place} is not a row of {self.schema.repo} as Surefoot knows it ({type(error).__name__}: {error}; it has "
                    f"{have}): name its columns in task.options, for instance {{ prompt = 'question', answer = 'answer' }}"
                ) from error
            if mended is None:
                left_out[0] += 1
            else:
                yield place, number, mended

    def _download(self, split: str) -> Iterator[Row]:
        datasets = require("datasets", "hub", f"the task '{self.config.name}' (without task.path)")
        for subset in self.schema.subsets or (None,):
            try:
                found = self._load(datasets, subset, split)
            except Exception as error:  # whatever the hub, the network and the data set raise
                raise DataError(
                    f"'{self.config.name}' could not be loaded from the hub ({_line(error)}): give a copy on this machine "
                    f"with task.path, for instance the folder that `hf download --repo-type dataset {self.schema.repo} "
                    "--local-dir FOLDER` makes where there is a connection"
                ) from error
            short = short_floats(found.features.arrow_schema)
            for number, record in enumerate(found, start=1):
                place = f"{self.schema.repo}{f'/{subset}' if subset else ''}, split {split}, row {number}"
                yield place, number, {**record, **short(record)}

    def _load(self, datasets: Any, subset: str | None, split: str) -> Any:
        repo, revision = self.schema.repo, self.options.revision
        if split in self.schema.files:
            at = f"@{revision}" if revision else ""
            where = f"hf://datasets/{repo}{at}/{self.schema.files[split]}"
            return datasets.load_dataset("json", data_files={split: where}, split=split)
        return datasets.load_dataset(repo, subset, split=split, revision=revision)

    def _copy(self, path: Path, split: str, option: str) -> tuple[str, Iterator[Row]]:
        if not path.is_dir():
            return str(path), read_file(path, option)
        files = split_files(path, split, self.schema.subsets)
        if not files:
            have = ", ".join(sorted(str(f.relative_to(path)) for f in path.rglob("*") if kind_of(f))[:8]) or "none"
            raise DataError(
                f"{option} = {str(path)!r} has no files of the split '{split}' (data files: {have}): set task.options.train "
                "and task.options.heldout to splits that are there, or give files"
            )
        return f"{path}, split {split}", (row for file in files for row in read_file(file, option))


def split_files(folder: Path, split: str, subsets: tuple[str, ...] = ()) -> list[Path]:
    """The data files of a split in a copy of a data set: those whose name, or whose folder's name, begins with it.

    ``main/train-00000-of-00001.parquet``, ``train.jsonl``, ``data/test2.jsonl`` and ``test/part1.csv`` are such. Where
    folders are named like the subsets, only files in them count.
    """
    inside = [folder / subset for subset in subsets if (folder / subset).is_dir()] or [folder]
    begins = re.compile(rf"{re.escape(split)}(?![a-z])", re.IGNORECASE)
    found = []
    for root in inside:
        for file in sorted(root.rglob("*")):
            named = begins.match(file.name) or (file.parent != root and begins.match(file.parent.name))
            if named and kind_of(file) and file.is_file():
                found.append(file)
    return found


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}"
