"""Namespaces of the zygote's own: users, mounts, processes, network, IPC and host name, and a root with little in it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Sequence

from . import kernel

_ALL = kernel.NEWUSER | kernel.NEWNS | kernel.NEWPID | kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS
_DEVICES = ("null", "urandom")  # not "zero": to map it is shared memory that no limit counts
_MOUNT_SETATTR = 442
_RECURSIVE = 0x8000
_READ_ONLY = 1 | 2 | 4  # and no set-user-id programs, no devices


def enter(folder: str, readable: Sequence[str]) -> int:
    """Leave the machine's namespaces for new ones, whose file system holds ``readable`` (read-only) and no more.

    Root builds the file system first and then becomes a user without rights; anybody else builds it with the rights of
    the new user namespace. The process itself stays outside the new process namespace: its first child is process 1.

    Args:
        folder: an empty folder, on which the new root is mounted (in the new namespace only).

    Returns:
        A file descriptor of the machine's /proc, for :func:`hold_processes` and :func:`living_below`.

    Raises:
        OSError: the kernel allows no namespaces here.
    """
    proc = os.open("/proc", os.O_DIRECTORY | os.O_CLOEXEC)
    if os.geteuid() == 0:
        kernel.unshare(kernel.NEWNS)
        _build(folder, readable)
        become_nobody()
        _leave(proc)
    else:
        _leave(proc)
        _build(folder, readable)
    return proc


def hold_processes(proc: int) -> int:
    """A file descriptor of the caller's process namespace."""
    return os.open("self/ns/pid", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)


def living_below(proc: int) -> int:
    """How many processes descend from the caller and have not ended, by the machine's /proc: it has their numbers there.

    Raises:
        OSError: a kernel that does not list children (``CONFIG_PROC_CHILDREN``).
    """
    below = _children(proc, os.readlink("self", dir_fd=proc))
    living = 0
    while below:
        one = below.pop()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            living += _text(proc, f"{one}/stat").rpartition(")")[2].split()[0] != "Z"
            below += _children(proc, one)
    return living


def _children(proc: int, pid: str) -> list[str]:
    tasks = os.open(f"{pid}/task", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return [one for task in os.listdir(tasks) for one in _text(tasks, f"{task}/children").split()]
    finally:
        os.close(tasks)


def _text(folder: int, path: str) -> str:
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), encoding="utf-8", errors="replace") as file:
        return file.read()


def fresh_processes(held: int) -> None:
    """The next child is process 1 of a new process namespace."""
    kernel.setns(held, kernel.NEWPID)
    kernel.unshare(kernel.NEWPID)


def fresh_tmp(size: int, entries: int) -> None:
    """An empty /tmp in memory of at most ``size`` bytes, seen by this process and its children only."""
    kernel.unshare(kernel.NEWNS)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("tmpfs", "/tmp", "tmpfs", flags, f"size={size},nr_inodes={entries},mode=700")


def become_nobody() -> None:
    """Give up root for a user number that nobody else has: limits are counted per user."""
    os.setgroups([])
    for user in (1_000_000_000 + os.getpid(), 65534):
        try:
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            break
        except OSError:  # a container may map a few users only
            if user == 65534:
                raise
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # else /proc/self belongs to root


def _leave(proc: int) -> None:
    """Enter new namespaces; the user keeps its number in the new one."""
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(_ALL)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        fd = os.open(f"self/{name}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def _build(folder: str, readable: Sequence[str]) -> None:
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", folder, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")
    for path in readable:
        inside = folder + path
        if os.path.islink(path) and not os.path.lexists(inside):
            os.makedirs(os.path.dirname(inside), mode=0o755, exist_ok=True)
            os.symlink(os.readlink(path), inside)
        elif os.path.isdir(path) and not os.path.isdir(inside):
            os.makedirs(inside, mode=0o755)
            kernel.mount(path, inside, None, kernel.MS_BIND | kernel.MS_REC)
            _set_read_only(inside)
    os.makedirs(folder + "/tmp", mode=0o755, exist_ok=True)
    os.mkdir(folder + "/dev", mode=0o755)
    os.symlink("/tmp", folder + "/dev/shm")  # semaphores and shared memory have the size of the temporary folder
    for name in _DEVICES:
        os.close(os.open(f"{folder}/dev/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
        kernel.mount(f"/dev/{name}", f"{folder}/dev/{name}", None, kernel.MS_BIND)
    os.chdir(folder)
    kernel.pivot_root(".", ".")
    kernel.detach(".")
    os.chdir("/")
    flags = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("none", "/", None, flags)


def _set_read_only(path: str) -> None:
    attributes = ctypes.create_string_buffer(struct.pack("=QQQQ", _READ_ONLY, 0, 0, 0), 32)
    kernel.call(_MOUNT_SETATTR, -100, path.encode(), _RECURSIVE, attributes, 32)
