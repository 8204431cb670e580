"""Errors a person can mend, and extras that are not installed."""

from __future__ import annotations

import inspect
import sys

import pytest

from surefoot import errors
from surefoot.errors import MissingExtraError, SurefootError
from surefoot.extras import require


def test_every_error_is_a_surefoot_error_with_exit_code_2() -> None:
    classes = [value for _, value in inspect.getmembers(errors, inspect.isclass)]
    assert len(classes) > 5
    assert all(issubclass(value, SurefootError) and value.exit_code == 2 and value.__doc__ for value in classes)


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in [name for name in sys.modules if name.startswith("plotly.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, "plotly", None)
    for module in ("plotly", "plotly.graph_objects"):
        with pytest.raises(MissingExtraError) as caught:
            require(module, "report", "the report")
        assert str(caught.value) == (
            "the report needs the package 'plotly', which is not installed: pip install 'surefoot[report]'"
        )


def test_a_package_that_is_there_is_returned() -> None:
    assert require("json.decoder", "report", "x") is sys.modules["json.decoder"]


def test_a_defect_inside_a_package_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is installed but lacks one of its own requirements is not called 'not installed'."""

    class Finder:
        @staticmethod
        def find_spec(name: str, *_: object) -> object:
            if name != "has_a_missing_requirement":
                return None
            from importlib.machinery import ModuleSpec

            return ModuleSpec(name, Loader())

    class Loader:
        @staticmethod
        def create_module(spec: object) -> None:
            return None

        @staticmethod
        def exec_module(module: object) -> None:
            import a_package_nobody_has  # type: ignore[import-not-found] # noqa: F401

    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    with pytest.raises(ModuleNotFoundError, match="a_package_nobody_has"):
        require("has_a_missing_requirement", "x", "y")
