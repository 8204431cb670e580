"""The levels of isolation: how the interpreter of a worker is started, and which walls it puts up itself."""

from __future__ import annotations

import functools
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from surefoot.errors import SandboxError
from surefoot.rewards.sandbox.config import SandboxConfig
from surefoot.rewards.sandbox.guest import confine, filter, landlock

AUTOMATIC = ("namespaces", "bubblewrap", "seccomp")
"""The order in which 'auto' tries."""

BUFFERS = 64 << 20
"""Bytes that sockets of one program may hold in the kernel; where they could hold more, it gets none."""
_MODULES = [
    "frames",
    "values",
    "kernel",
    "filter",
    "landlock",
    "folder",
    "held",
    "root",
    "stand_ins",
    "confine",
    "mirrors",
    "packing",
    "containers",
    "wire",
    "expectations",
    "program",
    "checker",
    "supervise",
    "zygote",
]  # each after those that it imports
_BOOT = """
import json, os, sys, types
inlet, outlet = os.dup(0), os.dup(1)
null = os.open(os.devnull, os.O_RDWR)
os.dup2(null, 0), os.dup2(null, 1)
size = b""
while len(size) < 4: size += os.read(inlet, 4 - len(size)) or sys.exit(1)
size, parts = int.from_bytes(size, "big"), b""
while len(parts) < size: parts += os.read(inlet, size - len(parts)) or sys.exit(1)
package = sys.modules["guest"] = types.ModuleType("guest")
package.__path__ = []
for name, source in json.loads(parts):
    module = types.ModuleType("guest." + name)
    module.__package__ = "guest"
    sys.modules[module.__name__] = module
    setattr(package, name, module)
    exec(compile(source, "guest/" + name + ".py", "exec"), module.__dict__)
package.zygote.main(inlet, outlet)
"""
_FLAGS = ["-P", "-s", "-S", "-B", "-X", "utf8"]
"""Isolated as by -I, which would also ignore PYTHONHASHSEED; the environment holds nothing else."""


@dataclass(frozen=True)
class Backend:
    """How to start a worker.

    Attributes:
        name: the level.
        command: the command line.
        environment: its whole environment.
        walls: what the worker puts up itself (``namespaces``, ``filter``, ``landlock``, ``readable``, ``preload``).
        inner_folder: where temporary folders lie, as the worker sees it; None for the folder that the host made.
        stop: the command that ends a worker that does not end by itself, beside killing its process.
    """

    name: str
    command: list[str]
    environment: dict[str, str]
    walls: dict[str, Any]
    inner_folder: str | None = None
    stop: list[str] = field(default_factory=list)


def backend(name: str, config: SandboxConfig) -> Backend:
    """The back end of that level, for one worker.

    Raises:
        SandboxError: it needs something that is not here.
    """
    if sys.platform != "linux":
        raise SandboxError(f"sandbox.isolation = '{name}' needs Linux (this is {sys.platform})")
    made = _KINDS[name](config)
    if made.walls["filter"] and not filter.supported():
        raise SandboxError(
            f"sandbox.isolation = '{name}': no system-call filter for this machine ({os.uname().machine})"
        )
    if config.processes > 1 and not made.walls["namespaces"]:
        raise SandboxError(
            f"sandbox.processes = {config.processes} needs a process namespace for each program: set "
            f"sandbox.isolation = 'namespaces' (now '{name}'), or sandbox.processes = 1"
        )
    return made


def modules() -> str:
    """The source of the guest's modules, as the bootstrap reads it."""
    package = resources.files("surefoot.rewards.sandbox.guest")
    return json.dumps([(name, package.joinpath(f"{name}.py").read_text(encoding="utf-8")) for name in _MODULES])


def _namespaces(config: SandboxConfig) -> Backend:
    return Backend("namespaces", _python(), _environment(), _walls(config, namespaces=True))


def _seccomp(config: SandboxConfig) -> Backend:
    walls = _walls(config)
    if landlock.version() < 3:  # the first that guards files against being emptied
        raise SandboxError("sandbox.isolation = 'seccomp' needs Landlock (Linux 6.2 or newer, not switched off)")
    return Backend("seccomp", _python(), _environment(), walls)


