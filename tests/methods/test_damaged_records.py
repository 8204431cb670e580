"""Files of runs and claims that somebody or something damaged: one line that says where, and never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surefoot.errors import DataError, RunFolderError, SurefootError
from surefoot.files import mend_lines, read_lines
from surefoot.methods.compare.records import finished_lines, read_run_record
from surefoot.methods.pages import made_by, read_page, write_page
from surefoot.methods.reproduce.store import SEEDS, Bench, result, results, run_claim
from surefoot.methods.scaling import read_points
from tests.methods.test_reproduce_store import Measure, planted

Change = Callable[[list[dict[str, Any]]], list[Any]]
LINE = {"task": "addition", "arm": "grpo", "seed": 0, "digest": "d", "steps": 3, "cpu_seconds": 1.5}


def write(path: Path, records: list[Any]) -> None:
    """Records, and lines of text as they are."""
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("".join(line + "\n" for line in lines))


def put(**values: Any) -> Change:
    """The second record with other values; None takes one out."""
    return lambda records: [
        {k: v for k, v in (record | values).items() if v is not ...} if at == 1 else record
        for at, record in enumerate(records)
    ]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The logs of a run of three steps."""
    folder = tmp_path / "run"
    folder.mkdir()
    evaluation = {"set": "s", "samples": 2, "accuracy": 0.5, "right": [1, 0, 2]}
    write(folder / "evaluations.jsonl", [{"step": step, **evaluation} for step in range(4)])
    metrics = {"compute/flops": 1e6, "rollout/entropy": 0.5, "policy/ratio_max": float("inf")}
    write(folder / "metrics.jsonl", [{"step": step, **metrics} for step in (1, 2, 3)])
    timing = {"generate": 1.0, "evaluate": 9.0, "tokens_generated": 10}
    write(folder / "timings.jsonl", [{"step": step, **timing} for step in (1, 2, 3)])
    (folder / "result.json").write_text("{}")
    return folder


def test_whole_logs_are_read_as_they_are(run: Path) -> None:
    record = read_run_record(run, LINE)
    assert record.right.tolist() == [1, 0, 2] and record.spent("tokens_generated", 2) == 20
    assert record.flops(3) == 3e6 and record.seconds(3) == 3.0
    assert record.timings == read_lines(run / "timings.jsonl")


RUN: list[tuple[str, Change, str]] = [
    ("evaluations", lambda lines: [lines[0], "{half", *lines[1:]], "line 2 is damaged, it is not JSON"),
    ("evaluations", lambda lines: ["[1]", *lines], "line 1 is damaged: expected a JSON object"),
    ("evaluations", put(step=True), "line 2 is damaged: 'step' is True"),
    ("evaluations", put(step=-1), "'step' is -1"),
    ("evaluations", put(samples=0), "'samples' is 0"),
    ("evaluations", put(right=["0", 0, 0]), "'right.0' is '0'"),
    ("evaluations", put(right=...), "has no 'right'"),
    ("evaluations", put(right=[1, 0]), "on other problems than at the end"),
    ("evaluations", put(set="t"), "on other problems than at the end"),
    ("evaluations", put(right=[3, 0, 0]), "does not count right samples"),
    ("evaluations", lambda lines: lines[1:], "after the steps 1, 2, 3, expected one of each step, from 0 on"),
    ("evaluations", lambda lines: [*lines, lines[1]], "expected one of each step"),
    ("evaluations", lambda lines: lines[:-1], "evaluated last after step 2, and has 3 steps"),
    ("evaluations", lambda lines: [], "has no evaluations"),
    ("metrics", put(**{"compute/flops": None}), "'compute/flops' is None"),
    ("metrics", put(**{"rollout/entropy": float("nan")}), "'rollout/entropy' is nan"),
    ("metrics", put(**{"rollout/entropy": "x"}), "'rollout/entropy' is 'x'"),
    ("metrics", lambda lines: [*lines, *lines], "metrics.jsonl with the steps 1, 1, 2, 2, 3, 3, expected each from 1 to 3"),
    ("timings", put(tokens_generated="9"), "'tokens_generated' is '9'"),
    ("timings", put(tokens_generated=None), "'tokens_generated' is None"),
    ("timings", put(generate=10**400), "'generate' is 1000"),
    ("timings", lambda lines: lines[:1], "timings.jsonl with the steps 1, expected each from 1 to 3"),
    ("timings", lambda lines: [], "timings.jsonl with the steps none"),
]  # fmt: skip


