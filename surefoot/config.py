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
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from surefoot.errors import ConfigError
from surefoot.terms import meaning, nearly


class Section(BaseModel):
    """A table of the configuration: frozen, its numbers finite, and a key that it does not define is an error."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False, protected_namespaces=()
    )

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_switch(cls, value: Any, info: ValidationInfo) -> Any:
        """Python counts True as 1: ``steps = true`` is a mistake all the same."""
        wanted = _alternatives(cls.model_fields[info.field_name or ""].annotation)
        if isinstance(value, bool) and bool not in wanted and {int, float} & wanted:
            raise ValueError(f"input should be a valid {'integer' if int in wanted else 'number'}")
        return value


S = TypeVar("S", bound=Section)
SPELLINGS = {"optimizer": "optimiser"}


def load(schema: type[S], files: Sequence[str | Path] = (), options: Mapping[str, Any] | None = None) -> S:
    """Read, merge and validate a configuration.

    Args:
        schema: the section that the files describe.
        files: TOML files; a later one overrides an earlier one, table by table.
        options: dotted keys over all files, for instance ``{"optimiser.lr": "1e-4"}``. Text is read as a TOML value where
            it is one and the key takes it, and as a plain string otherwise.

    Raises:
        ConfigError: a file that is missing or malformed, an unknown key (with the nearest one), a bad value.
    """
    merged: dict[str, Any] = {}
    for file in files:
        merged = merge(merged, respelled(schema, read_toml(Path(file))))
    for key, value in (options or {}).items():
        given = nested(key, read_word(schema, key, value) if isinstance(value, str) else value)
        merged = merge(merged, respelled(schema, given))
    return validate(schema, merged)


def validate(schema: type[S], values: Mapping[str, Any]) -> S:
    """Validate a nested mapping; the first problem becomes one line."""
    try:
        return schema.model_validate(respelled(schema, values))
    except ValidationError as error:
        raise ConfigError(explain(schema, error)) from error


def respelled(schema: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with American keys as the schema spells them: ``optimizer`` is ``optimiser``."""
    spelt: dict[str, Any] = {}
    for key, value in values.items():
        name = key if key in schema.model_fields else SPELLINGS.get(key, key)
        table = _section(schema.model_fields[name].annotation) if name in schema.model_fields else None
        inner = respelled(table, value) if table and isinstance(value, Mapping) else value
        spelt = merge(spelt, {name: inner}) if name in spelt else {**spelt, name: inner}
    return spelt


