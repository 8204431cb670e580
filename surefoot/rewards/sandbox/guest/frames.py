"""Messages over a pipe: a length of four bytes, then JSON. Never pickle, never code."""

from __future__ import annotations

import json
import os
from typing import Any

LARGEST = 256 << 20


class Closed(Exception):
    """The other side is gone, or has written something that is no message."""


def write_frame(fd: int, message: Any) -> None:
    """Write one message.

    Raises:
        OSError: the other side has closed the pipe.
    """
    body = json.dumps(message, ensure_ascii=True).encode("ascii")
    write_all(fd, len(body).to_bytes(4, "big") + body)


def read_frame(fd: int, limit: int = LARGEST) -> Any:
    """Read one message of at most ``limit`` bytes.

    Raises:
        Closed: end of file, a length above the limit, or no JSON.
    """
    size = int.from_bytes(read_exactly(fd, 4), "big")
    if size > limit:
        raise Closed(f"a message of {size} bytes, {limit} allowed")
    body = read_exactly(fd, size)
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Closed(f"not JSON: {error}") from None


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_exactly(fd: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(fd, min(size, 1 << 20))
        if not part:
            raise Closed("end of file")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
