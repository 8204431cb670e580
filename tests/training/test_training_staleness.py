"""Bounded staleness: the worked case, and that no admitted rollout is trained on too late."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.errors import ConfigError
from surefoot.training.staleness import admits

GOLDEN = Path(__file__).parent.parent / "algorithms" / "golden.json"
CASE = next(case for case in json.loads(GOLDEN.read_text(encoding="utf-8")) if case["id"] == "areal_staleness")


def test_worked_case() -> None:
    inputs, numbers = CASE["inputs"], CASE["hyperparameters"]
    have = [admits(rollouts, numbers["B"], inputs["version"], numbers["eta"]) for rollouts in inputs["N_r"]]
    assert have == CASE["expected"]["admit"]


@given(st.integers(1, 9), st.integers(0, 4), st.lists(st.booleans(), min_size=1, max_size=200))
def test_no_rollout_is_older_than_the_limit_when_it_is_trained_on(batch: int, limit: int, turns: list[bool]) -> None:
    """Generation and training in any order: generation starts what is admitted, training takes the oldest B and publishes."""
    started: list[int] = []  # the version each waiting rollout began with, oldest first
    rollouts = version = 0
    for generate in turns:
        if generate and admits(rollouts + 1, batch, version, limit):
            rollouts += 1
            started.append(version)
        elif len(started) >= batch:
            assert all(version - began <= limit for began in started[:batch])
            del started[:batch]
            version += 1
        assert len(started) <= (limit + 1) * batch
        # Something can always go on: either there is a batch to train on or there is room to generate.
        assert len(started) >= batch or admits(rollouts + 1, batch, version, limit)


def test_a_limit_of_zero_is_synchronous() -> None:
    assert [admits(rollouts, 4, 0, 0) for rollouts in (1, 4, 5)] == [True, True, False]
    assert admits(5, 4, 1, 0)


@pytest.mark.parametrize(
    ("numbers", "says"),
    [((0, 4, 0, 0), "rollouts = 0"), ((1, 0, 0, 0), "batch = 0"), ((1, 4, -1, 0), "version"), ((1, 4, 0, -1), "limit")],
)
def test_numbers_out_of_range_are_named(numbers: tuple[int, int, int, int], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        admits(*numbers)
