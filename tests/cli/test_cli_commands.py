"""The commands end to end on the embedded model: what they print, what they write, and their exit codes."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import surefoot as package
from surefoot.files import read_lines
from surefoot.training import loop
from surefoot.training.assemble import Parts
from tests.cli.conftest import Outcome

RUN_FILES = [
    "card.md",
    "config.toml",
    "environment.json",
    "evaluations.jsonl",
    "metrics.jsonl",
    "result.json",
    "timings.jsonl",
]


def test_train_writes_a_run_and_ends_with_a_table(surefoot: Callable[..., Outcome], workplace: Path) -> None:
    done = surefoot("train", "tiny.toml", "--train.steps", "3")
    assert done.code == 0, done.err
    run = workplace / "runs" / "tiny"
    assert [name for name in RUN_FILES if not (run / name).is_file()] == []
    assert [record["step"] for record in read_lines(run / "metrics.jsonl")] == [1, 2, 3]
    assert (run / "model" / "config.json").is_file() and (run / "report.html").is_file()
    for when in ("before", "after"):
        assert re.search(rf"accuracy {when} +\d+\.\d % +\(95 % interval \d+\.\d to \d+\.\d %\)", done.out)
    assert "tokens per second" in done.out
    assert "runs/tiny/report.html" in done.out and "runs/tiny/model" in done.out
    assert "3/3" in done.out, "progress is shown where there is no terminal, too"


def test_json_is_all_that_is_printed(surefoot: Callable[..., Outcome], workplace: Path) -> None:
    result = json.loads(surefoot("train", "tiny.toml", "--json").out)
    assert result["folder"] == str(workplace / "runs" / "tiny") and result["steps"] == 2
    record = json.loads(surefoot("evaluate", "runs/tiny/model", "tiny.toml", "--json").out)
    assert record["accuracy"] == result["after"]["accuracy"] and record["problems"] == 4
    checks = json.loads(surefoot("doctor", "tiny.toml", "--json").out)
    assert {check["outcome"] for check in checks} <= {"ok", "warn"}


def test_quiet_shows_no_progress(surefoot: Callable[..., Outcome]) -> None:
    assert "2/2" not in surefoot("train", "tiny.toml", "--quiet").out


def test_the_files_of_a_dry_run_are_none(surefoot: Callable[..., Outcome], workplace: Path) -> None:
    before = sorted(os.listdir(workplace))
    done = surefoot("train", "tiny.toml", "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert "2 prompts x 2 samples = 4 sequences" in done.out and "peak while updating" in done.out
    assert sorted(os.listdir(workplace)) == before


def test_sft_then_train_from_its_model(surefoot: Callable[..., Outcome], workplace: Path) -> None:
    config = "[task]\ntrain_size = 64\nheldout_size = 8\noptions = { digits = 2 }\n[rollout]\nmax_new_tokens = 24\n"
    (workplace / "warm.toml").write_text(config)
    done = surefoot(
        "sft", "warm.toml", "--steps", "4", "--batch", "4", "--evaluation.problems", "4", "--check_every", "2"
    )
    assert done.code == 0, done.err
    losses = [record["loss/nll_per_token"] for record in read_lines(workplace / "runs" / "sft" / "metrics.jsonl")]
    assert len(losses) == 4 and losses[-1] < losses[0]
    assert surefoot("train", "tiny.toml", "--model.path", "runs/sft/model").code == 0


def test_evaluate_prints_pass_at_k_with_intervals(surefoot: Callable[..., Outcome]) -> None:
    done = surefoot("evaluate", "embedded", "tiny.toml", "--samples", "4", "--task", "addition")
    assert done.code == 0, done.err
    assert re.search(r"avg@4 +\d+\.\d % +\d+\.\d to \d+\.\d %", done.out)
    assert re.search(r"pass@2 +\d+\.\d %", done.out) and "pass@4" in done.out
    assert "4 x 4 samples" in done.out
    assert "avg@1" in surefoot("evaluate", "embedded", "tiny.toml").out


def test_the_doctor_finds_nothing_wrong_with_the_default(surefoot: Callable[..., Outcome]) -> None:
    done = surefoot("doctor")
    assert done.code == 0, done.out
    for name in ("versions", "gold answers", "wrong answers", "template", "engine = trainer", "lr = 0 run"):
        assert re.search(rf"^(ok|warn) +{name} ", done.out, re.MULTILINE), done.out


def test_cards_lists_and_prints(surefoot: Callable[..., Outcome]) -> None:
    listed = surefoot("cards")
    assert listed.code == 0 and all(name in listed.out for name in ("reinforce", "rloo", "grpo", "dr_grpo"))
    one = surefoot("cards", "dr_grpo", "rloo")
    assert one.code == 0 and one.out.startswith("# dr_grpo\n") and "\n# rloo\n" in one.out and "$$" in one.out


def test_version_and_no_words(surefoot: Callable[..., Outcome]) -> None:
    assert surefoot("--version").out == f"surefoot {package.__version__}\n"
    assert surefoot().out == surefoot("--help").out
    assert surefoot("-h").code == 0


@pytest.mark.parametrize("command", ["train", "sft", "evaluate", "doctor", "demo", "cards"])
def test_help_fits_and_hides_what_is_internal(surefoot: Callable[..., Outcome], command: str) -> None:
    done = surefoot(command, "--help")
    assert done.code == 0 and max(map(len, done.out.splitlines())) <= 80
    assert "--set" not in done.out and f"Usage: surefoot {command}" in done.out


def test_a_defect_keeps_its_traceback(surefoot: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    from surefoot.training import assemble

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(assemble, "assemble", broken)
    with pytest.raises(ZeroDivisionError):
        surefoot("train", "tiny.toml", "--dry-run")


def interrupted(words: list[str], ready: Callable[[], bool]) -> str:
    """Interrupt a real process; returns the line that it says about what is left."""
    # A shell that puts the tests into the background makes them, and all they start, deaf to Ctrl-C.
    hearing = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    command = [sys.executable, "-m", "surefoot", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hearing)
    while process.poll() is None and not ready():
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    (said,) = [line for line in err.splitlines() if line.startswith("surefoot: stopped")]
    return said


@pytest.mark.parametrize(
    ("every", "says"),
    [
        ("1", "; to go on from the last saved step, "),
        ("0", " and before a state was saved, so that there is none to go on"),
    ],
)
def test_ctrl_c_says_what_is_left_and_the_command_works(
    every: str, says: str, surefoot: Callable[..., Outcome], workplace: Path
) -> None:
    words = ["train", "tiny.toml", "--train.steps", "30", "--checkpoint.every", every]
    metrics = workplace / "runs" / "tiny" / "metrics.jsonl"
    said = interrupted(words, lambda: len(read_lines(metrics)) >= 3)
    assert re.match(r"surefoot: stopped after step \d+", said) and says in said
    command = said.split(": ")[-1].split()
    assert command == ["surefoot", *words, "--resume"]
    assert surefoot(*command[1:]).code == 0
    assert [record["step"] for record in read_lines(metrics)] == list(range(1, 31))


def test_ctrl_c_before_the_first_step_promises_nothing(surefoot: Callable[..., Outcome], workplace: Path) -> None:
    words = ["train", "tiny.toml", "--train.group_size", "512", "--rollout.max_new_tokens", "200"]  # a long step
    said = interrupted(words, (workplace / "runs" / "tiny" / "card.md").exists)
    assert "before the first step was done, and nothing is kept of it" in said
    assert said.split(": ")[-1].split() == ["surefoot", *words]
    assert not (workplace / "runs" / "tiny").exists()


def stop(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_while_the_model_is_loaded(
    surefoot: Callable[..., Outcome], workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new run leaves nothing, a resumed one what it had; another run in the folder is not taken for this one."""
    assert surefoot("train", "tiny.toml", "--quiet").code == 0
    monkeypatch.setattr(loop, "assemble", stop)
    line = surefoot("train", "tiny.toml", "--resume", "--train.steps", "9").err
    assert re.search(r"stopped after step \d+; to go on from the last saved step, \d+: surefoot train .*--resume", line)
    for name in ("tiny", "new"):
        done = surefoot("train", "tiny.toml", "--name", name)
        assert done.code == 130 and "nothing is kept of it" in done.err and "--resume" not in done.err
    assert "stopped" in surefoot("train", "tiny.toml", "--name", "new").err


