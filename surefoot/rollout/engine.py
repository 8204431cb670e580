"""The Engine protocol: token ids in, token ids out.

An engine knows no algorithm and no text. Everything that a sample depends on is in its request (prompt ids, sampling,
its own seed) and in the version of the weights, never in what else was generated beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from surefoot.types import Sample


@dataclass(frozen=True)
class Sampling:
    """How to sample.

    Attributes:
        temperature: 0 is greedy (such samples cannot be trained on).
        top_p: keep the smallest set of tokens with at least this mass (1: all).
        top_k: keep the k likeliest tokens (0: all).
        max_new_tokens: budget, the stop token included.
        stop_ids: tokens that end a completion.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 64
    stop_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Request:
    """A prompt and the samples wanted of it, one seed each. The prompt is prefilled once for all of them.

    Attributes:
        prompt_ids: [L] int64, L >= 1.
        prompt_id: name of the prompt.
        seeds: one seed per sample, see :func:`surefoot.seeds.derive`.
        sampling: how to sample.
        first_sample_id: ``sample_id`` of the first sample; the others follow.
    """

    prompt_ids: np.ndarray
    prompt_id: str
    seeds: tuple[int, ...]
    sampling: Sampling
    first_sample_id: int = 0


class Engine(Protocol):
    """What every engine does."""

    version: int

    def generate(self, requests: Sequence[Request]) -> list[tuple[Sample, ...]]:
        """For each request, in order, its samples, in the order of its seeds."""

    def load(self, version: int) -> None:
        """Use the weights of this version from now on; nothing cached from older weights may be used again."""
