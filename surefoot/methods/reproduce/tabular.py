"""Policies so small that every completion can be listed, so that an objective's expected gradient is exact.

The objectives are the presets themselves: rewards go through their shaping and advantage, log-probabilities through their
loss. All groups of G completions that a prompt can have are put into one batch, each weighted by its probability; the gradient
of that batch is the expected gradient of a batch of one group. This holds for aggregations in which a row's coefficient depends
on its own group alone, which is checked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.loss import policy_loss
from surefoot.algorithms.table import RewardTable
from surefoot.algorithms.tokens import Tokens
from surefoot.batches import Totals
from surefoot.errors import AlgorithmError
from surefoot.training.batch import prepare

BY_ROW = ("seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm")


@dataclass(frozen=True)
class Listed:
    """A policy by the list of its N completions.

    Attributes:
        logits: numbers of the policy at the start, [d] float64.
        logp: ``theta [d] -> `` log-probabilities of all tokens, those of completion 0 first, [sum L].
        length: [N] int64, tokens of each completion.
        components: named rewards of each, [N] float64; their sum is the reward.
        right: [N] bool.
        budget: the longest completion there can be.
    """

    logits: Tensor
    logp: Callable[[Tensor], Tensor]
    length: np.ndarray
    components: dict[str, np.ndarray]
    right: np.ndarray
    budget: int

    @property
    def reward(self) -> np.ndarray:
        return np.sum(list(self.components.values()), axis=0)

    def probability(self, theta: Tensor) -> Tensor:
        """[N], of each completion."""
        row = torch.from_numpy(np.repeat(np.arange(len(self.length)), self.length))
        sums = torch.zeros(len(self.length), dtype=theta.dtype).index_add(0, row, self.logp(theta))
        return sums.exp()

    def table(self, chosen: np.ndarray) -> RewardTable:
        """The rewards of groups of completions, [groups, G] numbers of completions."""
        flat = chosen.ravel()
        group = np.repeat(np.arange(len(chosen)), chosen.shape[1])
        return RewardTable(
            reward=torch.from_numpy(self.reward[flat]),
            valid=torch.ones(len(flat), dtype=torch.bool),
            group=torch.from_numpy(group),
            length=torch.from_numpy(self.length[flat].astype(np.float64)),
            components={name: torch.from_numpy(value[flat]) for name, value in self.components.items()},
            correct=torch.from_numpy(self.right[flat]),
            truncated=torch.from_numpy(self.length[flat] >= self.budget),
            budget=float(self.budget),
        )

    def groups(self, size: int) -> np.ndarray:
        """[N ** size, size], every group that there can be."""
        return np.array(list(itertools.product(range(len(self.length)), repeat=size)))


def advantages(algorithm: Algorithm, table: RewardTable) -> Tensor:
    """[B] float64, by the algorithm's shaping and advantage."""
    prepared, _ = prepare(algorithm, table)
    found: Tensor = algorithm.advantage(prepared)
    return found


def surrogate(
    algorithm: Algorithm, policy: Listed, theta: Tensor, chosen: np.ndarray, weight: Tensor | None = None
) -> Tensor:
    """The loss of a batch of groups on policy, a scalar with a gradient.

    Args:
        algorithm: the objective.
        policy, theta: the policy and its numbers [d].
        chosen: [groups, G] numbers of completions.
        weight: [groups], how much each group counts.
    """
    flat, size = chosen.ravel(), chosen.shape[1]
    advantage = advantages(algorithm, policy.table(chosen))
    length = policy.length[flat]
    first = np.concatenate([[0], np.cumsum(policy.length)])
    places = np.concatenate([np.arange(first[i], first[i + 1]) for i in flat])
    row = torch.from_numpy(np.repeat(np.arange(len(flat)), length))
    logp = policy.logp(theta)[torch.from_numpy(places)]
    loss_tokens = torch.from_numpy(length.astype(np.float64))
    of_group = loss_tokens.reshape(-1, size).sum(1).repeat_interleave(size)
    tokens = Tokens(
        logp=logp,
        logp_old=logp.detach(),
        logp_behaviour=logp.detach(),
        advantage=advantage[row],
        row=row,
        loss_tokens=loss_tokens,
        group_tokens=of_group,
        weight=None if weight is None else weight.repeat_interleave(size)[row],
    )
    totals = Totals(float(length.sum()), float(len(flat)), float(len(chosen)), float(policy.budget))
    return policy_loss(algorithm, tokens, totals)[0]


