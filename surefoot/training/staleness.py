"""Bounded staleness: how far generation may run ahead of training (AReaL, arXiv 2505.24298)."""

from __future__ import annotations

from surefoot.errors import ConfigError


def admits(rollouts: int, batch: int, version: int, limit: int) -> bool:
    """Whether the ``rollouts``-th rollout of the run may start: floor((N - 1) / B) <= version + limit.

    Rollout N is trained on in step floor((N - 1) / B), counted from 0, at the earliest, so with rollouts trained in the order
    in which they started none is more than ``limit`` versions old. 0 is synchronous: nothing for the next step starts
    before this one is over.

    Args:
        rollouts: N, rollouts started so far with the one that asks, at least 1.
        batch: B, rollouts of an optimiser step, at least 1.
        version: of the weights that are published now; 0 before the first update.
        limit: eta, the versions that a rollout may be behind, at least 0.

    Raises:
        ConfigError: a number out of its range.
    """
    for name, value, least in (
        ("rollouts", rollouts, 1),
        ("batch", batch, 1),
        ("version", version, 0),
        ("limit", limit, 0),
    ):
        if value < least:
            raise ConfigError(f"staleness: {name} = {value}, expected at least {least}")
    return (rollouts - 1) // batch <= version + limit
