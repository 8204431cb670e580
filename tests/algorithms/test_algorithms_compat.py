"""The presets that are called after other libraries, against plain NumPy of what those compute (documented facts).

TRL and verl are compared with their own functions in tests/parity; OpenRLHF cannot be imported without a cluster's worth
of dependencies, so its arithmetic is written down here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from surefoot.algorithms.loss import policy_loss
from surefoot.algorithms.presets import PRESETS
from surefoot.training.batch import make_batch
from surefoot.training.streams import Streams
from surefoot.types import Group, Prompt, Sample, Score
from tests.algorithms.harness import Rows, tensor

LENGTHS = [4, 2, 3, 1, 5, 2]
REWARDS = [1.0, 0.0, 0.25, 1.0, 0.0, 0.0]
GROUPS = [0, 0, 0, 1, 1, 1]


def drawn(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [-3 * rng.random(length) for length in LENGTHS]


def batch_of(preset: str, old: list[np.ndarray], reference: list[np.ndarray]) -> Any:
    groups = []
    for g in (0, 1):
        rows = [i for i in range(6) if GROUPS[i] == g]
        samples = tuple(Sample.of(np.array([1, 2]), np.arange(3, 3 + LENGTHS[i]), prompt_id=f"p{g}") for i in rows)
        groups.append(Group(Prompt(f"p{g}", "?"), samples, tuple(Score(REWARDS[i]) for i in rows)))
    streams = Streams(old=[torch.from_numpy(x) for x in old], reference=[torch.from_numpy(x) for x in reference])
    return make_batch(PRESETS[preset], groups, {}, budget=8, streams=streams)


def standardised(eps: float) -> np.ndarray:
    rewards = np.array(REWARDS)
    return np.concatenate([(r - r.mean()) / (r.std(ddof=1) + eps) for r in (rewards[:3], rewards[3:])])


def test_openrlhf_takes_the_kl_off_token_by_token_after_the_normalisation() -> None:
    old, reference = drawn(1), drawn(2)
    batch = batch_of("openrlhf_grpo", old, reference)
    for i, normed in enumerate(standardised(1e-9)):
        penalty = 0.01 * (old[i] - reference[i])
        want = normed - np.cumsum(penalty[::-1])[::-1]
        np.testing.assert_allclose(batch.token_advantage[i], want, atol=1e-12)


def test_trl_and_verl_differ_in_the_epsilon_and_the_second_clip() -> None:
    old = drawn(1)
    np.testing.assert_allclose(batch_of("trl_grpo", old, old).advantage, standardised(1e-4), atol=1e-12)
    np.testing.assert_allclose(batch_of("verl_grpo", old, old).advantage, standardised(1e-6), atol=1e-12)


def test_the_losses_are_token_means_of_the_clipped_ratio() -> None:
    logp, old = drawn(3), drawn(1)
    old[1] = old[1] - 2.0  # far enough for the second clip
    width = max(LENGTHS)
    mask = np.array([[t < length for t in range(width)] for length in LENGTHS])
    padded = [np.array([np.pad(row, (0, width - len(row))) for row in rows]) for rows in (logp, old)]
    advantage = standardised(1e-6)
    ratio = np.exp(padded[0] - padded[1])
    plain = -np.minimum(ratio * advantage[:, None], np.clip(ratio, 0.8, 1.2) * advantage[:, None])
    twice = np.where(advantage[:, None] < 0, np.minimum(plain, 3 * np.abs(advantage)[:, None]), plain)
    rows = Rows(mask.astype(float).tolist(), GROUPS)
    for preset, losses in (("trl_grpo", plain), ("openrlhf_grpo", plain), ("verl_grpo", twice)):
        tokens = rows.tokens(tensor(padded[0].tolist()), advantage.tolist(), logp_old=padded[1].tolist())
        value, _ = policy_loss(PRESETS[preset], replace(tokens, logp_reference=None), rows.totals)
        np.testing.assert_allclose(float(value), losses[mask].sum() / mask.sum(), atol=1e-12)
    assert abs(twice - plain).max() > 0.1
