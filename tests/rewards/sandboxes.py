"""The levels of isolation that this machine gives, and a decorator that runs a test at each of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from surefoot.errors import SandboxError
from surefoot.rewards.sandbox import Sandbox, SandboxConfig
from surefoot.rewards.sandbox.backends import AUTOMATIC
from surefoot.rewards.sandbox.levels import broken, self_test
from surefoot.rewards.sandbox.pool import shared

LEVELS = [name for name in AUTOMATIC if broken(self_test(name)) is None]


def at_each_level(test: Callable[..., None]) -> Callable[..., None]:
    """Run the test with a ``sandbox`` of every level. Where a machine gives none, running anything must be refused."""

    @functools.wraps(test)
    def run(level: str, **others: Any) -> None:
        if level == "none":
            with pytest.raises(SandboxError, match="no sandbox"):
                Sandbox()
        else:
            test(sandbox=shared(SandboxConfig(isolation=level)), **others)

    parameters = [p for p in inspect.signature(test).parameters.values() if p.name != "sandbox"]
    level = inspect.Parameter("level", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([level, *parameters])  # type: ignore[attr-defined]
    return pytest.mark.parametrize("level", LEVELS or ["none"])(run)
