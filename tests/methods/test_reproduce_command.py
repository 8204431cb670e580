"""`surefoot reproduce` on the command line."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from surefoot.cli.main import run
from surefoot.methods.reproduce.catalogue import CLAIMS, QUICK
from surefoot.methods.reproduce.claim import Verdict

PAGE = "<!-- claims -->\n<!-- /claims -->\n\n<!-- results -->\n<!-- /results -->\n"


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_list_names_every_claim_and_runs_none(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in CLAIMS) and not any(workplace.iterdir())
    assert run(["reproduce"]) == 0 and capsys.readouterr().out == listed


def test_the_list_as_json_says_what_will_be_judged(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "wrong-length", "--list", "--json"]) == 0
    (claim,) = json.loads(capsys.readouterr().out)
    assert (
        claim["name"] == "wrong-length"
        and claim["criteria"][0]["threshold"] == 0.0
        and claim["seeds"] == list(range(10))
    )


def test_the_list_says_which_are_quick_and_which_are_done(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert run(["reproduce", "wrong-length", "--quiet"]) == 0
    kept = workplace / "runs" / "reproduce" / "wrong-length" / "seeds.jsonl"
    assert capsys.readouterr().out.count("\n") > 3
    for seeds, state in ((10, "yes"), (4, "4 of 10")):
        kept.write_text("".join(kept.read_text().splitlines(keepends=True)[:seeds]))
        assert run(["reproduce", "wrong-length", "clip-higher", "--list"]) == 0
        head, quick, trained = (line.rstrip() for line in capsys.readouterr().out.splitlines())
        assert head.endswith("quick  done") and quick.endswith(f" yes    {state}")
        assert trained.endswith(" 500")  # neither
    assert run(["reproduce", "--list", "--json"]) == 0
    listed = {claim["name"]: claim for claim in json.loads(capsys.readouterr().out)}
    assert {name for name, claim in listed.items() if claim["quick"]} == set(QUICK)
    assert listed["wrong-length"]["seeds_done"] == 4 and listed["clip-higher"]["seeds_done"] == 0


def test_an_unknown_claim_is_named_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "wrong-lenght"]) == 2
    error = capsys.readouterr().err
    assert "wrong-lenght" in error and "'wrong-length'" in error and "--list" in error


def test_a_claim_runs_is_kept_and_fills_the_page(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workplace / "page.md").write_text(PAGE)
    assert run(["reproduce", "wrong-length", "--out", "kept", "--page", "page.md"]) == 0
    told = capsys.readouterr()
    assert (
        told.out.startswith("wrong-length: REPRODUCED")
        and "control held" in told.out
        and ", had to be within " in told.out
        and "2503.20783" in told.out
    )
    assert told.err.count("\n") == 1 and "wrong-length: 10 seeds in less than a second each" in told.err
    assert "| wrong-length | growth" in (workplace / "page.md").read_text()
    assert run(["reproduce", "wrong-length", "--out", "kept", "--json"]) == 0
    again = capsys.readouterr()
    (record,) = json.loads(again.out)
    assert record == json.loads((workplace / "kept" / "wrong-length" / "result.json").read_text()) and again.err == ""


def test_show_runs_nothing(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "--all", "--show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert not (workplace / "runs").exists()


def test_quick_claims_are_those_without_training_runs() -> None:
    assert 8 <= len(QUICK) < len(CLAIMS)
    assert all(CLAIMS[name].prepare is None for name in QUICK)


def test_the_kept_table_has_every_claim_and_the_words_count_its_verdicts(repository: Path) -> None:
    text = (repository / "docs" / "reproduce.md").read_text(encoding="utf-8")
    table = text[text.index("<!-- results -->") : text.index("<!-- /results -->")]
    rows = [[cell.strip() for cell in line.split(" | ")] for line in table.splitlines() if line.startswith("| ")]
    head, found = rows[0], [row for row in rows[2:] if row[0] != "|"]
    verdicts = Counter(row[head.index("verdict")] for row in found)
    assert {row[0].removeprefix("| ") for row in found} == set(CLAIMS)
    counts = [verdicts[str(verdict)] for verdict in Verdict]
    assert sum(counts) == len(CLAIMS)
    assert "Of {} claims {} came out, {} did not, and {} are open.".format(len(CLAIMS), *counts) in text
    readme = (repository / "README.md").read_text(encoding="utf-8")
    assert f"{len(CLAIMS)} claims of the papers" in readme and f"{counts[0]} came out on a laptop" in readme


def test_a_page_with_findings_from_elsewhere_is_not_emptied(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = workplace / "page.md"
    row = "| claim | verdict |\n| --- | --- |\n| rloo-grpo | reproduced |\n|  | more |\n"
    page.write_text(PAGE.replace("<!-- results -->\n", f"<!-- results -->\n{row}"))
    before = page.read_text()
    assert run(["reproduce", "maxrl-weight", "--page", str(page)]) == 2
    said = capsys.readouterr().err
    assert "rloo-grpo" in said and "would be lost" in said
    assert page.read_text() == before and not (workplace / "runs").exists()


def test_other_seeds_are_kept_apart_from_the_record_and_named(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["reproduce", "wrong-length", "--quiet"]) == 0
    kept = workplace / "runs" / "reproduce"
    before = {path.name: path.read_bytes() for path in (kept / "wrong-length").iterdir()}
    capsys.readouterr()
    assert run(["reproduce", "wrong-length", "--seeds", "1000:1003", "--quiet"]) == 0
    assert "; seeds: 3 (1000 to 1002); 95 % intervals" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in (kept / "wrong-length").iterdir()} == before
    apart = kept / "other-seeds" / "wrong-length"
    lines = [json.loads(line) for line in (apart / "seeds.jsonl").read_text().splitlines()]
    assert [line["seed"] for line in lines] == [1000, 1001, 1002]
    # More of them measure only what is new, and the record is shown as it was.
    assert run(["reproduce", "wrong-length", "--seeds", "1000,1004,1002", "--json"]) == 0
    (other,) = json.loads(capsys.readouterr().out)
    assert other["seeds"] == [1000, 1004, 1002] and other["other_seeds"] is True
    assert len((apart / "seeds.jsonl").read_text().splitlines()) == 4
    assert run(["reproduce", "wrong-length", "--show", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["seeds"] == list(range(10)) and "other_seeds" not in record
    assert run(["reproduce", "wrong-length", "--seeds", "1000:1003", "--list", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["seeds"] == [1000, 1001, 1002] and listed["seeds_done"] == 3


@pytest.mark.parametrize(
    ("seeds", "says"),
    [
        ("1000", "needs two of them"),
        ("1000:1001", "needs two of them"),
        ("1000,1000", "comes twice"),
        ("1000:1003,1002", "comes twice"),
        ("1005:1000", "has -5 seeds"),
        ("0:100000", "has 100000 seeds"),
        ("-3:2", "'-3:2' is no seed"),
        ("a,b", "'a' is no seed"),
        ("1000,", "'' is no seed"),
        ("99999999999,1", "'99999999999' is no seed"),
    ],
)
def test_seeds_that_are_none_are_refused_before_anything_runs(
    seeds: str, says: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["reproduce", "wrong-length", f"--seeds={seeds}"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert says in said and "1000:1005" in said
    assert not (workplace / "runs").exists()


def test_the_page_of_the_record_takes_no_other_seeds(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workplace / "page.md").write_text(PAGE)
    assert run(["reproduce", "wrong-length", "--seeds", "1000:1003", "--page", "page.md"]) == 2
    assert "fixed beforehand" in capsys.readouterr().err
    assert (workplace / "page.md").read_text() == PAGE and not (workplace / "runs").exists()
