"""Run state: everything that a resume needs, written whole or not at all, checked when it is read.

A state is a folder ``state/step-000010/`` that appears by one rename, so a process killed while writing leaves at most
a hidden neighbour that the next save clears. ``state.json`` holds the digest of each of its files and of itself; a state
that fails them is passed over for the one before it.

Weights and optimiser moments lie beside it, two files for each model that learns: ``model.safetensors`` and
``optimiser.safetensors`` are the policy's, ``critic.safetensors`` and ``critic_optimiser.safetensors`` the critic's.
``reference.safetensors`` is there once the reference policy is no longer the model that the run started from. Of a model
with adapters (:mod:`surefoot.policy.lora`) these files hold the adapters alone.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from surefoot.errors import RunFolderError
from surefoot.files import write_folder_atomic
from surefoot.policy.lora import own_parameters

FORMAT = 3
WEIGHTS, MOMENTS = "model.safetensors", "optimiser.safetensors"  # of the policy
OPTIONAL = frozenset({"reference"})  # what a state may lack: it then is what the run started from


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
        history: for each training prompt that was sampled, by its index, how many samples were graded and how many right.
        reset_step: step of the last reset of the reference or of the optimiser; 0: there was none.
        reference_step: step at which the reference policy was last reset; 0: it is what the run started from.
        resets: how often there was a reset.
        spent: samples, tokens and operations so far, see :mod:`surefoot.training.budget`.
        exhausted: no prompt is left to sample, so the run is over.
        task, model, reward: fingerprints of the prompts and of the model at the start, and the name of the reward: a resume
            with others is refused.
        settings: of the run, by dotted key, but for those that a resume may change: a state of another run is refused.
    """

    step: int = 0
    updates: int = 0
    cursor: int = 0
    memory: dict[str, float] = field(default_factory=dict)
    first_entropy: float | None = None
    best: float = -1.0
    best_step: int = -1
    warned: list[str] = field(default_factory=list)
    history: dict[str, list[int]] = field(default_factory=dict)
    reset_step: int = 0
    reference_step: int = 0
    resets: int = 0
    spent: dict[str, float] = field(default_factory=dict)
    exhausted: bool = False
    task: str = ""
    model: str = ""
    reward: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