@pytest.mark.parametrize(("log", "change", "said"), RUN, ids=[f"{log} {said[:40]}" for log, _, said in RUN])
def test_a_damaged_log_of_a_finished_run(run: Path, log: str, change: Change, said: str) -> None:
    path = run / f"{log}.jsonl"
    write(path, change(read_lines(path)))
    with pytest.raises(DataError) as error:
        read_run_record(run, LINE)
    assert said in str(error.value) and str(run) in str(error.value) and "run it again" in str(error.value)


def test_a_line_that_counts_other_steps_than_the_run(run: Path) -> None:
    with pytest.raises(DataError, match=r"has 3 steps, and its line in finished\.jsonl says 4"):
        read_run_record(run, LINE | {"steps": 4})


@pytest.mark.parametrize(
    "bad",
    [
        "{half", "[1]", "null", '"x"', "[" * 5000, {"a": 1}, LINE | {"task": [1]}, LINE | {"seed": "0"}, LINE | {"steps": "x"},
        LINE | {"steps": -1}, LINE | {"cpu_seconds": None}, LINE | {"cpu_seconds": float("nan")},
        {key: value for key, value in LINE.items() if key != "digest"},
        {key: value for key, value in LINE.items() if key != "cpu_seconds"},
    ],
    ids=lambda bad: str(bad)[:60],
)  # fmt: skip
def test_a_damaged_line_of_finished_runs(tmp_path: Path, bad: Any) -> None:
    path = tmp_path / "finished.jsonl"
    write(path, [LINE, bad, LINE])
    with pytest.raises(RunFolderError, match=r"finished\.jsonl, line 2 is damaged.*remove that line"):
        finished_lines(path)
    path.write_text(path.read_text().split("\n")[0] + '\n{"task": "torn')
    assert finished_lines(path) == [LINE]


SEED: list[tuple[Any, str]] = [
    ("{half", "line 2 is damaged, it is not JSON"),
    ({"digest": ...}, "has no 'digest'"),
    ({"values": ...}, "has no 'values'"),
    ({"values": [1]}, "'values' is"),
    ({"values": {"gain": "abc", "control": 0.0}}, "'values.gain"),
    ({"values": {"gain": None, "control": 0.0}}, "'values.gain"),
    ({"values": {"gain": [0.1, None], "control": 0.0}}, "'values.gain"),
    ({"values": {"gain": [], "control": 0.0}}, "'values.gain"),
    ({"values": {"gain": [0.1, 0.2]}}, "'control' of seed 1 was not measured"),
    ({"values": {"gain": [0.1], "control": 0.0}}, "'gain' of seed 1 has another number of values"),
    ({"values": {"gain": 0.1, "control": 0.0}}, "'gain' of seed 1 has another number of values"),
    ({"seconds": "x"}, "'seconds' is 'x'"),
    ({"seed": "1"}, "'seed' is '1'"),
]


@pytest.mark.parametrize(("bad", "said"), SEED, ids=[f"{said[-30:]} {number}" for number, (_, said) in enumerate(SEED)])
def test_a_damaged_line_of_a_claim(tmp_path: Path, bad: Any, said: str) -> None:
    bench, measure = Bench(tmp_path), Measure()
    claim = planted(measure)
    run_claim(bench, claim)
    other = planted(measure, name="other")
    run_claim(bench, other)
    path = tmp_path / "planted" / SEEDS
    records = read_lines(path)
    write(path, [records[0], bad, *records[1:]] if isinstance(bad, str) else put(**bad)(records))
    with pytest.raises(RunFolderError, match=r"seeds\.jsonl") as error:
        run_claim(bench, claim)
    assert said in str(error.value) and "--again" in str(error.value)
    with pytest.raises(RunFolderError):
        list(results(bench, {"planted": claim}))
    with pytest.warns(UserWarning, match="planted is left out"):  # one bad file does not hide the other claims
        assert [one["claim"] for one in results(bench, {"planted": claim, "other": other})] == ["other"]
    assert run_claim(bench, claim, again=True)["verdict"] == "reproduced" and result(bench, claim) is not None


