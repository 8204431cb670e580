"""Trackers beside ``metrics.jsonl``: TensorBoard, Weights & Biases, trackio.

The files of the run are the record; a tracker is a convenience. One that was asked for and is not installed is an error
at the start. One that fails later is reported once, dropped, and the run goes on.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from surefoot.errors import MissingExtraError
from surefoot.extras import require
from surefoot.files import write_atomic
from surefoot.training.config import TrackConfig

_FAILURES = (Exception, SystemExit)  # a client library may try to end the process; KeyboardInterrupt stays the user's


class Tracker(Protocol):
    """What every tracker does."""

    name: str

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of a step. Steps rise; after a resume they go on where the run state stands."""

    def close(self) -> None:
        """Flush and end the record."""


class Trackers:
    """Several trackers as one that never raises.

    Args:
        trackers: what to pass the metrics on to.
        warn: receives one sentence for each tracker that failed; ``warnings.warn`` by default.
    """

    name = "trackers"

    def __init__(self, trackers: Sequence[Tracker] = (), warn: Callable[[str], None] | None = None) -> None:
        self.trackers = list(trackers)
        self.warn = warn or (lambda text: warnings.warn(text, RuntimeWarning, stacklevel=2))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Pass the metrics of a step on to all that still work."""
        for tracker in list(self.trackers):
            try:
                tracker.log(step, metrics)
            except _FAILURES as error:
                self.drop(tracker.name, f"at step {step}", error)
                self.trackers.remove(tracker)

    def close(self) -> None:
        """Close all, once."""
        trackers, self.trackers = self.trackers, []
        for tracker in trackers:
            try:
                tracker.close()
            except _FAILURES as error:
                self.drop(tracker.name, "while it closed", error)

    def drop(self, name: str, when: str, error: BaseException) -> None:
        """Report a tracker that is used no more."""
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(": ")
        self.warn(f"the tracker {name} failed {when} and is used no more ({said}); metrics.jsonl has everything")


def require_trackers(config: TrackConfig) -> None:
    """Refuse a tracker that is not installed; called before there is a run folder, so that none is left behind.

    Raises:
        MissingExtraError: a tracker was asked for and its package is not installed.
    """
    for kind in (TensorBoardTracker, WandbTracker, TrackioTracker):
        if getattr(config, kind.name):
            try:
                require(kind.name, kind.name, f"track.{kind.name} = true")
            except MissingExtraError:
                raise
            except _FAILURES:  # installed but broken: open_trackers says so, and the run goes on without it
                continue


def open_trackers(
    config: TrackConfig, run: Path, values: dict[str, Any], warn: Callable[[str], None] | None = None
) -> Trackers:
    """Open the trackers that the ``[track]`` section asks for.

    Args:
        config: the section.
        run: the run folder.
        values: the resolved configuration, for trackers that show it.
        warn: receives one sentence for each tracker that failed; ``warnings.warn`` by default.

    Raises:
        MissingExtraError: a tracker was asked for and its package is not installed.
    """
    bundle = Trackers(warn=warn)
    found = []
    for kind in (TensorBoardTracker, WandbTracker, TrackioTracker):
        if not getattr(config, kind.name):
            continue
        try:
            found.append((kind, require(kind.name, kind.name, f"track.{kind.name} = true")))
        except MissingExtraError:
            raise
        except _FAILURES as error:
            bundle.drop(kind.name, "when it was imported", error)
    # Opened only once all are found: a missing one must not leave the others' records begun.
    for kind, module in found:
        try:
            bundle.trackers.append(kind(module, config, run, values))
        except _FAILURES as error:
            bundle.drop(kind.name, "when it was opened", error)
    return bundle


class TensorBoardTracker:
    """Scalars in ``<run>/tensorboard``.

    The writer opens with the first step that it gets: that hides the events which a killed run wrote from there on.
    """

    name = "tensorboard"

    def __init__(self, module: ModuleType, config: TrackConfig, run: Path, values: Mapping[str, Any]) -> None:
        self.folder = run / "tensorboard"
        self._writer: Any = None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self.folder), purge_step=step)
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class WandbTracker:
    """A run of Weights & Biases; a resumed run goes on in the same record."""

    name = "wandb"

    def __init__(self, module: ModuleType, config: TrackConfig, run: Path, values: Mapping[str, Any]) -> None:
        self._run = module.init(
            project=config.project,
            name=run.name,
            id=tracking_id(run),
            resume="allow",
            dir=str(run),
            config=dict(values),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class TrackioTracker:
    """A run of trackio, which knows runs by name: the name carries a part of the run's own id."""

    name = "trackio"

    def __init__(self, module: ModuleType, config: TrackConfig, run: Path, values: Mapping[str, Any]) -> None:
        self._run = module.init(
            project=config.project, name=f"{run.name}-{tracking_id(run)[:6]}", resume="allow", config=dict(values)
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


def tracking_id(run: Path) -> str:
    """The name under which services know this run folder: random, made once, kept in ``<run>/tracking.id``."""
    path = run / "tracking.id"
    if not path.exists():
        write_atomic(path, uuid.uuid4().hex)
    return path.read_text(encoding="utf-8").strip()
