"""Data sets of the hub: rows of every schema that is known, the loader itself on a folder of the same shape, and no network."""

from __future__ import annotations

import base64
import json
import os
import pickle
import zlib
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from surefoot.errors import DataError, MissingExtraError
from surefoot.tasks import hub
from surefoot.tasks.base import Task
from surefoot.tasks.build import build_task
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.hub_table import SCHEMAS
from surefoot.types import Prompt

DAPO = (
    "Solve the following math problem step by step. End with a line of its own.\n\n{problem}\n\n"
    'Remember to put your answer on its own line after "Answer:".'
)


def parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def load(name: str, path: Path | None = None, **over: Any) -> Task:
    return build_task(TaskConfig(name=f"hub:{name}", path=None if path is None else str(path), **over))


def one(name: str, tmp_path: Path, row: dict[str, Any], **over: Any) -> Prompt:
    """The one problem of a file with one row."""
    jsonl(tmp_path / "test.jsonl", [row])
    task = load(
        name,
        tmp_path / "test.jsonl",
        **{"heldout_share": 1e-9, "heldout_size": 0 if SCHEMAS[name].train else 1, **over},
    )
    (prompt,) = (*task.train, *task.heldout)
    return prompt


def hens(k: int) -> dict[str, str]:
    return {
        "question": f"Ann has {k} hens and buys 1,000 more. How many has she?",
        "answer": f"She has {k} + 1000 = <<{k}+1000={k + 1000}>>{k + 1000} hens.\n#### {k + 1000:,}",
    }


def test_gsm8k_from_a_folder_as_the_hub_has_it(tmp_path: Path) -> None:
    parquet(tmp_path / "main" / "train-00000-of-00001.parquet", [hens(k) for k in range(20)])
    parquet(tmp_path / "main" / "test-00000-of-00001.parquet", [hens(k) for k in range(100, 105)])
    parquet(tmp_path / "socratic" / "train-00000-of-00001.parquet", [hens(999)])
    for name in ("gsm8k", "openai/gsm8k"):
        task = load(name, tmp_path)
        assert (len(task.train), len(task.heldout), task.verifier) == (20, 5, "math")
        prompt = task.train[3]
        assert prompt.content == hens(3)["question"] and prompt.answer == "1003"
        assert prompt.metadata == {"completion": "She has 3 + 1000 = 1003 hens.\n#### 1,003"}
        assert task.demonstrate is not None and task.demonstrate(prompt, 0, 0.0).endswith("#### 1,003")
    with pytest.raises(DataError, match=r"has no files of the split 'validation' \(data files: main/"):
        load("gsm8k", tmp_path, options={"heldout": "validation"})


def test_one_file_is_divided_by_hash_or_has_its_held_out_file(tmp_path: Path) -> None:
    jsonl(tmp_path / "train.jsonl", [hens(k) for k in range(100)])
    jsonl(tmp_path / "test.jsonl", [hens(k) for k in range(200, 205)])
    task = load("gsm8k", tmp_path / "train.jsonl")
    assert len(task.train) + len(task.heldout) == 100 and task.heldout
    task = load("gsm8k", tmp_path / "train.jsonl", heldout_path=str(tmp_path / "test.jsonl"))
    assert (len(task.train), len(task.heldout)) == (100, 5)


def test_a_solution_without_an_answer_is_left_out_and_counted(tmp_path: Path) -> None:
    jsonl(tmp_path / "train.jsonl", [*map(hens, range(50)), {"question": "Who?", "answer": "Nobody knows."}])
    task = load("gsm8k", tmp_path / "train.jsonl")
    assert len(task.train) + len(task.heldout) == 50
    assert any("1 rows have no answer that could be graded" in note for note in task.notes)


def test_math_and_its_relatives(tmp_path: Path) -> None:
    row = {
        "problem": "Add $1$ and $x$.",
        "solution": r"It is \boxed{x+\frac{1}{1}}.",
        "level": "Level 4",
        "type": "Algebra",
    }
    for name in ("math", "EleutherAI/hendrycks_math", "DigitalLearningGmbH/MATH-lighteval"):
        prompt = one(name, tmp_path, row)
        assert (prompt.content, prompt.answer) == ("Add $1$ and $x$.", r"x+\frac{1}{1}")
        assert prompt.metadata == {"completion": row["solution"], "subject": "Algebra", "difficulty": 4}
    row = {"problem": "p?", "solution": "s", "answer": "7", "subject": "Algebra", "level": 2, "unique_id": "a/1.json"}
    prompt = one("math500", tmp_path, row)
    assert prompt.answer == "7" and prompt.metadata["difficulty"] == 2 and prompt.metadata["unique_id"] == "a/1.json"
    prompt = one("deepscaler", tmp_path, {"problem": "p?", "answer": "7", "solution": ""})
    assert prompt.answer == "7" and prompt.metadata == {}


