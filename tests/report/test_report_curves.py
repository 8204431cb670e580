"""Figures hold the recorded numbers, in a form that Plotly understands; the summary adds them up."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import plotly.graph_objects
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.report import palette
from surefoot.report.curves import SHOWN, figures, other_metrics
from surefoot.report.figures import Figure, moving_mean
from surefoot.report.reading import RunFiles, read_run
from surefoot.report.render import TEMPLATES
from surefoot.report.samples import sample_files, sample_table, thin
from surefoot.report.summary import Accuracy, from_result, split, summarise

MakeRun = Callable[..., Path]


def by_key(run: Path) -> dict[str, Figure]:
    return {figure.key: figure for figure in figures(read_run(run))}


@pytest.mark.parametrize("steps", [1, 2, 60])
def test_plotly_understands_every_figure(make_run: MakeRun, steps: int) -> None:
    files = read_run(make_run(steps=steps))
    drawn = [figure for figure in (*figures(files), *other_metrics(files)) if figure.data]
    assert [figure.key for figure in drawn] == [
        "heldout", "reward", "entropy", "kl", "length", "gradient", "signal", "times", "metric policy/clip_high",
    ]  # fmt: skip
    assert all(figure.summary for figure in drawn)
    for figure in drawn:
        plotly.graph_objects.Figure({"data": figure.data, "layout": figure.layout})  # raises on an unknown property


def test_heldout_accuracy_has_its_interval_and_pass_at_k(make_run: MakeRun) -> None:
    run = make_run(steps=30)
    records = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    low, high, passed, accuracy = by_key(run)["heldout"].data
    assert accuracy["x"] == low["x"] == high["x"] == [0, 10, 20, 30]
    for trace, values in (
        (low, [r["low"] for r in records]),
        (high, [r["high"] for r in records]),
        (accuracy, [r["accuracy"] for r in records]),
        (passed, [r["pass"]["4"] for r in records]),
    ):
        assert trace["y"] == pytest.approx(values, rel=1e-5)
    assert high["fill"] == "tonexty" and passed["name"] == "pass@4"


def test_every_metric_is_drawn_somewhere(make_run: MakeRun) -> None:
    run = make_run(steps=3)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines[1]["mine/own"] = 5.0
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    others = {figure.title: figure.data for figure in other_metrics(read_run(run))}
    recorded = {name for line in lines for name in line} - {"step"}
    assert recorded - set(SHOWN) == set(others)
    drawn = sum(len(figure.data) for figure in figures(read_run(run)) if figure.key not in ("heldout", "times"))
    assert drawn == len(recorded & set(SHOWN))
    assert others["mine/own"][0]["x"] == [2] and others["mine/own"][0]["y"] == [5.0]


def test_of_two_records_of_a_step_the_later_counts(make_run: MakeRun) -> None:
    run = make_run(steps=3)
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": 2, "policy/entropy": 9.0}) + "\n")
    assert by_key(run)["entropy"].data[0]["x"] == [1, 2, 3]
    assert by_key(run)["entropy"].data[0]["y"][1] == 9.0


def test_times_are_stacked_in_order_and_unknown_phases_are_kept(make_run: MakeRun) -> None:
    run = make_run(steps=2)
    lines = [json.loads(line) | {"publish<b>": 1.0} for line in (run / "timings.jsonl").read_text().splitlines()]
    (run / "timings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    figure = by_key(run)["times"]
    names = [trace["name"] for trace in figure.data]
    assert names == ["generate", "score", "log-probability", "train", "evaluate", "write", "publish‹b>"]
    assert figure.layout["barmode"] == "stack"
    assert "publish" in figure.summary


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40), st.integers(1, 12))
def test_moving_mean_is_the_mean_around_each_point(values: list[float], window: int) -> None:
    means = moving_mean(values, window)
    assert len(means) == len(values)
    half = window // 2
    for i, mean in enumerate(means):
        near = [value for j, value in enumerate(values) if abs(i - j) <= half]
        assert mean == pytest.approx(sum(near) / len(near), abs=1e-9)


def test_page_and_figures_agree_on_colours() -> None:
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    light, dark = style.split("prefers-color-scheme: dark", 1)
    for colour, counterpart in palette.DARK.items():
        if colour.startswith("#"):
            assert colour in light and counterpart in dark
    assert set(palette.PHASE.values()) <= set(palette.DARK)


def test_an_unfinished_run_is_summed_up_from_its_steps(make_run: MakeRun) -> None:
    done = summarise(read_run(make_run("done", steps=20)))
    cut = summarise(read_run(make_run("cut", steps=20, finished=False)))
    assert (cut.before, cut.after, cut.steps) == (done.before, done.after, done.steps)
    assert cut.seconds == pytest.approx(done.seconds)
    assert cut.generated_per_second == pytest.approx(done.generated_per_second)
    assert cut.trained_per_second == pytest.approx(10000 * 20 / next(p.seconds for p in cut.phases if p.key == "train"))


def test_one_evaluation_is_not_a_comparison(make_run: MakeRun) -> None:
    run = make_run(steps=2, finished=False)
    first = (run / "evaluations.jsonl").read_text().splitlines()[0]
    (run / "evaluations.jsonl").write_text(first + "\n")
    both_ends = from_result({"before": json.loads(first), "after": json.loads(first)})
    for summary in (summarise(read_run(run)), both_ends):
        assert summary.before is not None and summary.after is None and summary.gain is None


@pytest.mark.parametrize(
    ("low", "high", "said"), [(0.04, 0.2, "better"), (-0.2, -0.04, "worse"), (-0.1, 0.2, "holds 0")]
)
def test_the_paired_difference_decides_where_there_is_one(low: float, high: float, said: str) -> None:
    record = {"accuracy": 0.3, "low": 0.2, "high": 0.4, "step": 0}
    result = {
        "before": record,
        "after": record | {"accuracy": 0.35, "step": 9},
        "difference": {"low": low, "high": high},
    }
    assert said in from_result(result).verdict


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (Accuracy(0.6, 0.5, 0.7), "above"),
        (Accuracy(0.1, 0.05, 0.19), "below"),
        (Accuracy(0.35, 0.25, 0.45), "overlap"),
        (Accuracy(0.9, None, None), "Without intervals"),
    ],
)
def test_verdict_says_what_the_intervals_allow(after: Accuracy, said: str) -> None:
    summary = dataclasses.replace(from_result({}), before=Accuracy(0.25, 0.2, 0.3), after=after)
    assert said in summary.verdict


@given(st.dictionaries(st.sampled_from(["generate", "train", "write", "mine"]), st.floats(0, 1e6), max_size=4))
def test_shares_of_the_time_add_up(seconds: dict[str, float]) -> None:
    phases = split(seconds)
    assert sum(phase.share for phase in phases) == pytest.approx(1.0 if any(seconds.values()) else 0.0)
    assert all(phase.seconds == seconds[phase.key] for phase in phases)


def test_samples_are_thinned_evenly_to_the_budget(make_run: MakeRun) -> None:
    run = make_run(steps=30)
    files = sample_files(run)
    whole = sum(file.size for file in files)
    for budget in (whole, whole // 3, 1):
        chosen = thin(files, budget)
        for kind in ("step", "heldout"):
            steps = [file.step for file in files if file.kind == kind]
            kept = [file.step for file in chosen if file.kind == kind]
            assert kept[0] == steps[0] and kept[-1] == steps[-1]
            gaps = {b - a for a, b in itertools.pairwise(kept)}
            assert len(gaps) <= 2  # the last gap may be shorter
        assert budget == 1 or sum(file.size for file in chosen) <= budget
    assert thin(files, whole) == sorted(files, key=lambda file: (file.kind, file.step))
    gaps_said: list[str] = []
    table = sample_table(run, gaps_said, budget=whole // 3)
    assert 0 < len(table.rows) < 34 * 16 and "evenly spaced" in gaps_said[0]


def test_prompts_are_kept_once(make_run: MakeRun) -> None:
    table = sample_table(make_run(steps=1), [])
    assert len(table.rows) == 3 * 16 and len(table.prompts) == 2 + 2


def test_settings_are_found_by_dotted_name(tmp_path: Path) -> None:
    files = RunFiles(tmp_path, config={"train": {"steps": 3}, "name": "x"})
    assert files.setting("train.steps") == 3 and files.setting("train.steps.more") is None
    assert files.name == "x" and files.confidence == 0.95
