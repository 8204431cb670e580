"""What a folder is: a run, an experiment, a folder around or inside one; and what a run of an experiment is called."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISON = "comparison.json"
ORIGIN = "experiment.json"  # of which experiment a run is a part; written before the run begins
ARMS = "arms"
_SEED = re.compile(r"seed-(-?[0-9]+)")
_SHOWN = 3  # folders that a suggestion names
_DEPTH = 4  # levels under a folder that are searched for runs


@dataclass(frozen=True)
class Place:
    """A run's place in its experiment; ``control`` is what replaces the reward of an arm that must not learn, else ""."""

    experiment: str
    arm: str
    task: str
    seed: str
    control: str = ""

    @property
    def title(self) -> str:
        return f"{self.experiment} / {self.arm} / {self.task} / seed {self.seed}"


def is_experiment(folder: Path) -> bool:
    """Whether a folder is one of ``surefoot compare``."""
    return (folder / COMPARISON).is_file() or (folder / ARMS).is_dir()


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run."""
    return (folder / "config.toml").is_file() or (folder / "metrics.jsonl").is_file()


def place(run: Path) -> Place | None:
    """Where in its experiment a run lies, from its ``experiment.json``, else from its path; None: it belongs to none."""
    named = _named(run / ORIGIN)
    if named is not None:
        return named
    parts = run.resolve().parts
    seed = _SEED.fullmatch(parts[-1]) if parts else None
    if seed is None or ARMS not in parts[1:-2]:
        return None
    arms = len(parts) - 1 - parts[::-1].index(ARMS)
    *task, arm = parts[arms + 1 : -1]
    return Place(parts[arms - 1], arm, "/".join(task), seed[1]) if task else None


def _named(path: Path) -> Place | None:
    try:
        found = json.loads(path.read_bytes().decode(errors="replace"))
    except (OSError, ValueError, RecursionError):
        return None
    keys = ("experiment", "arm", "task", "seed")
    if not isinstance(found, dict) or not all(isinstance(found.get(key), (str, int)) for key in keys):
        return None
    control = found.get("control")
    experiment, arm, task, seed = (str(found[key]) for key in keys)
    return Place(experiment, arm, task, seed, control if isinstance(control, str) else "")


def around(folder: Path) -> Path | None:
    """The experiment that a folder lies in."""
    return next((above for above in folder.absolute().parents if is_experiment(above)), None)


def instead(folder: Path) -> str:
    """For the end of a message about a folder that is no run: what may have been meant, or "" where nothing is near."""
    if not folder.is_dir():
        return ""
    if is_experiment(folder):
        return f" It is an experiment, whose runs are {_listed(_runs(folder / ARMS))}."
    experiment, held = around(folder), list(_runs(folder))
    words = f" It lies in the experiment {_short(experiment)}: give that folder." if experiment is not None else ""
    return words + (f" It holds {_listed(held)}: give one of them." if held else "")


def _runs(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Runs and experiments under a folder; what lies inside of one is not looked at."""
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return
    for path in inside:
        if is_run(path) or is_experiment(path):
            yield path
        elif depth > 1:
            yield from _runs(path, depth - 1)


def _listed(runs: Iterable[Path]) -> str:
    found = list(runs)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return (", ".join(map(str, found[:_SHOWN])) or "not there yet") + more


def _short(path: Path) -> str:
    """Relative to where the command runs, where that is not longer."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