def test_subsets_of_a_copy_are_read_together(tmp_path: Path) -> None:
    for k, subject in enumerate(("algebra", "geometry")):
        for split in ("train", "test"):
            row = {"problem": f"{subject} {split}", "solution": rf"\boxed{{{k}}}", "level": "Level 1", "type": subject}
            parquet(tmp_path / subject / f"{split}-00000-of-00001.parquet", [row])
    task = load("math", tmp_path)
    assert [p.text for p in task.train] == ["algebra train", "geometry train"]
    assert [p.text for p in task.heldout] == ["algebra test", "geometry test"]


def test_dapo_is_read_once_per_problem_and_without_its_instruction(tmp_path: Path) -> None:
    rows = [
        {
            "prompt": [{"role": "user", "content": DAPO.format(problem=f"What is {k} + 1?\n\nSay it.")}],
            "reward_model": {"ground_truth": str(k + 1), "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": f"id-{k}"},
            "ability": "MATH",
        }
        for _ in range(5)
        for k in range(30)
    ]
    parquet(tmp_path / "data" / "train.parquet", rows)
    task = load("dapo", tmp_path)
    problems = [*task.train, *task.heldout]
    assert len(problems) == 30 and any("120 rows repeat the prompt" in note for note in task.notes)
    prompt = next(p for p in problems if p.metadata["index"] == "id-7")
    assert prompt.content == "What is 7 + 1?\n\nSay it." and prompt.answer == "8"


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("aime2024", {"id": 1, "problem": "p?", "solution": "s", "answer": "025", "url": "u", "year": "2024"}),
        ("Maxwell-Jia/AIME_2024", {"ID": "2024-I-1", "Problem": "p?", "Solution": "s", "Answer": 25}),
        ("aime2025", {"problem": "p?", "answer": "25", "id": "1"}),
        ("opencompass/AIME2025", {"question": "p?", "answer": "25"}),
    ],
)
def test_aime_in_all_its_schemas_is_for_evaluation(name: str, row: dict[str, Any], tmp_path: Path) -> None:
    prompt = one(name, tmp_path, row)
    assert (prompt.content, prompt.answer) == ("p?", "25")
    task = load(name, tmp_path / "test.jsonl")
    assert not task.train and len(task.heldout) == 1


def test_multiple_choice(tmp_path: Path) -> None:
    wanted = ("Which?\nA. w\nB. x\nC. y\nD. z", "C", ["w", "x", "y", "z"])
    rows = {
        "mmlu": {"question": "Which? ", "subject": "art", "choices": ["w", "x", "y", "z"], "answer": 2},
        "mmlu_pro": {"question": "Which?", "options": ["w", "x", "y", "z"], "answer": "C", "category": "art"},
        "arc": {
            "question": "Which?",
            "choices": {"text": ["w", "x", "y", "z"], "label": ["1", "2", "3", "4"]},
            "answerKey": "3",
        },
    }
    for name, row in rows.items():
        prompt = one(name, tmp_path, row)
        assert (prompt.content, prompt.answer, prompt.metadata["choices"]) == wanted
        assert SCHEMAS[name].verifier == "choice"


def test_the_right_choice_is_not_always_the_first(tmp_path: Path) -> None:
    rows = [
        {
            "Question": f"Q{k}?",
            "Correct Answer": f"right {k}",
            **{f"Incorrect Answer {i}": f"wrong {i}" for i in (1, 2, 3)},
        }
        for k in range(40)
    ]
    jsonl(tmp_path / "test.jsonl", rows)
    problems = load("gpqa", tmp_path / "test.jsonl").heldout
    assert {prompt.answer for prompt in problems} == set("ABCD")
    for k, prompt in enumerate(problems):
        assert f"{prompt.answer}. right {k}" in prompt.text
    assert load("gpqa", tmp_path / "test.jsonl").heldout == problems


