"""What the commands say: whole sentences that fit a terminal, and what to do instead where a command was the wrong one."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from surefoot.cli.experiments import fit_lines
from surefoot.cli.main import app
from surefoot.cli.output import folded
from surefoot.evaluation.scaling import curve
from tests.cli.conftest import Outcome

Surefoot = Callable[..., Outcome]
ROWS = "".join(f"{n},{0.2 + 0.4 * n / (n + 900):.4f}\n" for n in (0, 300, 700, 1500, 3000, 6000, 12000))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_lines_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    line = "  a is better than b (+20.2 points, 95 % interval, corrected p = 0.00029, 5 seeds) " + "so it is " * 30
    lines = folded(line, Terminal()).split("\n")
    assert len(lines) > 3 and all(len(one) <= 80 for one in lines)
    assert lines[0].startswith("  a is") and all(one.startswith("    ") for one in lines[1:])
    assert " ".join(" ".join(lines).split()) == " ".join(line.split())
    assert folded(line, io.StringIO()) == line
    for width in range(40, 90):
        monkeypatch.setenv("COLUMNS", str(width))
        text = folded(line, Terminal())
        assert "p = 0.00029" in text and "95 %" in text
    path = "/a/" + "long-name/" * 20
    assert path in folded(f"The page: {path}", Terminal())


@pytest.mark.parametrize("command", ["train", "sft", "evaluate embedded", "doctor", "audit"])
def test_an_experiment_is_sent_to_compare(surefoot: Surefoot, workplace: Path, command: str) -> None:
    (workplace / "warm.toml").write_text("seeds = 2\n[arms.grpo]\n[arms.dapo]\n[base.train]\nsteps = 2\n")
    done = surefoot(*command.split(), "warm.toml")
    assert done.code == 2
    assert (
        "warm.toml looks like an experiment (arms, base, seeds): run it with `surefoot compare warm.toml`" in done.err
    )


def test_every_command_takes_quiet() -> None:
    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        options = [word for parameter in command.params for word in parameter.opts]
        assert "--quiet" in options and "-q" in options, name


def test_no_help_says_a_default_twice() -> None:
    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        for parameter in command.params:
            shown = parameter.default is not None and not parameter.is_flag if hasattr(parameter, "is_flag") else False
            assert not (shown and "[" in (getattr(parameter, "help", "") or "")), (name, parameter.name)


@pytest.mark.parametrize("share", ["nan", "0", "1", "-0.5", "inf"])
def test_a_share_to_hold_out_is_checked(surefoot: Surefoot, workplace: Path, share: str) -> None:
    (workplace / "points.csv").write_text("compute,reward\n" + ROWS)
    done = surefoot("fit", "points.csv", f"--holdout={share}")
    assert done.code == 2 and f"--holdout {share}: expected a share" in done.err and done.out == ""


def test_a_fit_of_an_experiment_names_its_runs(surefoot: Surefoot, workplace: Path) -> None:
    (workplace / "mini" / "arms" / "addition" / "grpo" / "seed-0").mkdir(parents=True)
    done = surefoot("fit", "mini")
    assert done.code == 2 and "surefoot fit mini/arms/addition/grpo/seed-*" in done.err


def test_a_fit_says_whose_each_number_is(surefoot: Surefoot, workplace: Path) -> None:
    pytest.importorskip("scipy")
    points = [(n, 0.05 + curve(float(n), 0.15, 0.55, 900.0, 1.0)) for n in range(250, 5001, 250)]
    rows = "".join(f"{n},{reward:.4f}\n" for n, reward in points)
    (workplace / "kept").mkdir()
    (workplace / "kept" / "points.csv").write_text(f"compute,reward\n0,0.2\n{rows}")
    done = surefoot("fit", "kept/points.csv", "--quiet")
    assert done.code == 0, done.err
    for words in (
        "kept/points.csv: 20 points",
        "in brackets 95 % intervals",
        "on average too ",
        "95 % band",
        "root mean squared error of this curve 0.",
        ", of a power law 0.",
    ):
        assert words in done.out
    record = json.loads(surefoot("fit", "kept/points.csv", "--json").out)[0]
    for bias, side in ((0.01, "too high by 0.010"), (-0.01, "too low by 0.010")):
        record["extrapolation"]["bias"] = bias
        assert any(side in line for line in fit_lines(record))
    assert not any("(the ceiling)" in line for line in fit_lines(record))
    record["asymptote"]["high"] = record["ceiling"]
    assert any(line.startswith("  asymptote A") and line.endswith(", 1 (the ceiling)]") for line in fit_lines(record))
    record["asymptote"]["high"] = None
    record["refusal"] = "the data leave it open"
    ends = [line.split("[")[-1].strip() for line in fit_lines(record)]
    assert any(end.endswith(", open up to the ceiling]") for end in ends) and "The data leave it open." in ends


def test_refusals_of_a_fit_say_what_to_do(surefoot: Surefoot, workplace: Path) -> None:
    (workplace / "few.csv").write_text("compute,reward\n0,0.2\n1,0.3\n2,0.35\n")
    (workplace / "flat.csv").write_text("compute,reward\n0,0.2\n" + "".join(f"{n},0.1\n" for n in range(1, 9)))
    few, flat = surefoot("fit", "few.csv"), surefoot("fit", "flat.csv")
    assert few.code == 2 and "few.csv: the fit needs at least 5 points" in few.err and "add points" in few.err
    assert flat.code == 2 and "no gain to fit; leave out the start of the run" in flat.err
    (workplace / "none.csv").write_text("")
    (workplace / "below.csv").write_text("compute , reward\n0, 0.2\n-5, 0.3\n1, 0.3\n2, 0.4\n3, 0.5\n4, 0.55\n")
    none, below = surefoot("fit", "none.csv"), surefoot("fit", "below.csv")
    assert none.code == 2 and "none.csv has no rows: expected the columns compute and reward" in none.err
    assert below.code == 2 and "compute must be above 0, got -5" in below.err  # the blanks of its head do no harm


def test_a_run_that_reached_the_ceiling_is_fitted(surefoot: Surefoot, workplace: Path) -> None:
    pytest.importorskip("scipy")
    rows = "".join(f"{n},{reward}\n" for n, reward in enumerate([0.4, 0.6, 0.8, 0.9, 0.97, 0.99, 1.0, 1.0], start=1))
    (workplace / "perfect.csv").write_text(f"compute,reward\n0,0.2\n{rows}")
    done = surefoot("fit", "perfect.csv")
    assert done.code == 0 and "asymptote A: 1 [0.9" in done.out, done.err
