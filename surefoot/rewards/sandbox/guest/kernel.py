"""The system calls that Python 3.11 does not wrap, by ctypes."""

from __future__ import annotations

import ctypes
import os

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x00020000,
    0x04000000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER = 1, 4, 38, 36
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
CAPSET = {"x86_64": 126, "aarch64": 91}

_libc = ctypes.CDLL(None, use_errno=True)
machine = os.uname().machine


class Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def call(number: int, *arguments: int | bytes | ctypes._CData | None) -> int:
    """A raw system call.

    Raises:
        OSError: what the kernel said.
    """
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result = _libc.syscall(ctypes.c_long(number), *words)
    return _checked(result, f"system call {number}")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def setns(fd: int, flags: int) -> None:
    _checked(_libc.setns(ctypes.c_int(fd), ctypes.c_int(flags)), "setns")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [text.encode() if text is not None else None for text in (source, target, kind, data)]
    result = _libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
    _checked(result, f"mount of {target}")


def detach(target: str) -> None:
    _checked(_libc.umount2(target.encode(), ctypes.c_int(MNT_DETACH)), f"umount of {target}")


def pivot_root(new: str, old: str) -> None:
    call(PIVOT_ROOT[machine], new.encode(), old.encode())


def prctl(option: int, value: int = 0, third: ctypes.Array[ctypes.c_char] | int = 0) -> int:
    last = ctypes.c_ulong(third) if isinstance(third, int) else third
    zero = ctypes.c_ulong(0)
    return _checked(_libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), last, zero, zero), f"prctl {option}")


def drop_capabilities() -> None:
    """No capability is left, and without privileges by exec none comes back."""
    header = Header(0x20080522, 0)
    call(CAPSET[machine], ctypes.byref(header), ctypes.create_string_buffer(24))  # type: ignore[arg-type]


def _checked(result: int, what: str) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
