"""Run state: everything that a resume needs, written whole or not at all, checked when it is read.

A state is a folder ``state/step-000010/`` that appears by one rename, so a process killed while writing leaves at most
a hidden neighbour that the next save clears. ``state.json`` holds the digest of each of its files and of itself; a state
that fails them is passed over for the one before it.
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
WEIGHTS, MOMENTS = FILES = ("model.safetensors", "optimiser.safetensors")


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
        task, model, reward: fingerprints of the prompts and of the model at the start, and the name of the reward: a resume
            with others is refused.
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
    model: str = ""
    reward: str = ""


def trainable(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters by name; tied ones once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def save(folder: Path, state: RunState, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Write ``folder/step-...``; afterwards it is the newest state."""
    moments, groups = _flat(optimiser)

    def fill(path: Path) -> None:
        save_file({name: value.contiguous() for name, value in trainable(model).items()}, path / WEIGHTS)
        save_file(moments, path / MOMENTS)
        digests = {name: _digest(path / name) for name in FILES}
        values = {"format": FORMAT, "files": digests, "groups": groups, **asdict(state)}
        (path / "state.json").write_text(json.dumps({**values, "digest": _digest_of(values)}, indent=1))

    write_folder_atomic(folder / f"step-{state.step:06d}", fill)


def _flat(optimiser: torch.optim.Optimizer) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    """An optimiser's state as named tensors, and its groups as plain values."""
    values = optimiser.state_dict()
    moments = {
        f"{index}.{name}": torch.as_tensor(value).contiguous()
        for index, of_parameter in values["state"].items()
        for name, value in of_parameter.items()
    }
    return moments, values["param_groups"]


def _restore_optimiser(path: Path, groups: list[dict[str, Any]], optimiser: torch.optim.Optimizer) -> None:
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in load_file(path).items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def prune(folder: Path, keep: int) -> None:
    """Remove all but the newest ``keep`` states, and what killed writers left behind."""
    for old in _states(folder)[keep:]:
        # Renamed first: a removal that is interrupted must not leave half a state under a valid name.
        hidden = old.with_name(f".{old.name}.gone")
        old.rename(hidden)
    for leftover in folder.glob(".step-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def newest(folder: Path) -> Path | None:
    """The newest state whose digests hold; damaged ones are reported and removed, lest they displace good ones."""
    for path in _states(folder):
        problem = _damage(path)
        if problem is None:
            return path
        warnings.warn(
            f"the run state {path} is damaged ({problem}): it is removed, the one before it is used", stacklevel=2
        )
        shutil.rmtree(path, ignore_errors=True)
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
    stored = load_file(path / WEIGHTS)
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
    _restore_optimiser(path / MOMENTS, values["groups"], optimiser)
    names = RunState.__dataclass_fields__
    return RunState(**{name: value for name, value in values.items() if name in names})


def _states(folder: Path) -> list[Path]:
    """Newest first."""
    return sorted(folder.glob("step-[0-9]*"), reverse=True)


def _damage(path: Path) -> str | None:
    """What is wrong with a state; None where nothing is."""
    try:
        values = json.loads((path / "state.json").read_text())
        if values.pop("digest") != _digest_of(values):
            return "state.json does not match its digest"
        wrong = [name for name in FILES if _digest(path / name) != values["files"][name]]
    except Exception as error:  # whatever a damaged file makes the reader raise
        return f"{type(error).__name__}: {error}"
    return f"{wrong[0]} does not match its digest" if wrong else None


def _digest_of(values: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()


def _digest(file: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with open(file, "rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