def read_toml(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"the configuration {path} does not exist: give the path of a TOML file") from None
    except IsADirectoryError:
        raise ConfigError(f"the configuration {path} is a folder: give a TOML file") from None
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # a path with a null byte
        raise ConfigError(f"the configuration {str(path)!r} cannot be read: {error}") from None
    try:
        return tomllib.loads(content.decode())
    except RecursionError:
        raise ConfigError(f"the configuration {path} is nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"the configuration {path} is not valid TOML: {error}") from None


def read_value(text: str) -> Any:
    """The TOML value that a command-line word spells, or the word itself.

    >>> read_value("3"), read_value("true"), read_value("[1, 2]"), read_value("grpo")
    (3, True, [1, 2], 'grpo')
    """
    try:
        read = tomllib.loads(f"value = {text}")
    except RecursionError:
        raise ConfigError(f"the value {text[:20]}... is nested too deeply") from None
    except ValueError:
        return text
    return read["value"] if len(read) == 1 else text


def read_word(schema: type[BaseModel], key: str, text: str) -> Any:
    """:func:`read_value`, but the word as typed where the schema's key is text: ``--name 42`` names a run ``"42"``."""
    *tables, name = key.split(".")
    table: type[BaseModel] | None = schema
    for part in tables:
        field = table.model_fields.get(part) if table else None
        table = _section(field.annotation) if field else None
    field = table.model_fields.get(name) if table else None
    wanted = _alternatives(field.annotation) if field else frozenset()
    value = read_value(text)
    return text if str in wanted and not isinstance(value, (str, dict)) else value


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


def _either(names: list[str]) -> str:
    return " or ".join(f"'{name}'" for name in names[:3])


def nearest(word: object, words: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for the closest known word, else the list of what there is (or nothing)."""
    word = str(word)
    known = sorted(set(words))
    # Of several keys with one last name, those of the outermost tables.
    last: dict[str, list[str]] = {}
    for name in sorted(known, key=lambda name: name.count(".")):
        same = last.setdefault(name.rsplit(".", 1)[-1], [name])
        if name not in same and name.count(".") == same[0].count("."):
            same.append(name)
    leaf = word.rsplit(".", 1)[-1]
    if word not in known and leaf in last:
        return f" Did you mean {_either(last[leaf])}?"
    for close in difflib.get_close_matches(word, known, n=1, cutoff=0.5):
        return f" Did you mean '{close}'?"
    for close in difflib.get_close_matches(leaf, list(last), n=1, cutoff=0.6):
        return f" Did you mean {_either(last[close])}?"
    return f" Known: {', '.join(known)}." if known and len(known) <= 40 else ""


def suggested(key: str, everywhere: Sequence[str], siblings: Sequence[str] = ()) -> str:
    """What to write instead of a key that is not known, as sentences behind a blank.

    The same name in another table comes first, then what other libraries mean by the word, then what is spelt nearly alike.

    Args:
        key: as it was given, with its table.
        everywhere: all keys of the configuration.
        siblings: keys of the table it stood in.
    """

    def known(name: str) -> bool:
        return name.startswith("--") or any(name == one or name.startswith(f"{one}.") for one in everywhere)

    word = key.rsplit(".", 1)[-1]
    ours = {name.rsplit(".", 1)[-1] for name in everywhere}
    near = nearest(key, [*siblings, *everywhere]) or nearest(key, siblings)
    said = meaning(key, known, whole=word in ours)
    if said or word in ours:
        return said or near
    theirs, similarity = nearly(key)
    closer = any(difflib.SequenceMatcher(None, word, name).ratio() >= similarity for name in ours)
    return near if closer else meaning(theirs, known) or near


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
            table = (_section(field.annotation, tables=True) if field else None) or table
        here = ".".join(path[:-1])
        siblings = [f"{here}.{name}" if here else name for name in table.model_fields]
        everywhere = keys(schema)
        if key in everywhere:
            *tables, name = key.split(".")
            return f"unknown key '{key}' in quotes: write it as {name} = ... in the table [{'.'.join(tables)}]"
        inner = [f"{key}.{name}" for name in _leaves(problem["input"])]  # of a whole table of another library
        found = next((name for name in inner if suggested(name, everywhere).startswith(" What ")), key)
        return f"unknown key '{key}'." + suggested(found, everywhere, siblings)
    if problem["type"] == "model_type":
        return f"{key} = {problem['input']!r}: input should be a table{_example(schema, path, problem['input'])}"
    message = problem["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if problem["type"] == "missing":
        return f"the key '{key}' is missing: it has no default"
    return f"{key} = {problem['input']!r}: {message}" if key else message


def _leaves(value: Any) -> list[str]:
    """The dotted keys of a nested mapping; none of anything else."""
    if not isinstance(value, Mapping):
        return []
    return [
        ".".join([str(key), *rest])
        for key, inner in value.items()
        for rest in ([[leaf] for leaf in _leaves(inner)] or [[]])
    ]


def _example(schema: type[BaseModel], path: Sequence[str], given: Any) -> str:
    """How to write what was given as the first key of the table it was given for (``[model] path = 'gpt2'``)."""
    table: type[BaseModel] | None = schema
    for part in path:
        field = table.model_fields.get(part) if table else None
        table = _section(field.annotation) if field else None
    if table is None or not path:
        return ""
    first, field = next(iter(table.model_fields.items()))
    value = repr(given) if type(given) in _alternatives(field.annotation) else "..."
    return f": write [{'.'.join(path)}] {first} = {value}"


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


def _alternatives(annotation: Any) -> frozenset[Any]:
    """The types that an annotation names: ``int | None`` is {int, NoneType}."""
    union = isinstance(annotation, UnionType) or get_origin(annotation) is Union
    return frozenset(get_args(annotation) if union else [annotation])


def _section(annotation: Any, tables: bool = False) -> type[BaseModel] | None:
    """The section class that an annotation names, also behind ``| None``; with ``tables`` also in a table of such."""
    if get_origin(annotation) is dict and not tables:
        return None
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
