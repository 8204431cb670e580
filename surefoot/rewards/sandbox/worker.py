"""One warm interpreter in the sandbox, as the host sees it: jobs go in, replies come out, before a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from surefoot.rewards.sandbox.backends import Backend, modules
from surefoot.rewards.sandbox.guest.folder import remove
from surefoot.rewards.sandbox.guest.frames import write_all, write_frame
from surefoot.rewards.sandbox.guest.values import encode
from surefoot.rewards.sandbox.limits import Limits
from surefoot.rewards.sandbox.replies import read_reply
from surefoot.rewards.sandbox.results import Call, Checks, Job, Result

START = 60.0  # seconds that an interpreter may take to start
GRACE = 30.0  # seconds past a program's own deadline after which its worker is given up


class WorkerFailure(Exception):
    """The worker, not the program, has failed; it must not be used again."""


class Worker:
    """A worker; used by one thread at a time.

    Raises:
        WorkerFailure: it did not start; the text says why.
    """

    def __init__(self, backend: Backend) -> None:
        self.folder = tempfile.mkdtemp(prefix="surefoot-sandbox-")
        os.chmod(self.folder, 0o711)  # the program may be another user
        self.backend = backend
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self.process = subprocess.Popen(
                backend.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                env=backend.environment,
                cwd="/",
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            self._clean()
            raise WorkerFailure(f"{backend.command[0]} does not start: {error}") from None
        assert self.process.stdin and self.process.stdout
        self.inlet, self.outlet = self.process.stdin.fileno(), self.process.stdout.fileno()
        self.poll = select.poll()
        self.poll.register(self.outlet, select.POLLIN)
        folder = self.folder if backend.inner_folder is None else backend.inner_folder
        try:
            source = modules().encode()
            write_all(self.inlet, len(source).to_bytes(4, "big") + source)
            write_frame(self.inlet, {**backend.walls, "folder": folder})
            reply = self._read(START)
        except (OSError, WorkerFailure) as error:
            text = str(error) + (self._said() if isinstance(error, OSError) else "")
            self.close()
            raise WorkerFailure(text) from None
        if "failed" in reply:
            self.close()
            raise WorkerFailure(" ".join(str(reply["failed"]).split("\n")[-2:]).strip())

    def run(self, job: Job, limits: Limits) -> Result:
        """Run one job.

        Raises:
            WorkerFailure: no reply, or one that says that the sandbox itself failed.
        """
        program: dict[str, Any] = {"source": job.program, "prelude": job.prelude}
        mode, message = "script", {"program": program}
        if isinstance(job.task, Call):
            mode = "call"
            program |= {"name": job.task.name, "arguments": [encode(argument) for argument in job.task.arguments]}
        elif isinstance(job.task, Checks):
            mode, task = "tests", job.task
            tests = {"tests": task.sources, "setup": task.setup, "entry": task.entry, "stop": task.stop}
            message["tests"] = tests
        stdin = job.stdin if isinstance(job.stdin, bytes) else job.stdin.encode("utf-8", "surrogateescape")
        try:
            write_frame(self.inlet, {"mode": mode, "limits": limits.as_message()})
            write_frame(self.inlet, {**message, "stdin": stdin.decode("latin-1")})
        except OSError as error:
            raise WorkerFailure(f"the worker has ended: {error}{self._said()}") from None
        reply = self._read(limits.seconds + GRACE)
        if "failed" in reply:
            raise WorkerFailure(str(reply["failed"]).strip())
        return read_reply(reply, mode, limits)

    def close(self) -> None:
        """End the worker and all that it runs, and delete its folder."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()
        try:
            self.process.wait(2.0 if self.backend.stop else 0.5)
        except subprocess.TimeoutExpired:
            if self.backend.stop:
                subprocess.run(self.backend.stop, capture_output=True, check=False, timeout=START)
            self.process.kill()
            self.process.wait()
        self._clean()

    def _clean(self) -> None:
        self.errors.close()
        with contextlib.suppress(OSError):
            remove(self.folder)

    def _read(self, seconds: float) -> Mapping[str, Any]:
        """One message from the worker."""
        deadline = time.monotonic() + seconds
        try:
            reply = json.loads(self._exactly(int.from_bytes(self._exactly(4, deadline), "big"), deadline))
        except (OSError, EOFError, ValueError) as error:
            raise WorkerFailure(f"the worker has ended: {error}{self._said()}") from None
        return reply

    def _exactly(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            if not self.poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise WorkerFailure("no reply before the deadline")
            part = os.read(self.outlet, size - len(data))
            if not part:
                raise EOFError("end of file")
            data += part
        return bytes(data)

    def _said(self) -> str:
        """The end of what the worker wrote to its standard error."""
        self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - 1000))
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return f" ({lines[-1]})" if lines else ""
