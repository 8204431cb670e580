"""One side of a comparison: a process that does one turn whenever it is told to.

Parent and child speak in lines of JSON. The child says ``{"ready": ...}``, does a turn for every line ``go`` and answers
with what it measured, and ends at ``stop`` with its peak memory. Whatever libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# The code of a side is this one; `surefoot` is that of the checkout that is measured.
START = (
    "import sys; sys.path.insert(0, {checkout!r}); import surefoot; sys.path[0] = {root!r}; "
    "from benchmarks.speed.sides import main; main()"
)
# A library in an environment of its own, which has what that library needs and no `surefoot`.
START_ELSEWHERE = "import sys; sys.path.insert(0, {root!r}); from benchmarks.speed.sides import main; main()"


class Stop(Exception):
    """The parent wants no further turn."""


class Side:
    """The parent's hold on a side."""

    def __init__(
        self,
        label: str,
        spec: Mapping[str, Any],
        *,
        checkout: Path,
        threads: int,
        log: Path,
        variables: Mapping[str, str] | None = None,
        python: Path | None = None,
    ) -> None:
        """Start it; ``python`` is the interpreter of another environment (default: this one)."""
        self.label = label
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        if threads:
            environment["OMP_NUM_THREADS"] = str(threads)
        environment |= variables or {}
        start = START_ELSEWHERE if python else START
        code = start.format(checkout=str(checkout.resolve()), root=str(ROOT))
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        with log.open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                [str(python or sys.executable), "-c", code, json.dumps(dict(spec))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                cwd=ROOT,
            )
        self.about: dict[str, Any] = {}
        self.turns: list[dict[str, Any]] = []

    def ready(self) -> None:
        """Wait until the side has loaded its model."""
        self.about = self._read()

    def turn(self, *, counts: bool = True) -> dict[str, Any]:
        """One turn; the side is idle before and after it."""
        self._write("go")
        record = self._read()
        if counts:
            self.turns.append(record)
        return record

    def stop(self) -> None:
        """Take the peak memory and end the process."""
        self._write("stop")
        self.about |= self._read()
        self._process.wait(60)

    def kill(self) -> None:
        """End the process, whatever it is doing."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _write(self, word: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the next read says why

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise RuntimeError(f"{self.label} has ended: {said[-1] if said else 'without a word'} (see {self._log})")
        found: dict[str, Any] = json.loads(line)
        return found


class Gate:
    """The child's end: waits for its turn and tells what it measured."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._clock = (0.0, 0.0)
        self._base = peak_megabytes()
        self.synchronise: Callable[[], object] = lambda: None  # waits for a GPU where there is one

    def say(self, **record: Any) -> None:
        self._out.write(json.dumps(record) + "\n")
        self._out.flush()

    def libraries_loaded(self) -> None:
        """Call the memory so far that of the libraries."""
        self._base = peak_megabytes()

    def wait(self) -> None:
        """Sleep until the parent says ``go``.

        Raises:
            Stop: it says anything else, or is gone.
        """
        if sys.stdin.readline().strip() != "go":
            raise Stop
        self._clock = (time.perf_counter(), time.process_time())

    def tell(self, **record: Any) -> None:
        """End the turn: its wall seconds, the CPU seconds of all threads, and what else was measured."""
        self.synchronise()
        seconds, cpu = time.perf_counter() - self._clock[0], time.process_time() - self._clock[1]
        self.say(seconds=seconds, cpu=cpu, **record)

    def last(self) -> None:
        import torch

        device = torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0
        self.say(peak=peak_megabytes(), libraries=self._base, device_peak=device)


def peak_megabytes() -> float:
    """The largest resident memory that this process has had so far.

    ``getrusage`` would count the parent's memory at the moment of the fork as well.
    """
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def forget_peak() -> None:
    """Let the peak start again from what is resident now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
