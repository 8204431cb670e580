"""What tests use of pytest, which the sandbox does not have: ``raises``, ``approx``, ``fail`` and ``mark``."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from typing import Any


class raises:
    """A block, or a call, that must raise an exception of a class (or of one of several)."""

    expected: Any
    match_text: str | None
    value: Any

    def __new__(cls, expected: Any, *call: Any, match: str | None = None, **options: Any) -> Any:
        self = object.__new__(cls)
        self.expected, self.match_text, self.value = expected, match, None
        if not call:
            return self
        with self:
            call[0](*call[1:], **options)
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if kind is None:
            raise AssertionError(f"nothing was raised, {self.expected} expected")
        if not issubclass(kind, self.expected):
            return False
        self.value, self.type = error, kind
        if self.match_text is not None:
            self.match(self.match_text)
        return True

    def match(self, pattern: str) -> bool:
        """Whether the text of the exception has the pattern."""
        assert re.search(pattern, str(self.value)), f"{str(self.value)!r} does not match {pattern!r}"
        return True


class approx:
    """A number, or a list or dictionary of them, that equals what is close to it."""

    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # NumPy leaves the comparison to this class

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None, nan_ok: bool = False) -> None:
        self.expected, self.options = expected, (rel, abs, nan_ok)

    def __eq__(self, other: Any) -> bool:
        mine = self.expected
        if isinstance(mine, Mapping):
            return (
                isinstance(other, Mapping)
                and set(mine) == set(other)
                and all(self._like(mine[k], other[k]) for k in mine)
            )
        if hasattr(mine, "__len__") and not isinstance(mine, str):
            return len(mine) == len(other) and all(self._like(a, b) for a, b in zip(mine, other, strict=True))
        return self._like(mine, other)

    def _like(self, mine: Any, other: Any) -> bool:
        if (
            isinstance(mine, bool)
            or not isinstance(mine, (int, float, complex))
            or not isinstance(other, (int, float, complex))
        ):
            return bool(mine == other)
        if mine == other:
            return True
        rel, absolute, nan_ok = self.options
        if mine != mine or other != other:
            return nan_ok and mine != mine and other != other
        if abs(mine) == float("inf"):
            return False
        if absolute is None:
            absolute = 1e-12
            rel = 1e-6 if rel is None else rel
        return abs(mine - other) <= max(absolute, (rel or 0.0) * abs(mine))

    def __repr__(self) -> str:
        return f"approx({self.expected!r})"


def module() -> types.ModuleType:
    """A module ``pytest`` of these."""
    found = types.ModuleType("pytest")
    found.__dict__.update(raises=raises, approx=approx, fail=_fail, mark=_Mark())
    return found


def _fail(reason: str = "", pytrace: bool = True) -> None:
    raise AssertionError(reason)


class _Mark:
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"pytest.mark.{name}: nothing here collects tests")
