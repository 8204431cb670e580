r"""The structure of an answer: a value, or a list, set, tuple, interval, union, matrix, date ... of values.

Comparing part by part keeps a computer algebra system away from what it does not understand (a list of candidates, a
time of day, an interval that it takes for a pair) and leaves it one value at a time. What is the same is decided in
:mod:`surefoot.rewards.sameness`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from surefoot.rewards import calendar
from surefoot.rewards.labels import assignment, has_letters, relation_of
from surefoot.rewards.quantities import quantity

_MIXED = re.compile(r"(?P<sign>-?)\s*(?P<whole>[0-9]+)\s*\\frac\s*\{\s*(?P<a>[0-9]+)\s*\}\s*\{\s*(?P<b>[0-9]+)\s*\}")
_MIXED_TEXT = re.compile(r"(?P<sign>-?)\s*(?P<whole>[0-9]+)\s+(?P<a>[0-9]+)\s*/\s*(?P<b>[0-9]+)")
_GROUPED = re.compile(r"(?<![0-9.,])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])")
_SPACED = re.compile(r"(?<![0-9.])[0-9]{1,3}(?: [0-9]{3})+(?![0-9 ])")
_WORDS = re.compile(
    r"(?<![A-Za-z\\])(?:or|and|oder|und|ou|et)(?![A-Za-z])|\\(?:lor|vee|land|wedge)(?![A-Za-z])|或者?|和|且|以及|или|または|또는"
)
_ENVIRONMENT = re.compile(
    r"\\begin\{(?P<kind>[pbBvV]?matrix|smallmatrix|array|cases|aligned)\}(?:\{[^{}]*\})?(?P<body>.*)\\end\{(?P=kind)\}", re.DOTALL
)
_FAMILY = re.compile(
    r"(?P<rest>.+?)[\s,;(]+(?:(?:where|for|with)\s+)?(?:(?:any|all|some)\s+)?(?P<letter>[a-z])\s*"
    r"(?:\\in\s*(?:\\mathbb\s*)?\{?(?P<set>[ZNQR])\}?(?P<mark>\^[+*]|_[+0]|_\{[^{}]*\}|\^\{[^{}]*\})?|(?:is an |是|为)?(?P<word>integers?|整数))\s*\)?"
)
_EXCEPT = re.compile(r"(?:x\s*\\in\s*)?(?:\\mathbb\{R\}|R|\(-\\infty\s*,\s*\+?\\infty\s*\))\s*(?:\\setminus|-|\\(?=\s*\\\{))\s*\\\{(?P<out>.*)\\\}")
_BUILDER = re.compile(r"\\?\{\s*(?P<letter>[A-Za-z])\s*(?:\\in\s*\\mathbb\{R\}\s*)?[|:]\s*(?P<condition>.+?)\\?\}")
_RELATION = re.compile(r"\\le(?![A-Za-z])|\\ge(?![A-Za-z])|<|>")
_UNEQUAL = re.compile(r"(?P<letter>\\?[A-Za-z]+)\s*\\ne(?![A-Za-z])\s*(?P<out>.+)")
_VARIABLE = re.compile(r"\\?[A-Za-z]+(?:_\w|_\{\w+\})?")
_OPEN, _CLOSE = ("(", "[", r"\{"), (")", "]", r"\}")
_VECTOR = re.compile(r"\s*([+-]?)\s*([^ijk]*?)\s*([ijk])\s*")
_PIECE = re.compile(r"^\s*(?:if|for|when|where|若|当)\s*|\s*时$")
_COUNTED = re.compile(r"^(?:大约|总共|一共|共|约)(?=\s*[0-9])")
_MINUS_PLUS = r"\mp"
_PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z])")
_REALS = ("all real numbers", "all reals", "real numbers", "全体实数", "任意实数", "一切实数", "实数集")
_NOTHING = (
    "no solution", "no solutions", "no real solution", "no real solutions", "none", "无解", "空集", "无实数解", "empty set",
    "the empty set", r"\emptyset", r"\{\}", r"\{ \}",
)  # fmt: skip


@dataclass(frozen=True)
class Value:
    r"""One value.

    Attributes:
        text: without label and unit.
        label: what it was assigned to (``x`` of ``x = 3``).
        unit: in the spelling of :mod:`surefoot.rewards.quantities`.
        whole: the value together with its unit, where that is a number.
        relation: the equation or inequality, where the text is one that has letters beside its label.
    """

    text: str
    label: str = ""
    unit: str = ""
    whole: str = ""
    relation: str = ""


@dataclass(frozen=True)
class Parts:
    """Several: ``kind`` is a name ("list", "union", "matrix", "date", ...) or the pair of brackets."""

    kind: str
    items: tuple[Value | Parts, ...]
    label: str = ""
    relation: str = ""


def read(text: str) -> Value | Parts:
    """The structure of an answer in the spelling of :func:`surefoot.rewards.latex.spelled`."""
    text = _COUNTED.sub("", text.strip())
    if found := _named(text) or _dated(text):
        return found
    if "..." in text:  # a pattern, not values
        return Value(text)
    if family := _FAMILY.fullmatch(text):
        return _family(family)
    if (builder := _BUILDER.fullmatch(text)) and (found := _built(builder)):
        return found
    if found := _environment(text):
        return found
    text = _outside(text, lambda piece: _GROUPED.sub(lambda match: match[0].replace(",", ""), piece))
    pieces = [part for part in _split(text, ",;", _WORDS) if part]
    if len(pieces) > 1:
        return _listed([read(piece) for piece in pieces])
    text = pieces[0] if pieces else text
    if 1 <= len(_PLUS_MINUS.findall(text)) <= 2:
        return _both_signs(text)
    unions = _split(text, "", re.compile(r"\\cup(?![A-Za-z])"))
    if len(unions) > 1:
        return _union([read(part) for part in unions])
    return _read_one(text)


def _both_signs(text: str) -> Parts:
    r"""The values that ``\pm`` stands for; ``\mp`` has the other sign."""
    before, _, after = text.partition(r"\pm")
    bare = not before.rstrip() or before.rstrip().endswith(("=", "(", "{"))
    texts = (
        f"{before}{' ' if bare else ' + '}{after.replace(_MINUS_PLUS, '-')}",
        f"{before} - {after.replace(_MINUS_PLUS, '+')}",
    )
    items = [read(one) for one in texts]
    flat = [item.items if isinstance(item, Parts) and item.kind == "list" else (item,) for item in items]
    return Parts("list", tuple(part for inner in flat for part in inner))


def _named(text: str) -> Value | Parts | None:
    low = text.casefold()
    if low in _NOTHING:
        return Parts("{}", ())
    if low in _REALS or text == r"\mathbb{R}":
        return Parts("()", (Value(r"-\infty"), Value(r"\infty")))
    if low == "does not exist":
        return Value("DNE")
    if excepted := _EXCEPT.fullmatch(text):
        return Parts("except", tuple(read(part) for part in _split(excepted["out"], ",", None) if part))
    return None


def _dated(text: str) -> Parts | None:
    if day := calendar.date(text):
        return Parts("date", tuple(Value(part) for part in day))
    if span := calendar.span(text):
        return Parts(span[0], tuple(Value(end) for end in span[1]))
    if seconds := calendar.times(text):
        return Parts("time", (*(Value(str(second)) for second in sorted(seconds)), Value(text)))
    return None


def _read_one(text: str) -> Value | Parts:
    text, label, relation = assignment(text)
    if label and (found := _named(text) or _dated(text) or _environment(text)):
        return replace(found, label=label)
    if unequal := _UNEQUAL.fullmatch(text):
        return Parts("except", (read(unequal["out"]),), unequal["letter"])
    if interval := _interval(text):
        return interval
    if point := re.fullmatch(r"([A-Z])\s*(\(.+,.+\))", text):
        text, label = point[2], label or point[1]
    if inside := _bracketed(text):
        left, right, content = inside
        items = [part for part in _split(content, ",;", None) if part]
        if len(items) == 1 and left == "(" and right == ")":
            inner = read(items[0])
            return replace(inner, label=label or inner.label)
        return _tuple(f"{left}{right}".replace("\\", ""), [read(item) for item in items], label)
    if vector := _vector(text):
        return replace(vector, label=label)
    ratio = _split(text, ":", None)
    if len(ratio) > 1 and all(part and not re.search(r"(?<!\\)\b[A-Za-z]{2,}", part) for part in ratio):
        return Parts("ratio", tuple(Value(part) for part in ratio), label)
    return _value(text, label, relation)


def _value(text: str, label: str, relation: str) -> Value:
    found = quantity(text.strip())
    text = _SPACED.sub(lambda match: match[0].replace(" ", ""), found.text)
    mixed = _MIXED.fullmatch(text) or _MIXED_TEXT.fullmatch(text)
    if mixed and int(mixed["b"]):
        above = int(mixed["whole"]) * int(mixed["b"]) + int(mixed["a"])
        text = f"{mixed['sign']}{above}/{mixed['b']}"
        return Value(text, label, found.unit, rf"\frac{{{text}}}{{100}}" if found.unit == "%" else "", relation)
    return Value(text.strip(), label, found.unit, found.whole, relation)


def _tuple(kind: str, items: list[Value | Parts], label: str) -> Parts:
    names = re.fullmatch(r"\((.+)\)", label)
    if names and kind == "()" and len(split := names[1].split(",")) == len(items):
        return Parts("list", tuple(replace(item, label=name.strip()) for item, name in zip(items, split, strict=True)))
    rows = [item for item in items if isinstance(item, Parts) and item.kind == "[]"]
    if kind == "[]" and items and len(rows) == len(items):
        return Parts("matrix", tuple(Parts("()", row.items) for row in rows), label)
    return Parts(kind, tuple(items), label)


def _listed(items: list[Value | Parts]) -> Parts:
    if isinstance(items[0], Parts) and items[0].kind == "except":
        inner = [part for item in items for part in (item.items if isinstance(item, Parts) and item.kind == "except" else (item,))]
        return Parts("except", tuple(inner), items[0].label)
    return Parts("list", tuple(items))


def _union(items: list[Value | Parts]) -> Parts:
    """A union; of open intervals that leave out single points of the real line, those points."""
    ends = {item.items[0].text: item.items[1].text for item in items if _is_open(item)}  # type: ignore[union-attr]
    out, end = [], r"-\infty"
    while end in ends and len(out) < len(items):
        end = ends.pop(end)
        out.append(end)
    if not ends and len(out) == len(items) and out[-1].lstrip("+") == r"\infty":
        return Parts("except", tuple(Value(point) for point in out[:-1]))
    return Parts("union", tuple(items))


def _is_open(item: Value | Parts) -> bool:
    return isinstance(item, Parts) and item.kind == "()" and len(item.items) == 2 and all(isinstance(end, Value) for end in item.items)


def _family(match: re.Match[str]) -> Parts:
    """Values with a letter that ranges over the integers: with the letter renamed, its set, and as it was written."""
    rest = match["rest"].strip()
    renamed = re.sub(rf"(?<![\\A-Za-z]){match['letter']}(?![A-Za-z])", "n", rest)
    return Parts("family", (read(renamed), Value(f"{match['set'] or 'Z'}{match['mark'] or ''}"), read(rest)))


def _built(match: re.Match[str]) -> Value | Parts | None:
    condition = read(match["condition"].strip())
    if isinstance(condition, Parts) and condition.kind in ("list", "union"):
        return replace(condition, items=tuple(replace(item, label="") for item in condition.items))
    return replace(condition, label="", relation="") if isinstance(condition, Parts) else None


def _environment(text: str) -> Value | Parts | None:
    begin = text.find(r"\begin")
    if begin < 0:
        return None
    label, equals, rest = text.partition("=")
    if equals and len(label) < begin and (found := _environment(rest.strip())):
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
        return _cases(rows) if not factor else None
    if match["kind"] in ("vmatrix", "Vmatrix") or (end < len(text) and text[begin] == "|"):
        return Value(_expanded(rows)) if not factor and len(rows) <= 3 and all(len(row) == len(rows) for row in rows) else Value(text)
    if factor:
        factor = "-1" if factor == "-" else factor
        rows = [[f"({factor})({cell})" for cell in row] for row in rows]
    made = [[read(cell) for cell in row] for row in rows]
    if len(made) == 1 or all(len(row) == 1 for row in made):
        return Parts("row" if len(made) == 1 else "column", tuple(cell for row in made for cell in row))
    return Parts("matrix", tuple(Parts("()", tuple(row)) for row in made))


def _cases(rows: list[list[str]]) -> Parts:
    if all(len(row) == 1 for row in rows):
        pairs = [[part.strip() for part in row[0].split(",")] for row in rows]
        if not all(len(pair) == 2 and not re.search("[=<>]", pair[0]) for pair in pairs):
            return Parts("list", tuple(read(row[0].strip(" ,;")) for row in rows))
        rows = pairs
    pieces = [Parts("()", (read(row[0].strip(" ,")), read(_PIECE.sub("", " ".join(row[1:])).strip(" ,.;")))) for row in rows]
    return Parts("piecewise", tuple(pieces))


def _expanded(rows: list[list[str]]) -> str:
    """A determinant of at most three rows by its first row."""
    if len(rows) == 1:
        return f"({rows[0][0]})"
    minors = [[row[:k] + row[k + 1 :] for row in rows[1:]] for k in range(len(rows))]
    terms = [rf"({rows[0][k]})\cdot ({_expanded(minor)})" for k, minor in enumerate(minors)]
    return terms[0] + "".join(("-" if k % 2 else "+") + term for k, term in enumerate(terms[1:], start=1))


def _vector(text: str) -> Parts | None:
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
            bound, below, label = sides[1], not up[0], sides[0]
        elif _VARIABLE.fullmatch(sides[1]) and not _VARIABLE.fullmatch(sides[0]):
            bound, below, label = sides[0], up[0], sides[1]
        else:
            return None
        low, high = (bound, r"\infty") if below else (r"-\infty", bound)
        edges = ("[" if closed[0] and below else "(") + ("]" if closed[0] and not below else ")")
        return Parts(edges, (read(low), read(high)), label, text if has_letters(bound) else "")
    if up[0] != up[1] or not _VARIABLE.fullmatch(sides[1]):
        return None
    (low, high), (first, last) = ((sides[0], sides[2]), closed) if up[0] else ((sides[2], sides[0]), closed[::-1])
    return Parts(("[" if first else "(") + ("]" if last else ")"), (read(low), read(high)), sides[1])


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