def test_humaneval_and_mbpp_run_as_they_are(tmp_path: Path) -> None:
    row = {
        "task_id": "X/0",
        "prompt": 'def one(x):\n    """Add one."""\n',
        "canonical_solution": "    return x + 1\n",
        "test": "def check(candidate):\n    assert candidate(1) == 2\n",
        "entry_point": "one",
    }
    prompt = one("humaneval", tmp_path, row)
    assert prompt.content == row["prompt"] and prompt.answer is None and prompt.metadata["entry_point"] == "one"
    exec(prompt.metadata["completion"] + "\n" + prompt.metadata["tests"]["code"], {})
    with pytest.raises(AssertionError):
        exec("def one(x): return x\n" + prompt.metadata["tests"]["code"], {})
    row = {
        "task_id": 1,
        "text": "Write a function that halves a number.",
        "code": "def half(x):\n    return math.floor(x / 2)",
        "test_list": ["assert half(4) == 2", "assert half(3) == 1"],
        "test_setup_code": "import math",
        "challenge_test_list": [],
    }
    prompt = one("mbpp", tmp_path, row)
    assert "assert half(4) == 2" in prompt.text
    tests = prompt.metadata["tests"]
    exec(f"{tests['prefix']}\n{prompt.metadata['completion']}\n{tests['code']}", {})
    sanitized = {"task_id": 1, "prompt": row["text"], "code": row["code"], "test_list": row["test_list"]}
    other = one("mbpp", tmp_path, {**sanitized, "test_imports": ["import math"]}, options={"subset": "sanitized"})
    assert other.content == prompt.content and other.metadata["tests"] == tests


def test_apps_and_livecodebench_in_both_shapes(tmp_path: Path) -> None:
    pairs = {"inputs": ["1\n", "2\n"], "outputs": ["2\n", "3\n"]}
    row = {
        "question": "Add one.",
        "input_output": json.dumps(pairs),
        "solutions": json.dumps(["print(int(input())+1)"]),
    }
    prompt = one("apps", tmp_path, {**row, "starter_code": "", "difficulty": "interview"})
    assert prompt.metadata["tests"] == {"kind": "stdin", **pairs}
    assert prompt.metadata["difficulty"] == 2 and prompt.metadata["completion"] == "print(int(input())+1)"
    calls = {"fn_name": "one", "inputs": [[1], [2]], "outputs": [2, 3]}
    prompt = one("apps", tmp_path, {**row, "input_output": json.dumps(calls), "starter_code": "def one(x):"})
    assert prompt.metadata["tests"] == {"kind": "call", "function": "one", "inputs": [[1], [2]], "outputs": [2, 3]}
    assert prompt.text.endswith("def one(x):")

    public, private = [{"input": "1\n", "output": "2", "testtype": "stdin"}], [{"input": "5\n", "output": "6"}]
    packed = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(private)))).decode()
    row = {"question_content": "Add one.", "difficulty": "hard", "starter_code": "", "platform": "p", "metadata": "{}"}
    tests = {"public_test_cases": json.dumps(public), "private_test_cases": packed}
    prompt = one("livecodebench", tmp_path, {**row, **tests})
    assert prompt.metadata["tests"] == {"kind": "stdin", "inputs": ["1\n", "5\n"], "outputs": ["2", "6"]}
    assert prompt.metadata["difficulty"] == 3
    public = [{"input": '[1, 2]\n"a"', "output": "[2]", "testtype": "functional"}]
    tests = {"public_test_cases": json.dumps(public), "private_test_cases": "[]", "metadata": '{"func_name": "one"}'}
    prompt = one("livecodebench", tmp_path, {**row, **tests})
    assert prompt.metadata["tests"] == {"kind": "call", "function": "one", "inputs": [[[1, 2], "a"]], "outputs": [[2]]}


def test_packed_test_cases_run_no_code(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "mark"),)

    packed = base64.b64encode(zlib.compress(pickle.dumps(Trap()))).decode()
    row = {"question_content": "q", "public_test_cases": "[]", "private_test_cases": packed}
    with pytest.raises(DataError, match=r"line 1: the packed test cases name .*mkdir"):
        one("livecodebench", tmp_path, row)
    assert not (tmp_path / "mark").exists()


