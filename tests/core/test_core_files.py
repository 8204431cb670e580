"""Files are written whole or not at all: after an exception, a full disk, a folder without permission."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot import files
from surefoot.errors import RunFolderError
from surefoot.files import append_lines, explained, read_lines, write_atomic, write_folder_atomic


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_write_atomic_writes_text_and_bytes_over_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, "eins ä")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert listing(tmp_path) == ["file"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_the_old_file_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")

    def full(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(RunFolderError, match=r"no space left while writing .*file: free some, or set 'runs'"):
        write_atomic(path, "new" * 1000)
    assert path.read_text() == "old"
    assert listing(tmp_path) == ["file"]


def test_a_full_disk_leaves_no_folder(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "a").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(RunFolderError, match=r"no space left"):
        write_folder_atomic(tmp_path / "state", fill)
    assert listing(tmp_path) == []


def test_an_exception_while_filling_leaves_the_old_folder(tmp_path: Path) -> None:
    write_folder_atomic(tmp_path / "state", lambda folder: (folder / "a").write_text("old") and None)

    def fill(folder: Path) -> None:
        (folder / "a").write_text("new")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_folder_atomic(tmp_path / "state", fill)
    assert listing(tmp_path) == ["state", "state/a"]
    assert (tmp_path / "state" / "a").read_text() == "old"


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    write_folder_atomic(tmp_path / "state", lambda folder: (folder / "a").write_text("old") and None)
    write_folder_atomic(tmp_path / "state", lambda folder: (folder / "b").write_text("new") and None)
    assert listing(tmp_path) == ["state", "state/b"]


def test_a_writer_killed_at_any_point_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    """Kill -9 in the middle of the write, of the flush and just before the rename."""
    path = tmp_path / "file"
    for point in ("write", "fsync", "replace"):
        write_atomic(path, "old")
        code = f"""
            import os, signal, builtins
            from pathlib import Path
            from surefoot import files
            def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
            if {point!r} == "write":
                real = builtins.open
                class Torn:
                    def __init__(self, file): self.file = file
                    def __enter__(self): return self
                    def __exit__(self, *e): pass
                    def write(self, data): self.file.write(data[:2]); self.file.flush(); die()
                files.open = lambda *a, **k: Torn(real(*a, **k))
            else:
                setattr(files.os, {point!r}, die)
            files.write_atomic(Path({str(path)!r}), "new content")
        """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, check=False)
        assert done.returncode == -9, done.stderr
        assert path.read_text() == "old"


def test_no_permission_names_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(RunFolderError, match=r"cannot write .*: set 'runs' to a folder you may write"),
        explained(tmp_path),
    ):
        raise PermissionError(errno.EACCES, "Permission denied")
    blocker = tmp_path / "blocker"
    blocker.write_text("a file where a folder should be")
    with pytest.raises(RunFolderError, match="cannot write"):
        write_folder_atomic(blocker / "state", lambda folder: None)


def test_every_refusal_of_the_operating_system_is_a_line_and_other_errors_keep_their_type(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="No such file or directory"):
        write_atomic(tmp_path / "nowhere" / "file", "x")
    with pytest.raises(ZeroDivisionError), explained(tmp_path):
        raise ZeroDivisionError


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(
        st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), values, max_size=3), max_size=5
    )
)
def test_lines_are_read_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, object]]
) -> None:
    path = tmp_path_factory.mktemp("lines") / "file.jsonl"
    append_lines(path, records[:2])
    append_lines(path, records[2:])
    assert read_lines(path) == records


def test_a_torn_last_line_is_left_out_and_a_torn_middle_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    whole = json.dumps({"a": 1}) + "\n"
    path.write_text(whole + '{"a": ')
    assert read_lines(path) == [{"a": 1}]
    path.write_text(whole + '{"a": \n' + whole)
    with pytest.raises(RunFolderError, match="line 2"):
        read_lines(path)
    assert read_lines(tmp_path / "missing.jsonl") == []
