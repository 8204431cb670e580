"""The page of a comparison: everything that was compared, and what is missing said."""

from __future__ import annotations

import json
from pathlib import Path

import plotly.graph_objects
import pytest

from surefoot.errors import RunFolderError
from surefoot.report.comparison_figures import courses, final_accuracy, forest, learning_curves, pass_at_k
from surefoot.report.comparison_page import write_comparison_report
from tests.report.comparisons import build_experiment, comparison
from tests.report.test_report_page import Page, executed


def test_the_page_has_table_sentences_curves_cards_and_differences(tmp_path: Path) -> None:
    page = Page(write_comparison_report(build_experiment(tmp_path / "x")))
    assert "dapo is better than grpo (+8.0 points" in page.text
    assert "No difference shown between rloo and grpo" in page.text and "About 12 seeds" in page.text
    assert "3 of 4" in page.text  # seeds
    assert (
        "pass@2, %" in page.text
        and "interquartile mean of the runs, %" in page.text
        and "50.0 [40.0, 60.0]" in page.text
    )
    assert "2 finished, 1 under way" in page.text and "step 3 of 3" in page.text
    assert "algorithm.preset" in page.text and page.text.count(": the objective") == 3
    assert [tag["name"] for tag in page.tags("input")] == ["axis-1"] * 4  # one choice, not four
    figures = page.data("figure-data")["figures"]
    assert {
        "learning step addition",
        "learning tokens addition",
        "learning flops addition",
        "learning seconds addition",
        "forest addition",
    } <= set(figures)
    for plot in page.tags("div"):
        if "data-figure" in plot:
            assert plot["data-figure"] in figures and plot["role"] == "img" and len(plot["aria-label"] or "") > 40
    assert len(executed(page)) == 2


def test_a_control_is_marked_named_and_has_its_own_colour(tmp_path: Path) -> None:
    folder = build_experiment(tmp_path / "x")
    found = json.loads((folder / "comparison.json").read_text())
    found["controls"] = {"dapo": "coin"}
    (folder / "comparison.json").write_text(json.dumps(found))
    page = Page(write_comparison_report(folder))
    assert "The best first, controls last. Accuracy on 64 held-out problems, pass@4 from 4 samples" in page.text
    assert "Controls" in page.text and "dapo (control)" in page.text and "dapo is a control" in page.text
    swatches = [tag["class"] for tag in page.tags("span") if "swatch" in (tag.get("class") or "")]
    assert {"swatch arm-0", "swatch arm-1", "swatch arm-2"} <= set(swatches)


def test_plotly_understands_every_figure_and_intervals_are_those_of_the_file() -> None:
    found = comparison(arms=tuple(f"arm <b>{i}" for i in range(12)))
    curves = learning_curves(found, "addition")
    drawn = [
        *curves.values(),
        final_accuracy(found, "addition"),
        forest(found, found["pairs"], "f"),
        pass_at_k(found, "addition"),
    ]
    drawn += courses(found, "addition")
    for figure in drawn:
        plotly.graph_objects.Figure({"data": figure.data, "layout": figure.layout})
        assert figure.data and figure.summary and not any("<b>" in str(trace.get("name")) for trace in figure.data)
    band = curves["tokens"].data[:3]
    first = found["results"]["addition"]["arm <b>0"]["curve"]
    assert band[0]["y"] == pytest.approx(first["low"]) and band[1]["y"] == pytest.approx(first["high"])
    assert band[2]["x"] == pytest.approx(first["tokens"]) and band[2]["y"] == pytest.approx(first["accuracy"])
    trees = forest(found, found["pairs"], "f").data
    for trace, arm in zip(trees, reversed(found["pairs"]), strict=True):
        value, low, high = found["pairs"][arm]["difference"]
        assert trace["x"] == pytest.approx([value])
        assert trace["error_x"]["array"] == pytest.approx([high - value]) and trace["error_x"][
            "arrayminus"
        ] == pytest.approx([value - low])
    signal = next(figure for figure in courses(found, "addition") if "signal" in figure.title)
    assert signal.data[2]["y"][0] == pytest.approx(0.0) and signal.data[2]["y"][-1] == pytest.approx(0.6)


def test_several_tasks_each_have_their_section(tmp_path: Path) -> None:
    page = Page(write_comparison_report(build_experiment(tmp_path / "x", tasks=("addition", "chain"))))
    assert "forest all" in page.data("figure-data")["figures"]
    assert [attrs["id"] for attrs in page.tags("section")][1:3] == ["task-1", "task-2"]
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("content", ["", "[1, 2", "{}", '{"name": 3}'])
def test_a_damaged_comparison_is_said_and_the_runs_are_shown(tmp_path: Path, content: str) -> None:
    folder = build_experiment(tmp_path / "x")
    (folder / "comparison.json").write_text(content)
    page = Page(write_comparison_report(folder))
    assert "damaged or of another version" in page.text and "dapo, addition, seed-0" in page.text


def test_a_comparison_that_lacks_a_part_is_said(tmp_path: Path) -> None:
    folder = build_experiment(tmp_path / "x")
    found = json.loads((folder / "comparison.json").read_text())
    del found["results"]["addition"]["dapo"]["curve"]
    (folder / "comparison.json").write_text(json.dumps(found))
    page = Page(write_comparison_report(folder))
    assert "cannot be shown (KeyError" in page.text and "Where their configurations differ" in page.text


def test_an_experiment_under_way_shows_how_far_its_runs_are(tmp_path: Path) -> None:
    folder = build_experiment(tmp_path / "x")
    (folder / "comparison.json").unlink()
    (folder / "arms" / "addition" / "new" / "seed-1").mkdir(parents=True)
    page = Page(write_comparison_report(folder))
    assert "no seed is finished for every arm yet" in page.text and "new, addition, seed-1" in page.text


def test_a_folder_that_is_no_experiment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no experiment"):
        write_comparison_report(tmp_path)
