"""Which samples are generated together: waves of prompts of similar length, within a bound of key-value slots.

A wave may hold more samples than fit side by side: those behind wait for the places of samples that are over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.rollout.engine import Request, Sampling

# A prompt waits for a place among longer ones only where its rows fill at least this share of the place.
FILLED_SHARE = 0.75


@dataclass(frozen=True)
class Part:
    """Samples ``first`` to ``stop`` (exclusive) of the request at ``index``."""

    index: int
    first: int
    stop: int


@dataclass(frozen=True)
class Wave:
    """Rows that are decoded side by side, at most ``rows`` at once: one row per sample, one prefilled row per part."""

    sampling: Sampling
    parts: tuple[Part, ...]
    rows: int


def plan(
    requests: Sequence[Request], max_batch_tokens: int, *, equal_lengths: bool = False, refill: bool = False
) -> list[Wave]:
    """Split the samples of all requests into waves.

    The requests are sorted by prompt length, longest first, so that a wave pads little and its first prompt gives the
    slots of every row: prompt length + budget. A group stays together unless it is larger than a whole wave; a row
    that alone is longer than the bound is a wave of its own.

    Args:
        requests: any prompts and sampling; requests with different sampling never share a wave.
        max_batch_tokens: key-value slots of a wave.
        equal_lengths: whether only prompts of one length may share a wave.
        refill: whether further samples may wait for a place; they must need most of its slots (FILLED_SHARE).
    """
    waves = []
    for sampling in dict.fromkeys(request.sampling for request in requests):
        chosen = [i for i, request in enumerate(requests) if request.sampling == sampling]
        chosen.sort(key=lambda i: -len(requests[i].prompt_ids))
        parts: list[Part] = []
        # Of the open wave: rows that fit side by side, how many of them are not taken, slots of each, its first prompt.
        rows, room, slots, length = 0, 0, 0, -1
        for i in chosen:
            own = len(requests[i].prompt_ids)
            limit = max(1, max_batch_tokens // (own + sampling.max_new_tokens))
            first, count = 0, len(requests[i].seeds)
            while first < count:
                full = room < min(count - first, limit)
                if full and refill and parts and own + sampling.max_new_tokens >= FILLED_SHARE * slots:
                    full, room = False, rows
                if parts and (full or (equal_lengths and own != length)):
                    waves.append(Wave(sampling, tuple(parts), rows))
                    parts = []
                if not parts:
                    rows, room, slots, length = limit, limit, own + sampling.max_new_tokens, own
                stop = min(count, first + room)
                parts.append(Part(i, first, stop))
                room -= stop - first
                first = stop
        if parts:
            waves.append(Wave(sampling, tuple(parts), rows))
    return waves
