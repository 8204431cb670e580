r"""Numbers in text: finding the last one and reading it exactly.

==============  ====================================================================================================
digits          of ASCII, and full-width ones (``１２``); those of other scripts are not read
integer         ``12``, in groups of thousands ``1,234`` ``1 234 567`` ``1'234`` ``1{,}234`` ``1\,234`` ``1,23,456``
decimal         ``1.5``, ``.5``; a comma is one only behind groups (``1.234,5``): ``12,13`` is a list, and its parts
fraction        ``3/4``, ``3 / 4``, ``½``, ``\frac{3}{4}``, ``4分之3``, ``四分之三``
mixed           ``1 1/4``, ``1½``, ``1-1/2``, ``1 and 1/2``, ``2 and a half``, ``1\frac{1}{4}``, ``1又1/4``, ``2个半``
recurring       ``0.\overline{3}``, ``0.(3)``
power           ``1e-3``, ``1.5 x 10^3``, ``1.5×10³``, ``1.5 \times 10^{3}``, ``2^10``
multiplier      ``1.2万``, ``1亿2000万``, ``5 thousand``, ``1.5 million``, ``10k``; behind a currency also ``$1.5M``
Chinese         numerals of two signs or more (``一百二十三``, ``二十点五``); ``百分之二十`` is 20, as ``20%`` is
sign            ``-``, ``+`` and their other forms, ``-$5``, ``= - 5``, ``negative 5``, ``负5``; ``±5`` is two values
==============  ====================================================================================================

A hyphen counts as a sign only where no digit, letter or closing bracket stands before it (``5-3`` holds 5 and 3). Units,
currencies and per cent signs beside a number are no part of it. Words (twelve, 三) are not read. What looks like a number
and is none is passed over: ``1.2.3``, ``2024/01/02``, ``2024-01-02``, ``10:30``, ``1_000``, the 2 of ``x2``, ``x_2`` and
``m^2``; and so is a number that the text denies (``not 12``, ``rather than 12``, ``不是12``). What begins with a number or
has one in it and is another one has no value: ``\sqrt{2}``, ``2π``, ``(1/2)^3``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from surefoot.tasks.numeral_forms import plain
from surefoot.tasks.numeral_grammar import DENIED, GOES_ON, KINDS, SUBTRACTED, TOKEN
from surefoot.tasks.numeral_values import DECIMAL, GROUPED, decimal, fraction, value_of

_DECIMAL_COMMA = re.compile(r"[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+")
_WORDS = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "k": 10**3}
_PAID = {"K": 10**3, "M": 10**6, "B": 10**9}
_WINDOW = 24

PIECE = 20_000
"""Characters that are looked through at once."""


@dataclass(frozen=True)
class Numeral:
    """A number as it was written.

    Attributes:
        text: without groups of thousands and without a plus sign, the minus as a hyphen.
        value: exact; None where it is no number that can be computed with (``3/0``, ``1e999999``, ``2π``).
    """

    text: str
    value: Fraction | None


def last_numeral(text: str) -> Numeral | None:
    """The last number of a text, or None. No number goes over the end of a line or of :data:`PIECE` characters."""
    end = len(text)
    while end > 0:  # from the end: most texts have their last number there
        start = max(0, end - PIECE)
        if start:
            start = max(text.find("\n", start, end - 1), text.rfind(" ", start, start + PIECE // 10), start)
        before, piece = plain(text[max(0, start - _WINDOW) : start]), plain(text[start:end])
        matches = TOKEN.finditer(before + piece, len(before))
        if found := next((n for n in (_read(before + piece, m) for m in reversed(list(matches))) if n), None):
            return found[-1]
        end = start
    return None


def first_numeral(text: str) -> Numeral | None:
    """The first number of a text, or None."""
    return next(_numerals(plain(text)), None)


def numerals_in(text: str) -> list[Numeral]:
    """The numbers of a text."""
    return list(_numerals(plain(text)))


def values_in(text: str) -> set[Fraction]:
    """The values of all numbers of a text."""
    return {numeral.value for numeral in _numerals(plain(text)) if numeral.value is not None}


def read_numeral(text: str) -> Numeral | None:
    """The number that the whole text is (white space and dollar signs around it aside), or None.

    Forms that only a sentence makes numbers are none here: ``2-1/2``, ``1 and 1/2`` and ``10k`` are formulas or lists.

    >>> read_numeral("1,234.50").value == Fraction(2469, 2), read_numeral("12 apples"), read_numeral("1e999999").value
    (True, None, None)
    """
    text = plain(text.strip().strip("$").strip())
    match = TOKEN.match(text)
    if match is None or match.end() != len(text) or match["body"] is None:
        return None
    if match["both"] or match["other"] or match["letter"] or match["period1"] or match["join"] in ("-", " and "):
        return None
    numerals = _read(text, match)
    return numerals[0] if len(numerals) == 1 else None


def _numerals(text: str) -> Iterator[Numeral]:
    return (numeral for match in TOKEN.finditer(text) for numeral in _read(text, match))


def _read(text: str, match: re.Match[str]) -> list[Numeral]:
    """The numbers of one token: none, one, or the parts of a list."""
    if match["raised"]:  # of a number or a letter: no number of its own
        return [Numeral(match[0], None)] if text[: match.start()].endswith((")", "]")) else []
    before, after = text[max(0, match.start() - _WINDOW) : match.start()], text[match.end() : match.end() + _WINDOW]
    if match["none"] or DENIED.search(before):
        return []
    found = _unsigned(match, before, after)
    if not found:
        return []
    if match["minus"] and not (match["minus"].strip().lower() == "minus" and SUBTRACTED.search(before)):
        found[0] = Numeral(f"-{found[0].text}", None if found[0].value is None else -found[0].value)
    last = found[-1]
    if match["both"] or GOES_ON.match(after):
        found[-1] = Numeral(last.text, None)
    elif (times := _WORDS.get(match["times"] or match["letter"] or "") or _paid(match)) and last.value is not None:
        found[-1] = Numeral(f"{last.text} {match['times'] or match['letter']}", last.value * times)
    return found


def _unsigned(match: re.Match[str], before: str, after: str) -> list[Numeral]:
    kind = next(kind for kind in KINDS if match[kind] is not None)
    body = match[kind]
    if kind == "spaced":
        alone = not re.match(" [0-9]", after) and not re.search("[0-9] $", before)
        body = re.sub("[ ']", "", body).replace(",", ".") if alone else body.replace(" ", ",")
    if kind in ("chunk", "spaced"):
        return [] if re.match("_[0-9{]", after) else _listed(body)
    value = value_of(kind, match)
    if kind == "mixed" and not (value and fraction(match["mixed_top"], match["mixed_bottom"]) < 1):  # type: ignore[operator]
        return [
            Numeral(match["whole"], decimal(match["whole"].replace(",", ""))),
            _over(match, "mixed_top", "mixed_bottom"),
        ]
    if (kind == "han" and (len(body) < 2 or value is None)) or (kind == "ratio" and before.rstrip().endswith("/")):
        return []
    return [Numeral(re.sub(" */ *", "/", body), value)]


def _over(match: re.Match[str], above: str, below: str) -> Numeral:
    return Numeral(f"{match[above]}/{match[below]}", fraction(match[above], match[below]))


def _listed(body: str) -> list[Numeral]:
    """A decimal with or without groups of thousands, or a list of decimals without spaces; none where a part is none."""
    if _DECIMAL_COMMA.fullmatch(body):
        body = body.replace(".", "").replace(",", ".")
    head, dot, tail = body.partition(".")
    if GROUPED.fullmatch(head):
        body = head.replace(",", "") + dot + tail
    parts = [part.strip() for part in body.split(",")]
    return [Numeral(part, decimal(part)) for part in parts] if all(map(DECIMAL.fullmatch, parts)) else []


def _paid(match: re.Match[str]) -> int:
    return _PAID.get(match["letter"] or "", 0) if match["cash"] else 0
