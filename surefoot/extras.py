"""Optional dependencies, imported where they are used, with an error that names the extra."""

from __future__ import annotations

import importlib
from types import ModuleType

from surefoot.errors import MissingExtraError


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import ``module`` or say which extra of Surefoot brings it.

    Args:
        module: the dotted module name, for instance ``"reasoning_gym"``.
        extra: the name of the extra in ``pyproject.toml``, for instance ``"gym"``.
        purpose: what needs it, for instance ``"the task 'gym:chain_sum'"``.

    Raises:
        MissingExtraError: when the module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and module.split(".")[0] != error.name.split(".")[0]:
            raise
        raise MissingExtraError(
            f"{purpose} needs the package '{module.split('.')[0]}', which is not installed: "
            f"pip install 'surefoot[{extra}]'"
        ) from error
