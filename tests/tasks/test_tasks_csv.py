"""CSV, TSV, JSON lists and packed files; which columns are what; and what stays as metadata."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from surefoot.errors import DataError
from surefoot.tasks.base import Task
from surefoot.tasks.build import build_task
from surefoot.tasks.config import TaskConfig

ROWS = [
    {"question": f"{k}, plus 1?\nSay", "label": str(k + 1), "level": str(k % 3), "id": f"{k:03d}"} for k in range(40)
]


def load(path: Path, **over: Any) -> Task:
    return build_task(TaskConfig(**{"name": "file", "path": str(path), "heldout_share": 0.2, **over}))


def everything(task: Task) -> list[Any]:
    return sorted([*task.train, *task.heldout], key=lambda prompt: prompt.prompt_id)


def as_csv(rows: list[dict[str, str]], separator: str = ",") -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), delimiter=separator)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


COLUMNS = {"prompt": "question", "answer": "label"}


def test_every_kind_of_file_gives_the_same_problems(tmp_path: Path) -> None:
    numbers = [{**row, "level": int(row["level"])} for row in ROWS]
    lines = "".join(json.dumps(row) + "\n" for row in numbers)
    (tmp_path / "a.csv").write_bytes(as_csv(ROWS).encode("utf-8-sig"))
    (tmp_path / "a.tsv").write_text(as_csv(ROWS, "\t"))
    (tmp_path / "a.json").write_text(" \n" + json.dumps(numbers))
    (tmp_path / "b.json").write_text(lines)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(as_csv(ROWS).encode()))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    tasks = [load(path, options=COLUMNS) for path in sorted(tmp_path.iterdir())]
    assert len(tasks) == 6
    for task in tasks:
        assert everything(task) == everything(tasks[0]) and len(everything(task)) == 40
        assert task.fingerprint == tasks[0].fingerprint
    prompt = next(p for p in everything(tasks[0]) if p.metadata["id"] == "007")
    assert prompt.content == "7, plus 1?\nSay" and prompt.answer == "8" and prompt.metadata == {"level": 1, "id": "007"}


def test_templates_join_columns_and_letter_lists(tmp_path: Path) -> None:
    rows = [
        {"question": f"Which {k}?", "choices": ["x", f"y{k}"], "key": {"letter": "B"}, "role": "Be {k}."}
        for k in range(20)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {
        "prompt": "{question}\n{choices}\n{{letter}}",
        "answer": "key.letter",
        "system": "role",
        "completion": "It is {key.letter}.",
        "verifier": "exact",
    }
    task = load(tmp_path / "a.jsonl", options=options)
    prompt = next(p for p in everything(task) if "Which 3?" in p.text)
    assert prompt.content == (
        {"role": "system", "content": "Be {k}."},
        {"role": "user", "content": "Which 3?\nA. x\nB. y3\n{letter}"},
    )
    assert prompt.answer == "B" and task.verifier == "exact"
    assert prompt.metadata["choices"] == ["x", "y3"] and "role" not in prompt.metadata
    assert task.demonstrate is not None and task.demonstrate(prompt, 0, 0.0) == "It is B."


def test_a_column_never_displaces_an_entry_of_the_metadata(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('prompt,answer,metadata,level\n1+1,2,"{""level"": 5}",3\n')
    assert load(tmp_path / "a.csv", heldout_size=0, heldout_share=1e-9).train[0].metadata == {"level": 5}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prompt,answer\n1,2\n3\n", "line 3 has 1 cells, and the header has 2 (prompt, answer)"),
        ('prompt,answer\n"a\nb",2\n3,4,5\n', "line 4 has 3 cells"),
        ('prompt,answer\n1,2\n"open,4\n', "line 3 cannot be read: unexpected end of data"),
        ("prompt,prompt\n1,2\n", "line 1: the header is prompt, prompt; expected a name of its own"),
        ("prompt,\n1,2\n", "line 1: the header is prompt, "),
        ("prompt,answer\n ,2\n", "line 2 has no 'prompt'"),
        ("prompt,answer,metadata\n1,2,{\n", "line 2: 'metadata' is not valid JSON"),
        ("prompt,answer\n", "it is empty"),
        ("", "it is empty"),
        ("question,answer\n1,2\n", "line 2 has no 'prompt' (it has question, answer)"),
    ],
)
def test_a_bad_line_is_named_with_its_number(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError) as error:
        load(tmp_path / "a.csv", heldout_size=0)
    assert words in str(error.value) and "a.csv" in str(error.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"prompt": "qestion"},
            "line 2 has no column 'qestion', which task.options.prompt = 'qestion' names .* 'question'",
        ),
        ({"prompt": "{question} {x}"}, "has no column 'x'"),
        ({"prompt": "question", "answer": "labels"}, "has no column 'labels'.*Did you mean 'label'"),
        ({"prompt": "{question"}, "the braces of"),
        ({"prompt": "{}"}, "braces without the plain name of a column"),
        ({"promt": "question"}, "unknown option 'promt'. Did you mean 'prompt'"),
    ],
)
def test_a_column_that_is_not_there_is_named(options: dict[str, str], words: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(as_csv(ROWS))
    with pytest.raises(DataError, match=words):
        load(tmp_path / "a.csv", options=options)


CUT = gzip.compress(b'{"prompt": "a"}\n' * 100, mtime=0)[:-12]


@pytest.mark.parametrize("content", [b"nonsense", CUT], ids=["nonsense", "cut"])
def test_a_damaged_packed_file_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(content)
    with pytest.raises(DataError, match="is not a gzip file that can be read"):
        load(tmp_path / "a.jsonl.gz", heldout_size=0)


def test_long_cells_are_read(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    (tmp_path / "a.csv").write_text("prompt,answer\n" + "x" * 300_000 + ",1\n")
    assert len(load(tmp_path / "a.csv", heldout_size=0, heldout_share=1e-9).train[0].text) == 300_000
    assert csv.field_size_limit() == limit, "what other programs read is left alone"


def test_a_python_name_of_a_file_is_a_task(tmp_path: Path) -> None:
    import surefoot

    (tmp_path / "a.csv").write_text("prompt,answer\n" + "".join(f"{k}+1=,{k + 1}\n" for k in range(30)))
    result = surefoot.train(
        task=tmp_path / "a.csv",
        runs=str(tmp_path),
        train={"steps": 1, "prompts_per_step": 2, "group_size": 2},
        rollout={"max_new_tokens": 2},
        evaluation={"problems": 2},
    )
    assert result.summary["after"]["problems"] == 2
