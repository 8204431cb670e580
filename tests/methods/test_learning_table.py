"""The command behind docs/learning.md: it runs what is missing, once, and the page names every preset there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learning import page, runs
from benchmarks.learning.__main__ import main
from benchmarks.learning.runs import Plan
from benchmarks.learning.settings import CONTROL, DIFFERENCES, NONE, learning_config, updates_per_step
from surefoot.algorithms.presets import PRESETS
from surefoot.errors import DataError
from surefoot.files import read_lines
from surefoot.methods import pages
from surefoot.training.config import SftConfig
from surefoot.training.sft import SftResult, sft

TINY = [
    *("train.steps=2", "train.prompts_per_step=2", "train.group_size=2", "train.updates_per_step=1"),
    *("evaluation.problems=4", "task.train_size=16", "task.heldout_size=4"),
]


@pytest.fixture
def quick_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm-up of one step."""

    def short(config: SftConfig) -> SftResult:
        task = config.task.model_copy(update={"train_size": 16, "heldout_size": 4})
        return sft(config.model_copy(update={"steps": 1, "task": task}))

    monkeypatch.setattr(runs, "sft", short)


def command(out: Path, *words: str, presets: tuple[str, ...] = ("rloo", "grpo_process")) -> int:
    tiny = [word for setting in TINY for word in ("--set", setting)]
    return main(["--out", str(out), "--seeds", "1", "--presets", *presets, *tiny, *words])


def test_what_is_finished_is_not_run_again(
    tmp_path: Path, quick_warm_up: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, "--page", str(tmp_path / "page.md")) == 0
    lines = read_lines(tmp_path / "finished.jsonl")
    assert [(line["preset"], line["seed"], line["steps"]) for line in lines] == [("rloo", 0, 2), ("grpo_process", 0, 2)]
    text = (tmp_path / "page.md").read_text()
    assert text.count("| `rloo` |") == 2 and text.count("| `grpo_process` |") == 1  # rloo has a setting of its own

    # Killed while it wrote the second line: the first stays, the second is run again, a third is added.
    content = (tmp_path / "finished.jsonl").read_bytes()
    (tmp_path / "finished.jsonl").write_bytes(content[:-20])
    made: list[str] = []
    run_one = runs.run_one
    monkeypatch.setattr(runs, "run_one", lambda plan, run: made.append(run[0]) or run_one(plan, run))
    more = ("rloo", "grpo_process", CONTROL)
    assert command(tmp_path, "--page", str(tmp_path / "page.md"), presets=more) == 0
    assert made == ["grpo_process", CONTROL]
    assert [line["preset"] for line in read_lines(tmp_path / "finished.jsonl")] == ["rloo", "grpo_process", CONTROL]
    again = read_lines(tmp_path / "finished.jsonl")
    timeless = [{**line, "seconds": 0, "cpu_seconds": 0} for line in (lines[1], again[1])]
    assert timeless[0] == timeless[1]

    # Nothing to do, and the page shows all that is finished; other settings are other runs.
    assert command(tmp_path, "--page", str(tmp_path / "page.md"), presets=("rloo",)) == 0 and len(made) == 2
    assert (tmp_path / "page.md").read_text().count("\n| `grpo_process` |") == 1
    assert "A coin toss" in (tmp_path / "page.md").read_text()
    assert command(tmp_path, "--set", "optimiser.lr=1e-3", presets=("rloo",)) == 0 and made[2:] == ["rloo"]
    assert "1 runs are finished" not in capsys.readouterr().out.splitlines()[-1]


def test_a_run_that_fails_is_told_and_not_counted(
    tmp_path: Path, quick_warm_up: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_one = runs.run_one

    def fails(plan: Plan, run: tuple[str, int]) -> dict[str, Any]:
        if run[0] == "rloo":
            raise ValueError("no luck")
        return run_one(plan, run)

    monkeypatch.setattr(runs, "run_one", fails)
    assert command(tmp_path) == 1
    assert "rloo, seed 0: failed" in (said := capsys.readouterr().out) and "no luck" in said
    assert [line["preset"] for line in read_lines(tmp_path / "finished.jsonl")] == ["grpo_process"]


@pytest.mark.parametrize("words", [["--seeds", "0"], ["--jobs", "0"], ["--presets", "grpoo"], ["--set", "train.steps"]])
def test_mistakes_are_told_before_anything_runs(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path / "out"), *words])
    assert words[0] in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_every_preset_has_a_valid_run(tmp_path: Path) -> None:
    assert set(DIFFERENCES) <= set(PRESETS)
    for name, preset in PRESETS.items():
        config = learning_config(tmp_path, name, 0, tmp_path / "model")
        built = config.algorithm.build()
        differs = DIFFERENCES.get(name, NONE)
        slots = {key.split(".")[1] for key in differs.settings if key.startswith("algorithm.")}
        assert {slot for slot in preset.parts if built.parts[slot] != preset.parts[slot]} == slots, name
        assert config.train.updates_per_step == updates_per_step(preset) == (1 if preset.ratio.name == "none" else 2)
        assert bool(differs.settings) == bool(differs.reason)


def test_seeds_are_averaged_before_problems_are_counted() -> None:
    record = {
        "right_before": [0, 0, 1, 1],
        "right_after": [1, 1, 1, 1],
        "course": {"reward/correct": [0.25, 0.75]},
        "updates": 60,
        "cpu_seconds": 20.0,
    }
    other = {**record, "right_after": [0, 0, 1, 1], "course": {"reward/correct": [0.25, 0.25]}}
    assert page.right([record, other], "right_after").tolist() == [0.5, 0.5, 1, 1]
    cells = page.row("grpo", [record, other])
    assert cells[0] == "`grpo`" and cells[2].startswith("75.0 [") and cells[3].startswith("+25.0 [")
    assert cells[4:] == ("100.0, 50.0", "0 of 2", "0.25 to 0.50", "60", "20")
    many = {**record, "right_before": [0] * 50 + [1] * 50, "right_after": [1] * 100}
    assert page.row("grpo", [many])[5] == "1 of 1"
    worse = {**many, "right_before": many["right_after"], "right_after": many["right_before"]}
    assert page.row("grpo", [worse])[5] == "0 of 1"


def test_a_page_without_a_place_for_the_table(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# A page\n")
    with pytest.raises(DataError, match="no place for the results"):
        page.write_page(tmp_path / "page.md", {}, [0])
    assert (tmp_path / "page.md").read_text() == "# A page\n"
    assert pages.between("a <!-- x -->\nold\n<!-- /x --> b", "x", "new") == "a <!-- x -->\n\nnew\n\n<!-- /x --> b"


def test_the_page_names_every_preset_with_three_seeds_and_each_has_learnt(repository: Path) -> None:
    text = (repository / "docs" / "learning.md").read_text(encoding="utf-8")
    table = text[text.index("<!-- results -->") : text.index("<!-- /results -->")]
    rows = [re.findall(r"(?<=\| )[^|]*(?= \|)", line) for line in table.splitlines() if line.startswith("| ")]
    found = {cells[0].strip("`"): cells for cells in rows if cells[0] != "preset" and any(cells[1:])}
    assert [*found] == [*PRESETS, "as `dr_grpo"]
    for name, cells in found.items():
        low, high = (float(bound) for bound in re.search(r"\[(\S+), (\S+)\]", cells[3]).groups())
        assert cells[4].count(",") == 2, name
        assert low > 0 if name in PRESETS else high < 0, name
