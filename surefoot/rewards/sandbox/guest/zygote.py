"""The warm process: it has imported what programs import, and forks a supervisor for each job. It never reads one."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import site
import sys
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

from . import kernel, landlock, root, stand_ins, supervise
from .frames import read_frame, write_frame

COMMON = """
abc array ast atexit bisect calendar cmath collections collections.abc contextlib copy csv dataclasses datetime
decimal enum fractions functools hashlib heapq importlib io itertools json linecache math numbers operator os pprint
queue random re statistics string struct sys textwrap threading time traceback types typing unicodedata zlib
"""


def main(inlet: int, outlet: int) -> NoReturn:
    """Read what sandbox to build, build it, say so, and serve until the other side closes ``inlet``."""
    os.set_inheritable(inlet, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # process 1 must not have a handler that programs could call
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    spec = read_frame(inlet)
    sys.path += spec["path"]
    try:
        for name in COMMON.split():
            importlib.import_module(name)
        for add in (site.setquit, site.setcopyright, site.sethelper):  # what -S leaves out of a script's names
            add()
        if spec["filter"]:
            stand_ins.install()
        held = _enter(spec, inlet, outlet)
        for name in spec["preload"]:  # inside, for they may start threads
            importlib.import_module(name)
    except BaseException:
        write_frame(outlet, {"failed": traceback.format_exc(limit=-4)})
        os._exit(1)
    gc.collect()
    gc.freeze()  # pages that no child writes to stay shared
    write_frame(outlet, {"ready": True, "landlock": spec["landlock"]})
    _serve(inlet, outlet, spec, held)


def _enter(spec: dict[str, Any], inlet: int, outlet: int) -> int | None:
    """Put up the walls around the zygote itself; those around a program come with each job."""
    spec["landlock"] = bool(spec["landlock"] and landlock.version())
    if not spec["namespaces"]:
        if spec["filter"]:
            kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # /proc/PID of this process is closed to programs
            spec["become_nobody"] = os.geteuid() == 0 and _nobody_can_read(os.path.dirname(os.__file__))
        return None
    proc = root.enter(spec["folder"], spec["readable"])
    pid = os.fork()
    if pid:
        os.close(inlet)
        os.close(outlet)
        os.close(proc)
        os._exit(min(os.waitpid(pid, 0)[1], 1))
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    spec["proc"] = proc
    held = root.hold_processes(proc)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    return held


def _nobody_can_read(folder: str) -> bool:
    """Whether a user without rights can import from there: an interpreter in root's home is closed to others."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1] == 0
    try:
        root.become_nobody()
        os.listdir(folder)
    except OSError:
        os._exit(1)
    os._exit(0)


def _serve(inlet: int, outlet: int, spec: Mapping[str, Any], held: int | None) -> NoReturn:
    poll = select.poll()
    poll.register(inlet, select.POLLIN)
    while True:
        if not any(event & select.POLLIN for _, event in poll.poll()):
            os._exit(0)
        if held is not None:
            root.fresh_processes(held)
        pid = os.fork()
        if pid == 0:
            _supervise(inlet, outlet, spec)
        _, status = os.waitpid(pid, 0)
        if status:
            os._exit(1)  # the supervisor has said why; whoever listens starts another worker


def _supervise(inlet: int, outlet: int, spec: Mapping[str, Any]) -> NoReturn:
    try:
        supervise.run(inlet, outlet, spec)
    except BaseException:
        with contextlib.suppress(OSError):
            write_frame(outlet, {"failed": traceback.format_exc(limit=-3)})
        os._exit(1)
    os._exit(0)
