"""Brackets in an answer: what they hold, and what stands outside of all."""

from __future__ import annotations

import re
from collections.abc import Callable

_OPEN, _CLOSE = ("(", "[", r"\{"), (")", "]", r"\}")


def bracketed(text: str) -> tuple[str, str, str] | None:
    """The brackets around the whole text and what is in them."""
    left = next((b for b in _OPEN if text.startswith(b)), None)
    right = next((b for b in _CLOSE if text.endswith(b)), None)
    if left is None or right is None or (left == r"\{") != (right == r"\}"):
        return None
    depth = 0
    for place, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if depth == 0 and place < len(text) - 1 and not (left == r"\{" and place == 0):
            return None
    return left, right, text[len(left) : -len(right)]


def outside(text: str, change: Callable[[str], str]) -> str:
    """Change the pieces of a text that stand in no brackets."""
    made: list[str] = []
    piece: list[str] = []
    depth = 0
    for c in text:
        if c in "([{" and depth == 0:
            made.append(change("".join(piece)))
            piece = []
        piece.append(c)
        depth += (c in "([{") - (c in ")]}")
        if c in ")]}" and depth == 0:
            made.append("".join(piece))
            piece = []
    return "".join(made) + (change("".join(piece)) if depth == 0 else "".join(piece))


def split(text: str, marks: str, words: re.Pattern[str] | None) -> list[str]:
    """The parts of a text between these characters and words, where they stand in no brackets."""
    spans = {match.start(): match.end() for match in words.finditer(text)} if words else {}
    parts, begun, depth, place = [], 0, 0, 0
    while place < len(text):
        c = text[place]
        depth += (c in "([{") - (c in ")]}")
        if depth == 0 and (c in marks or place in spans):
            parts.append(text[begun:place].strip())
            begun = spans.get(place, place + 1)
            place = begun
        else:
            place += 1
    return [*parts, text[begun:].strip()]
