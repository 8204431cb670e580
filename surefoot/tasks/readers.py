"""Rows of a local data file: JSON lines, a JSON list, CSV, TSV or Parquet, each of the text kinds also as ``.gz``.

Every row comes with its place in the file (``data.csv, line 7``), for messages.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from surefoot.errors import DataError
from surefoot.extras import require

Row = tuple[str, int, Any]
"""(place, number from 1, record)."""

JSON_LINES, JSON, PARQUET = (".jsonl", ".ndjson"), ".json", ".parquet"
SEPARATED = {".csv": ",", ".tsv": "\t"}
TEXT = (*JSON_LINES, JSON, *SEPARATED)
SUFFIXES = (*TEXT, PARQUET, ".gz")
KINDS = "a JSONL, JSON, CSV or Parquet file"
LONGEST_CELL = 1 << 30
_SHORT: dict[str, Callable[[float], Any]] = {"float": np.float32, "halffloat": np.float16}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,15})?")


def kind_of(path: Path) -> str:
    """The suffix that says how a file is read, in lower case; "" where it is none that is known.

    >>> kind_of(Path("a.csv.gz")), kind_of(Path("b.Parquet")), kind_of(Path("c.parquet.gz")), kind_of(Path("d.txt"))
    ('.csv', '.parquet', '', '')
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [".gz"]:
        return suffixes[-2] if len(suffixes) > 1 and suffixes[-2] in TEXT else ""
    return suffixes[-1] if suffixes and suffixes[-1] in (*TEXT, PARQUET) else ""


def read_file(path: Path, option: str) -> Iterator[Row]:
    """The rows of a file, in its order.

    Cells of CSV and TSV are text; an empty one is absent, and a row with more or fewer cells than the header has is
    refused. A number in a column that is no problem, answer or solution is read by :func:`cell_number`.

    Args:
        path: the file.
        option: the configuration key that it came from, for the messages.

    Raises:
        DataError: a file that is missing, of an unknown kind or damaged, or a row that cannot be read; names the line.
        MissingExtraError: a Parquet file without pyarrow.
    """
    kind = kind_of(path)
    if not kind:
        known = ", ".join(SUFFIXES[:-1])
        raise DataError(f"{option} = {str(path)!r}: unknown kind of file; expected one of {known} (text also as .gz)")
    try:
        there = path.is_file()
    except OSError as error:
        raise DataError(f"{option} = {str(path)!r} cannot be read: {error.strerror}") from None
    if not there:
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"{option} = {str(path)!r} {what}: give {KINDS}")
    if kind == PARQUET:
        return _read_parquet(path)
    if kind in SEPARATED:
        return _read_separated(path, SEPARATED[kind])
    return _read_json(path) if kind == JSON else _read_json_lines(path)


def cell_number(text: str) -> int | float | str:
    """A cell as a number where it is written like one, else as it is: ``007`` and ``1e5`` stay text.

    >>> cell_number("12"), cell_number("-0.5"), cell_number("007"), cell_number("1e5")
    (12, -0.5, '007', '1e5')
    """
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """The text of a file, unpacked where it is packed; whatever is wrong with it is one line that names it."""
    try:
        if path.suffix.lower() == ".gz":
            with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as packed:
                yield packed
        else:
            with open(path, encoding="utf-8-sig", newline="") as file:
                yield file
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is not a gzip file that can be read: {error}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def _read_json_lines(path: Path) -> Iterator[Row]:
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                place = f"{path}, line {number}"
                yield place, number, _json(line, place, "one object per line")


def _read_json(path: Path) -> Iterator[Row]:
    """A list of objects; what does not begin with a bracket is read as JSON lines, which are often named so."""
    with _opened(path) as file:
        begin = file.read(1024).lstrip()[:1]
        file.seek(0)
        whole = file.read() if begin == "[" else ""
    if not whole:
        yield from _read_json_lines(path)
        return
    for number, record in enumerate(_json(whole, str(path), "a list of objects"), start=1):
        yield f"{path}, entry {number}", number, record


def _json(text: str, place: str, expected: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place} is not valid JSON: {error}; expected {expected}") from None


def _read_separated(path: Path, separator: str) -> Iterator[Row]:
    before = csv.field_size_limit(LONGEST_CELL)
    try:
        with _opened(path) as file:
            reader = csv.reader(file, delimiter=separator, strict=True)
            yield from _cells(path, reader)
    finally:
        csv.field_size_limit(before)


def _cells(path: Path, reader: Any) -> Iterator[Row]:
    header: list[str] | None = None
    last = 0
    while True:
        place = f"{path}, line {last + 1}"  # a quoted cell may span lines: the row begins after the one before it
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"{place} cannot be read: {error}") from None
        number, last = last + 1, reader.line_num
        if not any(cell.strip() for cell in cells):
            continue
        if header is None:
            header = [name.strip() for name in cells]
            if "" in header or len(set(header)) < len(header):
                raise DataError(
                    f"{place}: the header is {', '.join(header)}; expected a name of its own for each column"
                )
            continue
        if len(cells) != len(header):
            raise DataError(
                f"{place} has {len(cells)} cells, and the header has {len(header)} ({', '.join(header)}): put cells that "
                "hold a separator or a line break into double quotes"
            )
        yield place, number, {name: cell if cell.strip() else None for name, cell in zip(header, cells, strict=True)}


def _read_parquet(path: Path) -> Iterator[Row]:
    parquet = require("pyarrow.parquet", "files", f"the Parquet file {path}")
    arrow = require("pyarrow", "files", f"the Parquet file {path}")
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            short = short_floats(file.schema_arrow)
            for batch in file.iter_batches(batch_size=1024):
                for record in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", number, {**record, **short(record)}
    except (arrow.ArrowException, OSError) as error:
        text = str(error).split("\n")[0]
        raise DataError(f"{path} is not a Parquet file that can be read: {text}") from None


def short_floats(schema: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """What gives the columns of a row that hold floats of 32 or 16 bits, each float as the double with its own digits.

    Arrow widens 0.1 of 32 bits to 0.10000000149011612, which is no answer that a person would give.

    Args:
        schema: of an Arrow table.
    """
    names = [field.name for field in schema if _narrow(field.type)]
    return lambda record: {name: _shortened(record[name], schema.field(name).type) for name in names}


def _narrow(kind: Any) -> bool:
    """Whether a type of Arrow is a short float, or holds one."""
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    return str(kind) in _SHORT or any(map(_narrow, inner))


def _shortened(value: Any, kind: Any) -> Any:
    if isinstance(value, float) and str(kind) in _SHORT:
        return float(str(_SHORT[str(kind)](value)))
    if isinstance(value, dict):
        inner = [kind.field(i) for i in range(kind.num_fields)]
        return {field.name: _shortened(value[field.name], field.type) for field in inner}
    if isinstance(value, list) and kind.num_fields == 1 and not str(kind).startswith("map"):
        return [_shortened(entry, kind.field(0).type) for entry in value]
    return value
