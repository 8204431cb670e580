r"""The structure of an answer: a value, or a list, set, tuple, interval, union, matrix, date ... of values.

Comparing part by part keeps a computer algebra system away from what it does not understand (a list of candidates, a
time of day, an interval that it takes for a pair) and leaves it one value at a time. What is the same is decided in
:mod:`surefoot.rewards.sameness`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from surefoot.rewards import calendar
from surefoot.rewards.brackets import bracketed, outside, split
from surefoot.rewards.environments import environment, vector
from surefoot.rewards.labels import assignment, has_letters
from surefoot.rewards.parts import Parts, Value
from surefoot.rewards.quantities import quantity

_MIXED = re.compile(r"(?P<sign>-?)\s*(?P<whole>[0-9]+)\s*\\frac\s*\{\s*(?P<a>[0-9]+)\s*\}\s*\{\s*(?P<b>[0-9]+)\s*\}")
_MIXED_TEXT = re.compile(r"(?P<sign>-?)\s*(?P<whole>[0-9]+)\s+(?P<a>[0-9]+)\s*/\s*(?P<b>[0-9]+)")
_GROUPED = re.compile(r"(?<![0-9.,])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])")
_SPACED = re.compile(r"(?<![0-9.])[0-9]{1,3}(?: [0-9]{3})+(?![0-9 ])")
_WORDS = re.compile(
    r"(?<![A-Za-z\\])(?:or|and|oder|und|ou|et)(?![A-Za-z])|\\(?:lor|vee|land|wedge)(?![A-Za-z])|或者?|和|且|以及|или|または|또는"
)
_FAMILY = re.compile(
    r"(?P<rest>.+?)[\s,;(]+(?:(?:where|for|with)\s+)?(?:(?:any|all|some)\s+)?(?P<letter>[a-z])\s*"
    r"(?:\\in\s*(?:\\mathbb\s*)?\{?(?P<set>[ZNQR])\}?(?P<mark>\^[+*]|_[+0]|_\{[^{}]*\}|\^\{[^{}]*\})?|"
    r"(?:is an |是|为)?(?P<word>integers?|整数))\s*\)?"
)
_EXCEPT = re.compile(
    r"(?:x\s*\\in\s*)?(?:\\mathbb\{R\}|R|\(-\\infty\s*,\s*\+?\\infty\s*\))\s*(?:\\setminus|-|\\(?=\s*\\\{))\s*\\\{(?P<out>.*)\\\}"
)
_BUILDER = re.compile(r"\\?\{\s*(?P<letter>[A-Za-z])\s*(?:\\in\s*\\mathbb\{R\}\s*)?[|:]\s*(?P<condition>.+?)\\?\}")
_RELATION = re.compile(r"\\le(?![A-Za-z])|\\ge(?![A-Za-z])|<|>")
_UNEQUAL = re.compile(r"(?P<letter>\\?[A-Za-z]+)\s*\\ne(?![A-Za-z])\s*(?P<out>.+)")
_VARIABLE = re.compile(r"\\?[A-Za-z]+(?:_\w|_\{\w+\})?")
_COUNTED = re.compile(r"^(?:答案?\s*[:是为]|大约|总共|一共|共|约)(?=\s*[-+\\(0-9a-z])")
_MINUS_PLUS = r"\mp"
_PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z])")
_REALS = ("all real numbers", "all reals", "real numbers", "全体实数", "任意实数", "一切实数", "实数集")
_NOTHING = (
    "no solution", "no solutions", "no real solution", "no real solutions", "none", "无解", "空集", "无实数解", "empty set",
    "the empty set", r"\emptyset", r"\{\}", r"\{ \}",
)  # fmt: skip


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
    if found := environment(text, read):
        return found
    text = outside(text, lambda piece: _GROUPED.sub(lambda match: match[0].replace(",", ""), piece))
    pieces = [part for part in split(text, ",;", _WORDS) if part]
    if len(pieces) > 1:
        return _listed([read(piece) for piece in pieces])
    text = pieces[0] if pieces else text
    if 1 <= len(_PLUS_MINUS.findall(text)) <= 2:
        return _both_signs(text)
    unions = split(text, "", re.compile(r"\\cup(?![A-Za-z])"))
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
    return _listed([part for inner in flat for part in inner])


def _named(text: str) -> Value | Parts | None:
    low = text.casefold()
    if low in _NOTHING:
        return Parts("{}", ())
    if low in _REALS or text == r"\mathbb{R}":
        return Parts("()", (Value(r"-\infty"), Value(r"\infty")))
    if re.fullmatch(r"\\mathbb\{R\}(?:\^\{?\+\}?|_\{?\+\}?|_\{>0\})", text):
        return Parts("()", (Value("0"), Value(r"\infty")))
    if low == "does not exist":
        return Value("DNE")
    if excepted := _EXCEPT.fullmatch(text):
        return Parts("except", tuple(read(part) for part in split(excepted["out"], ",", None) if part))
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
    if label and (found := _named(text) or _dated(text) or environment(text, read)):
        return replace(found, label=label)
    if unequal := _UNEQUAL.fullmatch(text):
        return Parts("except", (read(unequal["out"]),), unequal["letter"])
    if interval := _interval(text):
        return interval
    if point := re.fullmatch(r"([A-Z])\s*(\(.+,.+\))", text):
        text, label = point[2], label or point[1]
    if inside := bracketed(text):
        left, right, content = inside
        items = [part for part in split(content, ",;", None) if part]
        if len(items) == 1 and left == "(" and right == ")":
            inner = read(items[0])
            return replace(inner, label=label or inner.label)
        return _tuple(f"{left}{right}".replace("\\", ""), [read(item) for item in items], label)
    if column := vector(text, read):
        return replace(column, label=label)
    ratio = split(text, ":", None)
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
        inner = [
            part
            for item in items
            for part in (item.items if isinstance(item, Parts) and item.kind == "except" else (item,))
        ]
        return Parts("except", tuple(inner), items[0].label)
    return Parts("list", tuple(items))


def _union(items: list[Value | Parts]) -> Parts:
    """A union; of open intervals that leave out single points of the real line, those points."""
    ends = {item.items[0].text: item.items[1].text for item in items if _is_open(item)}  # type: ignore[union-attr]
    out: list[str] = []
    end = r"-\infty"
    while end in ends and len(out) < len(items):
        end = ends.pop(end)
        out.append(end)
    if not ends and len(out) == len(items) and out[-1].lstrip("+") == r"\infty":
        return Parts("except", tuple(Value(point) for point in out[:-1]))
    return Parts("union", tuple(items))


def _is_open(item: Value | Parts) -> bool:
    return (
        isinstance(item, Parts)
        and item.kind == "()"
        and len(item.items) == 2
        and all(isinstance(end, Value) for end in item.items)
    )


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
