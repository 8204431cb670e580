"""The self-test: programs that try what a sandbox must not allow, each with what shows that it was not allowed."""

from __future__ import annotations

import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from surefoot.rewards.sandbox.limits import Limits
from surefoot.rewards.sandbox.results import Ending, Job, Result
from surefoot.rewards.sandbox.worker import Worker

LIMITS = Limits(seconds=10.0, cpu_seconds=5.0)
_SOCKET = "import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)\nprint('connected')"
_READ = "print(open({path!r}).read())"
_WRITE = """
wrote = []
for path in {paths!r}:
    try:
        open(path, "w").write("x")
        wrote.append(path)
    except OSError:
        pass
open("/tmp/x" if {namespaces} else "x", "w").write("x")
print(*wrote or ["refused, its own folder written"])
"""
_FORK = """
import os, time
made = 0
try:
    for _ in range(100):
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
        made += 1
except OSError:
    pass
print(made)
"""
_ALLOCATE = "held = bytearray(2 << 30)\nprint('allocated')"
_LOOP = "while True: pass"
_DATAGRAM = """
import socket
seen = set()
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
    for how in ("sendto", "sendmsg"):
        try:
            end = socket.socketpair(socket.AF_UNIX, kind)[0]
            end.sendto(b"x", {path!r}) if how == "sendto" else end.sendmsg([b"x"], [], 0, {path!r})
            seen.add("sent")
        except OSError as error:
            seen.add(error.strerror)
print(*seen)
"""
_BESIDE = """
import ctypes, socket
libc, held, size = ctypes.CDLL(None), [], 0
libc.mmap.restype = ctypes.c_void_p
for _ in range(4):
    start = libc.mmap(None, ctypes.c_size_t(1 << 26), 3, 0x8021, -1, 0)  # shared, without a file, filled
    if start != ctypes.c_void_p(-1).value:
        libc.munmap(ctypes.c_void_p(start + 4096), ctypes.c_size_t((1 << 26) - 4096))
        size += 1 << 26
try:
    while size < 1 << 28:
        held += socket.socketpair()
        for end in held[-2:]:
            end.setblocking(False)
            try:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
            except OSError:
                pass
            try:
                while size < 1 << 28: size += end.send(bytes(1 << 16))
            except BlockingIOError:
                pass
except OSError:
    pass
print(size >> 20, "MiB")
"""
_NAMELESS = """
import os, time
held, size = [], 0
for number in range(8):
    held.append(os.open("x", os.O_CREAT | os.O_RDWR))
    os.unlink("x")
    size += os.write(held[-1], bytes(1 << 23))
time.sleep(1.0)
print(size >> 20, "MiB")
"""


@dataclass(frozen=True)
class Probe:
    """One attempt to break out: whether the sandbox held, and what was seen."""

    name: str
    held: bool
    evidence: str


def probe(worker: Worker) -> tuple[Probe, ...]:
    """Run all probes on a worker. Takes about a second."""
    with (
        tempfile.TemporaryDirectory() as name,
        _listener() as port,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server,
    ):
        folder, token = Path(name), secrets.token_hex(16)
        folder.chmod(0o777)
        (folder / "secret").write_text(token)
        (folder / "secret").chmod(0o666)
        server.bind(str(folder / "server"))
        (folder / "server").chmod(0o666)
        paths = [str(folder / "made"), str(folder / "secret")]
        inside = worker.backend.walls["namespaces"]
        programs: list[tuple[str, str, Callable[[Result], bool]]] = [
            ("socket", _SOCKET.format(port=port), lambda r: "connected" not in r.stdout),
            ("read /etc/passwd", _READ.format(path="/etc/passwd"), lambda r: not r.stdout.strip()),
            ("read outside", _READ.format(path=str(folder / "secret")), lambda r: token not in r.stdout),
            (
                "write outside",
                _WRITE.format(paths=paths, namespaces=inside),
                lambda r: r.ok and r.stdout.startswith("refused"),
            ),
            ("datagram", _DATAGRAM.format(path=str(folder / "server")), lambda r: "sent" not in r.stdout and r.ok),
            ("100 processes", _FORK, lambda r: r.stdout.strip() == "0"),
            ("2 GiB", _ALLOCATE, lambda r: "allocated" not in r.stdout),
            ("memory beside", _BESIDE, lambda r: r.ok and int(r.stdout.split()[0]) <= 64),
            ("nameless files", _NAMELESS, lambda r: not r.ok and r.status is not Ending.TIMEOUT),
        ]
        probes = [_try(worker, name, program, held) for name, program, held in programs]
        if (folder / "made").exists() or (folder / "secret").read_text() != token:
            probes.append(Probe("write outside", False, "a file outside has changed"))
    loop = worker.run(Job(_LOOP), Limits(seconds=0.25, cpu_seconds=1))
    probes.append(Probe("endless loop", loop.status is Ending.TIMEOUT, f"{loop.status} after {loop.seconds:.2f} s"))
    return tuple(probes)


def _try(worker: Worker, name: str, program: str, held: Callable[[Result], bool]) -> Probe:
    result = worker.run(Job(program), LIMITS)
    seen = result.stdout.strip() or result.text or str(result.status)
    return Probe(name, held(result) and result.status is not Ending.TIMEOUT, " ".join(seen.split())[:120])


@contextmanager
def _listener() -> Iterator[int]:
    """A port of this machine that takes connections."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield listener.getsockname()[1]
