"""Dotted options: ``--optimiser.lr 1e-4`` sets the key ``optimiser.lr`` of the configuration.

Typer knows the options that a command declares. Every other ``--name value`` on the command line is a key of the
configuration; :func:`gather` rewrites it as ``--set name=value``, which the commands declare, and :func:`read` checks
the names against the configuration that the command reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any

from pydantic import BaseModel

from surefoot.config import SPELLINGS, keys, suggested
from surefoot.errors import ConfigError


def gather(arguments: Sequence[str], declared: Mapping[str, bool]) -> list[str]:
    """Rewrite the options that a command does not declare as ``--set name=value``, or ``--set name`` without a value.

    Args:
        arguments: the words after the name of the command.
        declared: the command's own options (``"--resume"``) and whether each takes a value.
    """
    words: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*words, word, *rest]
        name, equals, _ = word.partition("=")
        has_value = bool(rest) and not equals and not rest[0].startswith("--")
        if not word.startswith("--"):
            words.append(word)
        elif name in declared:
            words.append(word)
            if declared[name] and has_value:
                words.append(rest.pop(0))
        else:
            words += ["--set", word[2:] + (f"={rest.pop(0)}" if has_value else "")]
    return words


def read(pairs: Iterable[str], schema: type[BaseModel], declared: Iterable[str] = ()) -> dict[str, str]:
    """``["optimiser.lr=1e-4"]`` as ``{"optimiser.lr": "1e-4"}``; every name must be a key of the schema.

    Args:
        pairs: what :func:`gather` collected.
        schema: the configuration that the command reads.
        declared: the command's own options, so that a misspelt ``--dry-rnu`` finds ``--dry-run``.

    Raises:
        ConfigError: an unknown key, with the nearest one, or a key without a value.
    """
    known = keys(schema)
    tables = {key.rsplit(".", depth)[0] for key in known for depth in range(1, key.count(".") + 1)}
    options: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if ".options." not in name:  # a column may be called as it likes
            name = ".".join(SPELLINGS.get(part, part) for part in name.split("."))
        inside = any(name.startswith(f"{key}.") for key in known)  # of a free table, for instance task.options
        if name not in known and name not in tables and not inside:
            flags = [flag.lstrip("-") for flag in declared if flag != "--set"]
            near = re.sub(
                r"'(\w[\w.-]*)'", partial(_as_option, {*flags, *known} - {name}), suggested(name, [*flags, *known])
            )
            raise ConfigError(f"unknown option --{name}.{near}")
        if not equals:
            raise ConfigError(f"the option --{name} has no value: write --{name} VALUE (true or false for a switch)")
        options[name] = value
    return options


def _as_option(names: Set[str], found: re.Match[str]) -> str:
    """A quoted key as it is written on a command line; other words stay as they are."""
    inside = any(found[1].startswith(f"{name}.") for name in names)
    return f"'--{found[1]}'" if inside or found[1] in names else found[0]


def expand(arguments: Sequence[str], command: Any) -> list[str]:
    """:func:`gather` for a command of Typer's; one that reads no configuration keeps its words as they are."""
    known = declared(command)
    return gather(arguments, known) if "--set" in known else list(arguments)


def declared(command: Any) -> dict[str, bool]:
    """The options of a Typer command, and whether each takes a value."""
    takes = {
        name: not parameter.is_flag
        for parameter in command.params
        if parameter.param_type_name == "option"
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    return {**takes, "--help": False}
