"""What a program could hold beside its limits: files without a name or past the reach of a path, memory of the kernel."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from surefoot.errors import SandboxError
from surefoot.rewards.sandbox import Ending, Limits, Sandbox, SandboxConfig, backends
from surefoot.rewards.sandbox.guest import folder
from surefoot.rewards.sandbox.pool import shared
from tests.rewards.sandboxes import LEVELS, at_each_level

LIMITS = Limits(disk=4 << 20, seconds=60.0)
# Each writes one MiB after another, sixteen in all, and stays.
DISK = {
    "files with names": "write(os.open(f'f{n}', NEW))",
    "deleted while open": "write(os.open('f', NEW))\nos.unlink('f')",
    "never had a name": "write(os.open('.', os.O_TMPFILE | os.O_RDWR))",
    "temporary files": "held.append(tempfile.TemporaryFile())\nwrite(held[-1].fileno())",
    "deleted, mapped and closed": (
        "file = os.open('f', NEW)\nwrite(file)\nos.unlink('f')\n"
        "libc.mmap(None, ctypes.c_size_t(4096), 1, 2, file, 0)\nos.close(file)"
    ),
    "deleted in a folder that is deleted": (
        "os.mkdir('d')\nwrite(os.open('d/f', NEW))\nos.unlink('d/f')\nos.rmdir('d')"
    ),
    "replaced while open": "write(os.open('f', NEW))\nos.rename('f', 'g')",
    "emptied by name, under another name": "write(os.open('f', NEW))\nos.link('f', f'g{n}')\nos.unlink('f')",
    "below a path of 7,500 characters": (
        "if n == 0:\n    for _ in range(30): os.mkdir('d' * 250), os.chdir('d' * 250)\nwrite(os.open(f'f{n}', NEW))"
    ),
    "a folder that cannot be listed": "if n == 0: os.mkdir('d', 0o300)\nwrite(os.open(f'd/f{n}', NEW))",
    "a folder closed behind": (
        "if n == 0:\n    os.mkdir('d')\n    os.umask(0o777)\n    os.mkdir('d/e')\n    os.umask(0)\n"
        "    os.rename('d', 'c')\nwrite(os.open(f'c/f{n}', NEW))"
    ),
    "holes filled later": (
        "file = os.open(f'f{n}', NEW)\nos.ftruncate(file, 1 << 20)\n"
        "for at in range(0, 1 << 20, 4096): os.pwrite(file, b'x', at)"
    ),
    "reserved": "os.posix_fallocate(os.open(f'f{n}', NEW), 0, 1 << 20)",
    "copied in the kernel": (
        "if n == 0: write(os.open('f', NEW))\n"
        "os.copy_file_range(os.open('f', os.O_RDONLY), os.open(f'g{n}', NEW), 1 << 20)"
    ),
    "written through a mapping": (
        "file = os.open(f'f{n}', NEW)\nos.ftruncate(file, 1 << 20)\nheld.append(mmap.mmap(file, 1 << 20))\n"
        "held[-1][:] = bytes(b'x') * (1 << 20)\nos.unlink(f'f{n}')"
    ),
    "by other threads, the first has ended": (
        "def work():\n"
        "    try: [(write(os.open(f'f{n}', NEW)), os.unlink(f'f{n}'), time.sleep(0.01)) for n in range(16)]\n"
        "    except OSError: os._exit(1)\n"
        "    time.sleep(3)\n    print('held', flush=True)\n    os._exit(0)\n"
        "threading.Thread(target=work).start()\nlibc.syscall(EXIT, 0)"
    ),
    "a folder that moves all the time": (
        "if n == 0:\n    os.makedirs('a/x'), os.mkdir('b')\n"
        "    def move():\n"
        "        while True: os.rename('a/x', 'b/x'), os.rename('b/x', 'a/x')\n"
        "    there = os.open('a/x', os.O_RDONLY)\n    threading.Thread(target=move, daemon=True).start()\n"
        "write(os.open(f'f{n}', NEW, dir_fd=there))"
    ),
}
HEAD = """
import ctypes, mmap, os, tempfile, threading, time
libc, held, NEW = ctypes.CDLL(None), [], os.O_CREAT | os.O_RDWR
libc.mmap.restype = ctypes.c_void_p
EXIT = {"x86_64": 60}.get(os.uname().machine, 93)
def write(file): return [os.write(file, b'x' * (1 << 16)) for _ in range(16)]
"""


@at_each_level
@pytest.mark.parametrize("how", DISK)
def test_what_is_on_disk_counts_however_it_is_held(sandbox: Sandbox, how: str) -> None:
    body = "\n".join(f"    {line}" for line in DISK[how].splitlines())
    result = sandbox.run(f"{HEAD}\nfor n in range(16):\n{body}\ntime.sleep(3)\nprint('held')", limits=LIMITS)
    assert "held" not in result.stdout, result
    assert result.seconds < 3.0
    assert sandbox.run("import os\nprint(os.listdir('.'))").stdout == "[]\n"


FITS = {
    "names of one file": "write(os.open('f', NEW))\nfor n in range(20): os.link('f', f'g{n}')",
    "one file after another": (
        "for n in range(20):\n    file = os.open('f', NEW)\n    write(file)\n    os.close(file)\n    os.unlink('f')"
    ),
    "one temporary file after another": (
        "for n in range(20):\n    with tempfile.TemporaryFile() as f: f.write(bytes(1 << 20))"
    ),
    "a file with holes": "with open('f', 'wb') as f: f.truncate(4 << 20)\nos.link('f', 'g')",
    "a mapping that its file object keeps": (
        "with tempfile.TemporaryFile() as f:\n    f.truncate(1 << 20)\n    m = mmap.mmap(f.fileno(), 0)\nm[:3] = b'abc'"
    ),
}


@at_each_level
@pytest.mark.parametrize("how", FITS)
def test_what_fits_is_not_counted_twice(sandbox: Sandbox, how: str) -> None:
    result = sandbox.run(f"{HEAD}\n{FITS[how]}\ntime.sleep(0.2)\nprint('fits')", limits=LIMITS)
    assert result.ok and result.stdout == "fits\n", result


KERNEL = {  # prints how many bytes the kernel holds for it beside its own memory
    "socket buffers": (
        "for end in pairs():\n    try:\n        while True: size += end.send(bytes(1 << 16))\n"
        "    except BlockingIOError: pass"
    ),
    "enlarged socket buffers": (
        "for end in pairs():\n    try: end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 25)\n"
        "    except PermissionError: pass\n    try:\n        while size < 1 << 28: size += end.send(bytes(1 << 16))\n"
        "    except BlockingIOError: pass"
    ),
    "sockets on their way through sockets": (
        "way, _ = socket.socketpair()\nfor end in pairs():\n"
        "    try: socket.send_fds(way, [b'x'], [end.fileno()]), end.close()\n    except PermissionError: continue\n"
        "    size += 1 << 20"
    ),
    "pipes": (
        "for _ in range(200):\n    try: inlet, outlet = os.pipe()\n    except OSError: break\n"
        "    try: fcntl.fcntl(outlet, 1031, 1 << 20)\n    except PermissionError: pass\n    os.set_blocking(outlet, False)\n"
        "    try:\n        while True: size += os.write(outlet, bytes(1 << 16))\n    except BlockingIOError: pass"
    ),
    "shared memory after most of it is unmapped": (
        "for _ in range(8):\n    start = libc.mmap(None, ctypes.c_size_t(1 << 25), 3, 0x8021, -1, 0)\n"
        "    if start != ctypes.c_void_p(-1).value:\n"
        "        libc.munmap(ctypes.c_void_p(start + 4096), ctypes.c_size_t((1 << 25) - 4096))\n        size += 1 << 25"
    ),
    "the device of zeros, shared": (
        "for _ in range(8):\n    try: zero = os.open('/dev/zero', os.O_RDONLY)\n    except OSError: break\n"
        "    start = libc.mmap(None, ctypes.c_size_t(1 << 25), 1, 0x8001, zero, 0)\n"
        "    if start != ctypes.c_void_p(-1).value: size += 1 << 25"
    ),
    "timers": (
        "event, timer = (ctypes.c_int * 16)(0, 0, 0, 1), ctypes.c_void_p()\n"
        "while size < 1 << 28 and libc.timer_create(1, event, ctypes.byref(timer)) == 0: size += 512"
    ),
    "what epoll watches": (
        "watched = [os.pipe()[0] for _ in range(20)]\ntry:\n    for _ in range(20):\n        held.append(select.epoll())\n"
        "        for file in watched:\n            for number in range(40, 4096):\n"
        "                try: os.dup2(file, number), held[-1].register(number, 0), os.close(number)\n"
        "                except OSError: break\n                size += 256\nexcept OSError: pass"
    ),
}
PAIRS = """
import ctypes, fcntl, os, select, socket
libc, held, size = ctypes.CDLL(None), [], 0
libc.mmap.restype = ctypes.c_void_p
def pairs():
    while len(held) < 400:
        try: held.extend(socket.socketpair())
        except OSError: return
        for end in held[-2:]: end.setblocking(False)
        yield from held[-2:]
