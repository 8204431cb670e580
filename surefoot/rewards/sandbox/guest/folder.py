"""The temporary folder of a program where there is no file system of its own: how full it is, and how it goes."""

from __future__ import annotations

import contextlib
import os
import stat

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def used(folder: str, entries: int) -> tuple[int, int]:
    """(bytes on disk, number of entries) under the folder; counting stops above ``entries``.

    A file with several names counts once. Folders are opened one from another, so no path is too long.
    """
    sizes: dict[int, int] = {}
    seen, waiting = 0, [os.open(folder, _FOLDER)]
    try:
        while waiting and seen <= entries:
            here = waiting.pop()
            try:
                for name in os.listdir(here):
                    seen += 1
                    with contextlib.suppress(FileNotFoundError):
                        state = os.lstat(name, dir_fd=here)
                        sizes[state.st_ino] = state.st_blocks * 512
                        if stat.S_ISDIR(state.st_mode):
                            waiting.append(_open(name, here, state.st_mode))
                    if seen > entries:
                        break
            finally:
                os.close(here)
    finally:
        for left in waiting:
            os.close(left)
    return sum(sizes.values()), seen


def _open(name: str, above: int, mode: int) -> int:
    """A folder that its owner has closed to itself is opened again."""
    if mode & 0o700 != 0o700:
        os.chmod(name, mode & 0o777 | 0o700, dir_fd=above)
    return os.open(name, _FOLDER, dir_fd=above)


def remove(folder: str) -> None:
    """Delete a folder whatever is in it. Links are not followed, and no nesting is too deep.

    Every folder found is moved up to the top before it is looked into, so no path grows long.
    """
    number, again = 0, True
    while again:
        again = False
        for name in _names(folder):
            path = os.path.join(folder, name)
            if not _is_folder(path):
                os.unlink(path)
                continue
            os.chmod(path, 0o700)
            for inner in os.listdir(path):
                below = os.path.join(path, inner)
                if _is_folder(below):
                    os.chmod(below, 0o700)
                    number += 1
                    os.rename(below, os.path.join(folder, f".{number}-{os.urandom(8).hex()}"))
                    again = True
                else:
                    os.unlink(below)
            os.rmdir(path)
    os.rmdir(folder)


def _names(folder: str) -> list[str]:
    os.chmod(folder, 0o700)
    return os.listdir(folder)


def _is_folder(path: str) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode)
