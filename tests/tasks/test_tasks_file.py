"""Problems from files: what is read, what is refused in one clear line, and what is kept apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from surefoot.config import validate
from surefoot.errors import ConfigError, DataError
from surefoot.tasks.base import Task
from surefoot.tasks.build import build_task
from surefoot.tasks.config import TaskConfig

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}]


def rows(n: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"prompt": f"{k} + 1 =", "answer": k + 1} for k in range(start, start + n)]


def write(path: Path, records: list[Any]) -> Path:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def load(path: Path, **over: Any) -> Task:
    return build_task(TaskConfig(**{"name": "file", "path": str(path), **over}))


@pytest.fixture(params=[".jsonl", ".ndjson", ".parquet", ".JSONL"])
def suffix(request: pytest.FixtureRequest) -> str:
    return request.param


def test_every_column_arrives(tmp_path: Path, suffix: str):
    records = [
        {"prompt": f"{k}?", "answer": f"{k}", "metadata": {"level": k}, "completion": f"It is {k}.", "other": 1.5}
        for k in range(40)
    ]
    task = load(write(tmp_path / f"data{suffix}", records))
    assert len(task.train) + len(task.heldout) == 40 and len(task.heldout) >= 1
    for prompt in (*task.train, *task.heldout):
        k = int(prompt.answer)
        assert prompt.content == f"{k}?"
        assert prompt.metadata == {"level": k, "completion": f"It is {k}.", "other": 1.5}
        assert task.demonstrate is not None and task.demonstrate(prompt, 0, 0.0) == f"It is {k}."
    assert task.verify is None and task.notes == ()


def test_messages_arrive(tmp_path: Path, suffix: str):
    heldout = write(tmp_path / f"heldout{suffix}", [{"prompt": [{"role": "user", "content": "2 + 2?"}]}])
    task = load(write(tmp_path / f"data{suffix}", [{"prompt": CHAT, "answer": 2}]), heldout_path=str(heldout))
    assert task.train[0].content == tuple(CHAT)
    assert task.train[0].text == "1 + 1?"
    assert task.heldout[0].answer is None


def test_the_kind_of_file_does_not_change_the_problems(tmp_path: Path):
    first, second = (load(write(tmp_path / f"data{s}", rows(60))) for s in (".jsonl", ".parquet"))
    assert first.train == second.train and first.heldout == second.heldout and first.fingerprint == second.fingerprint


def test_a_row_stays_on_its_side_whatever_else_is_in_the_file(tmp_path: Path):
    small = load(write(tmp_path / "small.jsonl", rows(60)))
    large = load(write(tmp_path / "large.jsonl", list(reversed(rows(300)))))
    ids = lambda prompts: {prompt.prompt_id for prompt in prompts}  # noqa: E731
    assert ids(small.train) <= ids(large.train) and ids(small.heldout) <= ids(large.heldout)
    assert not ids(large.train) & ids(large.heldout)


def test_sizes_are_upper_bounds_in_the_order_of_the_file(tmp_path: Path):
    path = write(tmp_path / "data.jsonl", rows(200))
    whole, part = load(path), load(path, train_size=7, heldout_size=3)
    assert part.train == whole.train[:7] and part.heldout == whole.heldout[:3]
    assert [prompt.answer for prompt in whole.train] == sorted(prompt.answer for prompt in whole.train)
    assert not load(path, heldout_size=0).heldout
    assert len(load(path, heldout_share=0.5).heldout) > len(whole.heldout)


def test_duplicates_are_kept_once_and_counted(tmp_path: Path, suffix: str):
    records = [*rows(50), *rows(3), {"prompt": "5 + 1 =", "answer": 7}]
    task = load(write(tmp_path / f"data{suffix}", records))
    assert len(task.train) + len(task.heldout) == 50
    assert task.notes == (
        f"{tmp_path / f'data{suffix}'}: 4 rows repeat the prompt of an earlier row and were left out, 1 of them with "
        "another answer",
    )
    assert {p.content: p.answer for p in (*task.train, *task.heldout)}["5 + 1 ="] == 6


def test_with_a_held_out_file_every_row_is_for_training(tmp_path: Path):
    train, heldout = write(tmp_path / "a.jsonl", rows(50)), write(tmp_path / "b.parquet", rows(20, 100))
    task = load(train, heldout_path=str(heldout))
    assert (len(task.train), len(task.heldout)) == (50, 20)


@pytest.mark.parametrize("shared", [{"prompt": "7 + 1 =", "answer": 8}, {"prompt": " 7 +  1 =\n", "answer": "another"}])
def test_a_problem_in_both_files_is_refused(tmp_path: Path, shared: dict[str, Any]):
    train, heldout = write(tmp_path / "a.jsonl", rows(50)), write(tmp_path / "b.jsonl", [*rows(20, 100), shared])
    with pytest.raises(DataError, match=r"1 problems stand in both .*first: row 8 and row 21"):
        load(train, heldout_path=str(heldout))


def test_messages_in_both_files_are_refused(tmp_path: Path):
    train, heldout = write(tmp_path / "a.jsonl", [{"prompt": CHAT}]), write(tmp_path / "b.jsonl", [{"prompt": CHAT}])
    with pytest.raises(DataError, match="1 problems stand in both"):
        load(train, heldout_path=str(heldout))


def test_white_space_alone_never_splits_a_problem_over_both_parts(tmp_path: Path):
    records = [{"prompt": p} for k in range(60) for p in (f"{k} + 1 =", f"{k}  + 1 =", f"{k} + 1 =\n")]
    task = load(write(tmp_path / "data.jsonl", records))
    assert len(task.train) + len(task.heldout) == 180
    keys = [{"".join(prompt.text.split()) for prompt in part} for part in (task.train, task.heldout)]
    assert not keys[0] & keys[1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no problems: it is empty"),
        ("\n\n", "holds no problems: it is empty"),
        ('{"prompt": "a"}\n{"prompt": \n', "line 2 is not valid JSON"),
        ('{"prompt": "a"}\n\nnonsense\n', "line 3 is not valid JSON"),
        ("[" * 100_000, "line 1 is not valid JSON"),
        ('{"prompt": ' + "1" * 5000 + "}", "line 1 is not valid JSON"),
        ('["a"]\n', "line 1 is a list; expected an object with 'prompt' and 'answer'"),
        ("3\n", "line 1 is a number; expected an object"),
        ("null\n", "line 1 is null; expected an object"),
        ('{"prompt": "a"}\n{"question": "b", "answer": 1}\n', "line 2 has no 'prompt' (it has question, answer)"),
        ("{}\n", "line 1 has no 'prompt' (it has nothing)"),
        ('{"prompt": null}\n', "line 1 has no 'prompt'"),
        ('{"prompt": ""}\n', "line 1: 'prompt' is empty"),
        ('{"prompt": " \\n"}\n', "line 1: 'prompt' is empty"),
        ('{"prompt": 3}\n', "line 1: 'prompt' is a number"),
        ('{"prompt": []}\n', "line 1: 'prompt' is a list without entries"),
        ('{"prompt": {"role": "user"}}\n', "line 1: 'prompt' is an object"),
        ('{"prompt": ["a"]}\n', "line 1: a message of 'prompt' is a; expected an object with 'role'"),
        ('{"prompt": [{"role": "user"}]}\n', "line 1: a message of 'prompt' is"),
        ('{"prompt": [{"role": "human", "content": "a"}]}\n', "line 1: a message of 'prompt' is"),
        ('{"prompt": [{"role": "user", "content": ["a"]}]}\n', "line 1: a message of 'prompt' is"),
        ('{"prompt": [{"role": "system", "content": "a"}]}\n', "expected 'user' to speak last"),
        (
            '{"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n',
            "the last message of 'prompt' is of 'assistant'",
        ),
        ('{"prompt": "a", "metadata": "easy"}\n', "line 1: 'metadata' is text; expected an object"),
        ('{"prompt": "a", "completion": 3}\n', "line 1: 'completion' is a number; expected text"),
    ],
)
def test_a_bad_line_is_named_with_its_number(tmp_path: Path, text: str, words: str):
    path = tmp_path / "data.jsonl"
    path.write_text(text)
    with pytest.raises(DataError) as error:
        load(path, heldout_size=0)
    assert words in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_bad_row_of_a_parquet_file_is_named_with_its_number(tmp_path: Path):
    path = write(tmp_path / "data.parquet", [{"prompt": "a"}, {"prompt": None}])
    with pytest.raises(DataError, match="row 2 has no 'prompt'"):
        load(path)
    path = write(tmp_path / "other.parquet", [{"question": "a"}])
    with pytest.raises(DataError, match=r"row 1 has no 'prompt' \(it has question\)"):
        load(path)
    path = write(tmp_path / "none.parquet", [])
    with pytest.raises(DataError, match="it is empty"):
        load(path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing.jsonl", None, "does not exist: give a JSONL, JSON, CSV or Parquet file"),
        (
            "data.xls",
            b"prompt,answer\n",
            "unknown kind of file; expected one of .jsonl, .ndjson, .json, .csv, .tsv, .parquet",
        ),
        ("data", b"", "unknown kind of file"),
        ("data.jsonl", b"\xff\xfe\x00", "is not UTF-8 text"),
        ("data.parquet", b"nonsense", "is not a Parquet file that can be read"),
        ("data.parquet", b"", "is not a Parquet file that can be read"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, name: str, content: bytes | None, words: str):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    for over in (
        {"path": str(path)},
        {"path": str(write(tmp_path / "good.jsonl", rows(3))), "heldout_path": str(path)},
    ):
        with pytest.raises(DataError) as error:
            build_task(TaskConfig(name="file", **over))
        assert words in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_folder_is_no_file(tmp_path: Path):
    (tmp_path / "data.jsonl").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        load(tmp_path / "data.jsonl")


def test_a_byte_order_mark_does_not_matter(tmp_path: Path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"prompt": "a"}\n', encoding="utf-8-sig")
    assert load(path, heldout_share=1e-9, heldout_size=0).train[0].content == "a"


def test_options_that_are_missing_or_do_not_belong(tmp_path: Path):
    path = write(tmp_path / "data.jsonl", rows(50))
    with pytest.raises(DataError, match=r"needs task\.path"):
        build_task(TaskConfig(name="file"))
    with pytest.raises(DataError, match=r"task.options of the task 'file': unknown option 'digits'"):
        load(path, options={"digits": 3})
    for key in ("path", "heldout_path"):
        with pytest.raises(DataError, match=rf"task\.{key} is read by 'file' and 'hub:...' only"):
            build_task(TaskConfig(**{key: str(path)}))


def test_a_part_without_problems_is_refused(tmp_path: Path):
    path = write(tmp_path / "data.jsonl", rows(3))
    with pytest.raises(DataError, match=r"has 3 problems, of which the hash keeps 0 for held-out use"):
        load(path, heldout_share=0.001)
    with pytest.raises(DataError, match=r"keeps 3 for held-out use and 0 for training"):
        load(path, heldout_share=0.999)
    assert len(load(path, heldout_share=0.001, heldout_size=0).train) == 3


def test_demonstrations_need_a_completion_in_every_row(tmp_path: Path):
    some = [*rows(30), {"prompt": "last", "completion": "yes"}]
    assert load(write(tmp_path / "some.jsonl", some)).demonstrate is None
    task = load(write(tmp_path / "all.jsonl", [{**row, "completion": "yes"} for row in rows(30)]))
    assert task.demonstrate is not None
    with pytest.raises(DataError, match=r"an error rate of 0\.2 is not possible"):
        task.demonstrate(task.train[0], 0, 0.2)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "a\ud800b"},
        {"prompt": [{"role": "user", "content": "a\ud800b"}]},
        {"prompt": "1+1", "completion": "a\ud800b"},
    ],
)
def test_half_a_surrogate_pair_is_named_with_its_row(tmp_path, row):
    path = tmp_path / "data.jsonl"
    path.write_text('{"prompt": "1+2"}\n' + json.dumps(row) + "\n")
    with pytest.raises(DataError, match=r"line 2: '(prompt|completion)'.*surrogate"):
        build_task(TaskConfig(name="file", path=str(path)))


def test_a_path_that_no_file_can_have_is_one_line():
    with pytest.raises(DataError, match="cannot be read: File name too long"):
        build_task(TaskConfig(name="file", path="x" * 300 + ".jsonl"))


def test_a_wording_that_is_no_unicode_is_refused():
    for key in ("prompt", "system"):
        with pytest.raises(ConfigError, match=f"{key} = .*surrogate"):
            validate(TaskConfig, {key: "\ud800 {prompt}"})


@pytest.mark.parametrize(("wrong", "right"), [("anwser", "answer"), ("promt", "prompt"), ("completions", "completion")])
def test_a_key_that_is_nearly_right_is_named_with_its_row(wrong: str, right: str, tmp_path: Path) -> None:
    row = {"prompt": "1+1=", "answer": "2", "completion": "2"}
    file = tmp_path / "rows.jsonl"
    file.write_text(
        json.dumps(row) + "\n" + json.dumps({(wrong if k == right else k): v for k, v in row.items()}) + "\n"
    )
    with pytest.raises(DataError, match=rf"line 2: unknown key '{wrong}'\. Did you mean '{right}'\?"):
        build_task(TaskConfig(name="file", path=str(file)))
