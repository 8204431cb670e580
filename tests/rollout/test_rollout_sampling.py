"""Sampling: frequencies, the kept set, log-probabilities, independence of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from surefoot.rollout import sampling
from surefoot.rollout.sampling import draw
from surefoot.seeds import uniforms

SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0},
    {"top_k": 4},
    {"top_p": 0.8},
    {"top_k": 6, "top_p": 0.7, "temperature": 1.5},
]
LAST = 1.0 - 2.0**-53  # the largest number that `uniforms` can return


def kept_distribution(
    logits: np.ndarray, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0
) -> tuple[np.ndarray, float]:
    """The distribution to sample from, and the log mass kept, the slow way: for one row without ties."""
    p = np.exp(logits / temperature - np.max(logits / temperature))
    p /= p.sum()
    order = np.argsort(-p)
    if top_k:
        order = order[:top_k]
    if top_p < 1:
        share = np.cumsum(p[order]) / p[order].sum()
        order = order[: int(np.searchsorted(share, top_p)) + 1]
    kept = np.zeros_like(p)
    kept[order] = p[order]
    return kept / kept.sum(), float(np.log(kept.sum()))


def chi_square_limit(freedom: int) -> float:
    """The 99.9 % quantile of the chi-square distribution (Wilson and Hilferty's approximation)."""
    return freedom * (1 - 2 / (9 * freedom) + 3.0902 * np.sqrt(2 / (9 * freedom))) ** 3


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_frequencies_over_seeds_match_the_distribution(setting: dict[str, Any]) -> None:
    logits = np.random.default_rng(1).normal(scale=1.5, size=12)
    expected, _ = kept_distribution(logits, **setting)
    number = 100_000
    u = torch.from_numpy(uniforms(np.arange(number), np.full(number, 3)))
    drawn = draw(torch.tensor(logits).expand(number, -1), u, **setting)
    counts = np.bincount(drawn.ids.numpy(), minlength=12)
    assert counts[expected == 0].sum() == 0
    kept = expected > 0
    chi_square = ((counts[kept] - number * expected[kept]) ** 2 / (number * expected[kept])).sum()
    assert chi_square < chi_square_limit(kept.sum() - 1)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("vocabulary", [7, 1000])
def test_log_probability_is_that_of_the_distribution_sampled_from(setting: dict[str, Any], vocabulary: int) -> None:
    rng = np.random.default_rng(2)
    logits = rng.normal(scale=2.0, size=(20, vocabulary))
    drawn = draw(torch.tensor(logits), torch.from_numpy(rng.random(20)), **setting)
    for row in range(20):
        expected, logmass = kept_distribution(logits[row], **setting)
        assert drawn.logp[row] == pytest.approx(np.log(expected[drawn.ids[row]]), abs=1e-6)
        assert drawn.kept_logmass[row] == pytest.approx(logmass, abs=1e-6)


def test_nothing_cut_keeps_all_the_mass_exactly() -> None:
    drawn = draw(torch.randn(50, 300), torch.rand(50, dtype=torch.float64), temperature=0.7)
    assert (drawn.kept_logmass == 0).all()


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("u", [0.0, 0.5, LAST])
def test_never_a_token_outside_the_kept_set(setting: dict[str, Any], u: float) -> None:
    rng = np.random.default_rng(3)
    logits = rng.normal(scale=3.0, size=(400, 9))
    logits[rng.random(logits.shape) < 0.4] = -np.inf
    logits[:, 4] = rng.normal(size=400)  # at least one is finite
    drawn = draw(torch.tensor(logits), torch.full((400,), u, dtype=torch.float64), **setting)
    for row in range(400):
        assert kept_distribution(logits[row], **setting)[0][drawn.ids[row]] > 0
    assert torch.isfinite(drawn.logp).all()


def test_the_token_is_the_first_whose_cumulative_mass_exceeds_u() -> None:
    logits = torch.tensor([-torch.inf, 0.0, 0.0, -torch.inf, 0.0, 0.0]).expand(8, -1)
    u = torch.tensor([0.0, 0.2, 0.25, 0.49, 0.5, 0.74, 0.75, LAST], dtype=torch.float64)
    assert draw(logits, u).ids.tolist() == [1, 1, 2, 2, 4, 4, 5, 5]


@pytest.mark.parametrize("u", [0.0, LAST])
def test_a_distribution_with_one_token_left_gives_that_token(u: float) -> None:
    logits = torch.full((5, 5), -torch.inf)
    logits.fill_diagonal_(-3.0)
    drawn = draw(logits, torch.full((5,), u, dtype=torch.float64))
    assert drawn.ids.tolist() == [0, 1, 2, 3, 4]
    assert (drawn.logp == 0).all()


def test_a_rare_last_token_is_reachable_and_a_rarer_one_is_not_lost_to_rounding() -> None:
    # 2^17 tokens that share one half, and a last one with 2e-9 of the mass: float32 sums would lose it.
    logits = torch.zeros(1, 2**17)
    logits[0, -1] = float(np.log(2e-9 * 2**17))
    drawn = draw(logits, torch.tensor([1.0 - 1e-9], dtype=torch.float64))
    assert drawn.ids.item() == 2**17 - 1
    assert drawn.logp.item() == pytest.approx(np.log(2e-9), abs=1e-5)


def test_temperature_zero_takes_the_likeliest_token() -> None:
    logits = torch.randn(30, 40)
    drawn = draw(logits, torch.rand(30, dtype=torch.float64), temperature=0.0)
    assert torch.equal(drawn.ids, logits.argmax(-1))
    assert (drawn.logp == 0).all() and (drawn.kept_logmass == 0).all()


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_a_row_does_not_depend_on_the_rows_beside_it(setting: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(4)
    # Flat and peaked rows together, so that a nucleus needs from 1 to hundreds of candidates.
    logits = torch.randn(24, 500) * torch.linspace(0.01, 8, 24)[:, None]
    u = torch.rand(24, dtype=torch.float64)
    together = draw(logits, u, **setting)
    monkeypatch.setattr(sampling, "CPU_CHUNK", 5 * 500)
    chunked = draw(logits, u, **setting)
    monkeypatch.setattr(sampling, "FIRST_CANDIDATES", 500)
    alone = [draw(logits[row : row + 1], u[row : row + 1], **setting) for row in range(24)]
    for i in range(3):
        assert torch.equal(together[i], chunked[i])
        assert torch.equal(together[i], torch.cat([one[i] for one in alone]))


def test_ties_at_the_border_are_all_kept() -> None:
    logits = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0]]).expand(1000, -1)
    u = torch.linspace(0, LAST, 1000, dtype=torch.float64)
    assert set(draw(logits, u, top_k=2).ids.tolist()) == {0, 1, 2, 3}
    assert set(draw(logits, u, top_p=0.6).ids.tolist()) == {0, 1, 2, 3}


def test_logits_that_are_not_finite_are_visible_in_the_log_probability() -> None:
    logits = torch.zeros(4, 6)
    logits[0, 2] = torch.nan
    logits[1] = -torch.inf
    logits[2, 5] = torch.inf
    settings: tuple[dict[str, Any], ...] = ({}, {"temperature": 0.0}, {"top_p": 0.9}, {"top_k": 2})
    for setting in settings:
        drawn = draw(logits, torch.full((4,), 0.3, dtype=torch.float64), **setting)
        assert torch.isnan(drawn.logp).tolist() == [True, True, True, False]
        assert ((drawn.ids >= 0) & (drawn.ids < 6)).all()
