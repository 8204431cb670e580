"""What a program keeps on disk without a name: files that were deleted while they are open, or mapped.

The kernel tells of them under ``/proc/PID`` to who might trace the program: the same user, of a program whose memory is not
closed to its own user (``PR_SET_DUMPABLE``). Landlock closes it to other programs all the same.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from collections.abc import Iterator


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[bool]:
    """The program stands still meanwhile, so that nothing moves from where is yet to be looked to where was looked.

    Gives False where it has ended.
    """
    os.kill(pid, signal.SIGSTOP)
    state = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    try:
        yield state is not None and state.si_code == os.CLD_STOPPED
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def as_user_of(pid: int) -> Iterator[None]:
    """Root may have no right to trace (a container); then it looks as the user of the program."""
    owner = os.stat(f"/proc/{pid}")
    if os.geteuid() or not owner.st_uid:
        yield
        return
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def deleted(pid: int, folder: str, largest: int) -> int:
    """Bytes on disk of files without a name that a process has open or mapped.

    Of a file that is mapped and not open the kernel tells no size: it counts as ``largest``, and one byte.

    Raises:
        OSError: the process cannot be looked into.
    """
    sizes: dict[int, int] = {}
    with as_user_of(pid):
        thread, maps = _living(pid)
        for name in os.listdir(f"{thread}/fd"):
            with contextlib.suppress(FileNotFoundError):
                state = os.stat(f"{thread}/fd/{name}")
                if stat.S_ISREG(state.st_mode) and state.st_nlink == 0:
                    sizes[state.st_ino] = state.st_blocks * 512
    for line in maps:
        words = line.split(None, 5)
        if len(words) == 6 and words[5].startswith(folder.encode() + b"/") and words[5].endswith(b" (deleted)"):
            sizes.setdefault(int(words[4]), largest + 1)
    return sum(sizes.values())


def _living(pid: int) -> tuple[str, list[bytes]]:
    """The folder of a thread that has not ended, and the mappings of memory: the first thread may end before others."""
    for thread in os.scandir(f"/proc/{pid}/task"):
        with open(f"{thread.path}/maps", "rb") as file:
            maps = file.read().splitlines()
        if maps:
            return thread.path, maps
    raise ProcessLookupError(pid)
