"""What one program may use."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Limits:
    """Limits of one program.

    Attributes:
        seconds: of the clock. Generous, for a busy machine must not make a right program wrong; ``cpu_seconds`` is the
            limit that says the same on every machine.
        cpu_seconds: of computing, in each process (rounded up to whole seconds).
        memory: bytes of address space, shared equally among ``processes``.
        processes: that may live at once, the program's own included; more than 1 only where each program has a process
            namespace.
        threads: that may live at once, beside the first.
        disk: bytes in the temporary folder, and of any one file.
        entries: files and folders in the temporary folder.
        output: bytes on standard output, on standard error and of a value that is returned, each.
    """

    seconds: float = 20.0
    cpu_seconds: float = 6.0
    memory: int = 512 << 20
    processes: int = 1
    threads: int = 32
    disk: int = 16 << 20
    entries: int = 256
    output: int = 64 << 10

    def as_message(self) -> dict[str, Any]:
        return asdict(self)
