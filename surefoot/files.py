"""Writing files so that a process killed at any moment leaves the old content or the new, never half of it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from surefoot.errors import RunFolderError

_OS_ERROR = re.compile(r"os error (\d+)")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals (full disk, no permission, a file in the way) into one line that names the path.

    Safetensors reports them as errors of its own, with the number in the text.
    """
    try:
        yield
    except Exception as error:
        number = _number(error)
        if number is None:
            raise
        if number in (errno.ENOSPC, errno.EDQUOT):
            raise RunFolderError(
                f"no space left while writing {path}: free some, or set 'runs' to another disk"
            ) from error
        raise RunFolderError(
            f"cannot write {path} ({os.strerror(number)}): set 'runs' to a folder you may write"
        ) from error


def _number(error: Exception) -> int | None:
    """The operating system's number of an error; None for errors of any other kind."""
    if isinstance(error, OSError):
        return error.errno
    found = _OS_ERROR.search(str(error)) if type(error).__name__ == "SafetensorError" else None
    return int(found[1]) if found else None


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file by writing its neighbour, flushing it to disk and renaming it over the old one, whose permissions it keeps."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with explained(path):
        try:
            data = content.encode() if isinstance(content, str) else content
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if path.is_file():
                shutil.copymode(path, temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def write_folder_atomic(path: Path, fill: Callable[[Path], None]) -> None:
    """Make the folder ``path`` whole or not at all: ``fill`` writes into a hidden neighbour that is then renamed.

    An existing folder of that name is moved aside first and removed last: a process killed between the two renames leaves
    it under its hidden name, so give folders that a resume depends on names of their own (``step-000010``).
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    aside = path.with_name(f".{path.name}.{os.getpid()}.old")
    with explained(path):
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            fill(temporary)
            for file in temporary.rglob("*"):
                if file.is_file():
                    with open(file, "rb") as handle:
                        os.fsync(handle.fileno())
            if path.exists():
                os.replace(path, aside)
            os.replace(temporary, path)
            sync_folder(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.rmtree(aside, ignore_errors=True)


def sync_folder(path: Path) -> None:
    """Flush a folder's own entries, so that a rename survives a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """Append records to a JSON-lines file in one write."""
    if not records:
        return
    with explained(path), open(path, "a", encoding="utf-8") as file:
        file.write("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def sync_file(path: Path) -> None:
    """Flush a file's content to disk, where there is one."""
    if path.exists():
        with open(path, "rb") as handle:
            os.fsync(handle.fileno())


def numbered_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records of a JSON-lines file with the numbers of their lines, from 1 on; none where there is no file.

    A torn last line (the writer was killed) is left out.

    Raises:
        RunFolderError: a file that cannot be read, or another line that is not a JSON object.
    """
    if not path.exists():
        return
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read ({error.strerror or error})") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:  # also a character that was cut in two
            if number == len(lines):
                break
            raise RunFolderError(f"{path}, line {number} is damaged, it is not JSON ({error})") from error
        if not isinstance(record, dict):
            start = line[:40].decode(errors="replace")
            raise RunFolderError(f"{path}, line {number} is damaged: expected a JSON object, found {start!r}")
        yield number, record


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a JSON-lines file; reads and raises as :func:`numbered_lines` does."""
    return [record for _, record in numbered_lines(path)]


def mend_lines(path: Path) -> None:
    """Take a torn last line off a JSON-lines file, which a killed writer may have left and the next line would be glued to."""
    if path.exists():
        with explained(path):
            whole, _, last = path.read_bytes().rpartition(b"\n")
        if last.strip():
            kept = whole.split(b"\n") if whole else []
            write_atomic(path, b"\n".join([*kept, *([last] if _is_json(last) else []), b""]))


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


@contextmanager
def only_writer(folder: Path, doing: str = "running") -> Iterator[None]:
    """A context in which no other command writes the folder, which is made where it is not there.

    Args:
        folder: to be written.
        doing: what a command does there, for the message.

    Raises:
        RunFolderError: another command is at it, or it cannot be written.
    """
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / ".lock").open("a", encoding="utf-8")
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunFolderError(
                f"another command is {doing} in {folder}: wait for it, or give another name or folder"
            ) from None
        yield