def expected_gradient(algorithm: Algorithm, policy: Listed, theta: Tensor, size: int) -> Tensor:
    """[d] float64, exact: the mean over all groups of ``size`` completions of the gradient of the loss.

    Raises:
        AlgorithmError: an aggregation in which one group's tokens count in another group's coefficient.
    """
    if algorithm.aggregation.name not in BY_ROW:
        raise AlgorithmError(
            f"{algorithm.name}: the aggregation '{algorithm.aggregation.name}' mixes groups, so its expected gradient is no mean "
            f"over groups: expected one of {', '.join(BY_ROW)}"
        )
    chosen = policy.groups(size)
    with torch.no_grad():
        chance = policy.probability(theta)[torch.from_numpy(chosen)].prod(1)
    theta = theta.detach().clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(
        surrogate(algorithm, policy, theta, chosen, chance * len(chosen)), theta
    )  # the loss divides by the number of rows
    return gradient


def group_gradients(algorithm: Algorithm, policy: Listed, theta: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Gradients [groups, d] of every group by itself, and the probability [groups] of each."""
    chosen = policy.groups(size)
    with torch.no_grad():
        chance = policy.probability(theta)[torch.from_numpy(chosen)].prod(1)
    theta = theta.detach().clone().requires_grad_(True)
    rows = [torch.autograd.grad(surrogate(algorithm, policy, theta, one[None]), theta)[0] for one in chosen]
    return torch.stack(rows), chance


def draw(policy: Listed, theta: Tensor, rng: np.random.Generator, groups: int, size: int) -> np.ndarray:
    """[groups, size] numbers of completions, sampled from the policy."""
    with torch.no_grad():
        chance = policy.probability(theta).numpy()
    return rng.choice(len(chance), size=(groups, size), p=chance / chance.sum())


def bandit(logits: Sequence[float] | np.ndarray, reward: Sequence[float] | np.ndarray) -> Listed:
    """A softmax over completions of one token, one for each logit."""
    theta, gain = torch.as_tensor(np.asarray(logits), dtype=torch.float64), np.asarray(reward, dtype=np.float64)
    return Listed(
        theta,
        lambda value: torch.log_softmax(value, 0),
        np.ones(len(gain), dtype=np.int64),
        {"accuracy": gain},
        gain >= 1,
        1,
    )


def pairs(logits: np.ndarray, rewards: dict[str, float]) -> Listed:
    """Two tokens, each yes or no with a logit of its own; each yes earns its named reward. The second ignores the first."""
    (first, one), (second, two) = rewards.items()
    answers = np.array([(a, b) for a in (0, 1) for b in (0, 1)], dtype=np.float64)
    sign = torch.from_numpy((2 * answers - 1).ravel())
    index = torch.tensor([0, 1] * 4)
    return Listed(
        torch.from_numpy(np.asarray(logits, dtype=np.float64)),
        lambda theta: torch.nn.functional.logsigmoid(sign * theta[index]),
        np.full(4, 2),
        {first: one * answers[:, 0], second: two * answers[:, 1]},
        answers.min(axis=1) == 1,
        2,
    )


def lengthy(logits: np.ndarray, budget: int) -> Listed:
    """An answer, right or wrong, and then idle tokens: after each the policy goes on or stops, by what it answered.

    Args:
        logits: [3], of a right answer, of going on after a right one, of going on after a wrong one.
        budget: completions have 2 to ``budget`` tokens; at the budget there is nothing to decide.
    """
    cases = [(right, length) for right in (1, 0) for length in range(2, budget + 1)]
    index, sign = [], []
    for right, length in cases:
        index += [0]
        sign += [2 * right - 1]
        for place in range(1, length):
            forced = place == budget - 1
            index += [1 if right else 2]
            sign += [0 if forced else (1 if place < length - 1 else -1)]
    where, signs = torch.tensor(index), torch.tensor(sign, dtype=torch.float64)

    def logp(theta: Tensor) -> Tensor:
        value = torch.nn.functional.logsigmoid(signs * theta[where])
        return torch.where(signs == 0, torch.zeros_like(value), value)

    answers = np.array([case[0] for case in cases], dtype=np.float64)
    return Listed(
        torch.from_numpy(np.asarray(logits, dtype=np.float64)),
        logp,
        np.array([case[1] for case in cases]),
        {"accuracy": answers},
        answers == 1,
        budget,
    )


def mean_length(policy: Listed, theta: Tensor, *, right: bool) -> Tensor:
    """The expected length of right or of wrong completions, with a gradient."""
    chance = policy.probability(theta)
    mask = torch.from_numpy(policy.right == right)
    length = torch.from_numpy(policy.length.astype(np.float64))
    return (chance * length)[mask].sum() / chance[mask].sum()
