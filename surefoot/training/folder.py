"""The folder of a run: who may write it, what lies in it, and how a resume trims what was written too far.

The files are described in ``docs/runs.md``. Everything that a resume must reproduce is in ``metrics.jsonl`` and
``evaluations.jsonl``, which hold no times; what the clock said is in ``timings.jsonl``.
"""

from __future__ import annotations

import fcntl
import json
import platform
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import torch

from surefoot.config import dump_toml, nearest
from surefoot.errors import RunFolderError
from surefoot.files import append_lines, explained, read_lines, write_atomic
from surefoot.training.config import RunConfig, SftConfig
from surefoot.training.places import ORIGIN, is_run

SAVED = "states"  # a record for each state that was saved, by which a resume knows that one must be there
LOGS = ("metrics", "timings", "evaluations", "warnings", "resets", SAVED)
# What may differ between a run and its resumption: how long it goes on, what is kept and what is said about it.
MAY_CHANGE = ("train.steps", "train.threads", "budget.", "checkpoint.", "track.", "health.", "runs")
SHOWN = 6  # changed keys of which a message gives the values


class RunFolder:
    """A run folder, locked by this process until :meth:`close`.

    Args:
        path: the folder; made when it is not there.
        config: the resolved configuration.
        resume: go on with the run that the folder holds; None where nothing can be resumed.

    Attributes:
        settings: the configuration by dotted key, without what a resume may change.

    Raises:
        RunFolderError: the folder holds a run and ``resume`` is not set, or none and it is; another process uses it; it
            cannot be written; it holds a run with another configuration.
    """

    def __init__(self, path: Path, config: Mapping[str, Any], *, resume: bool | None) -> None:
        self.path = path
        self.settings = _lasting(flatten(tomllib.loads(dump_toml(config))))
        with explained(path):
            used = (path / "config.toml").exists()
        if resume and not used:
            _refuse_no_run(path)
        with explained(path):
            path.mkdir(parents=True, exist_ok=True)
            foreign = not used and any(
                not entry.name.startswith(".") and entry.name != ORIGIN for entry in path.iterdir()
            )
        if used and not resume:
            go_on = ", or resume it (--resume, in Python resume=True)" if resume is not None else ""
            raise RunFolderError(f"the folder {path} already holds a run: set another 'name'{go_on}")
        if foreign:
            raise RunFolderError(
                f"the folder {path} is not empty and holds no run: set another 'name' or another 'runs'"
            )
        with explained(path):
            self._lock = _lock(path)
        self._fresh = not used
        if used:
            _refuse_changes(path, self.settings)
        _clear_leftovers(path)
        write_atomic(path / "config.toml", dump_toml(config))

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._fresh and not (self.path / "metrics.jsonl").exists():
            # Stopped before its first step was done: nothing to go on from, so the name is free for the next try.
            shutil.rmtree(self.path, ignore_errors=True)
        self.close()

    def log(self, name: str, record: Mapping[str, Any]) -> None:
        """Append a record to one of the logs."""
        append_lines(self.path / f"{name}.jsonl", [dict(record)])

    def read(self, name: str) -> list[dict[str, Any]]:
        """The records of a log, each with its step."""
        file = self.path / f"{name}.jsonl"
        try:
            records = read_lines(file)
        except RunFolderError as error:
            raise RunFolderError(f"the run cannot go on, a log is damaged: {error}") from None
        for number, record in enumerate(records):
            if not isinstance(record.get("step"), int):
                raise RunFolderError(f"the run cannot go on, a log is damaged: {file}, record {number + 1} has no step")
        return records

    def write_samples(self, name: str, records: list[dict[str, Any]]) -> None:
        """Write the samples of a step, whole or not at all."""
        with explained(self.path):
            (self.path / "samples").mkdir(exist_ok=True)
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        write_atomic(self.path / "samples" / f"{name}.jsonl", text.encode("utf-8", "surrogatepass"))

    def trim(self, step: int | None) -> None:
        """Forget everything after ``step`` (None: everything), so that going on from there writes it again once."""
        for name in LOGS:
            file = self.path / f"{name}.jsonl"
            if not file.exists():
                continue
            kept = [record for record in self.read(name) if step is not None and record["step"] <= step]
            write_atomic(file, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept))
        for file in (self.path / "samples").glob("*.jsonl"):
            number = file.stem.rsplit("-", 1)[-1]
            if step is None or (number.isdigit() and int(number) > step):
                file.unlink()


def run_path(config: RunConfig | SftConfig) -> Path:
    """Where the run lies, absolute, so that nothing that changes the working folder moves it."""
    return Path(config.runs).expanduser().absolute() / config.name


def _lock(path: Path) -> IO[str]:
    handle = (path / ".lock").open("a", encoding="utf-8")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        raise RunFolderError(f"another process is writing the run {path}: wait for it, or set another 'name'") from None
    return handle


def _clear_leftovers(path: Path) -> None:
    """Remove what a killed writer left behind; only called with the lock held."""
    for leftover in [*path.rglob(".*.tmp"), *path.rglob(".*.old")]:
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def _refuse_no_run(path: Path) -> None:
    """A resume of what is not there."""
    if is_run(path) or (path / "state").is_dir():
        raise RunFolderError(
            f"the run {path} has lost its config.toml, which says that a resume has the same settings: restore the file, or set "
            "another 'name'"
        )
    try:
        others = [folder.name for folder in path.parent.iterdir() if is_run(folder)]
    except OSError:
        others = []
    raise RunFolderError(
        f"there is no run {path} to go on with.{nearest(path.name, others)} Start it without --resume (in Python without "
        "resume=True), or set 'name' and 'runs' to those of the run that is meant"
    )


def _refuse_changes(path: Path, settings: Mapping[str, Any]) -> None:
    try:
        before = _lasting(flatten(tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"the run cannot go on, {path / 'config.toml'} is damaged: {error}") from None
    if changed := changes(before, settings, "{}, and now it is {}"):
        raise RunFolderError(
            f"the run {path} was made with {changed}: resume with the same configuration, or set another 'name'"
        )


def _lasting(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Without what may differ between a run and its resumption."""
    return {key: value for key, value in settings.items() if not key.startswith(MAY_CHANGE)}


def changes(before: Mapping[str, Any], now: Mapping[str, Any], words: str) -> str:
    """The keys in which two configurations differ, the first of them with their values; "" where there are none."""
    changed = [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]
    told = [f"{key} = {words.format(repr(before.get(key)), repr(now.get(key)))}" for key in changed[:SHOWN]]
    more = [f"and {', '.join(changed[SHOWN:])}"] if changed[SHOWN:] else []
    return "; ".join([*told, *more])


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"a": {"b": 1}}`` -> ``{"a.b": 1}``"""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


def environment() -> dict[str, Any]:
    """Versions, machine, git revision and command, for ``environment.json``."""
    return {**versions(), "git": _revision(), "command": [Path(sys.argv[0]).name, *sys.argv[1:]]}


def versions() -> dict[str, Any]:
    """Of Python and the packages, and the machine: what a measurement is to be known by."""
    packages = {}
    for name in ("surefoot", "torch", "transformers", "numpy", "safetensors", "tokenizers", "pydantic"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = "not installed"
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "packages": packages,
    }


def _revision() -> str:
    try:
        result = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            timeout=10,
            cwd=Path(__file__).parent,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""
