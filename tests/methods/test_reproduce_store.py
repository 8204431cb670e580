"""Claims are kept: a finished seed is never measured again unless asked, and a killed command goes on where it was."""

from __future__ import annotations

import fcntl
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from surefoot.errors import DataError, RunFolderError
from surefoot.files import read_lines
from surefoot.methods.pages import between, markdown
from surefoot.methods.reproduce import store
from surefoot.methods.reproduce.claim import Claim, Control, Criterion, Measured
from surefoot.methods.reproduce.store import RESULT, SEEDS, Bench, result, results, run_claim
from surefoot.methods.reproduce.table import interval, keep, rows


class Measure:
    """Measures planted numbers and remembers what it was asked for; stops like a killed command at one seed."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.asked: list[int] = []
        self.prepared = 0
        self.stop_at = stop_at

    def __call__(self, bench: Bench, claim: Claim, seed: int) -> Measured:
        self.asked.append(seed)
        if seed == self.stop_at:
            raise KeyboardInterrupt
        return {"gain": [0.3 + 0.01 * seed, 0.31], "control": 0.0, "also": float("nan")}

    def prepare(self, bench: Bench, claim: Claim) -> None:
        self.prepared += 1


def planted(measure: Measure, **changes: Any) -> Claim:
    criterion = Criterion("gain", "gain, a|b", "above", 0.1, "why")
    control = Control("control", 0.0, float("inf"))
    made = Claim("planted", "title", "arXiv", "It is.", (criterion,), control, (0, 1, 2), 1, measure, {"n": 1})
    return replace(made, **changes)


def test_a_claim_is_measured_once_and_kept(tmp_path: Path) -> None:
    measure, bench = Measure(), Bench(tmp_path)
    claim = planted(measure, prepare=measure.prepare)
    record = run_claim(bench, claim)
    assert record["verdict"] == "reproduced" and record["criteria"][0]["interval"][0] == pytest.approx(0.31, abs=0.01)
    assert json.loads((tmp_path / "planted" / RESULT).read_text()) == record
    assert (
        record["also"] == {"also": [None] * 3} and record["control"]["high"] is None
    )  # JSON has no NaN and no infinity
    assert run_claim(bench, claim)["criteria"] == record["criteria"]
    assert measure.asked == [0, 1, 2] and measure.prepared == 1
    run_claim(bench, claim, again=True)
    assert measure.asked == [0, 1, 2] * 2 and measure.prepared == 2


def test_a_killed_command_goes_on_with_the_seed_that_it_was_at(tmp_path: Path) -> None:
    bench, killed = Bench(tmp_path), Measure(stop_at=1)
    with pytest.raises(KeyboardInterrupt):
        run_claim(bench, planted(killed))
    assert result(bench, planted(killed)) is None and list(results(bench, {"planted": planted(killed)})) == []
    with (tmp_path / "planted" / SEEDS).open("a") as file:
        file.write('{"digest": "torn')
    later = Measure()
    assert run_claim(bench, planted(later))["verdict"] == "reproduced"
    assert killed.asked == [0, 1] and later.asked == [1, 2]
    assert [line["seed"] for line in read_lines(tmp_path / "planted" / SEEDS)] == [0, 1, 2]


def test_more_seeds_measure_only_what_is_new_and_other_numbers_everything(tmp_path: Path) -> None:
    bench, measure = Bench(tmp_path), Measure()
    run_claim(bench, planted(measure, seeds=(0, 1)))
    run_claim(bench, planted(measure, seeds=(0, 1, 2)))
    assert measure.asked == [0, 1, 2]
    run_claim(bench, planted(measure, seeds=(0, 1)).but(n=2))
    assert measure.asked == [0, 1, 2, 0, 1]


def test_a_finding_keeps_the_versions_that_it_was_measured_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, claim = Bench(tmp_path), planted(Measure())
    record = run_claim(bench, claim)
    monkeypatch.setattr(store, "versions", lambda: {"packages": {"torch": "9.9.9"}})
    again = result(bench, claim)
    assert again is not None and again["environment"] == record["environment"] != {"packages": {"torch": "9.9.9"}}
    assert run_claim(bench, claim, again=True)["environment"] == {"packages": {"torch": "9.9.9"}}


@pytest.mark.parametrize(("control", "seeds"), [(0.0, 9), (-1.0, 3)])
def test_a_second_look_has_more_seeds_and_wider_intervals_where_intervals_decided_nothing(
    tmp_path: Path, control: float, seeds: int
) -> None:
    """A control that moved is no matter of seeds."""
    asked: list[int] = []

    def noisy(bench: Bench, claim: Claim, seed: int) -> Measured:
        asked.append(seed)
        return {"gain": 0.15 + (0.05, -0.05, 0.0)[seed % 3], "control": control}

    bench, claim = Bench(tmp_path), replace(planted(Measure()), measure=noisy)
    assert run_claim(bench, claim)["verdict"] == "inconclusive"
    record = run_claim(bench, claim, second=True)
    assert asked == list(range(seeds)) == record["seeds"]
    assert record["confidence"] == (0.975 if seeds == 9 else 0.95)
    assert record["verdict"] == ("inconclusive" if control else "reproduced")
    assert result(bench, claim) == record  # the second look stands
    run_claim(bench, claim, second=True)
    assert len(asked) == seeds


def test_the_threshold_in_the_code_judges_what_was_kept(tmp_path: Path) -> None:
    bench, measure = Bench(tmp_path), Measure()
    claim = planted(measure)
    assert run_claim(bench, claim)["verdict"] == "reproduced"
    stricter = replace(claim, criteria=(replace(claim.criteria[0], threshold=0.9),))
    assert run_claim(bench, stricter)["verdict"] == "not reproduced at this scale"
    assert measure.asked == [0, 1, 2]


def test_two_commands_do_not_measure_one_claim(tmp_path: Path) -> None:
    (tmp_path / "planted").mkdir()
    with (tmp_path / "planted" / ".lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(RunFolderError, match="another command is measuring planted"):
            run_claim(Bench(tmp_path), planted(Measure()))


def test_tables_and_the_page(tmp_path: Path) -> None:
    claim = planted(Measure())
    record = run_claim(Bench(tmp_path), claim)
    head, row = rows([record])
    assert dict(zip(head, row, strict=True)) | {"seconds": ""} == {
        "claim": "planted",
        "quantity": "gain, a|b",
        "interval": interval(record["criteria"][0]["interval"]),
        "threshold": "> 0.1",
        "control": "0 [0, 0] held: at least 0",
        "verdict": "reproduced",
        "seeds": "3",
        "seconds": "",
    }
    assert r"gain, a\|b" in markdown([head, row])
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n<!-- claims -->\nstale words\n<!-- /claims -->\n\n<!-- results -->\n<!-- /results -->\n\nThe end.\n"
    )
    keep(page, [claim], [record])
    once = page.read_text()
    assert "stale words" not in once and "| planted | title | 3 | 1 |" in once and once.endswith("The end.\n")
    keep(page, [claim], [record])
    assert page.read_text() == once
    keep(page, [claim], [])
    assert "Nothing has been run yet." in page.read_text()
    with pytest.raises(DataError, match="is no page"):
        keep(tmp_path / "none.md", [claim], [])
    with pytest.raises(DataError, match="no place for the results"):
        between("nothing", "results", "x")


def test_a_second_look_goes_on_from_other_seeds(tmp_path: Path) -> None:
    asked: list[int] = []

    def noisy(bench: Bench, claim: Claim, seed: int) -> Measured:
        asked.append(seed)
        return {"gain": 0.15 + (0.05, -0.05, 0.0)[seed % 3], "control": 0.0}

    claim = replace(planted(Measure()), measure=noisy).with_seeds("1000:1003")
    record = run_claim(Bench(tmp_path).elsewhere(), claim, second=True)
    assert asked == record["seeds"] == list(range(1000, 1009))
    assert record["confidence"] == 0.975 and record["other_seeds"] is True
    assert not (tmp_path / "planted").exists()
