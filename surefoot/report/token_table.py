"""Tokens of samples as small integers that a page can hold by the million.

A sample's tokens become the text and, for each token, the number of its characters and of every quantity a whole number:
nats in hundredths, ratios as their logarithm in thousandths. That is finer than a colour and as fine as the eye reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot.report.reading import Record, clean

NATS = ("logp", "logp_start", "entropy")
NONE = -32768
"""Stands for a value that a token does not have."""

_LIMIT = 32767
_EXACT = 2**53  # JavaScript has no larger whole numbers
_ORIGINS = ("policy", "tool", "image", "injected", "prompt")


def token_table(tokens: Any, completion: str) -> Record | None:
    """The tokens of a record for the page; None where it holds none that can be read.

    Args:
        tokens: ``tokens`` of a line of samples/*.jsonl.
        completion: the text of the sample, which is not repeated where the tokens begin with it.

    Returns:
        ``{"rest": text after the completion} or {"text": all of it}``, ``sizes`` in UTF-16 units, and whichever of
        ``logp``, ``entropy`` (nats x 100), ``start``, ``ratio`` (log of the ratio x 1000), ``advantage`` (x 1000),
        ``version``, ``origin`` (index) and ``bounds`` (name -> places) the record has.
    """
    pieces = tokens.get("text") if isinstance(tokens, dict) else None
    if not isinstance(pieces, list) or not pieces or not all(isinstance(piece, str) for piece in pieces):
        return None
    count = len(pieces)
    pieces = [_mended(piece) for piece in pieces]
    text = "".join(pieces)
    table: Record = {"rest": text[len(completion) :]} if text.startswith(completion) else {"text": text}
    table["sizes"] = [_units(piece) for piece in pieces]
    for name in ("logp", "entropy"):
        _put(table, name, _numbers(tokens.get(name), count), 100)
    logp, start = _numbers(tokens.get("logp"), count), _numbers(tokens.get("logp_start"), count)
    if logp is not None and start is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            _put(table, "start", start - logp, 1000)
    ratio = _numbers(tokens.get("ratio"), count)
    if ratio is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            _put(table, "ratio", np.log(ratio), 1000)
    _put(table, "advantage", _numbers(tokens.get("advantage"), count), 1000)
    _put(table, "version", _numbers(tokens.get("version"), count), 1)
    origin = tokens.get("origin")
    if isinstance(origin, list) and len(origin) == count:
        table["origin"] = [_ORIGINS.index(name) if name in _ORIGINS else -1 for name in origin]
    bounds = tokens.get("bounds")
    if isinstance(bounds, dict):
        table["bounds"] = {str(name): _places(found, count) for name, found in bounds.items()}
    return table


def mean_of(table: Record, name: str, scale: float) -> float | None:
    """The mean of a quantity over the tokens that have it."""
    values = [value for value in table.get(name, ()) if value != NONE]
    return round(sum(values) / len(values) / scale, 3) if values else None


def _mended(piece: str) -> str:
    return piece if piece.isascii() and "\0" not in piece else str(clean(piece))


def _units(piece: str) -> int:
    """Length in JavaScript, where a character beyond the first 65,536 counts as two."""
    return len(piece) + sum(c > "\uffff" for c in piece) if not piece.isascii() else len(piece)


def _numbers(values: Any, count: int) -> np.ndarray | None:
    """[T] float64 with NaN for null; None where the list is missing or of another kind."""
    if not isinstance(values, list) or len(values) != count:
        return None
    try:
        found: np.ndarray = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if found.shape == (count,) else None


def _put(table: Record, name: str, values: np.ndarray | None, scale: int) -> None:
    if values is None or not np.isfinite(values).any():
        return
    known = np.isfinite(values)
    whole = np.full(len(values), NONE, dtype=np.int64)
    with np.errstate(over="ignore"):
        whole[known] = np.clip(np.rint(values[known] * scale), -_LIMIT, _LIMIT if scale > 1 else _EXACT)
    table[name] = whole.tolist()


def _places(found: Any, count: int) -> list[int]:
    places = found if isinstance(found, list) else []
    return [at for at in places if isinstance(at, int) and not isinstance(at, bool) and 0 <= at < count]
