"""All claims, by name, and how they are found."""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.config import nearest
from surefoot.errors import ConfigError
from surefoot.methods.reproduce import clipping, compute, course, lengths, mismatch, rewards, sequence_ratio, variance
from surefoot.methods.reproduce.claim import Claim

FAMILIES = (variance, clipping, lengths, compute, sequence_ratio, rewards, mismatch, course)
CLAIMS: dict[str, Claim] = {claim.name: claim for family in FAMILIES for claim in family.CLAIMS}
QUICK = tuple(name for name, claim in CLAIMS.items() if claim.prepare is None)
"""Claims without training runs of their own: seconds to a minute each."""


def find(names: Sequence[str]) -> list[Claim]:
    """The claims of these names.

    Raises:
        ConfigError: an unknown name, with the nearest one.
    """
    for name in names:
        if name not in CLAIMS:
            raise ConfigError(
                f"there is no claim '{name}'.{nearest(name, CLAIMS)} `surefoot reproduce --list` shows all."
            )
    return [CLAIMS[name] for name in dict.fromkeys(names)]
