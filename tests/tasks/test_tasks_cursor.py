"""The order of the prompts: every index once per epoch, and nothing but the position to remember."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.tasks.cursor import PromptCursor


@given(st.integers(1, 40), st.integers(0, 2**40), st.lists(st.integers(0, 100), max_size=20))
def test_every_index_once_per_epoch_whatever_the_takes(size: int, seed: int, takes: list[int]):
    cursor = PromptCursor(size, seed)
    stream = [index for n in takes for index in cursor.take(n)]
    stream += cursor.take(-len(stream) % size)
    assert cursor.position == len(stream) and cursor.position % size == 0
    for start in range(0, len(stream), size):
        assert sorted(stream[start : start + size]) == list(range(size))


@given(st.integers(1, 30), st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
def test_a_cursor_resumes_from_its_position(size: int, seed: int, before: int, after: int):
    whole = PromptCursor(size, seed).take(before + after)
    first = PromptCursor(size, seed)
    assert first.take(before) + PromptCursor(size, seed, first.position).take(after) == whole


def test_epochs_and_seeds_differ():
    cursor = PromptCursor(50, 0)
    epochs = [tuple(cursor.take(50)) for _ in range(3)]
    assert len(set(epochs)) == 3
    assert cursor.epoch == 3
    assert tuple(PromptCursor(50, 1).take(50)) not in epochs
    assert epochs[0] != tuple(range(50))


def test_the_order_is_fixed_for_ever():
    assert PromptCursor(8, 0).take(16) == [7, 2, 6, 3, 1, 4, 5, 0, 4, 7, 2, 1, 0, 3, 5, 6]


@pytest.mark.parametrize(("size", "position"), [(0, 0), (-1, 0), (3, -1)])
def test_impossible_cursors_are_refused(size: int, position: int):
    with pytest.raises(ValueError):
        PromptCursor(size, 0, position)
    with pytest.raises(ValueError):
        PromptCursor(3, 0).take(-1)
