"""Which samples are generated together: waves of prompts of similar length, within a bound of key-value slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.rollout.engine import Request, Sampling


@dataclass(frozen=True)
class Part:
    """Samples ``first`` to ``stop`` (exclusive) of the request at ``index``."""

    index: int
    first: int
    stop: int


@dataclass(frozen=True)
class Wave:
    """Rows that are decoded side by side: one row per sample, one prefilled row per part."""

    sampling: Sampling
    parts: tuple[Part, ...]


def plan(requests: Sequence[Request], max_batch_tokens: int, *, equal_lengths: bool = False) -> list[Wave]:
    """Split the samples of all requests into waves.

    The requests are sorted by prompt length, longest first, so that a wave pads little and its first prompt gives the
    slots of every row: prompt length + budget. A group stays in one wave unless it is larger than a whole one; a row
    that alone is longer than the bound is a wave of its own.

    Args:
        requests: any prompts and sampling; requests with different sampling never share a wave.
        max_batch_tokens: key-value slots of a wave.
        equal_lengths: whether only prompts of one length may share a wave.
    """
    waves = []
    for sampling in dict.fromkeys(request.sampling for request in requests):
        chosen = [i for i, request in enumerate(requests) if request.sampling == sampling]
        chosen.sort(key=lambda i: -len(requests[i].prompt_ids))
        parts: list[Part] = []
        room, length = 0, -1  # rows that still fit into the open wave, and the length of its longest prompt
        for i in chosen:
            own = len(requests[i].prompt_ids)
            limit = max(1, max_batch_tokens // (own + sampling.max_new_tokens))
            first, count = 0, len(requests[i].seeds)
            while first < count:
                if parts and (room < min(count - first, limit) or (equal_lengths and own != length)):
                    waves.append(Wave(sampling, tuple(parts)))
                    parts = []
                if not parts:
                    room, length = limit, own
                stop = min(count, first + room)
                parts.append(Part(i, first, stop))
                room -= stop - first
                first = stop
        if parts:
            waves.append(Wave(sampling, tuple(parts)))
    return waves