def test_ctrl_c_in_supervised_training_says_that_it_cannot_be_gone_on_with(
    surefoot: Callable[..., Outcome], workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Parts, "save", stop)
    (workplace / "sft.toml").write_text("steps = 2\nbatch = 4\n[task]\ntrain_size = 20\nheldout_size = 0\n")
    done = surefoot("sft", "sft.toml", "--task.name", "addition")
    assert done.code == 130
    assert "stopped after step 2; supervised training cannot be gone on with" in done.err
    assert f"rm -r {workplace / 'runs' / 'sft'}" in done.err and "--resume" not in done.err


def test_a_reader_that_leaves_is_no_error(workplace: Path) -> None:
    line = f"{sys.executable} -m surefoot cards grpo grpo grpo | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("# grpo\n", "")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_demo_gains_far_outside_its_interval(surefoot: Callable[..., Outcome], workplace: Path) -> None:
    done = surefoot("demo", "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert result["after"]["low"] > result["before"]["high"] + 0.1
    assert (workplace / result["folder"] / "report.html").is_file()


def test_the_model_of_a_run_is_measured_on_what_the_run_was_about(
    surefoot: Callable[..., Outcome], workplace: Path
) -> None:
    from surefoot.training.loop import train as run
    from tests.training.tiny import tiny

    folder = run(tiny(workplace / "runs", train={"steps": 1}, task={"options": {"digits": 1}})).folder
    done = surefoot("evaluate", str(folder / "model"))
    assert done.code == 0 and f"task addition, verifier auto (from {folder / 'config.toml'})" in done.out
    assert "4 x 1 samples" in done.out


def test_an_evaluation_of_a_mixture_shows_each_part(surefoot: Callable[..., Outcome], workplace: Path) -> None:
    parts = "".join(
        f"[[task.parts]]\nname = 'addition'\nlabel = '{label}'\noptions = {{ digits = {digits} }}\n"
        "train_size = 20\nheldout_size = 4\n"
        for label, digits in (("[one] digit", 1), ("two digits", 2))
    )
    (workplace / "mixed.toml").write_text(f"[task]\nname = 'mixture'\n{parts}[evaluation]\nproblems = 6\n")
    done = surefoot("evaluate", "embedded", "mixed.toml")
    assert done.code == 0, done.err
    record = json.loads(surefoot("evaluate", "embedded", "mixed.toml", "--json").out)
    assert set(record["tasks"]) == {"[one] digit", "two digits"}
    for label, part in record["tasks"].items():
        value = re.escape(f"{100 * part['accuracy']:.1f} %")
        assert re.search(rf"avg@1, {re.escape(label)} \({part['problems']} problems\) +{value}", done.out)


def test_fit_says_where_the_plot_is(surefoot: Callable[..., Outcome], workplace: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("scipy")
    rows = "".join(f"{n},{0.2 + 0.4 * n / (n + 900):.4f}\n" for n in (0, 300, 700, 1500, 3000, 6000, 12000))
    (workplace / "points.csv").write_text("compute,reward\n" + rows)
    done = surefoot("fit", "points.csv", "--plot", "curve.svg", "--json")
    assert done.code == 0 and "wrote curve.svg" in done.err and (workplace / "curve.svg").stat().st_size > 0
    assert json.loads(done.out)[0]["points"] == 6
