"""Random numbers are pure functions of names and counters."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from surefoot.seeds import derive, generator, uniforms

DERIVED = [3581690635855307741, 2990713671386263668, 3309198460875215040]

parts = st.lists(st.integers() | st.text(max_size=5), min_size=1, max_size=4)


def test_derive_is_stable_for_ever() -> None:
    """Values written down once: a change would break every resume and every published seed."""
    assert [derive(0), derive("a", 1), derive(7, "sample", 3)] == DERIVED


@given(parts, parts)
def test_derive_tells_apart_what_differs(a: list[int | str], b: list[int | str]) -> None:
    assert (derive(*a) == derive(*b)) == ([(type(x), x) for x in a] == [(type(x), x) for x in b])
    assert 0 <= derive(*a) < 2**63


def test_numbers_and_their_text_are_different_names() -> None:
    assert derive(1) != derive("1")
    assert derive("a", "b") != derive("ab")


def test_generators_do_not_share_state() -> None:
    a, b = generator(1, "x"), generator(1, "x")
    a.random(10)
    assert generator(1, "x").random() == b.random()
    assert generator(1, "x").random() != generator(1, "y").random()


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 10**6)), min_size=1, max_size=20))
def test_a_row_does_not_depend_on_the_rows_beside_it(rows: list[tuple[int, int]]) -> None:
    seeds = np.array([seed for seed, _ in rows], dtype=np.uint64)
    counters = np.array([counter for _, counter in rows])
    together = uniforms(seeds, counters)
    alone = [uniforms(seeds[i : i + 1], counters[i : i + 1])[0] for i in range(len(rows))]
    assert together.tolist() == alone
    assert ((together >= 0) & (together < 1)).all()


def test_uniforms_are_uniform_and_uncorrelated() -> None:
    """Over counters of one stream and over streams at one counter: mean, variance, lag-1 correlation, histogram."""
    n = 100_000
    over_counter = uniforms(np.full(n, derive("s"), dtype=np.uint64), np.arange(n))
    over_seed = uniforms(np.array([derive(0, i) for i in range(n)], dtype=np.uint64), np.zeros(n, dtype=np.int64))
    for u in (over_counter, over_seed):
        assert abs(u.mean() - 0.5) < 5 * np.sqrt(1 / 12 / n)
        assert abs(u.var() - 1 / 12) < 0.001
        assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 5 / np.sqrt(n)
        histogram, _ = np.histogram(u, bins=64, range=(0, 1))
        chi2 = ((histogram - n / 64) ** 2 / (n / 64)).sum()
        assert 63 - 5 * np.sqrt(126) < chi2 < 63 + 5 * np.sqrt(126)


def test_another_process_draws_the_same() -> None:
    code = "from surefoot.seeds import derive, generator; print(derive(3, 'x'), generator(3, 'x').random())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(derive(3, "x")), str(generator(3, "x").random())]
