"""pass@k against the definition: the share of all ways to choose k samples that hold a right one."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest

from surefoot.evaluation.passk import ladder, pass_at_k


@pytest.mark.parametrize("samples", range(1, 8))
def test_equals_the_enumeration_of_all_choices(samples: int) -> None:
    for k in range(1, samples + 1):
        expected = [
            np.mean([any(chosen) for chosen in combinations([i < correct for i in range(samples)], k)])
            for correct in range(samples + 1)
        ]
        assert pass_at_k(np.arange(samples + 1), samples, k) == pytest.approx(expected, abs=1e-12)


def test_equals_the_binomials_for_many_samples() -> None:
    correct = np.array([0, 1, 5, 100, 900, 1000])
    expected = [1 - comb(1000 - int(c), 100) / comb(1000, 100) for c in correct]
    assert pass_at_k(correct, 1000, 100) == pytest.approx(expected, abs=1e-12)


def test_is_unbiased_where_the_plug_in_estimate_is_not() -> None:
    rng = np.random.default_rng(0)
    p, samples, k = 0.2, 8, 4
    correct = rng.binomial(samples, p, size=200_000)
    truth = 1 - (1 - p) ** k
    assert pass_at_k(correct, samples, k).mean() == pytest.approx(truth, abs=3e-3)
    assert (1 - (1 - correct / samples) ** k).mean() < truth - 0.03


def test_pass_at_1_is_the_share_of_right_samples() -> None:
    assert pass_at_k(np.arange(6), 5, 1) == pytest.approx(np.arange(6) / 5)


def test_ladder() -> None:
    assert [ladder(n) for n in (1, 2, 3, 4, 16)] == [[1], [1, 2], [1, 2], [1, 2, 4], [1, 2, 4, 8, 16]]


@pytest.mark.parametrize(("correct", "samples", "k"), [([1], 4, 0), ([1], 4, 5), ([5], 4, 2), ([-1], 4, 2)])
def test_out_of_range_is_refused(correct: list[int], samples: int, k: int) -> None:
    with pytest.raises(ValueError, match="samples"):
        pass_at_k(np.array(correct), samples, k)
