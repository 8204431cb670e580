"""In which settings runs differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

OWN = ("name", "runs")
"""Keys in which any two runs differ and nothing follows from."""


def flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """A nested mapping as dotted names and values."""
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        found += flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return found


def differences(
    configs: Mapping[str, Mapping[str, Any]], leave_out: tuple[str, ...] = OWN
) -> list[tuple[str, list[str]]]:
    """The settings that are not the same in all configurations.

    Args:
        configs: by the name of the run.
        leave_out: keys that are not compared.

    Returns:
        (dotted key, its value in each configuration as text; "—" where it has none), in the order of the first.
    """
    tables = [dict(flat(config)) for config in configs.values()]
    names = list(dict.fromkeys(name for table in tables for name in table if name not in leave_out))
    rows = [(name, [_text(table[name]) if name in table else "—" for table in tables]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, default=str)
