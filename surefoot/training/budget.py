"""How much a run may spend, and what it has spent: samples, tokens, operations, seconds.

Algorithms that are compared at equal steps are not compared at equal cost: a refill samples several batches for one, a KL term
reads every sequence a second time. A budget ends a run as soon as it is used up, whatever ``train.steps`` says.

Operations are counted as 2 N for every token that a model of N parameters reads, and 6 N where a backward pass follows (Kaplan
et al. 2020, "Scaling Laws for Neural Language Models", arXiv 2001.08361): prompts once for all their samples in generation, whole
sequences in the passes of old policy, reference and critic and in the updates. Embeddings that are not tied to the head are no
part of N; attention over the context is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from surefoot.config import Section
from surefoot.metrics import StepReport
from surefoot.types import Group

UNITS = ("samples", "tokens", "flops", "seconds")
FORWARD, BOTH = 2.0, 6.0


class BudgetConfig(Section):
    """What a run may spend; it ends when the first of these is used up."""

    samples: int = Field(0, ge=0, description="completions sampled in rollouts (0: no bound)")
    tokens: int = Field(0, ge=0, description="tokens generated in rollouts (0: no bound)")
    flops: float = Field(0.0, ge=0, description="operations of generation, passes and updates, estimated (0: no bound)")
    seconds: float = Field(
        0.0, ge=0, description="seconds of everything but evaluations (0: no bound); no two runs are alike"
    )

    def used_up(self, spent: Mapping[str, float]) -> str | None:
        """The first unit of which everything is gone, if there is one."""
        return next((unit for unit in UNITS if 0 < getattr(self, unit) <= spent.get(unit, 0.0)), None)

    def share(self, spent: Mapping[str, float]) -> float:
        """How much of it is gone, in [0, 1]; 0 without bounds."""
        shares = [spent.get(unit, 0.0) / bound for unit in UNITS if (bound := getattr(self, unit))]
        return min(1.0, max(shares, default=0.0))


def parameters(model: Any) -> int:
    """N: all parameters, without input embeddings that are a table of their own."""
    total = sum(parameter.numel() for parameter in model.parameters())
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = head is None or embedding is None or head.weight is embedding.weight
    return total if tied else total - embedding.weight.numel()


def measure_cost(spent: dict[str, float], groups: Sequence[Group], report: StepReport, size: int) -> None:
    """Add what a step cost to what was spent, in place, and to the report.

    Args:
        spent: samples, tokens and operations so far.
        groups: all that were sampled.
        report: of the update, which knows the tokens that were read without a backward pass and with one.
        size: N of the policy.
    """
    samples = [sample for group in groups for sample in group.samples]
    generated = sum(sample.length for sample in samples)
    prompts = sum(int((~group.samples[0].mask).sum()) for group in groups if group.samples)
    read = prompts + generated + report.sums.get("tokens/scored", 0.0)
    flops = size * (FORWARD * read + BOTH * report.sums.get("tokens/updated", 0.0))
    report.total("compute/flops", flops)
    for unit, amount in (("samples", len(samples)), ("tokens", generated), ("flops", flops)):
        spent[unit] = spent.get(unit, 0.0) + float(amount)
