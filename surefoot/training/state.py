"""Run state: everything that a resume needs, written whole or not at all, checked when it is read.

A state is a folder ``state/step-000010/`` that appears by one rename, so a process killed while writing leaves at most
a hidden neighbour that the next save clears. ``state.json`` holds the digest of each of its files; a state that fails
its digests is passed over for the one before it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from surefoot.errors import RunFolderError
from surefoot.files import write_folder_atomic

FORMAT = 1


@dataclass
class RunState:
    """The small part of the state: counters and numbers. Weights and optimiser moments lie beside it in files.

    Attributes:
        step: rollout batches finished; also the version of the weights.
        updates: optimiser steps taken.
        cursor: prompts taken so far, see :class:`surefoot.tasks.cursor.PromptCursor`.
        memory: numbers that the algorithm remembers (moving averages).
        first_entropy: entropy of the first step, for the warning about its collapse.
        best: best held-out accuracy so far, and its step.
        warned: names of warnings already given.
        task: fingerprint of the prompts.
    """

    step: int = 0
    updates: int = 0
    cursor: int = 0
    memory: dict[str, float] = field(default_factory=dict)
    first_entropy: float | None = None
    best: float = -1.0
    best_step: int = -1
    warned: list[str] = field(default_factory=list)
    task: str = ""


def trainable(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters by name; tied ones once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def save(folder: Path, state: RunState, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Write ``folder/step-...``; afterwards it is the newest state."""

    def fill(path: Path) -> None:
        save_file({name: value.contiguous() for name, value in trainable(model).items()}, path / "model.safetensors")
        torch.save(optimiser.state_dict(), path / "optimiser.pt")
        digests = {file.name: _digest(file) for file in sorted(path.iterdir())}
        (path / "state.json").write_text(json.dumps({"format": FORMAT, "files": digests, **asdict(state)}, indent=1))

    write_folder_atomic(folder / f"step-{state.step:06d}", fill)


def prune(folder: Path, keep: int) -> None:
    """Remove all but the newest ``keep`` states, and what killed writers left behind."""
    for old in _states(folder)[keep:]:
        # Renamed first: a removal that is interrupted must not leave half a state under a valid name.
        hidden = old.with_name(f".{old.name}.gone")
        old.rename(hidden)
    for leftover in folder.glob(".step-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def newest(folder: Path) -> Path | None:
    """The newest state whose digests hold; damaged ones are reported and passed over."""
    for path in _states(folder):
        problem = _damage(path)
        if problem is None:
            return path
        warnings.warn(f"the run state {path} is damaged ({problem}); going back to the one before it", stacklevel=2)
    return None


def load(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> RunState:
    """Read a state into the model and the optimiser.

    Raises:
        RunFolderError: another format, or weights of another model.
    """
    values: Mapping[str, Any] = json.loads((path / "state.json").read_text())
    if values.get("format") != FORMAT:
        raise RunFolderError(
            f"the run state {path} has format {values.get('format')}, this version reads {FORMAT}: start a new run"
        )
    stored = load_file(path / "model.safetensors")
    parameters = trainable(model)
    if {name: value.shape for name, value in stored.items()} != {
        name: value.shape for name, value in parameters.items()
    }:
        raise RunFolderError(
            f"the run state {path} holds the weights of another model than model.path names: set the same one"
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(stored[name])
    optimiser.load_state_dict(torch.load(path / "optimiser.pt", weights_only=True))
    names = RunState.__dataclass_fields__
    return RunState(**{name: value for name, value in values.items() if name in names})


def _states(folder: Path) -> list[Path]:
    """Newest first."""
    return sorted(folder.glob("step-[0-9]*"), reverse=True)


def _damage(path: Path) -> str | None:
    try:
        files = json.loads((path / "state.json").read_text())["files"]
        wrong = [name for name, digest in files.items() if _digest(path / name) != digest]
    except (OSError, ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    return f"{wrong[0]} does not match its digest" if wrong else None


def _digest(file: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with open(file, "rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
