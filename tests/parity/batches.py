"""Random batches, as rows of padded tokens: what is outside the mask is noise that must not matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """B rows of at most T tokens, float64.

    Attributes:
        mask: [B, T] bool, loss tokens; with holes where another party wrote.
        group: [B] int64.
        reward: [B].
        components: [B, 2], two rewards whose sum is ``reward``.
        logp, old, behaviour, reference: [B, T], log-probabilities of the sampled tokens under the four policies.
        entropy: [B, T], of the whole distribution.
        values: [B, T], of a critic.
    """

    mask: Tensor
    group: Tensor
    reward: Tensor
    components: Tensor
    logp: Tensor
    old: Tensor
    behaviour: Tensor
    reference: Tensor
    entropy: Tensor
    values: Tensor

    @property
    def lengths(self) -> Tensor:
        return self.mask.sum(1)

    @property
    def groups(self) -> int:
        return int(self.group.max()) + 1


def random_batch(
    seed: int,
    *,
    sizes: tuple[int, ...] = (4, 4, 4),
    width: int = 9,
    holes: bool = True,
    empty: int = 0,
    binary: bool = False,
    drift: float = 0.4,
) -> Batch:
    """A batch with groups of the given sizes; ``empty`` rows at the end have no loss token.

    ``drift`` is the spread of the log-ratio between two successive policies.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    rows = sum(sizes)
    lengths = torch.randint(1, width + 1, (rows,), generator=generator)
    mask = torch.arange(width) < lengths[:, None]
    if holes:
        hole = torch.rand((rows, width), generator=generator) < 0.2
        hole[torch.arange(rows), torch.randint(0, width, (rows,), generator=generator) % lengths] = False
        mask = mask & ~hole
    if empty:
        mask[rows - empty :] = False
    components = torch.rand((rows, 2), generator=generator, dtype=torch.float64)
    if binary:
        components = (components > 0.5).double()
    start = -0.05 - normal(rows, width).abs()
    policies = [start]
    for _ in range(3):
        policies.append((policies[-1] + drift * normal(rows, width)).clamp(max=-1e-3))
    behaviour, old, logp, reference = policies
    return Batch(
        mask=mask,
        group=torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)),
        reward=components.sum(1),
        components=components,
        logp=logp,
        old=old,
        behaviour=behaviour,
        reference=reference,
        entropy=normal(rows, width).abs(),
        values=normal(rows, width),
    )


def drawn(seed: int, **options: Any) -> tuple[Batch, Tensor]:
    """A batch and one random advantage per row, [B, T]."""
    batch, given = drawn_per_token(seed, **options)
    return batch, given[:, :1].expand(batch.mask.shape)


def drawn_per_token(seed: int, **options: Any) -> tuple[Batch, Tensor]:
    """A batch and random advantages, [B, T]."""
    batch = random_batch(seed, **options)
    generator = torch.Generator().manual_seed(1000 + seed)
    return batch, torch.randn(batch.mask.shape, generator=generator, dtype=torch.float64)
