"""One worker process from the parent's side: started, given jobs, listened to, stopped (see :mod:`.workers`)."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from surefoot.errors import RewardError

START_SECONDS = 120.0
"""How long a worker may take to start and import its modules, on a busy machine."""

_HEAD = struct.Struct("!I")
_LARGEST = 1 << 26


class WorkerHandle:
    """A process and its pipes.

    Args:
        modules: what it imports before it is ready.
        memory: MiB of address space; 0 for no limit.

    Raises:
        RewardError: it cannot be started.
    """

    def __init__(self, modules: Sequence[str], memory: int):
        command = [sys.executable, "-m", "surefoot.rewards.worker", str(memory), *modules]
        paths = [os.path.abspath(path) for path in sys.path]
        # The same order of sets in every worker: verdicts must not depend on a process.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"}
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise RewardError(f"no worker process could be started: {error}") from error
        assert self.process.stdin and self.process.stdout
        self.stdin, self.stdout = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self.stdin, False)
        os.set_blocking(self.stdout, False)
        self.job: int | None = None
        self.until = time.monotonic() + START_SECONDS
        self.ready = False
        self.done = 0
        self.outgoing, self.incoming = memoryview(b""), bytearray()

    def give(self, job: int, message: bytes, deadline: float) -> None:
        self.job, self.until = job, time.monotonic() + deadline
        self.outgoing = memoryview(_HEAD.pack(len(message)) + message)
        self.push()

    def push(self) -> None:
        """Send what the pipe takes."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            while self.outgoing:
                self.outgoing = self.outgoing[os.write(self.stdin, self.outgoing) :]

    def pull(self) -> list[Any] | None:
        """Whole messages that have come, or None where the worker is gone."""
        try:
            while piece := os.read(self.stdout, 1 << 16):
                self.incoming += piece
            return None
        except BlockingIOError:
            pass
        messages = []
        while len(self.incoming) >= _HEAD.size:
            (length,) = _HEAD.unpack_from(self.incoming)
            if length > _LARGEST:
                return None
            if len(self.incoming) < _HEAD.size + length:
                break
            try:
                messages.append(json.loads(bytes(self.incoming[_HEAD.size : _HEAD.size + length])))
            except ValueError:
                return None
            del self.incoming[: _HEAD.size + length]
        return messages

    def stop_if_busy(self) -> bool:
        """End it where it has a job, or has ended already; whether it is gone."""
        gone = self.job is not None or self.process.poll() is not None
        if gone:
            self.stop()
        return gone

    def stop(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError, ValueError):
                assert pipe is not None
                pipe.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
