"""One batch of rollouts of the embedded model, and what an objective makes of it: gradients, updates, coefficients of tokens.

The warm starts are those of the training runs (:mod:`surefoot.methods.reproduce.arms`): a model that answers a quarter of the
three-digit additions when it samples.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.loss import policy_loss
from surefoot.algorithms.tokens import Tokens
from surefoot.config import merge, validate
from surefoot.methods.reproduce.arms import ADDITION, experiment, warm_start
from surefoot.methods.reproduce.claim import Claim
from surefoot.methods.reproduce.store import Bench
from surefoot.policy.logprob import token_logprobs
from surefoot.policy.packing import count, loss_mask, pack
from surefoot.policy.policy import Policy
from surefoot.training.assemble import Parts, assemble
from surefoot.training.batch import make_batch
from surefoot.training.clock import Clock
from surefoot.training.collect import rollout
from surefoot.training.config import RunConfig
from surefoot.training.loop import make_learner
from surefoot.training.state import RunState
from surefoot.training.streams import row_logprobs
from surefoot.types import Group, Sample

LIMIT = 8192  # tokens of a forward pass


@dataclass(frozen=True)
class Start:
    """A warm start and a batch that it sampled.

    Attributes:
        config: of a run that would go on from here.
        parts: the policy, its engine and the task.
        groups: the batch.
    """

    config: RunConfig
    parts: Parts
    groups: list[Group]

    @property
    def policy(self) -> Policy:
        return self.parts.policy

    @property
    def samples(self) -> list[Sample]:
        return [sample for group in self.groups for sample in group.samples]


def start(bench: Bench, claim: Claim, seed: int, *, base: str = ADDITION, **model: Any) -> Start:
    """A seed's warm start with ``settings["prompts"]`` groups of ``settings["group_size"]`` samples.

    Args:
        bench, claim, seed: as in :attr:`Claim.measure`.
        base: of the training runs whose warm start it is.
        model: keys of ``[model]``, for instance ``dtype``.
    """
    made = experiment(bench, claim, base)
    path = warm_start(made, seed)
    values = merge(dict(made.config.base), {"model": {"path": str(path), **model}, "seed": seed})
    config = validate(RunConfig, values)
    parts = assemble(config)
    size = claim.settings["group_size"]
    config = config.model_copy(update={"train": config.train.model_copy(update={"group_size": size})})
    chosen = parts.task.train[: claim.settings["prompts"]]
    plain = config.algorithm.build()
    return Start(config, parts, rollout(config, parts, plain, chosen, 1, Clock(), {}))


def gradient(policy: Policy, algorithm: Algorithm, groups: Sequence[Group], budget: int) -> Tensor:
    """[d] float64: the gradient of one optimiser step on policy over these groups, all parameters in one row."""
    batch = make_batch(algorithm, groups, {}, budget=budget)
    rows = np.flatnonzero(batch.trained)
    samples = [batch.samples[i] for i in rows]
    numbers = batch.group[rows].tolist()
    totals = count(samples, numbers, budget)
    policy.model.zero_grad(set_to_none=True)
    for packed in pack(samples, batch.advantage[rows].tolist(), numbers, totals, max_tokens=LIMIT):
        found = token_logprobs(policy, packed, entropy=False)
        policy_loss(algorithm, Tokens.on_policy(packed, found.logp), totals)[0].backward()
    flat = [
        (torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1).double()
        for p in policy.model.parameters()
        if p.requires_grad
    ]
    policy.model.zero_grad(set_to_none=True)
    return torch.cat(flat)


def updated(
    begin: Start, algorithm: Algorithm, *, epochs: int, updates: int, lr: float, groups: Sequence[Group] | None = None
) -> Policy:
    """A copy of the policy after ``epochs`` x ``updates`` optimiser steps on its one batch, by the trainer's own update."""
    config = begin.config
    train = config.train.model_copy(update={"epochs": epochs, "updates_per_step": updates, "steps": 1})
    optimiser = config.optimiser.model_copy(update={"lr": lr, "warmup_steps": 0})
    config = config.model_copy(update={"train": train, "optimiser": optimiser})
    model = copy.deepcopy(begin.policy.model)
    policy = Policy(model, begin.policy.tokenizer, begin.policy.config, begin.policy.device)
    learner = make_learner(config, policy, algorithm)
    learner.update(begin.groups if groups is None else groups, RunState(step=1), Clock())
    return policy


def logprobs(policy: Policy, samples: Sequence[Sample]) -> Tensor:
    """[M], of all loss tokens, row after row."""
    rows, _ = row_logprobs(policy, samples, max_tokens=LIMIT, layout="right")
    return torch.cat(rows)


def behaviour(samples: Sequence[Sample]) -> Tensor:
    """[M], as the engine reported them."""
    return torch.from_numpy(np.concatenate([sample.logp_behaviour[loss_mask(sample)] for sample in samples]))


def coefficients(
    algorithm: Algorithm, groups: Sequence[Group], *, now: Tensor, old: Tensor, mu: Tensor, budget: int
) -> Tensor:
    """[M], the derivative of the loss by the log-probability of each token: how much the objective pushes it, and which way.

    Args:
        algorithm: the objective.
        groups: the batch.
        now, old, mu: [M] log-probabilities under the policy, the one that started the update, the one that sampled.
        budget: tokens that a completion may have.
    """
    batch = make_batch(algorithm, groups, {}, budget=budget)
    length = torch.tensor([loss_mask(sample).sum() for sample in batch.samples])
    row = torch.repeat_interleave(torch.arange(len(length)), length)
    group = torch.from_numpy(batch.group)
    of_group = torch.zeros(len(groups), dtype=torch.float64).index_add(0, group, length.double())[group]
    leaf = now.detach().double().clone().requires_grad_(True)
    tokens = Tokens(
        logp=leaf,
        logp_old=old.double(),
        logp_behaviour=mu.double(),
        advantage=torch.from_numpy(batch.advantage)[row],
        row=row,
        loss_tokens=length.double(),
        group_tokens=of_group,
    )
    totals = count(batch.samples, batch.group.tolist(), budget)
    (found,) = torch.autograd.grad(policy_loss(algorithm, tokens, totals)[0], leaf)
    return found


def token_advantage(algorithm: Algorithm, groups: Sequence[Group], budget: int) -> Tensor:
    """[M], the advantage of the row that each loss token belongs to."""
    batch = make_batch(algorithm, groups, {}, budget=budget)
    length = [int(loss_mask(sample).sum()) for sample in batch.samples]
    return torch.repeat_interleave(torch.from_numpy(batch.advantage), torch.tensor(length))


def noisy(policy: Policy, scale: float, seed: int) -> Policy:
    """A copy whose matrices have Gaussian noise of ``scale`` times their own standard deviation."""
    model = copy.deepcopy(policy.model)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.add_(torch.randn(parameter.shape, generator=random) * scale * parameter.std())
    return Policy(model, policy.tokenizer, policy.config, policy.device)
