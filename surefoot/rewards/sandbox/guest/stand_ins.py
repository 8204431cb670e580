"""Two calls of the standard library that the filter refuses, made from what it allows, so that programs go on working."""

from __future__ import annotations

import errno
import mmap
import os
import socket
import tempfile
from collections.abc import Iterable
from typing import Any

_mmap = mmap.mmap


class Mapping(mmap.mmap):
    """Shared memory without a file is one with a file that has no name: it counts as disk, where other memory counts."""

    def __new__(cls, fileno: int, length: int, *arguments: Any, **options: Any) -> Mapping:
        flags = arguments[0] if arguments else options.get("flags", mmap.MAP_SHARED)
        if fileno != -1 or not flags & mmap.MAP_SHARED:
            return super().__new__(cls, fileno, length, *arguments, **options)
        with tempfile.TemporaryFile() as file:
            file.truncate(length)
            flags &= ~mmap.MAP_ANONYMOUS
            options["flags"] = flags
            return super().__new__(cls, file.fileno(), length, *arguments[1:], **options)


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
