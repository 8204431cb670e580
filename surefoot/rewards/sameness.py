r"""Whether two structures are the same, where a ``leaf`` says so of two values. The rules in words: ``docs/verdicts.md``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from surefoot.rewards.labels import clash
from surefoot.rewards.parts import Parts, Value
from surefoot.rewards.quantities import alike

Leaf = Callable[[str, str], bool]
"""(gold, given) -> whether two values are the same."""

_ORDERED = ({"list", "()"}, {"list", "column"}, {"()", "column"}, {"()", "row"}, {"list", "row"}, {"range", "to"})


def same(gold: Value | Parts, given: Value | Parts, leaf: Leaf) -> bool:
    """Whether two structures are the same."""
    conflict = clash(gold.label, given.label)
    if gold.relation and given.relation:
        if conflict or not (gold.label and given.label) or type(gold) is not type(given):
            return leaf(gold.relation, given.relation)
    elif conflict or any(one.relation and not one.label for one in (gold, given)):
        return False
    if isinstance(gold, Value) and isinstance(given, Value):
        return _same_value(gold, given, leaf)
    if "family" in (_kind(gold), _kind(given)):
        return _same_family(gold, given, leaf)
    if _kind(gold) == "time" and _kind(given) == "time":
        a, b = ({item.text for item in one.items[:-1]} for one in (gold, given))  # type: ignore[union-attr]
        return a == b or (len(a) != len(b) and bool(a & b))
    if {_kind(gold), _kind(given)} <= {"ratio", "time", "to", "one"} and {_kind(gold), _kind(given)} & {
        "ratio",
        "time",
    }:
        return _same_ratio(_terms(gold), _terms(given), leaf)
    return _same_parts(gold, given, leaf)


def _kind(one: Value | Parts) -> str:
    return "one" if isinstance(one, Value) else one.kind


def _as_items(one: Value | Parts) -> tuple[Value | Parts, ...]:
    return (one,) if isinstance(one, Value) else one.items


def _same_parts(gold: Value | Parts, given: Value | Parts, leaf: Leaf) -> bool:
    gold_items, items = _as_items(gold), _as_items(given)
    if len(gold_items) != len(items):
        return False
    pair = {_kind(gold), _kind(given)}
    if pair == {"date"}:
        return all(a.text == b.text for a, b in zip(gold_items, items, strict=True))  # type: ignore[union-attr]
    gold_items, items = (_in_order(a, b) for a, b in ((gold_items, given), (items, gold)))
    if pair in _ORDERED or ("list" in pair and _labelled(gold_items) and not _labelled(items)):
        return all(same(a, b, leaf) for a, b in zip(gold_items, items, strict=True))
    if (
        pair <= {"list", "{}"}
        or pair <= {"list", "union"}
        or pair <= {"list", "one"}
        or pair <= {"{}", "one"}
        or pair in ({"except"}, {"piecewise"})
    ):
        return _same_unordered(gold_items, items, leaf)
    return len(pair) == 1 and all(same(a, b, leaf) for a, b in zip(gold_items, items, strict=True))


def _labelled(items: tuple[Value | Parts, ...]) -> bool:
    return len({item.label for item in items if item.label}) == len(items) > 1


def _in_order(items: tuple[Value | Parts, ...], other: Value | Parts) -> tuple[Value | Parts, ...]:
    """``y = 2, x = 1`` by its letters, where the other is a tuple without any."""
    if _labelled(items) and isinstance(other, Parts) and other.kind in ("()", "column") and not _labelled(other.items):
        return tuple(sorted(items, key=lambda item: item.label))
    return items


def _same_unordered(gold: tuple[Value | Parts, ...], given: tuple[Value | Parts, ...], leaf: Leaf) -> bool:
    left = list(given)
    for item in gold:
        match = next((k for k, other in enumerate(left) if same(item, other, leaf)), None)
        if match is None:
            return False
        left.pop(match)
    return True


def _same_family(gold: Value | Parts, given: Value | Parts, leaf: Leaf) -> bool:
    """Families of values by their renamed letter; one whose set is not named, as it is written."""
    if _kind(gold) == _kind(given):
        (a, domain, _), (b, other, _) = _as_items(gold), _as_items(given)
        return domain == other and same(a, b, leaf)
    family, plain = (gold, given) if _kind(gold) == "family" else (given, gold)
    written = _as_items(family)[2]
    return same(written, plain, leaf) if family is gold else same(plain, written, leaf)


def _terms(one: Value | Parts) -> tuple[str, ...]:
    if isinstance(one, Value):
        return (one.text, "1")
    if one.kind == "time":
        return tuple(one.items[-1].text.split(":"))  # type: ignore[union-attr]
    return tuple(item.text for item in one.items)  # type: ignore[union-attr]


def _same_ratio(gold: tuple[str, ...], given: tuple[str, ...], leaf: Leaf) -> bool:
    if len(gold) != len(given):
        return False
    pairs = zip(pairwise(gold), pairwise(given), strict=True)
    return all(leaf(rf"\frac{{{a}}}{{{b}}}", rf"\frac{{{c}}}{{{d}}}") for (a, b), (c, d) in pairs)


def _same_value(gold: Value, given: Value, leaf: Leaf) -> bool:
    if gold.unit and given.unit:
        if gold.unit.startswith("mod ") and gold.unit == given.unit:
            return leaf(gold.text, given.text) or _congruent(gold, given)
        if {gold.unit, given.unit} == {"°", "rad"}:
            return leaf(gold.whole or gold.text, given.whole or given.text)
        return alike(gold.unit, given.unit) and leaf(gold.text, given.text)
    if leaf(gold.text, given.text):
        return True
    if not gold.whole and not given.whole:
        return False
    return leaf(gold.whole or gold.text, given.whole or given.text)


def _congruent(gold: Value, given: Value) -> bool:
    texts = [one.text.replace(" ", "") for one in (gold, given)]
    if not all(
        text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) < 100 for text in texts
    ):
        return False
    modulus = int(gold.unit.removeprefix("mod "))
    return modulus > 0 and (int(texts[0]) - int(texts[1])) % modulus == 0
