"""The terminal: plain lines where nobody watches, a live bar where someone does, a table at the end."""

from __future__ import annotations

import errno
import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from surefoot.report.terminal import WIDTH, ProgressView, plain_line, result_table, text_table
from surefoot.training.progress import Progress

RESULT = {
    "before": {"step": 0, "problems": 256, "samples": 1, "accuracy": 0.25, "low": 0.2, "high": 0.305},
    "after": {"step": 80, "problems": 256, "samples": 1, "accuracy": 0.75, "low": 0.69, "high": 0.8},
    "steps": 80,
    "seconds": {"generate": 60.0, "score": 0.5, "logprob": 9.5, "train": 30.0},
    "tokens_generated": 600000,
    "tokens_trained": 450000,
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(table: object, width: int = WIDTH) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    return stream.getvalue()


def at(step: int, steps: int, phase: str = "train") -> Progress:
    return Progress(step, steps, reward=None, accuracy=None, seconds_left=None, phase=phase)


def is_plain(text: str) -> bool:
    return all(c == "\n" or (c.isascii() and c.isprintable()) for c in text)


def test_lines_are_plain_and_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes Rich write control codes into pipes
    stream, now = io.StringIO(), [0.0]
    with ProgressView(stream=stream, seconds=5, clock=lambda: now[0]) as watch:
        for step in range(0, 21):
            now[0] = step * 2.0
            accuracy = None if step == 0 else 0.25 + step // 10 * 0.1
            watch(
                Progress(step, 20, reward=step / 20, accuracy=accuracy, seconds_left=40.0 - 2 * step, phase="logprob")
            )
    lines = stream.getvalue().splitlines()
    assert is_plain(stream.getvalue()) and all(len(line) <= WIDTH for line in lines)
    shown = [int(line.split("/")[0].removeprefix("step ")) for line in lines]
    # The first; the new accuracies of steps 1, 10 and 20; otherwise every third step, which is the first 5 s later.
    assert shown == [0, 1, 4, 7, 10, 13, 16, 19, 20]
    assert lines[4] == "step 10/20  reward 0.50  held-out 35.0 %  0:20 left  log-probability"


def test_the_last_line_is_not_said_twice_for_another_phase() -> None:
    for accuracy, said in ((0.5, 1), (0.75, 2)):
        stream = io.StringIO()
        with ProgressView(stream=stream) as watch:
            watch(Progress(3, 3, reward=0.5, accuracy=0.5, seconds_left=0.0, phase="evaluate"))
            watch(Progress(3, 3, reward=0.5, accuracy=accuracy, seconds_left=0.0, phase="train"))
        assert len(stream.getvalue().splitlines()) == said


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        ("budget.tokens", "80, ended by budget.tokens"),
        ("prompts", "80, ended since no prompt is left"),
        ("steps", "80\n"),
    ],
)
def test_the_table_says_what_ended_a_run_early(ended: str, said: str) -> None:
    table = "\n".join(line.rstrip() for line in show(result_table({**RESULT, "ended": ended})).splitlines())
    assert said in table


@given(
    st.integers(0, 10**12),
    st.none() | st.floats(allow_nan=True),
    st.none() | st.floats(0, 1),
    st.none() | st.floats(0, 1e9),
    st.text(max_size=200),
)
def test_any_progress_makes_one_plain_line(
    step: int, reward: float | None, accuracy: float | None, left: float | None, phase: str
) -> None:
    line = plain_line(Progress(step, 10**12, reward, accuracy, left, phase))
    assert is_plain(line) and "\n" not in line and len(line) <= WIDTH


def test_the_last_state_is_always_said() -> None:
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt), ProgressView(stream=stream, seconds=1e9) as watch:
        watch(at(1, 9, "generate"))
        watch(at(4, 9, "train"))
        raise KeyboardInterrupt
    assert stream.getvalue().splitlines() == ["step 1/9  generate", "step 4/9  train"]


