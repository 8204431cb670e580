"""Counter-based random streams: every random number is a pure function of names and counters.

Nothing here has hidden state, so a run that resumes at step 1,000 draws the numbers that the uninterrupted run drew,
and one sample can be generated again alone. Streams are keyed by *what* they are for (run seed, step, prompt, sample),
never by the order in which work happened.
"""

from __future__ import annotations

import hashlib

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def derive(*names: int | str) -> int:
    """A seed in [0, 2^63) from any sequence of names and counters, stable over processes, machines and versions.

    >>> derive(0, "sample", 3) == derive(0, "sample", 3)
    True
    """
    text = "\x1f".join(f"{type(name).__name__}:{name}" for name in names)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(*names: int | str) -> np.random.Generator:
    """A NumPy generator (Philox) keyed by :func:`derive`."""
    return np.random.Generator(np.random.Philox(derive(*names)))


def uniforms(seed_b: np.ndarray, counter_b: np.ndarray) -> np.ndarray:
    """One uniform number in [0, 1) per row, from the row's own seed and counter.

    The SplitMix64 finaliser (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014) applied to
    ``seed + (counter + 1) * golden``: row b's number does not depend on which other rows are in the batch.

    Args:
        seed_b: [B] uint64.
        counter_b: [B] integers, for instance the index of the token in its completion.

    Returns:
        [B] float64.
    """
    with np.errstate(over="ignore"):
        z = seed_b.astype(np.uint64) + (counter_b.astype(np.uint64) + np.uint64(1)) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _MIX_1
        z = (z ^ (z >> np.uint64(27))) * _MIX_2
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