"""


@at_each_level
@pytest.mark.parametrize("what", KERNEL)
def test_the_kernel_holds_little_for_a_program(sandbox: Sandbox, what: str) -> None:
    result = sandbox.run(f"{PAIRS}\n{KERNEL[what]}\nprint(size)", limits=Limits(seconds=60.0))
    assert result.ok, result
    assert int(result.stdout) <= 32 << 20


@at_each_level
def test_no_lock_is_left_to_the_kernel(sandbox: Sandbox) -> None:
    """The kernel keeps each locked part of a file, and nothing limits their number."""
    program = "import fcntl, time\nfile = open('f', 'w')\n"
    program += "for at in range(3000): fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * at)\ntime.sleep(0.5)\nprint('locked')"
    most = 0
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(sandbox.run, program)
        while not running.done():
            most = max(most, Path("/proc/locks").read_text().count("\n"))
    assert running.result().stdout == "locked\n"
    assert most < 1000


@at_each_level
def test_where_the_buffers_of_sockets_are_large_there_are_no_sockets(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "BUFFERS", 1 << 20)
    with Sandbox(sandbox.config.model_copy(update={"workers": 1})) as other:
        assert other.run("print(6 * 7)").stdout == "42\n"
        assert "PermissionError" in other.run("import socket\nsocket.socketpair()").text


def test_processes_of_one_program_share_its_memory() -> None:
    """Threads are many and processes few; the kernel knows one limit for both."""
    if "namespaces" not in LEVELS:
        with pytest.raises(SandboxError):
            Sandbox(isolation="namespaces")
        return
    sandbox = shared(SandboxConfig(isolation="namespaces"))
    limits = Limits(processes=3, seconds=30.0)
    make = "import os, time\nfor _ in range({made}):\n"
    make += "    if os.fork() == 0:\n        time.sleep({seconds})\n        os._exit(0)\n"
    crowd = sandbox.run(make.format(made=9, seconds=9) + "time.sleep(9)", limits=limits)
    assert crowd.status is Ending.FAILED and crowd.text == "too many processes" and crowd.seconds < 5
    below = "if os.fork() == 0:\n    if os.fork() == 0:\n        os.fork()\n"
    assert sandbox.run("import os, time\n" + below + "time.sleep(9)", limits=limits).text == "too many processes"
    assert (
        sandbox.run(make.format(made=2, seconds=0.3) + "time.sleep(0.3)\nprint('on')", limits=limits).stdout == "on\n"
    )
    ended = make.format(made=6, seconds=0) + "time.sleep(0.3)\nprint('on')"  # and nobody waits for them
    assert sandbox.run(ended.replace("time.sleep(0)\n", "pass\n"), limits=limits).ok
    threads = "import threading, time\nthreading.stack_size(1 << 18)\n"
    threads += "for _ in range(9): threading.Thread(target=time.sleep, args=(0.2,)).start()\nprint('on')"
    assert sandbox.run(threads, limits=limits).stdout == "on\n"


def test_a_folder_is_counted_whole(tmp_path: Path) -> None:
    """Twice a thousand bytes below paths too long for the kernel, once under two names."""
    home, here = os.getcwd(), tmp_path
    os.chdir(here)
    try:
        for _ in range(20):
            os.mkdir("d" * 250)
            os.chdir("d" * 250)
        for name in ("one", "two"):
            with open(name, "wb") as file:
                file.write(bytes(8192))
        os.link("one", "three")
        os.mkdir("closed", 0o000)
        size = os.stat("one").st_blocks * 512
        folders = sum(os.stat(at).st_blocks * 512 for at in ["closed"])
    finally:
        os.chdir(home)
    total, entries = folder.used(str(tmp_path), 256)
    assert entries == 24
    assert 2 * size + folders <= total <= 2 * size + 21 * max(4096, folders)
    assert folder.used(str(tmp_path), 5)[1] == 6
    folder.remove(str(tmp_path))
    assert not tmp_path.exists()
