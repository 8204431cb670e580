"""How the critic learns: its optimiser beside the policy's, and how well its values explain the returns."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from surefoot.batches import Packed, Totals
from surefoot.errors import NonFiniteError
from surefoot.policy.config import CriticConfig
from surefoot.policy.critic import Critic
from surefoot.policy.layout import Layout, hidden_states
from surefoot.policy.packing import pack
from surefoot.policy.policy import Policy
from surefoot.training.config import OptimiserConfig
from surefoot.training.optimiser import learning_rate, make_optimiser, take_step
from surefoot.training.streams import split_rows
from surefoot.types import Sample


class CriticLearner:
    """The critic and its own AdamW, with the run's schedule, betas and weight decay at the critic's learning rate.

    A shared critic owns its head alone: the gradient that its loss sends through the policy's hidden states is part of the
    policy's own step, clipped and scaled with it.

    Attributes:
        critic: what predicts.
        policy: whose hidden states a shared critic reads.
        config: of the critic.
        optimiser: over the critic's own parameters.
    """

    def __init__(self, critic: Critic, policy: Policy, config: CriticConfig, optimiser: OptimiserConfig) -> None:
        self.critic, self.policy, self.config = critic, policy, config
        self._settings = optimiser.model_copy(update={"lr": config.lr, "max_grad_norm": config.max_grad_norm})
        self.optimiser: torch.optim.Optimizer = make_optimiser(critic.module, self._settings)

    def alone(self, step: int) -> bool:
        """Whether the policy waits at this step (from 1) while the critic learns what the values are."""
        return step <= self.config.warmup_steps

    def predict(self, packed: Packed, hidden: Tensor | None = None, layout: Layout = "right") -> Tensor:
        """[M] float32 with gradient, the value of the state before each loss token, see :meth:`Critic.predict`."""
        return self.critic.predict(packed, hidden, layout)

    def values(self, samples: Sequence[Sample], micro_batch_tokens: int, layout: Layout = "right") -> list[Tensor]:
        """The values of a whole batch as they are now, without a gradient: a tensor [L_i] per sample, its loss tokens.

        No logits are made. Where the policy's hidden states are at hand anyway, :meth:`predict` saves the forward pass.

        Raises:
            NonFiniteError: a value is not finite.
        """
        rows = [torch.zeros(0, device=self.policy.device)] * len(samples)
        numbers = list(range(len(samples)))
        totals = Totals(float("inf"), 1, 1)
        with torch.no_grad():
            for packed in pack(
                samples, [0.0] * len(samples), numbers, totals, max_tokens=micro_batch_tokens, layout=layout
            ):
                packed = packed.to(self.policy.device)
                hidden = None
                if self.critic.shared:
                    with self.policy.autocast():
                        hidden = hidden_states(self.policy.model, packed, layout)
                values = self.predict(packed, hidden, layout)
                if not bool(values.isfinite().all()):
                    raise NonFiniteError(
                        "the critic's values are not finite; no step was taken: look for non-finite weights (a too high "
                        "critic.lr or optimiser.lr)"
                    )
                split_rows(values, packed, rows)
        return rows

    def step(self, step: int, steps: int) -> float:
        """Clip the gradient of the critic's own weights, step, and clear. Returns the norm before clipping.

        Args:
            step: number of the rollout batch, from 1.
            steps: rollout batches of the run, which the schedule ends with.

        Raises:
            NonFiniteError: the norm is not finite (the critic was not touched), or the weights after the step are not.
        """
        rate = learning_rate(self._settings, step, steps)
        try:
            return take_step(self.optimiser, self.critic.module, lr=rate, max_grad_norm=self._settings.max_grad_norm)
        except NonFiniteError as error:
            raise NonFiniteError(f"the critic: {str(error).replace('optimiser.lr', 'critic.lr')}") from error

    def modules(self) -> dict[str, nn.Module]:
        """What the run state holds of it, by name."""
        return {"critic": self.critic.module}

    def optimisers(self) -> dict[str, torch.optim.Optimizer]:
        return {"critic": self.optimiser}


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """``1 - Var(returns - values) / Var(returns)`` over tokens: 1 for a perfect critic, 0 for one that says nothing.

    It is a ratio over all tokens of a batch and cannot be averaged over micro-batches: take it once, over the whole
    batch. An error that is the same for all tokens does not show in it.

    Args:
        values, returns: [M].

    Returns:
        A finite number, at most 1; 0 where the returns do not vary. They do not when they differ by less than the float32
        noise of ``advantage + value``, from which they are made.
    """
    if len(returns) < 2:
        return 0.0
    values, returns = values.detach().double(), returns.detach().double()
    noise = 1e-6 * float(torch.maximum(values.abs().max(), returns.abs().max()))
    if float(returns.max() - returns.min()) <= noise:
        return 0.0
    variance = returns.var(correction=0)
    return float(1 - (returns - values).var(correction=0) / variance)
