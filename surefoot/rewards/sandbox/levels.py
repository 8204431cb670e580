"""Which level of isolation this machine gives: found by trying to break out of it."""

from __future__ import annotations

import functools

from surefoot.errors import SandboxError
from surefoot.rewards.sandbox.backends import AUTOMATIC, backend
from surefoot.rewards.sandbox.config import SandboxConfig
from surefoot.rewards.sandbox.probes import Probe, probe
from surefoot.rewards.sandbox.worker import Worker, WorkerFailure


def choose(config: SandboxConfig) -> str:
    """The level that a sandbox of this configuration runs at.

    'auto' is the first of :data:`AUTOMATIC` that passes its self-test; a level that is named must pass it too, except
    'rlimits', which nobody takes for a sandbox.

    Raises:
        SandboxError: none passes, or the one that is named does not.
    """
    if config.isolation == "rlimits":
        return "rlimits"
    wanted = AUTOMATIC if config.isolation == "auto" else (config.isolation,)
    reasons = []
    for name in wanted:
        failure = broken(self_test(name, config))
        if failure is None:
            return name
        reasons.append(f"{name}: {failure}")
    raise SandboxError(
        f"sandbox.isolation = '{config.isolation}': no sandbox for programs that a model wrote on this machine "
        f"({'; '.join(reasons)}). Run in a container that allows user namespaces or Landlock, or, where the machine "
        "holds nothing of worth, set sandbox.isolation = 'rlimits'"
    )


def self_test(name: str, config: SandboxConfig | None = None) -> tuple[Probe, ...]:
    """What each probe gave at that level; a single failed one where no worker starts. Kept for the process's life."""
    config = config or SandboxConfig()
    return _self_test(name, config.image, config.command)


@functools.lru_cache
def _self_test(name: str, image: str, command: str) -> tuple[Probe, ...]:
    try:
        worker = Worker(backend(name, SandboxConfig(image=image, command=command)))
    except (SandboxError, WorkerFailure) as error:
        return (Probe("start", False, str(error)),)
    try:
        return probe(worker)
    except WorkerFailure as error:
        return (Probe("start", False, str(error)),)
    finally:
        worker.close()


def broken(probes: tuple[Probe, ...]) -> str | None:
    """The first probe that failed, in words; None if all held."""
    return next((f"{one.name}: {one.evidence}" for one in probes if not one.held), None)