def trainable(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters by name; tied ones once, and those that adapters leave as they are not at all."""
    return {name: parameter.detach() for name, parameter in own_parameters(model).items()}


def save(
    folder: Path, state: RunState, modules: Mapping[str, nn.Module], optimisers: Mapping[str, torch.optim.Optimizer]
) -> None:
    """Write ``folder/step-...``; afterwards it is the newest state.

    Args:
        folder: of the states.
        state: the counters.
        modules: whose parameters are kept, by name; ``"model"`` is the policy.
        optimisers: whose moments and settings are kept, each under the name of its module.
    """

    def fill(path: Path) -> None:
        groups = {}
        for name, module in modules.items():
            save_file({key: value.contiguous() for key, value in trainable(module).items()}, path / weights_file(name))
            if name in optimisers:
                moments, groups[name] = _flat(optimisers[name])
                save_file(moments, path / moments_file(name))
        files = {file.name: _digest(file) for file in sorted(path.iterdir())}
        values = {"format": FORMAT, "modules": list(modules), "files": files, "groups": groups, **asdict(state)}
        (path / "state.json").write_text(json.dumps({**values, "digest": _digest_of(values)}, indent=1))

    write_folder_atomic(folder / f"step-{state.step:06d}", fill)


def weights_file(name: str) -> str:
    return f"{name}.safetensors"


def moments_file(name: str) -> str:
    return MOMENTS if name == "model" else f"{name}_optimiser.safetensors"


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
    """The newest state whose digests hold; None where there is none at all.

    Damaged ones that are newer are reported and removed, lest they displace good ones.

    Raises:
        RunFolderError: there are states, and all of them are damaged; they are left as they are.
    """
    damaged: dict[Path, str] = {}
    for path in _states(folder):
        problem = damage(path)
        if problem is None:
            break
        damaged[path] = problem
    else:
        if damaged:
            found = "; ".join(f"{path.name}: {problem}" for path, problem in damaged.items())
            raise RunFolderError(f"all states in {folder} are damaged ({found})")
        return None
    for bad, problem in damaged.items():
        warnings.warn(
            f"the run state {bad} is damaged ({problem}): it is removed, and the one before it is used, {path.name}",
            stacklevel=2,
        )
        shutil.rmtree(bad, ignore_errors=True)
    return path


def read(path: Path) -> dict[str, Any]:
    """The content of ``state.json``.

    Raises:
        RunFolderError: it has another format.
    """
    values: dict[str, Any] = json.loads((path / "state.json").read_text())
    if values.get("format") != FORMAT:
        raise RunFolderError(
            f"the run state {path} has format {values.get('format')}, and this version of Surefoot reads {FORMAT}: go on with "
            "the version that wrote it (environment.json names it), or set another 'name' to start a new run"
        )
    return values


def load(
    path: Path, modules: Mapping[str, nn.Module], optimisers: Mapping[str, torch.optim.Optimizer]
) -> tuple[RunState, frozenset[str]]:
    """Read a state into the modules and the optimisers; none of them is touched where a part does not fit.

    Args:
        path: of the state.
        modules: all that a state of this run may hold, by name; those in :data:`OPTIONAL` may be absent from it.
        optimisers: by the name of their module.

    Returns:
        The counters, and the names of the modules that the state holds; the others are left as they were.

    Raises:
        RunFolderError: another format, a part that the state lacks or this run does not have, a file that is not there,
            weights of another shape.
    """
    values = read(path)
    held = frozenset(values["modules"])
    _check_parts(path, held, modules, set(values["groups"]), optimisers, values["files"])
    for name in held:
        _check_shapes(path, name, modules[name])
    for name in held:
        stored = load_file(path / weights_file(name))
        with torch.no_grad():
            for key, parameter in trainable(modules[name]).items():
                parameter.copy_(stored[key])
        if name in optimisers:
            _restore_optimiser(path / moments_file(name), values["groups"][name], optimisers[name])
    fields = RunState.__dataclass_fields__
    return RunState(**{name: value for name, value in values.items() if name in fields}), held


def _check_parts(
    path: Path,
    held: Set[str],
    modules: Mapping[str, nn.Module],
    moments: Set[str],
    optimisers: Mapping[str, torch.optim.Optimizer],
    files: Iterable[str],
) -> None:
    """The state holds what the run needs, no more, and in files that are there."""
    for name in sorted({*modules, *held}):
        if name not in held and name not in OPTIONAL:
            raise RunFolderError(
                f"the run state {path} holds no {name} ({weights_file(name)}), which this run needs: resume with the "
                f"configuration that it was made with, or set another 'name'"
            )
        if name in held and (name not in modules or (name in moments) != (name in optimisers)):
            raise RunFolderError(
                f"the run state {path} holds a {name}, which this run does not have or does not train: resume with the "
                f"configuration that it was made with, or set another 'name'"
            )
    for file in sorted(files):
        if not (path / file).is_file():
            raise RunFolderError(
                f"the run state {path} lacks its file {file}: restore it, or remove the state to go on from the one before"
            )


def _check_shapes(path: Path, name: str, module: nn.Module) -> None:
    with safe_open(path / weights_file(name), framework="pt") as weights:
        stored = {key: tuple(weights.get_slice(key).get_shape()) for key in weights.keys()}  # noqa: SIM118
    if stored != {key: tuple(value.shape) for key, value in trainable(module).items()}:
        keys = "critic.kind, critic.path and model.path name" if name == "critic" else "model.path names"
        what = "another critic" if name == "critic" else "another model"
        raise RunFolderError(f"the run state {path} holds the weights of {what} than {keys}: set the same one")


def _states(folder: Path) -> list[Path]:
    """Newest first."""
    return sorted(folder.glob("step-[0-9]*"), reverse=True)


def damage(path: Path, only: str | None = None) -> str | None:
    """What is wrong with a state, or with ``state.json`` and one file of it; None where nothing is."""
    try:
        values = json.loads((path / "state.json").read_text())
        if values.pop("digest") != _digest_of(values):
            return "state.json does not match its digest"
        files = values["files"] if only is None else {only: values["files"][only]}
        wrong = [name for name, digest in files.items() if _digest(path / name) != digest]
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
