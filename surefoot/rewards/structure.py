r"""The structure of an answer: a value, or a list, set, tuple, interval, union, matrix or ratio of values.

Comparing part by part keeps a computer algebra system away from what it does not understand (a list of candidates, a
time of day, an interval that it takes for a pair) and leaves it one value at a time.

What counts as the same, beyond equal parts in the same brackets:

* a bare list has no order (``3, 5`` and ``5 \text{ or } 3``), and neither has a set; a tuple, an interval and a matrix have;
* ``x = 3`` is 3, but not ``y = 3``; ``2 < x \le 5`` is ``(2, 5]``; ``\pm 3`` is ``3, -3``;
* a unit, a percent sign or a currency may be left out or added, but not be another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

Leaf = Callable[[str, str], bool]
"""(gold, given) -> whether two values are the same."""

_UNITS = (
    "mm|cm|dm|km|nm|m|ft|feet|foot|inch|inches|yd|yards?|miles?|mg|kg|g|grams?|kilograms?|lbs?|pounds?|oz|ounces?|tons?|"
    "ms|s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|days?|weeks?|months?|years?|met(?:er|re)s?|centimet(?:er|re)s?|"
    "kilomet(?:er|re)s?|millimet(?:er|re)s?|square|cubic|units?|sq|cu|degrees?|radians?|rad|dollars?|cents?|euros?|mph|"
    "kmh|kph|lit(?:er|re)s?|ml|l|gallons?|cups?|joules?|j|newtons?|n|watts?|w|volts?|v|hz|pa|mol|people|persons?|apples?|"
    "students?|ways|points?"
)
_SAME_UNITS = {
    "degree": "degrees", "inches": "inch", "feet": "ft", "foot": "ft", "meter": "m", "metre": "m", "centimeter": "cm",
    "centimetre": "cm", "kilometer": "km", "kilometre": "km", "millimeter": "mm", "gram": "g", "kilogram": "kg",
    "second": "s", "sec": "s", "minute": "min", "hour": "h", "hr": "h", "pound": "lb", "ounce": "oz", "liter": "l",
    "litre": "l", "sq": "square", "cu": "cubic", "yard": "yd", "joule": "j", "newton": "n", "watt": "w", "volt": "v",
}  # fmt: skip
_NUMBER_END = r"(?P<number>.*[0-9}.)\]]|.*\\pi)"
_UNIT = re.compile(
    rf"{_NUMBER_END}\s*(?P<unit>(?<=[\s0-9])(?:{_UNITS})(?:[\s/]+(?:per\s+)?(?:{_UNITS}))*(?:\s*\^\s*\{{?[23]\}}?)?)",
    re.IGNORECASE,
)
_PERCENT = re.compile(r"(.*?)\s*(?:\\?%|\\percent|\bpercent(?:age)?)")
_CURRENCY = re.compile(r"^([+-]?)\s*(?:\\?\$|€|£|¥|USD|EUR)\s*(?=[0-9.(\\])|\s*(?:\\\$|€|£|¥|USD|EUR)$")
_MIXED = re.compile(r"(?P<sign>-?)\s*(?P<whole>[0-9]+)\s*\\frac\s*\{\s*(?P<a>[0-9]+)\s*\}\s*\{\s*(?P<b>[0-9]+)\s*\}")
_MIXED_TEXT = re.compile(r"(?P<sign>-?)\s*(?P<whole>[0-9]+)\s+(?P<a>[0-9]+)\s*/\s*(?P<b>[0-9]+)")
_GROUPED = re.compile(r"(?<![0-9.,])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])")
_SPACED = re.compile(r"(?<![0-9.])[0-9]{1,3}(?: [0-9]{3})+(?![0-9 ])")
_WORDS = re.compile(r"(?<![A-Za-z\\])(?:or|and)(?![A-Za-z])|\\(?:lor|vee|land|wedge)(?![A-Za-z])|或|和")
_LABEL = re.compile(
    r"\\?[A-Za-z]+(?:_\{?[A-Za-z0-9]+\}?)?'*(?:\s*\(\s*[A-Za-z](?:\s*,\s*[A-Za-z])*\s*\))?|\([A-Za-z](?:,\s*[A-Za-z])+\)"
)
_MATRIX = re.compile(
    r"\\begin\{(?P<kind>[pbBvV]?matrix|array)\}(?:\{[^{}]*\})?(?P<body>.*)\\end\{(?P=kind)\}", re.DOTALL
)
_RATIO = re.compile(r"[0-9.]+(?:\s*(?::|\\colon)\s*[0-9.]+)+")
_RELATION = re.compile(r"\\le(?![A-Za-z])|\\ge(?![A-Za-z])|<|>")
_VARIABLE = re.compile(r"\\?[A-Za-z]+(?:_\w)?")
_OPEN, _CLOSE = ("(", "[", r"\{"), (")", "]", r"\}")


@dataclass(frozen=True)
class Value:
    """One value: its text, what it was assigned to (``x`` of ``x = 3``), its unit ("%" for percent)."""

    text: str
    label: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Parts:
    """Several: ``kind`` is "list", "union", "matrix", "ratio", or the pair of brackets."""

    kind: str
    items: tuple[Value | Parts, ...]
    label: str = ""


def read(text: str) -> Value | Parts:
    """The structure of an answer in the spelling of :func:`surefoot.rewards.latex.spelled`."""
    text = text.strip()
    if text == r"\mathbb{R}":
        text = r"(-\infty,\infty)"
    if "..." in text:  # a pattern, not values
        return Value(text)
    matrix = _MATRIX.fullmatch(text)
    if matrix:
        rows = [row for row in re.split(r"\\\\", matrix["body"]) if row.strip()]
        made = [Parts("()", tuple(read(cell) for cell in row.split("&"))) for row in rows]
        return Parts("determinant" if matrix["kind"] in ("vmatrix", "Vmatrix") else "matrix", tuple(made))
    text = _outside(text, lambda piece: _GROUPED.sub(lambda match: match[0].replace(",", ""), piece))
    pieces = [part for part in _split(text, ",;", _WORDS) if part]
    if len(pieces) > 1:
        return Parts("list", tuple(read(piece) for piece in pieces))
    text = pieces[0] if pieces else text
    if text.count(r"\pm") == 1:
        before, _, after = text.partition(r"\pm")
        plus = (
            f"{before} + {after}" if before.rstrip(" =") and not before.rstrip().endswith("=") else f"{before} {after}"
        )
        return Parts("list", (read(plus), read(f"{before} - {after}")))
    unions = _split(text, "", re.compile(r"\\cup(?![A-Za-z])"))
    if len(unions) > 1:
        return Parts("union", tuple(read(part) for part in unions))
    return _read_one(text)


def _read_one(text: str) -> Value | Parts:
    text, label = _assignment(text)
    if interval := _interval(text):
        return interval
    if inside := _bracketed(text):
        left, right, content = inside
        items = [part for part in _split(content, ",;", None) if part]
        if len(items) == 1 and left == "(" and right == ")":
            inner = read(items[0])
            return replace(inner, label=label or inner.label)
        return Parts(f"{left}{right}".replace("\\", ""), tuple(read(item) for item in items), label)
    if _RATIO.fullmatch(text):
        return Parts("ratio", tuple(Value(part.strip()) for part in re.split(r":|\\colon", text)), label)
    return _value(text, label)


def same(gold: Value | Parts, given: Value | Parts, leaf: Leaf) -> bool:
    """Whether two structures are the same, where ``leaf`` says so of values."""
    if gold.label and given.label and gold.label != given.label:
        return False
    if isinstance(gold, Value) and isinstance(given, Value):
        return _same_value(gold, given, leaf)
    gold_items, gold_kind = _as_parts(gold)
    items, kind = _as_parts(given)
    if len(gold_items) != len(items):
        return False
    if kind == gold_kind == "one":
        return same(gold_items[0], items[0], leaf)
    pair = {"()" if k == "matrix1" else k for k in (kind, gold_kind)}
    if pair == {"list", "()"} or (_labelled(gold_items) and not _labelled(items)):
        return all(same(a, b, leaf) for a, b in zip(gold_items, items, strict=True))
    if pair <= {"list", "{}"} or pair <= {"list", "union"} or pair <= {"list", "one"} or pair <= {"{}", "one"}:
        return _same_unordered(gold_items, items, leaf)
    return len(pair) == 1 and all(same(a, b, leaf) for a, b in zip(gold_items, items, strict=True))


def _same_unordered(gold: tuple[Value | Parts, ...], given: tuple[Value | Parts, ...], leaf: Leaf) -> bool:
    left = list(given)
    for item in gold:
        match = next((k for k, other in enumerate(left) if same(item, other, leaf)), None)
        if match is None:
            return False
        left.pop(match)
    return True


def _same_value(gold: Value, given: Value, leaf: Leaf) -> bool:
    units = {gold.unit, given.unit}
    if units == {"%", ""}:
        # The sign may be left out, or the share be written as a number.
        bare, share = (given, gold) if gold.unit else (gold, given)
        order = (lambda a, b: leaf(b, a)) if gold.unit else leaf
        return order(bare.text, share.text) or order(bare.text, rf"\frac{{{share.text}}}{{100}}")
    if "" not in units and len(units) > 1:
        return False
    return leaf(gold.text, given.text)


def _as_parts(one: Value | Parts) -> tuple[tuple[Value | Parts, ...], str]:
    return ((one,), "one") if isinstance(one, Value) else (one.items, one.kind)


def _labelled(items: tuple[Value | Parts, ...]) -> bool:
    return len({item.label for item in items if item.label}) == len(items) > 1


def _assignment(text: str) -> tuple[str, str]:
    r"""``x = 3`` as ("3", "x"); ``x \in S`` alike; ``1 + 2 = 3`` as ("3", ""); an equation stays whole."""
    member = re.match(rf"({_LABEL.pattern})\s*\\in(?![A-Za-z])\s*(.+)", text)
    if member:
        return member[2].strip(), member[1]
    sides = [side.strip() for side in re.split(r"(?<![<>!\\:])=(?!=)", text)]
    if len(sides) < 2 or not all(sides):
        return text, ""
    if _LABEL.fullmatch(sides[0]):
        return sides[-1], "".join(sides[0].split())
    if len(sides) == 2 and _VARIABLE.fullmatch(sides[1]) and not re.search("[A-Za-z]", sides[0]):
        return sides[0], sides[1]
    if not re.search(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])", sides[0]):  # a sum that was written out
        return sides[-1], ""
    return text, ""


def _interval(text: str) -> Parts | None:
    r"""``2 < x \le 5`` as ``(2, 5]``; ``x > 2`` as ``(2, \infty)``."""
    signs = _RELATION.findall(text)
    sides = [side.strip() for side in _RELATION.split(text)]
    if not all(sides) or len(signs) not in (1, 2):
        return None
    up = [sign in ("<", r"\le") for sign in signs]
    closed = [sign in (r"\le", r"\ge") for sign in signs]
    if len(signs) == 1:
        if _VARIABLE.fullmatch(sides[0]) and not _VARIABLE.fullmatch(sides[1]):
            bound, below = sides[1], not up[0]
        elif _VARIABLE.fullmatch(sides[1]) and not _VARIABLE.fullmatch(sides[0]):
            bound, below = sides[0], up[0]
        else:
            return None
        low, high = (bound, r"\infty") if below else (r"-\infty", bound)
        edges = ("[" if closed[0] and below else "(") + ("]" if closed[0] and not below else ")")
        return Parts(edges, (read(low), read(high)))
    if up[0] != up[1] or not _VARIABLE.fullmatch(sides[1]):
        return None
    (low, high), (first, last) = ((sides[0], sides[2]), closed) if up[0] else ((sides[2], sides[0]), closed[::-1])
    return Parts(("[" if first else "(") + ("]" if last else ")"), (read(low), read(high)))


def _bracketed(text: str) -> tuple[str, str, str] | None:
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


def _value(text: str, label: str) -> Value:
    unit = ""
    text = _CURRENCY.sub(r"\1", text).strip()
    if percent := _PERCENT.fullmatch(text):
        text, unit = percent[1], "%"
    elif found := _UNIT.fullmatch(text):
        text, unit = found["number"].strip(), _plain_unit(found["unit"])
    text = _SPACED.sub(lambda match: match[0].replace(" ", ""), text)
    mixed = _MIXED.fullmatch(text) or _MIXED_TEXT.fullmatch(text)
    if mixed and int(mixed["b"]):
        above = int(mixed["whole"]) * int(mixed["b"]) + int(mixed["a"])
        text = f"{mixed['sign']}{above}/{mixed['b']}"
    return Value(text.strip(), label, unit)


def _plain_unit(unit: str) -> str:
    words = re.sub(r"[{}\s^]+", " ", unit.lower()).replace("/", " per ").split()
    return " ".join(_SAME_UNITS.get(word, _SAME_UNITS.get(word.removesuffix("s"), word)) for word in words)


def _outside(text: str, change: Callable[[str], str]) -> str:
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


def _split(text: str, marks: str, words: re.Pattern[str] | None) -> list[str]:
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
