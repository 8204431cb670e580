"""Plain values cross the wall of the sandbox as they are, and nothing else does."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, namedtuple
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.rewards.sandbox.guest.values import Unencodable, decode, encode

atoms = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
hashable = st.recursive(atoms, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5)
values = st.recursive(
    hashable | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.sets(hashable, max_size=3) | st.dictionaries(hashable, inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=60)
@given(values)
def test_values_come_back_equal_and_of_the_same_types(value: Any) -> None:
    back = decode(json.loads(json.dumps(encode(value))))
    assert back == value
    assert repr(back) == repr(value) or isinstance(value, (set, frozenset, dict, list, tuple))
    assert type(back) is type(value)


def test_what_derives_from_a_plain_type_becomes_plain() -> None:
    class Sly(str):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = str.__hash__

    point = namedtuple("point", "x y")(1, 2)
    for value, plain in (
        (Sly("a"), "a"),
        (Counter("aa"), {"a": 2}),
        (OrderedDict(a=1), {"a": 1}),
        (point, (1, 2)),
    ):
        back = decode(encode(value))
        assert type(back) is type(plain) and back == plain
    assert decode(encode(Sly("a"))) != "b"


@pytest.mark.parametrize("value", [object(), print, iter([]), type, [[object()]], Exception("x")])
def test_other_objects_are_refused(value: Any) -> None:
    with pytest.raises(Unencodable):
        encode(value)


def test_endless_nesting_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Unencodable, match="deeper"):
        encode(loop)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "set", "value": [[1]]},
        {"type": "eval", "value": "1"},
        {"type": "dict", "value": 3},
        {"type": "int", "value": "x"},
        {"type": ["set"], "value": []},
        {},
        {"type": "tuple"},
    ],
)
def test_malformed_messages_are_refused(message: Any) -> None:
    with pytest.raises(Unencodable):
        decode(message)
