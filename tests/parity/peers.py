"""The libraries that Surefoot is compared with, in a folder of their own that only these tests look into."""

from __future__ import annotations

import os
import re
import sys
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = Path(sys.prefix) / "parity"
LIBRARIES = {"trl": "TRL", "verl": "verl"}


def pinned() -> dict[str, str]:
    """The releases that the declarations speak of."""
    lines = (HERE / "requirements.txt").read_text(encoding="utf-8").splitlines()
    found = (re.fullmatch(r"([\w-]+)==([\w.]+)", line) for line in lines)
    releases = {match[1]: match[2] for match in found if match}
    return {name: releases[name] for name in LIBRARIES}


def load() -> None:
    """Make the libraries importable, behind everything that the environment has itself.

    Raises:
        RuntimeError: they are not installed, or in other releases.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    for name, release in pinned().items():
        if not (FOLDER / name).is_dir():
            raise RuntimeError(f"{name} is not in {FOLDER}: run `make parity`, which installs it")
        if version(name) != release:
            raise RuntimeError(f"{name} {version(name)} is installed and {release} is declared: run `make parity`")
