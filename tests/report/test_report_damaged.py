"""Pages of damaged folders: what can be shown is shown, what cannot is listed, and the server answers whatever happens."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surefoot.cli.main import run as command
from surefoot.errors import RunFolderError
from surefoot.report import live
from surefoot.report.comparison_page import write_comparison_report
from surefoot.report.markup import tied
from surefoot.report.page import kept, write_report
from surefoot.report.server import find_pages
from surefoot.report.token_table import token_table
from surefoot.training.places import place
from tests.report.comparisons import build_experiment
from tests.report.test_report_page import Page
from tests.report.test_report_server import ask, serving

MakeRun = Callable[..., Path]


@pytest.mark.parametrize(
    ("log", "missing"), [("metrics", 6), ("timings", 6), ("evaluations", 6)], ids=["metrics", "timings", "evaluations"]
)
def test_records_without_a_usable_step_are_counted(make_run: MakeRun, log: str, missing: int) -> None:
    run = make_run(steps=2)
    with (run / f"{log}.jsonl").open("a") as file:
        file.write('{"step": -1}\n{"step": true}\n{"step": "2"}\n{"step": 1.5}\n{"step": 1e400}\n{"other": 1}\n')
    page = Page(write_report(run))
    whole = len((run / f"{log}.jsonl").read_text().splitlines())
    assert f"{missing} of {whole} records of {log}.jsonl have no usable step" in page.text
    assert "Not on this page" in page.text


@pytest.mark.parametrize(
    "line",
    [
        '{"prompt_id": "a", "note": ' + "[" * 900 + "]" * 900 + "}",
        '{"prompt_id": "a", "tokens": ' + "[" * 900 + "]" * 900 + "}",
        '{"prompt_id": "a", "tokens": {"text": ["a", "b"], "logp": [1' + "0" * 400 + ", 1]}}",
        '{"prompt_id": "a", "tokens": {"text": ["a", "b"], "version": [1e300, 2]}}',
        '{"prompt_id": "a", "tokens": {"text": ["a", "b"], "logp": [1e308, -1e308], "logp_start": [-1e308, 1e308]}}',
    ],
    ids=["deep note", "deep tokens", "a number beyond floats", "a version beyond integers", "log-probabilities"],
)
def test_a_damaged_sample_costs_at_most_itself(make_run: MakeRun, line: str) -> None:
    run = make_run(steps=2, samples=2)
    with (run / "samples" / "step-000002.jsonl").open("a") as file:
        file.write(line + "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = Page(write_report(run))
    samples = page.samples()
    assert sum(sample["set"] == "train" for sample in samples) in (4, 5)
    assert len(samples) > 4 or "cannot be read" in page.text


def test_versions_of_tokens_stay_whole_numbers_that_a_page_can_hold() -> None:
    table = token_table({"text": ["a", "b"], "version": [1e300, 7]}, "ab")
    assert table is not None and table["version"] == [2**53, 7]


@pytest.mark.parametrize("name", ["step-1x", "step-\u0663", "step-²", "step-"])
def test_folders_that_are_no_states_hold_no_version(make_run: MakeRun, name: str) -> None:
    run = make_run(steps=2)
    (run / "state" / name).mkdir(parents=True)
    (run / "state" / "step-000002").mkdir()
    assert kept(run)["versions"] == [0, 2] and write_report(run).exists()


@pytest.mark.parametrize("content", ["[1]", '{"best": 3, "steps": "x"}', '{"best": {"step": true}, "steps": -2}', "{"])
def test_a_damaged_result_holds_no_version(make_run: MakeRun, content: str) -> None:
    run = make_run(steps=2)
    for name in ("model", "best"):
        (run / name).mkdir()
    (run / "result.json").write_text(content)
    assert kept(run)["versions"] == [0] and write_report(run).exists()


def _of_every_arm(**values: Any) -> Callable[[dict[str, Any]], None]:
    def change(found: dict[str, Any]) -> None:
        for one in found["results"]["addition"].values():
            one.update(values)

    return change


COMPARISONS: list[tuple[str, Callable[[dict[str, Any]], None]]] = [
    ("arms", lambda found: found.update(arms=5)),
    ("arms", lambda found: found.update(arms=[["a"], 1])),
    ("tasks", lambda found: found.update(tasks=5)),
    ("tasks", lambda found: found.update(tasks=[1])),
    ("seeds", lambda found: found.update(seeds=5)),
    ("seeds_planned", lambda found: found.update(seeds_planned=3)),
    ("level", lambda found: found.update(level="x")),
    ("name", lambda found: found.update(name=[1])),
    ("pairs.dapo", lambda found: found["pairs"].update(dapo=5)),
    ("results", lambda found: found.update(results=[])),
    ("cannot be shown", lambda found: found.update(arms=["nope"])),
    ("cannot be shown", lambda found: found.update(baseline="nope", tasks=["nope"])),
    ("cannot be shown", _of_every_arm(accuracy=[None, None, None])),
    ("cannot be shown", _of_every_arm(spent={"steps": "x", "tokens": 1, "seconds": 1})),
    ("cannot be shown", _of_every_arm(curve={"step": ["x"], "accuracy": [None], "low": [1], "high": {}, "tokens": 3})),
    ("cannot be shown", _of_every_arm(courses={"rollout/entropy": {"step": 5}})),
    ("cannot be shown", _of_every_arm(**{"pass": {"x": [1, 1, 1]}})),
]


@pytest.mark.parametrize(
    ("said", "change"), COMPARISONS, ids=[f"{said} {i}" for i, (said, _) in enumerate(COMPARISONS)]
)
def test_a_damaged_comparison_costs_the_table_and_not_the_page(
    tmp_path: Path, said: str, change: Callable[[dict[str, Any]], None]
) -> None:
    folder = build_experiment(tmp_path / "x")
    path = folder / "comparison.json"
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))
    page = Page(write_comparison_report(folder))
    assert said in page.text and "comparison.json" in page.text and "dapo, addition, seed-0" in page.text


def test_a_link_that_leads_nowhere_does_not_silence_the_server(make_run: MakeRun) -> None:
    run, other = make_run("a", steps=1), make_run("b", steps=1)
    (run / "x.json").symlink_to("/nonexistent")
    with serving(run, other) as server:
        assert [ask(server, path)[0] for path in ("/", "/0/", "/0/live.json", "/1/")] == [200] * 4


def test_whatever_goes_wrong_is_answered_and_said_once(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise KeyError("planted\x1b")

    run, other = make_run("a", steps=1), make_run("b", steps=1)
    monkeypatch.setattr("surefoot.report.server.run_news", fails)
    with serving(run, other) as server:
        for _ in range(3):
            status, _, text = ask(server, "/0/live.json")
            assert status == 500 and "KeyError" in text and text.count("\n") == 1
        status, _, index = ask(server, "/")
        assert status == 200 and 'href="/1/"' in index and "cannot be shown (KeyError" in index
        assert ask(server, "/1/")[0] == 200 and ask(server, "//[")[0] == 404
    err = capsys.readouterr().err
    assert err.count("KeyError") == 1 and "/0/live.json" in err and "\x1b" not in err


def test_signatures_are_made_while_files_come_and_go(tmp_path: Path) -> None:
    before = live.signature(tmp_path)
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    assert live.signature(tmp_path) == before
    (tmp_path / "metrics.jsonl").touch()
    assert live.signature(tmp_path) != before


def test_a_run_of_an_experiment_is_called_by_its_place(tmp_path: Path) -> None:
    folder = build_experiment(tmp_path / "warm")
    run = folder / "arms" / "addition" / "dapo" / "seed-0"
    assert Page(write_report(run)).source.count("warm / dapo / addition / seed 0") == 2  # title and heading
    named = {"experiment": "told", "task": "chain:mod", "arm": "coin", "seed": 7, "control": "coin", "digest": "d"}
    (run / "experiment.json").write_text(json.dumps(named))
    page = Page(write_report(run))
    assert "<title>told / coin / chain:mod / seed 7 · Surefoot</title>" in page.source
    assert "Controlcoin" in "".join(page.text.split())
    assert [one.name for one in find_pages([run])] == ["told / coin / chain:mod / seed 7"]


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"experiment": "x"}', '{"experiment": [1], "arm": 1, "task": 2, "seed": 3}']
)
def test_a_damaged_identity_leaves_the_path(tmp_path: Path, content: str) -> None:
    run = tmp_path / "warm" / "arms" / "hub" / "gsm8k" / "grpo" / "seed-3"
    run.mkdir(parents=True)
    (run / "experiment.json").write_text(content)
    found = place(run)
    assert found is not None and found.title == "warm / grpo / hub/gsm8k / seed 3" and found.control == ""


@pytest.mark.parametrize("path", ["plain", "seed-1", "arms/seed-1", "arms/grpo/seed-1", "arms/task/grpo/other"])
def test_other_runs_are_called_by_their_name(tmp_path: Path, path: str) -> None:
    assert place(tmp_path / path) is None


def test_a_folder_inside_or_around_is_told_what_to_give(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build_experiment(tmp_path / "runs" / "warm")
    monkeypatch.chdir(tmp_path)
    for words, said in (
        ("runs/warm/arms/addition", "It lies in the experiment runs/warm: give that folder."),
        ("runs/warm/arms/addition/dapo", "It holds runs/warm/arms/addition/dapo/seed-0: give one of them."),
        ("runs", "It holds runs/warm: give one of them."),
        (".", "It holds runs/warm: give one of them."),
    ):
        assert command(["report", words]) == 2
        err = capsys.readouterr().err
        assert said in err and err.count("\n") == 1
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunFolderError, match=r"give the folder that holds metrics\.jsonl\.$"):
        write_report(tmp_path / "empty")


def test_sentences_do_not_break_inside_a_number(tmp_path: Path) -> None:
    page = Page(write_comparison_report(build_experiment(tmp_path / "x")))
    assert "corrected p\u00a0=\u00a00.6" in page.source and "95\u00a0% interval" in page.source
    assert tied("held-out 31 steps = 5 s, grpo = dapo") == "held-out 31 steps =\u00a05\u00a0s, grpo = dapo"
