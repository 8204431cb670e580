"""The ``[sandbox]`` section: where programs that a model wrote are run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from surefoot.config import Section
from surefoot.rewards.sandbox.limits import Limits

Isolation = Literal["auto", "namespaces", "bubblewrap", "seccomp", "docker", "rlimits"]


class SandboxConfig(Section):
    """Where programs that a model wrote are run, and what they may use."""

    isolation: Isolation = Field(
        "auto",
        description="'auto' (the best of the next three that passes its self-test), 'namespaces', 'bubblewrap', 'seccomp', "
        "'docker', or 'rlimits', which is no sandbox: the program can read your files and use the network",
    )
    workers: int = Field(0, ge=0, description="programs that run at once (0: one per core)")
    preload: list[str] = Field(
        [], description="installed packages that programs may import; each is imported once, when a worker starts"
    )
    image: str = Field("python:3.12-slim", description="image of 'docker'; it must be there already")
    command: str = Field("docker", description="command line program of 'docker', for instance 'podman'")
    seconds: float = Field(20.0, gt=0, description="seconds of the clock for one program")
    cpu_seconds: float = Field(6.0, gt=0, description="seconds of computing for one program")
    memory_mb: int = Field(512, ge=64, description="MiB of address space of one program")
    processes: int = Field(1, ge=1, le=64, description="processes of one program; more than 1 only under 'namespaces'")
    threads: int = Field(32, ge=0, description="threads of one program beside its first")
    disk_mb: int = Field(16, ge=1, description="MiB in the temporary folder of one program")
    output_kb: int = Field(64, ge=1, description="KiB that one program may print")

    def limits(self) -> Limits:
        """The limits of one program."""
        return Limits(
            seconds=self.seconds,
            cpu_seconds=self.cpu_seconds,
            memory=self.memory_mb << 20,
            processes=self.processes,
            threads=self.threads,
            disk=self.disk_mb << 20,
            output=self.output_kb << 10,
        )