def test_a_terminal_gets_a_live_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    with ProgressView(stream=stream) as watch:
        watch(Progress(12, 200, reward=0.5, accuracy=0.25, seconds_left=187, phase="generate"))
    assert "\x1b[" in stream.getvalue()
    last = [line for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).splitlines() if line.strip()][-1]
    assert len(last) <= WIDTH
    for part in ("generate", "12/200", "reward 0.50", "held-out 25.0 %", "3:07 left"):
        assert part in last
    assert "━" in last


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_quiet_shows_nothing(stream: io.StringIO) -> None:
    with ProgressView(quiet=True, stream=stream) as watch:
        watch(at(1, 2))
        watch(at(2, 2))
    assert stream.getvalue() == ""


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with ProgressView(stream=stream) as watch:
        watch(at(1, 2, "train"))
    assert stream.getvalue() == "step 1/2  train\n"


def test_a_spectator_that_leaves_does_not_end_the_run() -> None:
    stream = io.StringIO()
    with ProgressView(stream=stream, seconds=0) as watch:
        watch(at(1, 3))
        stream.close()
        watch(at(2, 3))
        watch(at(3, 3))


def test_result_table_has_the_outcome(tmp_path: Path) -> None:
    text = show(result_table(RESULT, report=tmp_path / "report.html"))
    rows = {re.split(r"  +", line.strip())[0]: line for line in text.splitlines()}
    assert "25.0 %" in rows["held-out accuracy before"] and "20.0 to 30.5 %" in rows["held-out accuracy before"]
    assert "75.0 %" in rows["held-out accuracy after"] and "95 % interval" in rows["held-out accuracy after"]
    assert "+50.0 points" in rows["difference"]
    assert "10,000" in rows["tokens per second generated"] and "15,000" in rows["tokens per second trained"]
    assert "1 min 00 s" in rows["time: generate"] and "60.0 %" in rows["time: generate"]
    assert "9.5 %" in rows["time: log-probability"] and "30.0 %" in rows["time: train"]
    wide = show(result_table(RESULT, report=tmp_path / "report.html"), width=300)
    assert str(tmp_path / "report.html") in wide


def test_result_table_fits_and_has_no_codes_outside_a_terminal(tmp_path: Path) -> None:
    text = show(result_table(RESULT, report=tmp_path / ("a long folder name " * 8) / "report.html"))
    assert "\x1b" not in text and all(len(line) <= WIDTH for line in text.splitlines())


def test_result_table_names_the_level_of_the_intervals() -> None:
    assert "90 % interval" in show(result_table(RESULT, confidence=0.9))


def test_result_table_of_half_a_result() -> None:
    text = show(result_table({"after": RESULT["after"], "seconds": {"mine [red]x[/red]": 2.0}}))
    assert "held-out accuracy after" in text and "before" not in text and "difference" not in text
    assert "mine [red]x[/red]" in text
    assert show(result_table({})).count("\n") >= 3


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


class FullTerminal(Full):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Full(), FullTerminal()])
def test_a_full_disk_does_not_end_the_run(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with ProgressView(stream=stream, seconds=0) as watch:
        watch(at(1, 2))
        watch(at(2, 2))


def test_a_process_without_standard_output_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    with ProgressView() as watch:
        watch(at(1, 2))


@given(
    st.lists(
        st.text(st.characters(min_codepoint=33, max_codepoint=0x2FFF, categories=["L", "N"]), min_size=1, max_size=40),
        min_size=2,
        max_size=9,
    ),
    st.integers(40, 120),
)
def test_tables_of_text_fit_and_lose_no_column(cells: list[str], width: int) -> None:
    head = [cell[:20] for cell in cells]
    blocks = text_table([head, head], width)
    assert all(len(line) <= width for lines in blocks for line in lines if line.isascii())
    words = [word for lines in blocks for word in lines[0].split()[1:]]
    assert words == head[1:]
    assert all(len(lines) == 2 for lines in blocks)


def test_a_comparison_reads_well_in_eighty_columns() -> None:
    interval = "+12.3 [-45.6, +78.9]"
    head = ["arm", "accuracy", "pass@8", "against reinforce", "p", "better runs", "tokens", "seconds"]
    row = ["reinforce_pp_baseline", interval, interval, interval, "0.012", "100 %", "1,234,567", "1,234"]
    blocks = text_table([head, row])
    assert 1 < len(blocks) <= 3 and all(len(line) <= WIDTH for lines in blocks for line in lines)
    for first, second in blocks:
        assert first.startswith("arm  ") and second.startswith("reinforce_pp_baseline")
        assert len(first) == len(second) and first == first.rstrip()
