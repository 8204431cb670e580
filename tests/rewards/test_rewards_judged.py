"""Pairs that a person judged by the documented rules before the code was run on them, kind by kind.

``data/judged/NAME.jsonl``: ``kind``, ``gold``, ``metadata``, ``text``, ``verdict`` ("right", "wrong" or "none", where the text
holds no answer) and ``why``. Half of them are right, the others tempting. NAME_held_out are pairs that were written after the
code was finished; what they showed has been mended since, and the page docs/verdicts_choice_number.md has the first figures.
"""

from __future__ import annotations

import json

import pytest

from surefoot.rewards.verifiers import make_verifier
from surefoot.types import Prompt
from tests.rewards.case_tables import DATA

MISSES = {
    ("choice", "The answer is B. a black cat or C. Rome"),  # the statement ends at its full stop
    ("choice", "\\boxed{A}, \\boxed{B} and C"),  # only the last box is looked at
}
MOST = 0.03


def load(name: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / "judged" / f"{name}.jsonl").read_text().splitlines()]


def taken(name: str, row: dict) -> bool:
    return bool(make_verifier(name)(Prompt("p", "?", row["gold"], row.get("metadata") or {}), row["text"]).correct)


@pytest.mark.parametrize("name", ["number", "choice", "number_held_out", "choice_held_out"])
def test_verdicts_are_those_of_a_person(name: str) -> None:
    verifier, rows = name.split("_")[0], load(name)
    wrong = [row for row in rows if taken(verifier, row) != (row["verdict"] == "right")]
    expected = {text for kind, text in MISSES if kind == verifier and any(row["text"] == text for row in rows)}
    assert {row["text"] for row in wrong} == expected, "a miss that is mended is to be taken out of MISSES"
    for right in (True, False):
        side = [row for row in rows if (row["verdict"] == "right") is right]
        assert sum(row in wrong for row in side) <= MOST * len(side)


@pytest.mark.parametrize("name", ["number", "choice"])
def test_the_tables_are_large_and_half_of_each_is_tempting(name: str) -> None:
    rows = load(name)
    right = sum(row["verdict"] == "right" for row in rows)
    assert len(rows) >= 500 and 0.45 < right / len(rows) < 0.55
    assert len({(row["gold"], row["text"], str(row.get("metadata"))) for row in rows}) == len(rows)
    assert all(row["why"] and row["verdict"] in ("right", "wrong", "none") for row in rows)
