"""Which columns of a row are the problem, the answer, the worked solution and the system message; the rest is metadata."""

from __future__ import annotations

import difflib
import json
import string
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from surefoot.config import Section, nearest
from surefoot.errors import DataError
from surefoot.tasks.base import content_id, unreadable
from surefoot.tasks.readers import cell_number
from surefoot.types import Prompt

KEYS = ("prompt", "answer", "metadata", "completion", "system")
ROLES = ("system", "user", "assistant", "tool")
LETTERS = string.ascii_uppercase


class Columns(Section):
    """Options of a data set: the name of a column (``reward_model.ground_truth`` for one inside another), or text with
    columns in braces (``"{question}\\n{choices}"``; a list becomes lines with letters, two braces are one).
    """

    prompt: str = Field("prompt", min_length=1, description="the problem")
    answer: str = Field("answer", min_length=1, description="the gold answer")
    metadata: str = Field("metadata", min_length=1, description="a table for the verifier and the report")
    completion: str = Field("completion", min_length=1, description="a worked solution")
    system: str = Field("system", min_length=1, description="a system message")
    verifier: str = Field("auto", description="the verifier of these problems, where [reward] names none")

    @field_validator(*KEYS)
    @classmethod
    def _is_template(cls, value: str) -> str:
        _fields(value)
        return value


def to_prompt(place: str, record: Any, columns: Columns, *, name: str = "file", cells: bool = False) -> Prompt:
    """A row as a Prompt.

    Columns that are none of the five stay in the metadata under their own name, unless the table ``metadata`` has an
    entry of that name. Columns that stand in a template stay too.

    Args:
        place: for messages.
        record: the row.
        columns: which column is what. One that the options name must be there; of the others only ``prompt``.
        name: of the data set, part of the prompt's id.
        cells: whether values are cells of a text table, so that numbers among the metadata must be recognised.

    Raises:
        DataError: names the place.
    """
    if not isinstance(record, Mapping):
        raise DataError(f"{place} is {kind(record)}; expected an object with 'prompt' and 'answer'")
    refuse_misspelt(place, record, columns)
    content = _with_system(_content(place, record, columns), _text(place, record, columns, "system"))
    metadata = _metadata(place, record, columns)
    used = {getattr(columns, key) for key in KEYS}
    for column, value in record.items():
        if column not in used and column not in metadata and value is not None:
            metadata[column] = cell_number(value) if cells and isinstance(value, str) else value
    completion = _text(place, record, columns, "completion")
    if completion is not None:
        metadata["completion"] = completion
    plain = content if isinstance(content, str) else [dict(message) for message in content]
    return Prompt(content_id(name, plain), content, _value(place, record, columns, "answer"), metadata, place)


def refuse_misspelt(place: str, record: Mapping[str, Any], columns: Columns) -> None:
    """A row that lacks a key and has one that is nearly spelt like it."""
    others = [str(key) for key in record if key not in KEYS and key not in {getattr(columns, k) for k in KEYS}]
    for missing in ("prompt", "answer", "metadata", "completion"):
        if getattr(columns, missing) != missing or missing in record:
            continue
        for close in difflib.get_close_matches(missing, others, n=1, cutoff=0.8):
            raise DataError(f"{place}: unknown key '{close}'. Did you mean '{missing}'?")


def kind(value: Any) -> str:
    """What a value is, in words."""
    if value is None:
        return "null"
    names = {str: "text", list: "a list", dict: "an object", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), f"a {type(value).__name__}") + (" without entries" if value in ([], {}) else "")


def lettered(choices: Sequence[Any]) -> str:
    """Choices as lines ``A. ...``.

    >>> lettered(["x", "y"])
    'A. x\\nB. y'
    """
    if len(choices) > len(LETTERS):
        raise DataError(f"{len(choices)} choices are more than the {len(LETTERS)} letters")
    return "\n".join(f"{letter}. {choice}" for letter, choice in zip(LETTERS, choices, strict=False))


def _fields(spec: str) -> list[tuple[str, str | None]]:
    """The parts of a template: (literal text, column or None)."""
    try:
        parts = list(string.Formatter().parse(spec))
    except ValueError as error:
        raise ValueError(f"the braces of {spec!r} do not match ({error}): write a brace itself twice") from None
    for _, field, form, conversion in parts:
        if field == "" or form or conversion:
            raise ValueError(f"{spec!r} has braces without the plain name of a column: write a brace itself twice")
    return [(literal, field) for literal, field, _, _ in parts]


def _lookup(record: Mapping[str, Any], column: str) -> Any:
    """The value of a column, or of a column in a column; KeyError where there is none."""
    if column in record:
        return record[column]
    value: Any = record
    for part in column.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise KeyError(column)
        value = value[part]
    return value


def _value(place: str, record: Mapping[str, Any], columns: Columns, key: str) -> Any:
    """What a row has for a key; None where it has nothing and the options do not name a column for it."""
    spec = getattr(columns, key)
    try:
        if "{" not in spec and "}" not in spec:
            return _lookup(record, spec)
        return "".join(
            literal + ("" if column is None else _written(_lookup(record, column))) for literal, column in _fields(spec)
        )
    except KeyError as missing:
        if spec == key:
            return None
        have = ", ".join(map(str, record)) or "nothing"
        raise DataError(
            f"{place} has no column '{missing.args[0]}', which task.options.{key} = {spec!r} names (it has {have})."
            + nearest(missing.args[0], map(str, record))
        ) from None
    except DataError as error:
        raise DataError(f"{place}: {error}") from None


def _written(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return lettered(value)
    return "" if value is None else str(value)


def _text(place: str, record: Mapping[str, Any], columns: Columns, key: str) -> str | None:
    value = _value(place, record, columns, key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise DataError(f"{place}: '{key}' is {kind(value)}; expected text")
    _refuse_unreadable(f"{place}: '{key}'", value)
    return value


def _metadata(place: str, record: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
    value = _value(place, record, columns, "metadata")
    if isinstance(value, str) and value.lstrip().startswith("{"):  # a table in a cell
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{place}: 'metadata' is not valid JSON: {error}; expected an object") from None
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise DataError(f"{place}: 'metadata' is {kind(value)}; expected an object")
    return dict(value)


def _with_system(
    content: str | tuple[Mapping[str, str], ...], system: str | None
) -> str | tuple[Mapping[str, str], ...]:
    """The problem behind a system message, unless it brings one."""
    if system is None:
        return content
    messages = ({"role": "user", "content": content},) if isinstance(content, str) else content
    return messages if messages[0]["role"] == "system" else ({"role": "system", "content": system}, *messages)


def _content(place: str, record: Mapping[str, Any], columns: Columns) -> str | tuple[Mapping[str, str], ...]:
    content = _value(place, record, columns, "prompt")
    if content is None:
        have = ", ".join(map(str, record)) or "nothing"
        raise DataError(
            f"{place} has no '{columns.prompt}' (it has {have}): name the column of the problem with "
            "task.options.prompt"
        )
    if isinstance(content, str):
        if not content.strip():
            raise DataError(f"{place}: 'prompt' is empty; expected text or a list of messages")
        _refuse_unreadable(f"{place}: 'prompt'", content)
        return content
    if not isinstance(content, Sequence) or not content:
        raise DataError(f"{place}: 'prompt' is {kind(content)}; expected text or a list of messages")
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
