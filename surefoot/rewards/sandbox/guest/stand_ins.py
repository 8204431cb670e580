"""Two calls of the standard library that the filter refuses, made from what it allows, so that programs go on working."""

from __future__ import annotations

import errno
import mmap
import os
import socket
from collections.abc import Iterable
from typing import Any

forks = False  # whether there may be a process to share memory with
_BOTH = mmap.PROT_READ | mmap.PROT_WRITE


class Mapping(mmap.mmap):
    """Shared memory without a file, which no limit counts: a program alone gets memory that is not shared, and several
    processes share a file without a name, which counts as disk."""

    def __new__(
        cls,
        fileno: int,
        length: int,
        flags: int = mmap.MAP_SHARED,
        prot: int = _BOTH,
        access: int = mmap.ACCESS_DEFAULT,
        *offset: int,
        **more: Any,
    ) -> Mapping:
        if fileno != -1 or not flags & mmap.MAP_SHARED or access == mmap.ACCESS_COPY:
            return super().__new__(cls, fileno, length, flags, prot, access, *offset, **more)
        if forks:
            import tempfile  # much to import, for a worker that never needs it

            with tempfile.TemporaryFile() as file:
                file.truncate(length)
                flags &= ~mmap.MAP_ANONYMOUS
                return super().__new__(cls, file.fileno(), length, flags, prot, access, *offset, **more)
        flags = flags & ~3 | mmap.MAP_PRIVATE  # two bits: shared, private, or shared and checked
        prot = mmap.PROT_READ if access == mmap.ACCESS_READ else prot
        return super().__new__(cls, fileno, length, flags, prot, mmap.ACCESS_DEFAULT, *offset, **more)


def _sendmsg(
    self: socket.socket, buffers: Iterable[Any], ancdata: Iterable[Any] = (), flags: int = 0, address: Any = None, /
) -> int:
    """``asyncio`` sends what waits by it. Files and addresses are not sent."""
    if address is not None or list(ancdata):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    return self.send(b"".join(buffers), flags)


def install() -> None:
    """Put them in the places of the calls."""
    Mapping.__name__, Mapping.__qualname__, Mapping.__module__ = "mmap", "mmap", "mmap"
    mmap.mmap = Mapping  # type: ignore[misc]
    socket.socket.sendmsg = _sendmsg  # type: ignore[method-assign,assignment]
