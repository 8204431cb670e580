"""What the answer of a row says. Expected texts are what a person would write for the value, by the table in docs/tasks.md."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.config import validate
from surefoot.errors import RewardError
from surefoot.rewards.build import build_reward
from surefoot.rewards.config import RewardConfig
from surefoot.tasks.build import build_task
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.gold import GoldError, accepted, shown


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("5", {"5"}),
        ("(1, 2)", {"(1, 2)"}),
        ('["5"]', {'["5"]'}),
        (["5"], {"5"}),
        (["5", "five"], {"5", "five"}),
        ([5, "five"], {"5", "five"}),
        (("a", "b"), {"a", "b"}),
        (np.array(["5", "five"], dtype=object), {"5", "five"}),
        (np.array([5, 6]), {"5", "6"}),
        (["5", "5"], {"5"}),
        (7, {"7"}),
        (123456789012345678901234567890, {"123456789012345678901234567890"}),
        (5.0, {"5", "5.0"}),
        (-0.0, {"0", "-0.0"}),
        (0.1, {"0.1"}),
        (1e22, {"10000000000000000000000", "1e+22"}),
        (Decimal("5.00"), {"5", "5.00"}),
        (Decimal("0.10"), {"0.1", "0.10"}),
        (Decimal("1E+3"), {"1000", "1E+3"}),
        (np.float32(0.1), {"0.1"}),
        (np.int64(5), {"5"}),
        (np.bool_(True), {"true", "True"}),
        (False, {"false", "False"}),
        (b"5", {"5"}),
        ("é".encode(), {"é"}),
        (date(2024, 1, 5), {"2024-01-05"}),
        (np.datetime64("2024-01-05"), {"2024-01-05"}),
        (time(10, 30), {"10:30:00", "10:30"}),
        (time(10, 30, 5), {"10:30:05"}),
        (datetime(2024, 1, 5, 10, 30, 5), {"2024-01-05T10:30:05", "2024-01-05 10:30:05"}),
        ([date(2024, 1, 5), "5 January 2024"], {"2024-01-05", "5 January 2024"}),
    ],
    ids=lambda value: "texts" if isinstance(value, set) else repr(value),
)
def test_the_texts_that_are_right(answer: Any, right: set[str]):
    assert set(accepted(answer)) == right


def test_a_time_at_midnight_is_a_date_too():
    assert accepted(datetime(2024, 1, 5))[0] == "2024-01-05"
    assert "2024-01-05" not in accepted(datetime(2024, 1, 5, tzinfo=UTC))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "null"),
        ([], "without entries"),
        (np.array([]), "without entries"),
        ([["5"]], "list in a list"),
        (["5", None], "entry 2 .None. is null"),
        (["5", {"a": 1}], "entry 2 .* object"),
        (float("nan"), "NaN"),
        (["5", float("nan")], "entry 2 .*NaN"),
        (Decimal("NaN"), "NaN"),
        (float("inf"), "infinite"),
        ({"text": ["5"]}, "task.options.answer = 'answer.text'"),
        (timedelta(seconds=5), "duration"),
        (b"\xff\xfe", "no text"),
        (1 + 2j, "type complex"),
        (np.datetime64("NaT"), "null"),
        ("a\ud800", "surrogate"),
        (10**5000, "4300 digits"),
    ],
    ids=[
        *(
            "null",
            "empty",
            "empty array",
            "nested",
            "null in a list",
            "object in a list",
            "nan",
            "nan in a list",
            "decimal nan",
        ),
        *("infinity", "object", "duration", "bytes", "complex", "no time", "surrogate", "long"),
    ],
)
def test_what_is_no_answer_says_why(answer: Any, why: str):
    with pytest.raises(GoldError, match=why):
        accepted(answer)


def test_answers_as_a_person_reads_them():
    assert [shown(one) for one in (["5", "five"], Decimal("5.00"), {"a": [1]}, True)] == [
        "5 or five",
        "5",
        '{"a": [1]}',
        "true",
    ]


def file_of(path: Path, answers: list[Any]) -> dict[str, Any]:
    rows = [{"prompt": f"Question {k}?", "answer": answer} for k, answer in enumerate(answers)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"name": "file", "path": str(path), "heldout_share": 0.4}


@pytest.mark.parametrize("verifier", ["auto", "exact", "number", "boxed", "tag", "math", "choice", "regex", "steps"])
@pytest.mark.parametrize("bad", [[], [["5"]], ["5", None], {"a": "5"}, float("nan")], ids=repr)
def test_a_row_without_a_possible_answer_is_refused_by_file_and_line(tmp_path: Path, bad: Any, verifier: str):
    task = build_task(
        validate(TaskConfig, file_of(tmp_path / "rows.jsonl", ["A" if verifier == "choice" else "5"] * 6 + [bad]))
    )
    with pytest.raises(RewardError, match=r"rows\.jsonl, line 7: the gold answer") as error:
        build_reward(RewardConfig(verifier=verifier), task)
    assert "\n" not in str(error.value)


def test_an_accepted_answer_that_the_verifier_cannot_match_is_refused_by_row(tmp_path: Path):
    task = build_task(validate(TaskConfig, file_of(tmp_path / "rows.jsonl", [["5"]] * 6 + [["5", "five"]])))
    with pytest.raises(RewardError, match=r"line 7.*of which 'five' is not a number"):
        build_reward(RewardConfig(verifier="number"), task)


@pytest.mark.parametrize(
    ("answers", "name"),
    [
        ([["5"], [5, "6.0"]], "number"),
        ([5.0, "7"], "number"),
        ([["5", "five"], ["6"]], "exact"),
        ([True, False], "exact"),
    ],
    ids=["lists of numbers", "numbers", "one word", "booleans"],
)
def test_auto_looks_at_every_accepted_answer(tmp_path: Path, answers: list[Any], name: str):
    task = build_task(validate(TaskConfig, file_of(tmp_path / "rows.jsonl", answers * 5)))
    assert build_reward(RewardConfig(), task).name == name


def test_a_parquet_file_of_every_kind(tmp_path: Path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "decimal": (arrow.array([Decimal("5.00")]), "5"),
        "decimals": (arrow.array([[Decimal("5.00"), Decimal("7.50")]]), "7.5"),
        "float32": (arrow.array([0.1], arrow.float32()), "0.1"),
        "floats": (arrow.array([[0.1, 0.2]], arrow.list_(arrow.float32())), "0.2"),
        "half": (arrow.array(np.array([0.1], dtype=np.float16)), "0.1"),
        "double": (arrow.array([5.0]), "5"),
        "binary": (arrow.array([b"5"]), "5"),
        "boolean": (arrow.array([True]), "True"),
        "day": (arrow.array([date(2024, 1, 5)]), "2024-01-05"),
        "stamp": (arrow.array([np.datetime64("2024-01-05T00:00:00", "us")]), "2024-01-05"),
        "list": (arrow.array([["5", "five"]]), "five"),
        "large list": (arrow.array([["5", "five"]], arrow.large_list(arrow.string())), "five"),
        "struct.value": (arrow.array([{"value": "5"}]), "5"),
        "words": (arrow.array(["five"]).dictionary_encode(), "five"),
    }
    for name, (column, text) in columns.items():
        path = tmp_path / "rows.parquet"
        parquet.write_table(arrow.table({"prompt": ["What?"], name.split(".")[0]: column}), path)
        config = {
            "name": "file",
            "path": str(path),
            "options": {"answer": name},
            "heldout_size": 0,
            "heldout_share": 1e-12,
        }
        task = build_task(validate(TaskConfig, config))
        scores = build_reward(RewardConfig(verifier="exact"), task)
        from surefoot.rewards.base import Completion

        (score,) = scores.score([Completion(task.train[0], text)])
        assert score.correct, (name, task.train[0].answer, text)


def test_a_struct_of_a_parquet_file_is_refused_with_the_entry_to_name(tmp_path: Path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    parquet.write_table(arrow.table({"prompt": ["What?"], "answer": arrow.array([{"value": "5"}])}), path)
    config = {"name": "file", "path": str(path), "heldout_size": 0, "heldout_share": 1e-12}
    task = build_task(validate(TaskConfig, config))
    with pytest.raises(RewardError, match=r"rows\.parquet, row 1: .*task.options.answer = 'answer.value'"):
        build_reward(RewardConfig(), task)


@pytest.mark.parametrize(
    ("name", "row", "answer"),
    [
        ("gsm8k", {"question": "q", "answer": ["5"]}, ["5"]),
        ("gsm8k", {"question": "q", "answer": ["So it is.\n#### 1,005", "1005.0"]}, ["1005", "1005.0"]),
        ("gsm8k", {"question": "q", "answer": 5}, "5"),
        ("math", {"problem": "q", "answer": [" 5 ", r"\frac{10}{2}"], "solution": "s"}, ["5", r"\frac{10}{2}"]),
        ("deepscaler", {"problem": "q", "answer": ["5"], "solution": "s"}, ["5"]),
        ("aime2024", {"problem": "q", "answer": ["005", 5]}, ["5", "5"]),
        ("mmlu", {"question": "q", "choices": ["a", "b", "c"], "answer": [0, 2]}, ["A", "C"]),
        ("arc", {"question": "q", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": ["2"]}, "B"),
    ],
    ids=["gsm8k", "gsm8k solutions", "gsm8k number", "math", "deepscaler", "aime", "mmlu", "arc"],
)
def test_data_sets_of_the_hub_take_lists_of_accepted_answers(
    tmp_path: Path, name: str, row: dict[str, Any], answer: Any
):
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    from surefoot.tasks.hub_table import SCHEMAS

    mend = SCHEMAS[name].mend
    assert mend is not None
    mended = mend(row)
    assert mended is not None and mended["answer"] == answer
