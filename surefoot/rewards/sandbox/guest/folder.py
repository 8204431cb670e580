"""The temporary folder of a program where there is no file system of its own: how full it is, and how it goes."""

from __future__ import annotations

import os
import stat


def used(folder: str, entries: int) -> tuple[int, int]:
    """(bytes on disk, number of entries) under the folder; counting stops above ``entries``."""
    total, seen, waiting = 0, 0, [folder]
    while waiting and seen <= entries:
        try:
            with os.scandir(waiting.pop()) as found:
                for entry in found:
                    seen += 1
                    state = entry.stat(follow_symlinks=False)
                    total += state.st_blocks * 512
                    if stat.S_ISDIR(state.st_mode):
                        waiting.append(entry.path)
                    if seen > entries:
                        break
        except OSError:  # the program moves things about, or forbids itself to read
            continue
    return total, seen


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
