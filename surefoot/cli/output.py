"""Where words go: a console of a width that they fit into, and standard output and error that never end a run.

A reader that has gone or a full disk costs the words, not the work.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, TextIO

from rich.console import Console

# Characters that steer a terminal or turn the direction of a line, of which a text by somebody else has no need.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
NARROWEST = 40  # columns; below it a terminal that wraps lines itself reads better than trees and tables that do
UNKNOWN = 80  # columns, where a terminal says that it has none


def harmless(text: str) -> str:
    r"""The text with what steers a terminal written out; line ends and tabs stay.

    >>> print(harmless("\x1b[2J \u202e"))
    \x1b[2J \u202e
    """
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def console() -> Console:
    """Standard output for what has a layout, as wide as the terminal (``COLUMNS``), but never under 40 columns."""
    found = Console()
    if found.width < NARROWEST:
        found.width = NARROWEST if found.width > 0 else UNKNOWN
    return found


def say(line: str, stream: IO[str] | None = None) -> None:
    """Print a line (to standard output), see :func:`folded`."""
    stream = stream or sys.stdout
    print(folded(line, stream), file=stream)


def folded(line: str, stream: IO[str]) -> str:
    """A line broken between words where a terminal would break it within one, indented as it is itself.

    Files and pipes get it whole, for programs that read a line at a time. Words, such as paths, are never broken.
    """
    if not stream.isatty():
        return line
    width = max(shutil.get_terminal_size((UNKNOWN, 24)).columns, NARROWEST)
    indent = line[: len(line) - len(line.lstrip())]
    kept = line.replace(" = ", "\xa0=\xa0").replace(" %", "\xa0%")  # a number is not parted from what it belongs to
    lines = textwrap.wrap(kept, width, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\xa0", " ")


class Forgiving:
    """A text stream that remembers the first error of the stream below, and from then on writes nowhere.

    Args:
        stream: the stream below; everything but writing is its own.

    Attributes:
        error: what went wrong; None while all is well.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        if self.error is None:
            try:
                self.stream.write(text)
            except UnicodeEncodeError:
                encoding = self.stream.encoding or "ascii"
                self.write(text.encode(encoding, "backslashreplace").decode(encoding))
            except OSError as error:
                self._give_up(error)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self.error is None:
            try:
                self.stream.flush()
            except OSError as error:
                self._give_up(error)

    @property
    def lost(self) -> str:
        """Why words were lost, or "" where none were or where their reader had enough."""
        return "" if self.error is None or self.error.errno == errno.EPIPE else str(self.error.strerror)

    def _give_up(self, error: OSError) -> None:
        """What is still in the buffer of the stream goes nowhere too, or Python would try again when it ends."""
        self.error = error
        with suppress(OSError), open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), self.stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def forgiving_output() -> Iterator[Forgiving]:
    """Make standard output and error forgiving for a while; gives standard output."""
    before = sys.stdout, sys.stderr
    out, err = (Forgiving(stream if stream is not None else open(os.devnull, "w")) for stream in before)  # noqa: SIM115
    sys.stdout, sys.stderr = out, err
    try:
        yield out
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = before
