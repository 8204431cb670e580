"""Surefoot's side of a comparison: a batch of rows through what a run does with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.loss import policy_loss
from surefoot.algorithms.part import Part
from surefoot.algorithms.presets import PRESETS
from surefoot.algorithms.table import RewardTable
from surefoot.algorithms.tokens import Tokens
from surefoot.training.batch import Batch as Scored
from surefoot.training.batch import make_batch
from surefoot.training.streams import Streams
from surefoot.types import Finish, Group, Prompt, Sample, Score
from tests.algorithms.harness import Rows
from tests.parity.batches import Batch


def preset(name: str, **changes: Any) -> Algorithm:
    """A preset's advantage and surrogate: without KL term, shaping and selection, which have comparisons of their own."""
    alone = {"kl": "none", "shaping": "none", "selection": "keep", "reset": "never"}
    return PRESETS[name].but(**{**alone, **changes})


def without_kl_in_reward(name: str) -> Algorithm:
    """A preset with the KL term of its loss, where it has one there."""
    return preset(name, **({} if PRESETS[name].kl_in_reward else {"kl": PRESETS[name].kl}))


def groups_of(
    batch: Batch, reward: Tensor | None = None, greedy: Tensor | None = None, cut: Tensor | None = None
) -> list[Group]:
    """The batch as scored groups; what the mask leaves out of a completion was injected into it."""
    given = batch.reward if reward is None else reward
    groups = []
    for g in range(batch.groups):
        samples, scores = [], []
        for i in torch.nonzero(batch.group == g).flatten().tolist():
            mask = batch.mask[i].numpy()[: int(batch.mask[i].nonzero().max()) + 1 if batch.mask[i].any() else 1]
            samples.append(
                Sample.of(
                    np.array([5]),
                    np.full(len(mask), 7),
                    prompt_id=str(g),
                    injected=~mask,
                    finish=Finish.LENGTH if cut is not None and cut[i] else Finish.STOP,
                )
            )
            parts = {"first": float(batch.components[i, 0]), "second": float(batch.components[i, 1])}
            scores.append(Score(float(given[i]), parts))
        best = None if greedy is None else Score(float(greedy[g]))
        groups.append(Group(Prompt(str(g), "?"), tuple(samples), tuple(scores), best))
    return groups


def scored(algorithm: Algorithm, batch: Batch, *, budget: int | None = None, **scores: Any) -> Scored:
    """Shaping, KL in the reward, selection and advantages, as a run computes them."""

    def rows(value: Tensor) -> list[Tensor]:
        return [row[mask] for row, mask in zip(value, batch.mask, strict=True)]

    streams = Streams(old=rows(batch.old), reference=rows(batch.reference), values=rows(batch.values))
    groups = groups_of(batch, **scores)
    return make_batch(algorithm, groups, {}, budget=budget or batch.mask.shape[1], streams=streams)


def spread(batch: Batch, value: np.ndarray | tuple[np.ndarray, ...]) -> Tensor:
    """[B] or a row each -> [B, T], 0 outside the mask."""
    full = torch.zeros(batch.mask.shape, dtype=torch.float64)
    for i, row in enumerate(value):
        full[i, batch.mask[i]] = torch.as_tensor(row, dtype=torch.float64)
    return full


def advantage(algorithm: Algorithm, batch: Batch, **options: Any) -> Tensor:
    """[B, T]."""
    made = scored(algorithm, batch, **options)
    return spread(batch, made.advantage if made.token_advantage is None else made.token_advantage)


def tokens_of(batch: Batch, logp: Tensor, given: Tensor) -> tuple[Tokens, Rows]:
    rows = Rows(batch.mask.double().tolist(), batch.group.tolist())
    streams = {"logp_old": batch.old, "logp_behaviour": batch.behaviour, "logp_reference": batch.reference}
    return replace(rows.tokens(logp, given, **streams), entropy=batch.entropy[batch.mask]), rows


def loss(
    algorithm: Algorithm,
    batch: Batch,
    given: Tensor,
    *,
    constant: float | None = None,
    totals: dict[str, float] | None = None,
) -> dict[str, Tensor]:
    """The loss of the batch as one micro-batch, and its gradient [B, T] with respect to the log-probabilities."""
    leaf = batch.logp.clone().requires_grad_()
    tokens, rows = tokens_of(batch, leaf, given)
    tokens = replace(tokens, weight=algorithm.weights(tokens))
    sizes = {"constant": constant or float(batch.mask.shape[1]), **(totals or {})}
    value, _ = policy_loss(algorithm, tokens, replace(rows.totals, **sizes))
    value.backward()
    assert leaf.grad is not None
    return {"loss": value.detach(), "gradient": leaf.grad}


def weight(part: Part, batch: Batch) -> Tensor:
    """[B, T], the weights of a correction."""
    tokens, _ = tokens_of(batch, batch.logp, batch.reward)
    full = torch.zeros(batch.mask.shape, dtype=torch.float64)
    full[batch.mask] = part(tokens)
    return full


def on_policy(batch: Batch) -> Batch:
    """The batch in the first update after its rollout: the old policy is the current one."""
    return replace(batch, old=batch.logp.clone())


def coefficient(part: Part, batch: Batch, memory: dict[str, float]) -> float:
    """The coefficient that an adaptive KL term has for this batch; it adapts in ``memory``."""
    table = RewardTable(
        batch.reward,
        torch.ones(len(batch.mask), dtype=torch.bool),
        batch.group,
        batch.lengths.double(),
        memory=memory,
        logp_old=batch.old[batch.mask],
        logp_reference=batch.reference[batch.mask],
    )
    k1 = table.logp_old - table.logp_reference
    return float(part(table).sum() / k1.sum())
