"""Matching by regular expression, as a job of a worker process: an expression may backtrack for ever."""

from __future__ import annotations

import functools
import re


def full_match(pattern: str, text: str, case: bool) -> bool:
    """Whether the expression matches the whole text."""
    return compiled(pattern, case).fullmatch(text) is not None


@functools.lru_cache(maxsize=1024)
def compiled(pattern: str, case: bool) -> re.Pattern[str]:
    return re.compile(pattern, re.NOFLAG if case else re.IGNORECASE)
