"""Programs that attack: each ends in bounded time with the right status, and the pool is whole afterwards."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from surefoot.rewards.sandbox import Ending, Limits, Sandbox
from tests.rewards.sandboxes import at_each_level

SHORT: dict[str, Any] = {"seconds": 0.5}
# name: (program, how it ends, what it prints (None: anything), limits)
ATTACKS: dict[str, tuple[str, Ending, str | None, dict[str, Any]]] = {
    "infinite loop": ("while True: pass", Ending.TIMEOUT, "", SHORT),
    "sleep past the deadline": ("import time\ntime.sleep(60)", Ending.TIMEOUT, "", SHORT),
    "one long call in C": ("sum(range(10**12))", Ending.TIMEOUT, "", SHORT),
    "waits for input for ever": ("import os\nr, w = os.pipe()\nos.read(r, 1)", Ending.TIMEOUT, "", SHORT),
    "10 GB": ("x = bytearray(10 * 2**30)", Ending.MEMORY, "", {}),
    "10 GB, bit by bit": ("x = []\nwhile True: x.append(bytearray(2**24))", Ending.MEMORY, "", {"memory": 2**28}),
    "fork bomb": ("import os\nwhile True: os.fork()", Ending.FAILED, "", {}),
    "fork bomb that insists": (
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        Ending.TIMEOUT,
        "",
        SHORT,
    ),
    "thread bomb": (
        "import threading, time\nthreading.stack_size(1 << 16)\nwhile True:\n"
        "    threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
        Ending.FAILED,
        "",
        {},
    ),
    "1 GB of output": (
        "import sys\nfor _ in range(1 << 14): sys.stdout.write('x' * (1 << 16))",
        Ending.OUTPUT,
        None,
        {},
    ),
    "1 GB on standard error": ("import os\nfor _ in range(1 << 14): os.write(2, b'x' * 65536)", Ending.OUTPUT, "", {}),
    "kills its parent": (
        "import os, signal, time\ntry: os.kill(os.getppid(), signal.SIGKILL)\nexcept OSError: pass\nprint('on')",
        Ending.OK,
        "on\n",
        {},
    ),
    "stops its parent": (
        "import os, signal\ntry: os.kill(os.getppid(), signal.SIGSTOP)\nexcept OSError: pass\nprint('on')",
        Ending.OK,
        "on\n",
        {},
    ),
    "kills everybody": (
        "import os\ntry: os.kill(-1, 9)\nexcept OSError: pass\nprint('on')",
        Ending.OK,
        "on\n",
        {},
    ),
    "kills itself": ("import os\nos.kill(os.getpid(), 9)", Ending.FAILED, "", {}),
    "swallows signals": (
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError):"
        " pass\nwhile True: pass",
        Ending.TIMEOUT,
        "",
        SHORT,
    ),
    "ignores the limit of computing": (
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        Ending.TIMEOUT,
        "",
        {"seconds": 90.0, "cpu_seconds": 1.0},
    ),
    "closes all files": ("import os\nos.closerange(0, 9999)\nprint('x')", Ending.FAILED, "", {}),
    "closes all files, goes on": ("import os\nos.closerange(0, 9999)\nwhile True: pass", Ending.TIMEOUT, "", SHORT),
    "writes to every file descriptor": (
        "import os\nfor fd in range(3, 999):\n    try: os.write(fd, b'\\0\\0\\0\\2{}' * 99)\n"
        "    except OSError: pass\nprint('on')",
        Ending.OK,
        "on\n",
        {},
    ),
    "bytes that are no text": ("import os\nos.write(1, b'\\xff\\xfe!')", Ending.OK, "\ufffd\ufffd!", {}),
    "deep recursion": ("def f(n): return f(n + 1)\nf(0)", Ending.FAILED, "", {}),
    "deep recursion in C": (
        "x = ()\nfor _ in range(3 * 10**6): x = (x,)\nhash(x)",
        Ending.FAILED,
        None,
        {},
    ),
    "source too deep to compile": ("(" * 10000 + ")" * 10000, Ending.COMPILE, "", {}),
    "not Python": ("this is not", Ending.COMPILE, "", {}),
    "a null byte": ("x = 1\0", Ending.COMPILE, "", {}),
    "a crash": ("import ctypes\nctypes.string_at(0)", Ending.FAILED, "", {}),
    "raises at exit": ("import atexit\natexit.register(lambda: 1 / 0)\nprint('on')", Ending.OK, "on\n", {}),
    "never ends a thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()",
        Ending.TIMEOUT,
        "",
        SHORT,
    ),
    "exit code": ("raise SystemExit(3)", Ending.FAILED, "", {}),
    "fills the disk with one file": (
        "with open('x', 'wb') as f:\n    while True: f.write(bytes(1 << 16))",
        Ending.FAILED,
        "",
        {"disk": 1 << 20},
    ),
    "runs a program": ("import subprocess\nsubprocess.run(['/bin/sh', '-c', 'id'])", Ending.FAILED, "", {}),
    "becomes a program": ("import os\nos.execv('/usr/lib/os-release', ['x'])", Ending.FAILED, "", {}),
    "opens a socket": ("import socket\nsocket.socket()", Ending.FAILED, "", {}),
    "opens a Unix socket": ("import socket\nsocket.socket(socket.AF_UNIX)", Ending.FAILED, "", {}),
    "looks a name up": ("import socket\nsocket.getaddrinfo('example.org', 80)", Ending.FAILED, "", {}),
    "reads its parent's memory": ("import os\nopen(f'/proc/{os.getppid()}/mem', 'rb').read(1)", Ending.FAILED, "", {}),
    "reads its parent's files": ("import os\nos.listdir(f'/proc/{os.getppid()}/fd')", Ending.FAILED, "", {}),
    "reads the devices": ("open('/dev/mem', 'rb')", Ending.FAILED, "", {}),
    "reads a home": ("import os\nos.listdir(os.path.expanduser('~root'))", Ending.FAILED, "", {}),
    "reads shadow": ("print(open('/etc/shadow').read())", Ending.FAILED, "", {}),
    "writes into the library": ("import os\nopen(os.__file__, 'a')", Ending.FAILED, "", {}),
    "removes the library": ("import os\nos.unlink(os.__file__)", Ending.FAILED, "", {}),
    "raises its limits": (
        "import resource as r\nfor kind in (r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_FSIZE):\n    r.setrlimit(kind, (-1, -1))",
        Ending.FAILED,
        "",
        {},
    ),
    "limits its parent": (
        "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))",
        Ending.FAILED,
        "",
        {},
    ),
    "patches the runner": (
        "import sys\nfor name, module in list(sys.modules.items()):\n    if name.startswith('guest'):\n"
        "        for key in list(vars(module)): setattr(module, key, None)\nprint('on')",
        Ending.FAILED,
        None,
        {},
    ),
    "leaves by the back door": ("import os\nprint('x', flush=True)\nos._exit(0)", Ending.OK, "x\n", {}),
}


@at_each_level
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_as_it_should(sandbox: Sandbox, name: str) -> None:
    program, ending, printed, limits = ATTACKS[name]
    began = time.monotonic()
    result = sandbox.run(program, limits=Limits(**{"seconds": 90.0, "cpu_seconds": 10.0, **limits}))
    assert result.status is ending, result
    assert time.monotonic() - began < 100
    assert printed is None or result.stdout == printed
    assert len(result.stdout) <= 64 << 10 and len(result.stderr) <= 64 << 10
    assert sandbox.run("print(6 * 7)").stdout == "42\n"


@at_each_level
def test_nothing_outside_is_read_or_written(sandbox: Sandbox, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    secret.chmod(0o666)
    before = secret.stat()
    tries = [
        f"open({str(secret)!r}).read()",
        f"open({str(secret)!r}, 'a').write('x')",
        f"os.truncate({str(secret)!r}, 0)",
        f"os.open({str(secret)!r}, os.O_RDONLY | os.O_TRUNC)",
        f"os.unlink({str(secret)!r})",
        f"os.rename({str(secret)!r}, {str(tmp_path / 'moved')!r})",
        f"os.chmod({str(secret)!r}, 0)",
        f"os.utime({str(secret)!r}, (0, 0))",
        f"os.link({str(secret)!r}, 'link')",
        f"open({str(tmp_path / 'new')!r}, 'w')",
        f"os.mkdir({str(tmp_path / 'new')!r})",
        f"os.mkfifo({str(tmp_path / 'new')!r})",
        f"os.symlink('x', {str(tmp_path / 'new')!r})",
        f"[os.symlink({str(tmp_path)!r}, 'way'), print(open('way/secret').read())]",
        f"[os.symlink({str(secret)!r}, 'way2'), open('way2', 'w')]",
    ]
    body = "\n".join(f"try: print({one})\nexcept OSError: pass" for one in tries)
    result = sandbox.run("import os\n" + body)
    assert result.ok and "secret" not in result.stdout, result
    assert os.listdir(tmp_path) == ["secret"]
    after = secret.stat()
    assert secret.read_text() == "a secret"
    assert (after.st_mode, after.st_mtime_ns, after.st_nlink) == (before.st_mode, before.st_mtime_ns, 1)


@at_each_level
def test_no_server_of_the_machine_is_reached(sandbox: Sandbox) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        result = sandbox.run(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)")
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert result.status is Ending.FAILED


@at_each_level
def test_no_datagram_reaches_a_socket_of_the_machine(sandbox: Sandbox, tmp_path: Path) -> None:
    """By a path and by a name, and by every call that takes an address."""
    tmp_path.chmod(0o777)
    path, name = str(tmp_path / "server"), f"\0surefoot-{os.getpid()}"
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) for _ in range(2)]
        for server, address in zip(servers, (path, name), strict=True):
            server.bind(address)
            server.setblocking(False)
        os.chmod(path, 0o666)
        tries = [
            f"{end}.{call}"
            for address in (path, name)
            for end in ("datagram", "raw", "packet", "stream")
            for call in (
                f"sendto(b'x', {address!r})",
                f"sendto(b'x', socket.MSG_DONTWAIT, {address!r})",
                f"sendmsg([b'x'], [], 0, {address!r})",
                f"connect({address!r}), {end}().send(b'x')",
                f"bind({address + 'mine'!r})",
            )
        ]
        kinds = {"datagram": "DGRAM", "raw": "RAW", "packet": "SEQPACKET", "stream": "STREAM"}
        body = "import socket, _socket\n"
        for end, kind in kinds.items():
            body += f"def {end}(): return socket.socketpair(socket.AF_UNIX, socket.SOCK_{kind})[0]\n"
        for one in tries:
            end, _, call = one.partition(".")
            body += f"try: print({end}().{call})\nexcept OSError as error: assert error.errno != 22\n"
        body += "_socket.socket.sendmsg\n"
        for address in (path, name):  # past the class of the standard library
            body += f"for kind in (1, 2, 3, 5):\n    try: _socket.socketpair(1, kind)[0].sendmsg([b'x'], [], 0, {address!r})\n"
            body += "    except OSError: pass\n"
        result = sandbox.run(body)
        assert result.ok and result.stdout == "", result
        for server in servers:
            with pytest.raises(BlockingIOError):
                server.recv(9)


@at_each_level
def test_the_temporary_folder_has_a_limit_and_goes(sandbox: Sandbox) -> None:
    limits = Limits(disk=1 << 20, entries=64, seconds=20)
    files = "n = 0\nwhile True:\n    n += 1\n    with open(f'f{n}', 'wb') as f: f.write(bytes(1 << 15))"
    empty = "n = 0\nwhile True:\n    n += 1\n    open(f'f{n}', 'w').close()"
    nested = "import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')"
    for program in (files, empty, nested):
        assert sandbox.run(program, limits=limits).status in (Ending.DISK, Ending.FAILED)
    hidden = "import os\nos.mkdir('d')\nopen('d/x', 'w')\nos.symlink('/usr', 'd/usr')\nos.chmod('d', 0)\nprint(os.listdir('.'))"
    assert sandbox.run(hidden).stdout == "['d']\n"
    assert sandbox.run("import os\nprint(os.listdir('.'))").stdout == "[]\n"
    assert Path("/usr/lib").is_dir()


@at_each_level
def test_nothing_of_one_program_reaches_the_next(sandbox: Sandbox) -> None:
    one = Sandbox(sandbox.config.model_copy(update={"workers": 1}))
    with one:
        token = "token" + str(time.time_ns())
        leave = f"import sys, builtins, os, random\nsys.modules['left'] = builtins.left = '{token}'\nos.environ['X'] = '1'\n"
        assert one.run(leave + "open('/tmp/left' if os.getcwd() == '/tmp' else 'left', 'w').write('x')", token).ok
        find = (
            "import builtins, gc, os, sys\n"
            "texts = [x for x in gc.get_objects() if isinstance(x, (dict, list))]\n"
            f"mark = 'tok' + 'en{token[5:]}'\n"
            "print(hasattr(builtins, 'left'), 'left' in sys.modules, dict(os.environ), os.listdir('.'))\n"
            "print(sum(mark in str(x.values()) for x in texts if isinstance(x, dict) and x is not globals()))\n"
        )
        result = one.run(find)
        assert result.stdout == "False False {} []\n0\n", result


@at_each_level
def test_what_is_left_running_is_ended(sandbox: Sandbox) -> None:
    """A daemon holds the pipes open and goes on; where processes are allowed at all."""
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\n    os._exit(0)\nprint('left')"
    if sandbox.isolation != "namespaces":
        assert sandbox.run(daemon).status is Ending.FAILED
        return
    began = time.monotonic()
    result = sandbox.run(daemon, limits=Limits(processes=4, seconds=30))
    assert result.ok and result.stdout == "left\n"
    assert time.monotonic() - began < 25
    bomb = "import os\nwhile True: os.fork()"
    assert sandbox.run(bomb, limits=Limits(processes=4, seconds=2)).status in (Ending.FAILED, Ending.TIMEOUT)
    count = "import os, time\ntry:\n    while True:\n        if os.fork() == 0: time.sleep(9), os._exit(0)\n"
    count += "        os.write(1, b'x')\nexcept OSError: time.sleep(9)"
    result = sandbox.run(count, limits=Limits(processes=4, threads=0, seconds=30))
    assert result.status is Ending.FAILED and 0 < len(result.stdout) <= 8  # the kernel's bound, before the first look


@at_each_level
def test_no_process_and_no_folder_stays(sandbox: Sandbox) -> None:
    with Sandbox(sandbox.config.model_copy(update={"workers": 1})) as one:
        one.run("while True: pass", limits=Limits(seconds=0.2))
        (worker,) = one._started
        folder, process = Path(worker.folder), worker.process
        assert folder.exists() and process.poll() is None
        assert list(folder.iterdir()) == []
    assert not folder.exists() and process.poll() is not None
