"""Comparisons with other libraries run only where they are asked for: ``-m parity``."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects them elsewhere: they fail without the libraries, which no other test needs."""
    if "parity" in (config.option.markexpr or ""):
        return
    left = [item for item in items if item.get_closest_marker("parity")]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if not item.get_closest_marker("parity")]
