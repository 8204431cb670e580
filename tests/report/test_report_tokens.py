"""Tokens in the page are those of the file, in fewer bytes, whatever a file holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from surefoot.report.differences import differences
from surefoot.report.samples import FIELDS, sample_table
from surefoot.report.token_table import NONE, token_table
from tests.report.conftest import build_run, token_lists, write_lines


def test_numbers_keep_two_decimals_of_a_nat_and_three_digits_of_a_ratio() -> None:
    lists = token_lists("some text of a model<eos>")
    table = token_table(lists, "some text of a model")
    assert table is not None and table["rest"] == "<eos>"
    assert sum(table["sizes"]) == len("some text of a model<eos>")
    for name, scale in (("logp", 100), ("entropy", 100)):
        assert [value / scale for value in table[name]] == pytest.approx(lists[name], abs=0.0051)
    import numpy as np

    assert np.exp(np.array(table["ratio"]) / 1000) == pytest.approx(lists["ratio"], rel=6e-4)
    assert table["start"] == [1] * len(lists["text"]) and table["bounds"] == lists["bounds"]


def test_what_a_token_lacks_is_none_and_not_zero() -> None:
    table = token_table({"text": ["a", "b"], "logp": [None, -0.5], "ratio": [0.0, 1.0], "entropy": [1e9, 0.0]}, "x")
    assert table is not None and table["text"] == "ab"
    assert table["logp"] == [NONE, -50] and table["ratio"] == [NONE, 0] and table["entropy"] == [32767, 0]


def test_sizes_count_as_javascript_does_and_broken_text_is_mended() -> None:
    table = token_table({"text": ["😀", "é", "\ud83d", "\0", ""]}, "")
    assert table is not None and table["sizes"] == [2, 1, 1, 1, 0] and table["rest"] == "😀é\ufffd\ufffd"


@pytest.mark.parametrize(
    "tokens",
    [None, 3, [], {}, {"text": []}, {"text": [1, 2]}, {"text": "ab"}, {"logp": [1.0]}],
)
def test_what_is_no_list_of_tokens_is_left_out(tokens: Any) -> None:
    assert token_table(tokens, "") is None


def test_lists_of_another_kind_or_length_are_left_out_and_the_rest_stays() -> None:
    odd = {
        "logp": [1.0],
        "ratio": ["a", "b"],
        "entropy": {"x": 1},
        "origin": ["policy"],
        "bounds": {"clip": [0, 9, "x", True]},
    }
    table = token_table({"text": ["a", "b"], "advantage": [0.5, None], **odd}, "ab")
    assert table == {"rest": "", "sizes": [1, 1], "advantage": [500, NONE], "bounds": {"clip": [0]}}


def test_table_holds_every_sample_with_the_place_of_its_texts(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", steps=2, tokens=3)
    table = sample_table(run, [])
    tokens = [row[FIELDS.index("tokens")] for row in table.rows]
    assert sum(found is not None for found in tokens) == 2 * 3
    places = [tuple(row[FIELDS.index("text")]) for row in table.rows]
    assert len(set(places)) == len(places)


def test_a_line_of_tokens_that_is_torn_costs_that_line_only(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", steps=1, tokens=2)
    file = run / "samples" / "step-000001.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[0]["tokens"] = {"text": ["\ud800", 5]}
    write_lines(file, lines)
    file.write_text(file.read_text()[:-30])
    gaps: list[str] = []
    table = sample_table(run, gaps)
    train = [row for row in table.rows if row[0] == "train"]
    assert len(train) == len(lines) - 1 and "torn" in gaps[0]
    assert [row[FIELDS.index("tokens")] is not None for row in train[:2]] == [False, True]


def test_differences_of_settings_are_by_dotted_key() -> None:
    one = {"name": "a", "train": {"steps": 3, "seed": 0}, "lr": 1e-3}
    other = {"name": "b", "train": {"steps": 4, "seed": 0}, "extra": [1]}
    assert differences({"a": one, "b": other}) == [
        ("train.steps", ["3", "4"]), ("lr", ["0.001", "—"]), ("extra", ["—", "[1]"]),
    ]  # fmt: skip
