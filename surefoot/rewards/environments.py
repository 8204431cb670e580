"""Matrices, determinants, vectors, and what stands in ``cases``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from surefoot.rewards.parts import Parts, Value

Read = Callable[[str], Value | Parts]

_ENVIRONMENT = re.compile(
    r"\\begin\{(?P<kind>[pbBvV]?matrix|smallmatrix|array|cases|aligned)\}(?:\{[^{}]*\})?(?P<body>.*)\\end\{(?P=kind)\}",
    re.DOTALL,
)
_PIECE = re.compile(r"^\s*(?:if|for|when|where|若|当)\s*|\s*时$")
_VECTOR = re.compile(r"\s*([+-]?)\s*([^ijk]*?)\s*([ijk])\s*")


def environment(text: str, read: Read) -> Value | Parts | None:
    begin = text.find(r"\begin")
    if begin < 0:
        return None
    label, equals, rest = text.partition("=")
    if equals and len(label) < begin and (found := environment(rest.strip(), read)):
        return replace(found, label="".join(label.split()))
    end = len(text)
    for left, right in (("(", ")"), ("[", "]"), ("|", "|")):
        if text[begin - 1 : begin] == left and text.endswith(right):
            begin, end = begin - 1, end - 1
            break
    match = _ENVIRONMENT.fullmatch(text[begin + (end < len(text)) : end].strip())
    factor = text[:begin].strip().removesuffix(r"\cdot").strip()
    if match is None or "=" in factor:
        return None
    rows = [[cell.strip() for cell in row.split("&")] for row in re.split(r"\\\\", match["body"]) if row.strip()]
    if match["kind"] in ("cases", "aligned"):
        return _cases(rows, read) if not factor else None
    if match["kind"] in ("vmatrix", "Vmatrix") or (end < len(text) and text[begin] == "|"):
        return (
            Value(_expanded(rows))
            if not factor and len(rows) <= 3 and all(len(row) == len(rows) for row in rows)
            else Value(text)
        )
    if factor:
        factor = "-1" if factor == "-" else factor
        rows = [[rf"({factor})\cdot ({cell})" for cell in row] for row in rows]
    made = [[read(cell) for cell in row] for row in rows]
    if len(made) == 1 or all(len(row) == 1 for row in made):
        return Parts("row" if len(made) == 1 else "column", tuple(cell for row in made for cell in row))
    return Parts("matrix", tuple(Parts("()", tuple(row)) for row in made))


def _cases(rows: list[list[str]], read: Read) -> Parts:
    if all(len(row) == 1 for row in rows):
        pairs = [[part.strip() for part in row[0].split(",")] for row in rows]
        if not all(len(pair) == 2 and not re.search("[=<>]", pair[0]) for pair in pairs):
            return Parts("list", tuple(read(row[0].strip(" ,;")) for row in rows))
        rows = pairs
    pieces = [
        Parts("()", (read(row[0].strip(" ,")), read(_PIECE.sub("", " ".join(row[1:])).strip(" ,.;")))) for row in rows
    ]
    return Parts("piecewise", tuple(pieces))


def _expanded(rows: list[list[str]]) -> str:
    """A determinant of at most three rows by its first row."""
    if len(rows) == 1:
        return f"({rows[0][0]})"
    minors = [[row[:k] + row[k + 1 :] for row in rows[1:]] for k in range(len(rows))]
    terms = [rf"({rows[0][k]})\cdot ({_expanded(minor)})" for k, minor in enumerate(minors)]
    return terms[0] + "".join(("-" if k % 2 else "+") + term for k, term in enumerate(terms[1:], start=1))


def vector(text: str, read: Read) -> Parts | None:
    """``3i - 4j + k`` as a column."""
    if not {"i", "j"} <= set(re.sub(r"\\[A-Za-z]+", "", text)):
        return None
    found: dict[str, str] = {}
    for term in re.findall(r"[+-]?[^+-]+", text):
        match = _VECTOR.fullmatch(term)
        if match is None or match[3] in found:
            return None
        found[match[3]] = f"{match[1].strip('+')}{match[2].removesuffix(chr(92) + 'cdot').strip() or '1'}"
    names = "ijk" if "k" in found else "ij"
    return Parts("column", tuple(read(found.get(name, "0")) for name in names))
