"""Plots in files: the right numbers, the same bytes every time, no trace in the caller's Matplotlib."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure

from surefoot.errors import ConfigError, RunFolderError
from surefoot.report.plots import _draw_accuracy, _draw_group, plot_run, plot_runs
from surefoot.report.reading import read_run

MakeRun = Callable[..., Path]


def evaluations(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG\r\n"), (".svg", b"<?xml"), (".PNG", b"\x89PNG\r\n")])
def test_plots_are_written_and_are_the_same_again(make_run: MakeRun, tmp_path: Path, suffix: str, start: bytes) -> None:
    run = make_run(steps=30)
    before = dict(matplotlib.rcParams)
    first, second = tmp_path / "deep" / f"a{suffix}", tmp_path / f"b{suffix}"
    plot_run(run, first)
    plot_run(run, second)
    assert first.read_bytes().startswith(start) and first.read_bytes() == second.read_bytes()
    assert dict(matplotlib.rcParams) == before


def test_accuracy_is_drawn_with_its_band(make_run: MakeRun) -> None:
    run = make_run(steps=30)
    axes = Figure().subplots()
    _draw_accuracy(axes, read_run(run), "black")
    records = evaluations(run)
    assert list(axes.lines[0].get_xdata()) == [r["step"] for r in records]
    assert list(axes.lines[0].get_ydata()) == [r["accuracy"] for r in records]
    corners = axes.collections[0].get_paths()[0].vertices
    assert corners[:, 1].min() == min(r["low"] for r in records)
    assert corners[:, 1].max() == max(r["high"] for r in records)


def test_seeds_lie_over_one_another_with_their_mean_where_all_have_points(make_run: MakeRun) -> None:
    runs = [make_run(f"seed{seed}", steps=30) for seed in range(3)]
    for shift, run in enumerate(runs):
        records = [r | {"accuracy": r["accuracy"] + 0.01 * shift} for r in evaluations(run)]
        records = records[:-1] if shift == 2 else records  # one run has not ended
        (run / "evaluations.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    axes = Figure().subplots()
    _draw_group(axes, [read_run(run) for run in runs], "accuracy", "grpo", "black")
    *each, mean = axes.lines
    assert len(each) == 3 and list(mean.get_xdata()) == [0, 10, 20]
    expected = [r["accuracy"] for r in evaluations(runs[1])][:3]
    assert list(mean.get_ydata()) == pytest.approx(expected)
    assert mean.get_label() == "grpo" and all(line.get_label().startswith("_") for line in each)


def test_runs_are_grouped_by_label(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run(f"run{i}", steps=5) for i in range(3)]
    plot_runs(runs, tmp_path / "all.svg", labels=["grpo", "grpo", "rloo $x"])
    plot_runs(runs, tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 5000
    assert b"rloo" in (tmp_path / "all.svg").read_bytes()


@pytest.mark.parametrize("missing", ["metrics.jsonl", "evaluations.jsonl"])
def test_half_a_run_is_drawn(make_run: MakeRun, tmp_path: Path, missing: str) -> None:
    run = make_run(steps=1)
    (run / missing).unlink()
    plot_run(run, tmp_path / "half.png")
    plot_runs([run], tmp_path / "half.svg")
    assert (tmp_path / "half.png").exists() and (tmp_path / "half.svg").exists()


def test_what_cannot_be_drawn_is_refused_in_one_line(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(steps=1)
    with pytest.raises(ConfigError, match=r"neither \.png nor \.svg"):
        plot_run(run, tmp_path / "plot.pdf")
    with pytest.raises(ConfigError, match="2 labels"):
        plot_runs([run], tmp_path / "plot.png", labels=["a", "b"])
    with pytest.raises(ConfigError, match="0 runs"):
        plot_runs([], tmp_path / "plot.png")
    (run / "metrics.jsonl").unlink()
    (run / "evaluations.jsonl").unlink()
    with pytest.raises(RunFolderError, match="neither metrics nor evaluations"):
        plot_run(run, tmp_path / "plot.png")
    with pytest.raises(RunFolderError, match="does not exist"):
        plot_run(tmp_path / "nowhere", tmp_path / "plot.png")
    assert not (tmp_path / "plot.png").exists()
