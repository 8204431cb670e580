"""A comparison in words: what each arm, each control and all of them together came to."""

from __future__ import annotations

from typing import Any

import pytest

from surefoot.methods.compare.sentences import control_sentence, legend, sentence, sentences, table
from surefoot.report.terminal import text_table
from tests.report.comparisons import comparison


def pair(value: float, low: float, high: float, verdict: str = "no difference shown", **changes: Any) -> dict[str, Any]:
    numbers = {
        "difference": [value, low, high],
        "p_value": 0.01,
        "adjusted": 0.02,
        "seeds_needed": 9,
        "improvement": 0.5,
    }
    return numbers | {"verdict": verdict} | changes


def with_control(gain: dict[str, Any], difference: dict[str, Any]) -> dict[str, Any]:
    found = comparison(arms=("grpo", "coin", "dapo"))
    found["controls"] = {"coin": "coin"}
    found["gains"] = {"grpo": pair(0.3, 0.2, 0.4), "coin": gain, "dapo": pair(0.1, -0.1, 0.3)}
    found["pairs"]["coin"] = difference
    return found


def test_controls_stand_last_are_marked_and_are_no_candidates() -> None:
    found = with_control(pair(0.0, -0.1, 0.1), pair(-0.2, -0.3, -0.1, "worse"))
    found["results"]["addition"]["coin"]["accuracy"] = [0.99, 0.98, 1.0]  # by luck, the best
    assert [row[0] for row in table(found, "addition")] == ["arm", "dapo", "grpo", "coin (control)"]
    said = sentences(found)
    assert not any(line.startswith(("coin is worse", "No difference shown between coin")) for line in said)
    assert [line.split()[0] for line in said] == ["No", "coin", "Against"]
    assert "controls last" in legend(found) and "controls last" not in legend(comparison())


@pytest.mark.parametrize(
    ("gain", "difference", "words"),
    [
        (
            pair(0.05, 0.01, 0.09),
            pair(-0.2, -0.3, -0.1),
            [
                "its reward is a coin toss",
                "Against its own start: +5.0 points, 95 % interval +1.0 to +9.0; it rose by itself",
                "grpo against it: +20.0 points, 95 % interval +10.0 to +30.0; the reward makes this difference",
            ],
        ),
        (
            pair(-0.05, -0.09, -0.01),
            pair(0.01, -0.1, 0.12),
            [
                "it got worse",
                "-1.0 points, 95 % interval -12.0 to +10.0; it is not shown that the reward makes a difference",
            ],
        ),
        (pair(0.0, -0.1, 0.1), pair(0.2, 0.1, 0.3), ["no change is shown", "the reward did harm"]),
    ],
    ids=["rose", "fell", "stayed"],
)
def test_a_control_says_what_it_did_and_what_the_reward_taught(
    gain: dict[str, Any], difference: dict[str, Any], words: list[str]
) -> None:
    line = control_sentence("coin", with_control(gain, difference))
    assert all(word in line for word in words), line


def test_one_seed_says_nothing_of_a_control() -> None:
    unknown = pair(-0.2, -1.0, 1.0, "too little data")
    line = control_sentence("coin", with_control(unknown, unknown))
    assert "one seed" in line and "makes" not in line and "by itself" not in line


def test_a_control_may_be_the_baseline() -> None:
    found = with_control(pair(0.0, -0.1, 0.1), pair(0.0, -0.1, 0.1))
    found["baseline"] = "coin"
    found["pairs"] = {"grpo": pair(0.3, 0.2, 0.4, "better"), "dapo": pair(0.1, 0.0, 0.2)}
    said = sentences(found)
    assert said[0].startswith("grpo is better than coin") and "It is the baseline" in said[2]


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((0.0, 0.004, 0.7), "Every arm ends at 0.4 % or below: nothing was learned"),
        ((1.0, 0.995, 0.1), "Every arm ends at 99.5 % or above: the problems are too easy"),
        ((0.0, 0.5, 0.0), ""),
    ],
)
def test_a_comparison_of_nothing_says_so_first(ends: tuple[float, ...], words: str) -> None:
    """The third arm is the control, which does not count."""
    found = comparison(arms=("grpo", "dapo", "coin"))
    found["controls"] = {"coin": "coin"}
    for arm, end in zip(found["arms"], ends, strict=True):
        found["results"]["addition"][arm]["accuracy"] = [end, end, end]
    first = sentences(found)[0]
    assert first.startswith(words) if words else not first.startswith("Every")


def test_what_is_needed_to_show_a_difference() -> None:
    found = comparison()
    assert "About 9 seeds would show a difference of this size with 80 % power" in sentence(
        "a", pair(0.1, -1, 1), found
    )
    assert "This many seeds show" in sentence("a", pair(0.1, -1, 1, seeds_needed=3), found)
    assert "more problems" in sentence("a", pair(0.1, -1, 1, seeds_needed=None), found)
    assert "equal to the last sample: train longer" in sentence("a", pair(0.0, -1, 1, seeds_needed=None), found)
    assert "run at least two" in sentence("a", pair(0.1, -1, 1, "too little data"), found)


def test_who_gained_what_ended_and_who_warned() -> None:
    found = comparison()
    found["gains"] = {"grpo": pair(0.3, 0.2, 0.4), "dapo": pair(0.1, -0.1, 0.3), "rloo": pair(0.1, 0.05, 0.3)}
    found["results"]["addition"]["grpo"]["ended"] = {"budget.tokens": 3}
    found["results"]["addition"]["dapo"]["ended"] = {"steps": 2, "prompts": 1}
    kinds = [{"name": name, "runs": 2, "arms": ["grpo"], "text": "t"} for name in ("truncated", "entropy", "kl", "x")]
    found["warnings"] = {"runs": 5, "of": 9, "kinds": kinds}
    *_, gained, ended, warned = sentences(found)
    assert gained.startswith("Against their own start, 2 of the 3 arms gained") and gained.endswith(
        "Not shown for dapo."
    )
    assert "3 by budget.tokens (grpo), 2 by steps (dapo), 1 for want of prompts (dapo)" in ended
    assert "A step that has begun is finished" in ended
    assert warned.startswith("5 of 9 runs gave warnings: truncated (2: grpo), entropy") and " and 1 more. " in warned


def test_a_comparison_of_an_earlier_version_has_its_sentences() -> None:
    assert [line.split()[0] for line in sentences(comparison())] == ["dapo", "No"]


def test_the_table_fits_two_blocks_of_eighty_columns() -> None:
    found = with_control(pair(0.0, -0.1, 0.1), pair(-0.2, -0.3, -0.1, adjusted=1e-9))
    for one in found["results"]["addition"].values():
        one["spent"] |= {"seconds": 1.234, "tokens": 1234567.0, "steps": 1000.0}
    blocks = text_table(table(found, "addition"), 80)
    assert len(blocks) == 2 and max(len(line) for block in blocks for line in block) <= 80
    assert all(word in blocks[1][-1] for word in ("<0.001", "1,235k", "1.2", "1,000"))
    assert "30.0" in blocks[0][-1]  # the start
