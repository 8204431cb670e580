"""Waves: every sample once, within the bound, groups whole where they fit."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.rollout.engine import Request, Sampling
from surefoot.rollout.waves import plan

request_lists = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 12), st.sampled_from([Sampling(), Sampling(temperature=0.5)])),
    max_size=20,
).map(
    lambda items: [
        Request(np.zeros(length, dtype=np.int64), f"p{i}", tuple(range(count)), sampling)
        for i, (length, count, sampling) in enumerate(items)
    ]
)


@settings(deadline=None, max_examples=200)
@given(requests=request_lists, bound=st.integers(1, 2000), equal_lengths=st.booleans())
def test_every_sample_once_within_the_bound(requests: list[Request], bound: int, equal_lengths: bool) -> None:
    waves = plan(requests, bound, equal_lengths=equal_lengths)
    seen: Counter[tuple[int, int]] = Counter()
    for wave in waves:
        rows = sum(part.stop - part.first for part in wave.parts)
        lengths = [len(requests[part.index].prompt_ids) for part in wave.parts]
        assert rows >= 1
        assert rows == 1 or rows * (max(lengths) + wave.sampling.max_new_tokens) <= bound
        assert not equal_lengths or len(set(lengths)) == 1
        for part in wave.parts:
            assert requests[part.index].sampling == wave.sampling
            seen.update((part.index, place) for place in range(part.first, part.stop))
    assert seen == Counter((i, place) for i, request in enumerate(requests) for place in range(len(request.seeds)))


@settings(deadline=None, max_examples=200)
@given(requests=request_lists, bound=st.integers(1, 2000))
def test_samples_that_wait_fit_into_the_places_of_their_wave(requests: list[Request], bound: int) -> None:
    waves = plan(requests, bound, refill=True)
    seen: Counter[tuple[int, int]] = Counter()
    for wave in waves:
        slots = [len(requests[part.index].prompt_ids) + wave.sampling.max_new_tokens for part in wave.parts]
        assert wave.rows == max(1, bound // max(slots)) and slots[0] == max(slots)
        assert all(1 <= part.stop - part.first <= wave.rows for part in wave.parts)
        for part in wave.parts:
            assert requests[part.index].sampling == wave.sampling
            seen.update((part.index, place) for place in range(part.first, part.stop))
    assert seen == Counter((i, place) for i, request in enumerate(requests) for place in range(len(request.seeds)))
    assert len(waves) <= len(plan(requests, bound))


@settings(deadline=None, max_examples=200)
@given(requests=request_lists, bound=st.integers(1, 2000))
def test_a_group_is_split_only_where_it_is_larger_than_a_wave(requests: list[Request], bound: int) -> None:
    parts = Counter(part.index for wave in plan(requests, bound) for part in wave.parts)
    for index, number in parts.items():
        request = requests[index]
        slots = len(request.seeds) * (len(request.prompt_ids) + request.sampling.max_new_tokens)
        assert number == 1 or slots > bound


def test_prompts_of_similar_length_share_a_wave() -> None:
    lengths = [5, 90, 6, 80, 7, 85]
    requests = [Request(np.zeros(n, dtype=np.int64), str(n), (0, 1), Sampling(max_new_tokens=10)) for n in lengths]
    waves = plan(requests, 600)
    assert [sorted(lengths[part.index] for part in wave.parts) for wave in waves] == [[80, 85, 90], [5, 6, 7]]


def test_short_prompts_do_not_wait_for_the_places_of_long_ones() -> None:
    lengths = [90, 85, 80, 70, 7, 6]
    requests = [Request(np.zeros(n, dtype=np.int64), str(n), (0, 1), Sampling(max_new_tokens=10)) for n in lengths]
    waves = plan(requests, 200, refill=True)
    assert [[lengths[part.index] for part in wave.parts] for wave in waves] == [[90, 85, 80, 70], [7, 6]]