FIT: list[tuple[str, str, Change, str]] = [
    ("tokens", "timings", put(tokens_generated="9"), "line 2 is damaged: 'tokens_generated' is '9'"),
    ("tokens", "timings", put(tokens_generated=None), "'tokens_generated' is None"),
    ("seconds", "timings", put(generate="1"), "'generate' is '1'"),
    ("seconds", "timings", lambda lines: [lines[0], lines[2]], "no line of step 2"),
    ("tokens", "timings", lambda lines: [*lines, lines[0]], "2 lines of step 1"),
    ("tokens", "timings", lambda lines: [], "is empty"),
    ("flops", "metrics", put(**{"compute/flops": None}), "'compute/flops' is None"),
    ("steps", "evaluations", put(step=float("inf")), "'step' is inf"),
    ("steps", "evaluations", put(accuracy=None), "'accuracy' is None"),
    ("steps", "evaluations", lambda lines: [lines[0], "{half", *lines[1:]], "line 2 is damaged"),
]


@pytest.mark.parametrize(("unit", "log", "change", "said"), FIT, ids=[f"{unit} {said[-30:]}" for unit, *_, said in FIT])
def test_a_damaged_log_of_a_run_that_is_fitted(run: Path, unit: str, log: str, change: Change, said: str) -> None:
    path = run / f"{log}.jsonl"
    write(path, change(read_lines(path)))
    with pytest.raises(SurefootError) as error:
        read_points(run, unit=unit)
    assert said in str(error.value) and str(path) in str(error.value) and "restore" in str(error.value)


def test_what_the_steps_cost_is_not_there(run: Path) -> None:
    assert read_points(run).compute.tolist() == [10, 20, 30]
    (run / "timings.jsonl").unlink()
    with pytest.raises(DataError, match=r"timings\.jsonl is not there.*--unit steps"):
        read_points(run)
    assert read_points(run, unit="steps").compute.tolist() == [1, 2, 3]


def test_of_a_run_under_way_the_step_that_is_not_over_is_left_out(run: Path) -> None:
    write(run / "timings.jsonl", read_lines(run / "timings.jsonl")[:2])
    with pytest.raises(DataError, match="no line of step 3"):
        read_points(run)
    (run / "result.json").unlink()
    assert read_points(run).compute.tolist() == [10, 20]


def test_a_folder_that_cannot_be_fitted_says_what_may_have_been_meant(run: Path) -> None:
    experiment = run.parent / "warm"
    place = experiment / "arms" / "addition" / "grpo"
    place.mkdir(parents=True)
    with pytest.raises(RunFolderError, match="It is an experiment, whose runs are not there yet"):
        read_points(experiment)
    run.rename(place / "seed-0")
    (place / "seed-0" / "config.toml").touch()
    with pytest.raises(RunFolderError, match=r"It is an experiment, whose runs are .*grpo/seed-0\."):
        read_points(experiment)


def test_a_torn_last_line_is_taken_off_and_the_rest_stays_to_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    for content, mended in (
        (b'{"a": 1e5}\n{damaged\n{"b"', b'{"a": 1e5}\n{damaged\n'),
        (b'{"a": 1e5}\n{"b":  2}', b'{"a": 1e5}\n{"b":  2}\n'),
        (b'{"a"', b""),
        (b'{"a": 1}\n', b'{"a": 1}\n'),
        (b"", b""),
    ):
        path.write_bytes(content)
        mend_lines(path)
        assert path.read_bytes() == mended


def test_a_page_keeps_its_link_permissions_and_line_ends(tmp_path: Path) -> None:
    page, link = tmp_path / "real.md", tmp_path / "link.md"
    page.write_bytes(b"\xef\xbb\xbfa\r\n<!-- x -->\r\nold\r\n<!-- /x -->\r\nunix\nend")
    page.chmod(0o640)
    link.symlink_to("real.md")
    write_page(link, {"x": "one\ntwo"})
    assert link.is_symlink() and page.stat().st_mode & 0o777 == 0o640
    assert page.read_bytes() == b"\xef\xbb\xbfa\r\n<!-- x -->\r\n\r\none\r\ntwo\r\n\r\n<!-- /x -->\r\nunix\nend"


def test_a_page_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_bytes(b"<!-- x -->\n\xff<!-- /x -->\n")
    with pytest.raises(DataError, match=r"page\.md is not UTF-8 \(at byte 11\)"):
        read_page(page, ("x",))


@pytest.mark.parametrize("content", ["{half", "[1]", "{}", '{"packages": 5}'])
def test_a_damaged_environment_is_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "environment.json"
    file.write_text(content)
    with pytest.raises(RunFolderError, match=r"environment\.json is damaged"):
        made_by(file)