def test_any_other_data_set_takes_its_columns(tmp_path: Path) -> None:
    parquet(tmp_path / "data" / "train-00000-of-00002.parquet", [{"q": f"{k}?", "a": k, "x": "y"} for k in range(30)])
    parquet(tmp_path / "data" / "train-00001-of-00002.parquet", [{"q": f"{k}!", "a": k, "x": "y"} for k in range(30)])
    options = {"prompt": "q", "answer": "a", "verifier": "number"}
    task = load("me/mine", tmp_path, options=options)
    assert len(task.train) + len(task.heldout) == 60 and task.verifier == "number"
    assert task.train[0].metadata == {"x": "y"}
    with pytest.raises(DataError, match="the columns of 'hub:me/mine' are not known"):
        load("me/mine", tmp_path)
    with pytest.raises(DataError, match=r"unknown data set 'hub:gsm8'\. Did you mean 'gsm8k'"):
        load("gsm8", tmp_path)
    with pytest.raises(DataError, match=r"unknown task 'gsm8k'\. Did you mean 'hub:gsm8k'"):
        build_task(TaskConfig(name="gsm8k"))
    with pytest.raises(DataError, match=r"row 1 is not a row of openai/gsm8k .*KeyError: 'answer'.*it has q, a, x"):
        load("gsm8k", tmp_path, options={"heldout": ""})


def test_what_cannot_be_loaded_says_how_to_give_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises((MissingExtraError, ModuleNotFoundError), match="datasets"):
        load("gsm8k")
    broken = types.ModuleType("datasets")

    def unreachable(*arguments: Any, **options: Any) -> Any:
        raise ConnectionError(f"Couldn't reach '{arguments[0]}' on the Hub")

    broken.load_dataset = unreachable  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", broken)
    with pytest.raises(DataError) as error:
        load("gsm8k")
    for words in (
        "could not be loaded",
        "Couldn't reach 'openai/gsm8k'",
        "task.path",
        "hf download --repo-type dataset",
    ):
        assert words in str(error.value)


def test_the_loader_itself_reads_a_folder_of_the_same_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``datasets`` takes a folder ``openai/gsm8k`` in the working directory for the data set of that name."""
    pytest.importorskip("datasets")
    root = tmp_path / "openai" / "gsm8k"
    parquet(root / "main" / "train-00000-of-00001.parquet", [hens(k) for k in range(20)])
    parquet(root / "main" / "test-00000-of-00001.parquet", [hens(k) for k in range(100, 105)])
    files = [{"split": split, "path": f"main/{split}-*"} for split in ("train", "test")]
    card = json.dumps({"configs": [{"config_name": "main", "data_files": files}]})
    (root / "README.md").write_text(f"---\n{card}\n---\n")
    jsonl(tmp_path / "apps.jsonl", [{"question": "?", "input_output": '{"inputs": ["1"], "outputs": ["2"]}'}])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    task = load("gsm8k")
    copy = load("gsm8k", root)
    assert (len(task.train), len(task.heldout)) == (20, 5)
    assert task.train == copy.train and task.heldout == copy.heldout and task.fingerprint == copy.fingerprint

    calls = []
    real = datasets.load_dataset

    def local(kind: str, data_files: dict[str, str], split: str) -> Any:
        calls.append(data_files)
        return real(kind, data_files={split: str(tmp_path / "apps.jsonl")}, split=split)

    monkeypatch.setattr(datasets, "load_dataset", local)
    prompt = load("apps", options={"heldout": ""}, heldout_share=1e-9, heldout_size=0).train[0]
    assert calls == [{"train": "hf://datasets/codeparrot/apps/train.jsonl"}]
    assert prompt.metadata["tests"]["outputs"] == ["2"]


def test_a_split_is_found_by_the_name_of_file_or_folder(tmp_path: Path) -> None:
    for name in (
        "train.jsonl",
        "training.jsonl",
        "data/Train-0.parquet",
        "train/part.csv",
        "data/test2.jsonl",
        "train.txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = {str(file.relative_to(tmp_path)) for file in hub.split_files(tmp_path, "train")}
    assert found == {"data/Train-0.parquet", "train.jsonl", "train/part.csv"}
    assert [file.name for file in hub.split_files(tmp_path, "test")] == ["test2.jsonl"]


def test_an_evaluation_set_cannot_be_trained_on(tmp_path: Path) -> None:
    import surefoot

    jsonl(tmp_path / "test.jsonl", [{"problem": f"{k}?", "answer": str(k)} for k in range(9)])
    task = {"name": "hub:math500", "path": str(tmp_path / "test.jsonl")}
    with pytest.raises(DataError, match="has no training prompts, only 9 held-out ones"):
        surefoot.train(task=task, reward="number", runs=str(tmp_path))
    assert not (tmp_path / "run").exists()
    found = surefoot.evaluate(task=task, reward="number", rollout={"max_new_tokens": 2}, evaluation={"problems": 3})
    assert len(found.correct) == 3
