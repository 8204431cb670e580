"""Optional dependencies, imported where they are used, with an error that names the extra."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
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
        raise _missing(module, extra, purpose) from error


def locate(module: str, extra: str, purpose: str) -> Path:
    """The folder of a package that is wanted for its files alone; it is not imported, so its own needs may be absent.

    The arguments and the error are those of :func:`require`.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise _missing(module, extra, purpose)
    return Path(spec.origin).parent


def _missing(module: str, extra: str, purpose: str) -> MissingExtraError:
    package = module.split(".")[0]
    return MissingExtraError(
        f"{purpose} needs the package '{package}', which is not installed: pip install 'surefoot[{extra}]'"
    )
