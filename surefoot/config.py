"""Configuration: TOML files merged left to right, dotted options over them, validated by pydantic, every key known.

Each room defines the sections that it reads (a subclass of :class:`Section`) beside the code that reads them; this
module merges, validates and explains what is wrong in one line.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from surefoot.errors import ConfigError


class Section(BaseModel):
    """A table of the configuration: frozen, and a key that it does not define is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, protected_namespaces=())


S = TypeVar("S", bound=Section)


def load(schema: type[S], files: Sequence[str | Path] = (), options: Mapping[str, Any] | None = None) -> S:
    """Read, merge and validate a configuration.

    Args:
        schema: the section that the files describe.
        files: TOML files; a later one overrides an earlier one, table by table.
        options: dotted keys over all files, for instance ``{"optimiser.lr": "1e-4"}``. Text is read as a TOML value where
            it is one and as a plain string otherwise.

    Raises:
        ConfigError: a file that is missing or malformed, an unknown key (with the nearest one), a bad value.
    """
    merged: dict[str, Any] = {}
    for file in files:
        merged = merge(merged, read_toml(Path(file)))
    for key, value in (options or {}).items():
        merged = merge(merged, nested(key, read_value(value) if isinstance(value, str) else value))
    return validate(schema, merged)


def validate(schema: type[S], values: Mapping[str, Any]) -> S:
    """Validate a nested mapping; the first problem becomes one line."""
    try:
        return schema.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(explain(schema, error)) from error


def read_toml(path: Path) -> dict[str, Any]:
    if path.is_dir():
        raise ConfigError(f"the configuration {path} is a folder: give a TOML file")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"the configuration {path} does not exist: give the path of a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration {path} is not valid TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error.strerror}") from None


def read_value(text: str) -> Any:
    """The TOML value that a command-line word spells, or the word itself.

    >>> read_value("3"), read_value("true"), read_value("[1, 2]"), read_value("grpo")
    (3, True, [1, 2], 'grpo')
    """
    try:
        read = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return read["value"] if len(read) == 1 else text


def nested(dotted: str, value: Any) -> dict[str, Any]:
    """``nested("a.b", 1) == {"a": {"b": 1}}``"""
    for name in reversed(dotted.split(".")):
        value = {name: value}
    return value


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key; every other value of ``over`` replaces that of ``base``.

    A name under a table is the ``kind`` of that table: ``trust = "clip"`` in a file and ``trust.high`` over it are one part.

    >>> merge({"trust": "clip"}, {"trust": {"high": 0.3}})
    {'trust': {'kind': 'clip', 'high': 0.3}}
    """
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, str) and isinstance(value, Mapping):
            old = {"kind": old}
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def nearest(word: str, words: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for the closest known word, else the list of what there is (or nothing)."""
    known = sorted(set(words))
    last = {name.rsplit(".", 1)[-1]: name for name in reversed(known)}
    leaf = word.rsplit(".", 1)[-1]
    if word not in known and leaf in last:
        return f" Did you mean '{last[leaf]}'?"
    for close in difflib.get_close_matches(word, known, n=1, cutoff=0.5):
        return f" Did you mean '{close}'?"
    for close in difflib.get_close_matches(leaf, list(last), n=1, cutoff=0.6):
        return f" Did you mean '{last[close]}'?"
    return f" Known: {', '.join(known)}." if known and len(known) <= 40 else ""


def keys(schema: type[BaseModel], prefix: str = "") -> list[str]:
    """All dotted keys of a section and the sections in it."""
    found: list[str] = []
    for name, field in schema.model_fields.items():
        inner = _section(field.annotation)
        found += keys(inner, f"{prefix}{name}.") if inner else [prefix + name]
    return found


def explain(schema: type[BaseModel], error: ValidationError) -> str:
    """One line about the first problem of a validation: the key, what was given, what was expected."""
    problem = error.errors(include_url=False)[0]
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path)
    if problem["type"] == "extra_forbidden":
        table = schema
        for part in path[:-1]:
            field = table.model_fields.get(part)
            table = (_section(field.annotation) if field else None) or table
        here = ".".join(path[:-1])
        siblings = [f"{here}.{name}" if here else name for name in table.model_fields]
        return f"unknown key '{key}'." + nearest(key, siblings + (keys(schema) if not here else []))
    message = problem["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if problem["type"] == "missing":
        return f"the key '{key}' is missing: it has no default"
    return f"{key} = {problem['input']!r}: {message}" if key else message


def dump_toml(values: Mapping[str, Any]) -> str:
    """A nested mapping as TOML text (tables, scalars, lists, inline tables in lists); None is left out."""
    lines: list[str] = []
    _dump_table(values, (), lines)
    return "\n".join(lines).strip() + "\n"


def _dump_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping) and value is not None}
    tables = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    if path and (plain or not tables):
        lines += ["", f"[{'.'.join(_key(part) for part in path)}]"]
    lines += [f"{_key(key)} = {_scalar(value)}" for key, value in plain.items()]
    for key, value in tables.items():
        _dump_table(value, (*path, key), lines)


def _key(name: str) -> str:
    return name if name and all(c.isascii() and (c.isalnum() or c in "_-") for c in name) else _text(name)


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_scalar(v)}" for k, v in value.items() if v is not None) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_scalar(item) for item in value) + "]"
    if isinstance(value, float):
        return repr(float(value))  # inf and nan are spelled alike in TOML
    if isinstance(value, int):
        return str(int(value))
    return _text(str(value))


def _text(value: str) -> str:
    """A basic string: JSON's escapes, and one more that only TOML asks for."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _section(annotation: Any) -> type[BaseModel] | None:
    """The section class that an annotation names, also behind ``| None``."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
