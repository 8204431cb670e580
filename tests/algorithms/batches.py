"""Random batches for property tests: rows with holes, empty rows, groups of unequal size."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch
from hypothesis import strategies as st

from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.table import RewardTable
from surefoot.algorithms.tokens import Tokens
from tests.algorithms.harness import Rows

AGGREGATIONS = [
    "token_mean",
    "seq_mean_token_mean",
    "seq_mean_token_sum",
    "seq_mean_token_sum_norm",
    "prompt_mean",
    "token_sum",
]


@st.composite
def batches(draw: Any) -> tuple[Rows, torch.Generator]:
    """Rows with holes in their masks, some of them empty, in groups of unequal size."""
    count, width = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    mask = (torch.rand(count, width, generator=generator) < 0.7).double()
    groups = torch.randint(0, 3, (count,), generator=generator)
    groups = torch.unique(groups, return_inverse=True)[1]
    return Rows(mask.tolist(), groups.tolist(), constant=float(width)), generator


def draw_logp(rows: Rows, generator: torch.Generator) -> torch.Tensor:
    return -3 * torch.rand(rows.mask.shape, generator=generator, dtype=torch.float64)


def policy_only(algorithm: Algorithm) -> Algorithm:
    """The algorithm without its term against a reference."""
    return algorithm.but(kl="none", reset="never")


def full(rows: Rows, generator: torch.Generator, logp: torch.Tensor, **streams: Any) -> Tokens:
    """The tokens of a batch with everything that a part may read: streams [B, T] where given, random ones else."""

    def noise() -> torch.Tensor:
        return 0.4 * torch.randn(rows.mask.shape, generator=generator, dtype=torch.float64)

    drawn: dict[str, Any] = {name: logp.detach() + noise() for name in ("logp_old", "logp_behaviour", "logp_reference")}
    advantage = streams.pop("advantage", None)
    if advantage is None:
        advantage = torch.randn(len(rows.mask), generator=generator, dtype=torch.float64)
    tokens = rows.tokens(logp, advantage, **{**drawn, **streams})
    count = len(tokens.logp)
    mu, pi = torch.randn(2, count, 6, generator=generator, dtype=torch.float64).log_softmax(2)
    return replace(
        tokens,
        entropy=torch.rand(count, generator=generator, dtype=torch.float64),
        top_logp=pi[:, :3],
        top_logp_behaviour=mu[:, :3],
        top_is_target=torch.arange(3) == torch.randint(0, 6, (count, 1), generator=generator),
    )


PER_TOKEN = [field.name for field in fields(Tokens) if field.name not in ("loss_tokens", "group_tokens")]


def take(tokens: Tokens, chosen: list[int]) -> Tokens:
    """The tokens of some of the rows, in that order."""
    places = [torch.nonzero(tokens.row == row).flatten() for row in chosen]
    index = torch.cat(places)
    taken: dict[str, Any] = {
        name: None if (value := getattr(tokens, name)) is None else value[index] for name in PER_TOKEN
    }
    taken["row"] = torch.repeat_interleave(torch.arange(len(chosen)), torch.tensor([len(place) for place in places]))
    return Tokens(**taken, loss_tokens=tokens.loss_tokens[chosen], group_tokens=tokens.group_tokens[chosen])


def weighed(algorithm: Algorithm, tokens: Tokens) -> Tokens:
    """The tokens of a whole mini-batch with the weights that the algorithm gives them."""
    return replace(tokens, weight=algorithm.weights(tokens))


def table_of(rewards: torch.Tensor, group: torch.Tensor) -> RewardTable:
    return RewardTable(rewards, torch.ones_like(rewards, dtype=torch.bool), group, torch.ones_like(rewards))
