"""What selections, shapings and advantages see: the rewards of a batch, a row per sample.

B rows, M loss tokens (those of row 0, then those of row 1, ...), G groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from surefoot.algorithms.finite import require_finite
from surefoot.errors import AlgorithmError


@dataclass(frozen=True)
class StepTable:
    """Rewards of the steps of completions, K steps in all.

    Attributes:
        row: [K] int64, the row that the step belongs to.
        end: [K] int64, index of the step's last loss token within its row.
        value: [K] float64.
    """

    row: Tensor
    end: Tensor
    value: Tensor


@dataclass(frozen=True)
class RewardTable:
    """The rewards of a batch, a row per sample; rows need not form complete groups.

    Attributes:
        reward: [B] float64; NaN where not valid.
        valid: [B] bool, rows that were graded.
        group: [B] int64, 0 .. number of groups - 1.
        length: [B] float64, loss tokens.
        components: named parts of the reward, each [B], NaN where a row has none.
        correct: [B] bool, rows whose answer is right, before any shaping; None: rows whose reward is at least 1.
        memory: numbers that a part remembers from step to step (a moving average), kept in the run state.
        truncated: [B] bool, rows that the budget cut; None: none was.
        budget: tokens that a completion may have.
        step: the number of the rollout batch, from 1.
        greedy: [G] float64, reward of the prompt's greedy completion, NaN where it could not be graded.
        steps: rewards of single steps.
        logp_old, logp_reference: [M], log-probabilities under the policy that starts the update and the reference.
        values: [M], what the critic predicts of the state before each token.
        token_penalty: [M], the KL term of each token, to be subtracted from the reward.

    Raises:
        NonFiniteError: a reward of a row that was graded, or a number of a token, is not finite.
    """

    reward: Tensor
    valid: Tensor
    group: Tensor
    length: Tensor
    components: Mapping[str, Tensor] = field(default_factory=dict)
    correct: Tensor | None = None
    memory: dict[str, float] = field(default_factory=dict)
    truncated: Tensor | None = None
    budget: float = 1.0
    step: int = 1
    greedy: Tensor | None = None
    steps: StepTable | None = None
    logp_old: Tensor | None = None
    logp_reference: Tensor | None = None
    values: Tensor | None = None
    token_penalty: Tensor | None = None

    def __post_init__(self) -> None:
        at = f"in rollout batch {self.step}"
        require_finite({f"the reward of a graded row {at}": self.where_valid(self.reward)})
        streams = ("logp_old", "logp_reference", "values", "token_penalty")
        tokens = {f"RewardTable.{name} {at}": getattr(self, name) for name in streams}
        require_finite(tokens, self.row)

    def needed(self, name: str, by: str) -> Any:
        """An optional field that a part cannot do without.

        Raises:
            AlgorithmError: the batch does not have it.
        """
        value = getattr(self, name)
        if value is None:
            raise AlgorithmError(
                f"{by} reads RewardTable.{name}, and this batch has none: fill it when the table is made"
            )
        return value

    @property
    def groups(self) -> int:
        return int(self.group.max()) + 1 if len(self.group) else 0

    def take(self, rows: Tensor) -> RewardTable:
        """The table of some rows, [B] bool; groups without any of them leave, the others keep their order."""
        left, group = torch.unique(self.group[rows], return_inverse=True)
        tokens = rows[self.row]
        steps = self.steps
        if steps is not None:
            kept, number = rows[steps.row], rows.long().cumsum(0) - 1
            steps = StepTable(number[steps.row[kept]], steps.end[kept], steps.value[kept])

        def pick(value: Tensor | None, mask: Tensor) -> Tensor | None:
            return None if value is None else value[mask]

        return replace(
            self,
            reward=self.reward[rows],
            valid=self.valid[rows],
            group=group,
            length=self.length[rows],
            components={name: value[rows] for name, value in self.components.items()},
            correct=pick(self.correct, rows),
            truncated=pick(self.truncated, rows),
            greedy=pick(self.greedy, left),
            steps=steps,
            logp_old=pick(self.logp_old, tokens),
            logp_reference=pick(self.logp_reference, tokens),
            values=pick(self.values, tokens),
            token_penalty=pick(self.token_penalty, tokens),
        )

    @property
    def row(self) -> Tensor:
        """[M] int64, the row of each loss token."""
        return torch.repeat_interleave(torch.arange(len(self.length), device=self.length.device), self.length.long())

    @property
    def last(self) -> Tensor:
        """[B] int64, where each row's last loss token stands among the M; of no meaning for an empty row."""
        return self.length.long().cumsum(0) - 1

    @property
    def right(self) -> Tensor:
        """[B] bool, rows whose answer is right; a row that could not be graded is not."""
        right = self.reward >= 1 if self.correct is None else self.correct
        return right & self.valid

    def success_rate(self) -> Tensor:
        """[G] float64, the share of right answers among the valid rows of each group."""
        return self.group_sum(self.right.to(self.reward.dtype)) / self.group_count().clamp(min=1)

    def row_sum(self, value: Tensor) -> Tensor:
        """[M] -> [B], the sum over the tokens of each row."""
        return torch.zeros_like(self.reward).index_add(0, self.row, value.to(self.reward.dtype))

    def where_valid(self, value: Tensor) -> Tensor:
        """[B], 0 in rows that were not graded."""
        return torch.where(self.valid, value, torch.zeros_like(value))

    def group_sum(self, value: Tensor) -> Tensor:
        """[B] -> [G], over valid rows."""
        zero = torch.zeros(self.groups, dtype=value.dtype, device=value.device)
        return zero.index_add(0, self.group, self.where_valid(value))

    def group_count(self) -> Tensor:
        """[G] float64, valid rows of each group."""
        return self.group_sum(torch.ones_like(self.reward))

    def group_extremes(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """[B] -> smallest and largest [G] over valid rows; +inf and -inf where there is none."""
        infinity = torch.full((self.groups,), torch.inf, dtype=value.dtype, device=value.device)
        low = infinity.scatter_reduce(0, self.group, torch.where(self.valid, value, torch.inf), "amin")
        high = (-infinity).scatter_reduce(0, self.group, torch.where(self.valid, value, -torch.inf), "amax")
        return low, high

    def signal(self) -> Tensor:
        """[G] bool: the valid rewards of the group are not all the same, up to float noise."""
        return self.differ(*self.group_extremes(self.where_valid(self.reward)))

    @staticmethod
    def differ(low: Tensor, high: Tensor) -> Tensor:
        """[G] bool from the extremes of each group.

        Differences below 1e-9 of the largest magnitude are float noise: a residue of 1e-17 divided by a standard
        deviation of 0 and an epsilon of 1e-6 would otherwise become an advantage.
        """
        scale = torch.maximum(high.abs(), low.abs()).clamp(min=1e-300)
        return (high - low) > 1e-9 * torch.where(scale.isfinite(), scale, torch.ones_like(scale))