def _rlimits(config: SandboxConfig) -> Backend:
    return Backend("rlimits", _python(), _environment(), _walls(config, weak=True))


def _bubblewrap(config: SandboxConfig) -> Backend:
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxError("sandbox.isolation = 'bubblewrap' needs the program bwrap: install bubblewrap")
    if not landlock.version():  # /proc is there, and what is in /tmp beside the program's own folder
        raise SandboxError("sandbox.isolation = 'bubblewrap' needs Landlock (Linux 5.13 or newer, not switched off)")
    command = [program, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    walls = _walls(config)
    for path in walls["readable"]:
        command += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind-try", path, path]
    python = os.path.realpath(sys.executable)
    command += ["--ro-bind-try", python, python, "--proc", "/proc"]
    for device in ("/dev/null", "/dev/urandom"):  # of "--dev", "zero" and "shm" are memory that no limit counts
        command += ["--dev-bind", device, device]
    if _sizes(program):
        command += ["--size", str(config.disk_mb << 20)]
    command += ["--tmpfs", "/tmp", "--remount-ro", "/"]
    for name, value in _environment().items():
        command += ["--setenv", name, value]
    return Backend("bubblewrap", [*command, "--chdir", "/", "--", *_python()], {}, walls, "/tmp")


@functools.lru_cache
def _sizes(program: str) -> bool:
    """Whether this bubblewrap limits a file system in memory: from version 0.7 on."""
    return "--size" in subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout


def _docker(config: SandboxConfig) -> Backend:
    program = shutil.which(config.command)
    if program is None:
        raise SandboxError(f"sandbox.command = '{config.command}': no such program; install it or name another")
    if subprocess.run([program, "image", "inspect", config.image], capture_output=True, check=False).returncode:
        raise SandboxError(
            f"sandbox.image = '{config.image}': {config.command} has no such image, or its daemon does not answer: "
            f"try {config.command} pull {config.image}"
        )
    name = f"surefoot-{secrets.token_hex(8)}"
    memory = config.memory_mb + 256  # the program, the interpreter that forks it, and the temporary folder
    command = f"run --rm --interactive --name {name} --network none --read-only --cap-drop ALL --pids-limit".split()
    command += [str(config.threads + 16), "--security-opt", "no-new-privileges", "--user", "65534:65534"]
    command += ["--memory", f"{memory + 2 * config.disk_mb}m", "--ipc", "none"]
    for pair in _environment().items():
        command += ["--env", "=".join(pair)]
    command += ["--tmpfs", f"/tmp:size={2 * config.disk_mb}m,mode=1777,noexec"]
    command += [config.image, "python", *_FLAGS, "-c", _BOOT]
    walls = {**_walls(config), "readable": ["/usr", "/lib", "/lib64"], "path": []}
    return Backend("docker", [program, *command], dict(os.environ), walls, "/tmp", [program, "kill", name])


def _walls(config: SandboxConfig, *, namespaces: bool = False, weak: bool = False) -> dict[str, Any]:
    walls = {"namespaces": namespaces, "filter": not weak, "landlock": not (weak or namespaces)}
    libraries = {os.path.join(sys.base_prefix, "lib"), os.path.join(sys.base_exec_prefix, "lib")}
    path = []
    if config.preload:
        path = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    system = {"/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo"}
    readable = sorted({*libraries, *path, *system})  # a folder before those in it
    return {**walls, "readable": readable, "path": path, "preload": config.preload, "sockets": _small_sockets()}


def _small_sockets() -> bool:
    """Whether the buffers of all sockets that a program may open are small: ``net.core.wmem_default`` decides."""
    ends = socket.socketpair()
    size = ends[0].getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    for end in ends:
        end.close()
    return size * confine.FILES <= BUFFERS


def _python() -> list[str]:
    return [os.path.realpath(sys.executable), *_FLAGS, "-c", _BOOT]


def _environment() -> dict[str, str]:
    return {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


_KINDS: dict[str, Callable[[SandboxConfig], Backend]] = {
    "namespaces": _namespaces,
    "bubblewrap": _bubblewrap,
    "seccomp": _seccomp,
    "docker": _docker,
    "rlimits": _rlimits,
}
