"""Landlock: files outside the named folders cannot be opened (kernel documentation, ``userspace-api/landlock.rst``)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence

from . import kernel

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every machine
_READ = 0b1100  # read a file, list a folder
_FILES = (1 << 13) - 1  # what the first version knows
_OF_FILES = 0b0110  # write, read: the rights that a rule on a file may have
_NEWER = ((2, 1 << 13), (3, 1 << 14), (5, 1 << 15))  # refer, truncate, ioctl on devices
_SPECIAL_FILES = 1 | 1 << 6 | 1 << 11  # execute, make character and block devices


def version() -> int:
    """The version of Landlock's interface that the kernel speaks; 0 for none."""
    try:
        return kernel.call(_CREATE, None, 0, 1)
    except OSError:
        return 0


def restrict(readable: Sequence[str], writable: Sequence[str]) -> None:
    """Confine the calling process to these folders and files, for ever.

    TCP (version 4), signals to and abstract sockets of others (version 6) are cut off too where the kernel can.

    Raises:
        OSError: the kernel has no Landlock.
    """
    known = version()
    files = _FILES
    for since, right in _NEWER:
        files |= right if known >= since else 0
    rules = struct.pack("=QQQ", files, 3 if known >= 4 else 0, 3 if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    ruleset = kernel.call(_CREATE, ctypes.create_string_buffer(rules[:size], size), size, 0)
    try:
        for path in readable:
            _allow(ruleset, path, _READ)
        for path in writable:
            _allow(ruleset, path, files & ~_SPECIAL_FILES)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.call(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _OF_FILES
        kernel.call(_ADD, ruleset, 1, ctypes.create_string_buffer(struct.pack("=QI", rights, fd), 12), 0)
    finally:
        os.close(fd)
