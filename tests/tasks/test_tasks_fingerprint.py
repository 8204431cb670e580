"""A task's fingerprint: metadata counts, and equal values give equal hashes whatever their order, in any process."""

from __future__ import annotations

import datetime
import decimal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from surefoot.tasks.base import Task
from surefoot.tasks.fingerprint import canonical, task_fingerprint
from surefoot.types import Prompt


@dataclass(frozen=True)
class Board:
    cells: tuple[int, ...]
    seen: frozenset[str] = frozenset()


class Plain:
    """An environment whose text is its address."""

    def __init__(self, **state: Any) -> None:
        self.__dict__.update(state)


def of(metadata: dict[Any, Any], **over: Any) -> str:
    return task_fingerprint(replace(Task("t", (Prompt("a", "1+1=", "2", metadata),), ()), **over))


LONG = np.arange(5000)
PAIRS: dict[str, tuple[Any, Any]] = {
    "tests": (["assert f(1) == 2"], ["assert f(1) == 3"]),
    "options": ({"a": "1", "b": "2"}, {"a": "2", "b": "1"}),
    "order of a list": ([1, 2], [2, 1]),
    "an array that is long": (LONG, np.where(LONG == 2500, 0, LONG)),
    "a tensor that is long": (torch.arange(5000), torch.arange(5000) + (torch.arange(5000) == 2500)),
    "a set": ({"a", "b"}, {"a", "c"}),
    "bytes": (b"\xff", b"\xfe"),
    "a dataclass": (Board((1, 2)), Board((2, 1))),
    "an object": (Plain(board=[1]), Plain(board=[2])),
    "an object in an object": (Plain(inner=Plain(x=1)), Plain(inner=Plain(x=2))),
    "a date": (datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)),
    "a decimal": (decimal.Decimal("0.1"), decimal.Decimal("0.2")),
    "keys of two kinds": ({1: "a", "x": "b"}, {1: "a", "x": "c"}),
    "keys that are tuples": ({(0, 1): "a"}, {(0, 2): "a"}),
    "half a character": ("\ud800", "\ud801"),
    "true and one": (True, 1),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_is_in_the_metadata_counts(name: str) -> None:
    one, other = PAIRS[name]
    assert of({"x": one}) == of({"x": one}) != of({"x": other})


def test_the_order_of_keys_and_sets_does_not_count() -> None:
    assert of({"a": 1, "b": {"c": 2, "d": 3}}) == of({"b": {"d": 3, "c": 2}, "a": 1})
    assert of({1: "a", "x": {2: 0, "y": 1}}) == of({"x": {"y": 1, 2: 0}, 1: "a"})
    assert canonical({"b", "a", "c"}) == canonical({"c", "b", "a"})


def test_what_holds_itself_has_a_fingerprint() -> None:
    def ring() -> dict[str, Any]:
        made: dict[str, Any] = {"x": 1}
        made["self"] = made
        return made

    assert of(ring()) == of(ring())


def test_examples_weights_and_verifier_count() -> None:
    shot = Prompt("s", "2+2=", "4")
    seen = {of({}), of({}, shots=((shot, "4"),)), of({}, shots=((shot, "four"),)), of({}, verifier="exact")}
    assert len(seen | {of({}, weights={"a": 1.0})}) == 5


def test_another_process_makes_the_same(repository: Path) -> None:
    """With another order of sets and other addresses."""
    code = (
        "from tests.tasks.test_tasks_fingerprint import *\n"
        "print(of({'s': {'a', 'b', 'c', 'd'}, 'o': Plain(x=Plain(y={'p', 'q', 'r'})), 'f': len, 'l': canonical, "
        "'b': Board((1,), frozenset('xyz')), 'n': LONG}))"
    )
    made = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(repository)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(made) == 1
