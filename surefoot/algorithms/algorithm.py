"""An algorithm is a value: named parts that compose into one objective."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from surefoot.algorithms import (
    advantages,
    aggregation,
    correction,
    decoupled,
    divergence,
    heads,
    interruption,
    kl,
    likelihood,
    prompts,
    ratios,
    reset,
    returns,
    selection,
    shaping,
    truncated,
    trust,
    value,
    weights,
)
from surefoot.algorithms.card import card
from surefoot.algorithms.part import Part, build
from surefoot.algorithms.rules import contradiction, unsupported
from surefoot.errors import AlgorithmError

# In the order of the flow: from prompts to samples, to rewards, to advantages, to the loss, to the next step.
SLOTS = (
    "prompts",
    "head",
    "interruption",
    "truncated",
    "shaping",
    "selection",
    "advantage",
    "ratio",
    "trust",
    "weights",
    "correction",
    "kl",
    "value",
    "aggregation",
    "reset",
)
# Imported for the parts that they register.
MORE_PARTS = (decoupled, divergence, likelihood, returns)


@dataclass(frozen=True)
class Algorithm:
    """An objective, as the parts that it is made of.

    Attributes:
        prompts: which problems a step samples.
        head: in which precision logits are made.
        interruption: when a completion that is still thinking is told to answer.
        truncated: what becomes of completions that the budget cut.
        shaping: what is added to the rewards before they are compared.
        selection: which rows of the batch stay.
        advantage: from rewards to one number per row, or per token.
        ratio: importance ratio and its anchor.
        trust: the surrogate: loss of each token from ratio, advantage and log-probability.
        weights: how much each token counts.
        correction: weights for an engine that differs from the trainer.
        kl: term against a reference policy.
        value: the loss of the critic.
        aggregation: how token losses become the loss of the step.
        reset: when the reference and the optimiser start afresh.
        name, paper, ancestor, changes, note: for the card: the paper's title and arXiv id, the preset that this one
            varies and what it changes in it, what it assumes and when it fails.

    Raises:
        AlgorithmError: when parts contradict each other.
    """

    name: str = "custom"
    prompts: Part = prompts.in_order()
    head: Part = heads.as_model()
    interruption: Part = interruption.none()
    truncated: Part = truncated.keep()
    shaping: Part = shaping.none()
    selection: Part = selection.keep()
    advantage: Part = advantages.reward()
    ratio: Part = ratios.none()
    trust: Part = trust.score()
    weights: Part = weights.all_tokens()
    correction: Part = correction.none()
    kl: Part = kl.none()
    value: Part = value.none()
    aggregation: Part = aggregation.seq_mean_token_sum()
    reset: Part = reset.never()
    paper: str = ""
    ancestor: str = ""
    changes: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        for slot, part in self.parts.items():
            if not isinstance(part, Part) or part.slot != slot:
                raise AlgorithmError(f"{self.name}: {slot} = {part!r} is not a part for the slot '{slot}'")
        found = contradiction(self.parts)
        if found:
            raise AlgorithmError(f"{self.name}: {found}")

    @property
    def parts(self) -> dict[str, Part]:
        """The part of each slot, in the order of the flow."""
        return {slot: getattr(self, slot) for slot in SLOTS}

    def but(self, **changes: Any) -> Algorithm:
        """A variant: ``grpo.but(aggregation="token_mean", trust={"high": 0.28}, name="mine")``.

        A slot takes a part, the name of one, or a table of numbers over the present one.
        """
        for slot, given in list(changes.items()):
            if slot not in {field.name for field in fields(self)}:
                raise AlgorithmError(f"an algorithm has no part '{slot}': it has {', '.join(SLOTS)}")
            if slot in SLOTS and not isinstance(given, Part):
                changes[slot] = build(slot, given, getattr(self, slot))
        return replace(self, **changes)

    def check(self, *, group_size: int) -> None:
        """Refuse what the batch cannot support.

        Raises:
            AlgorithmError: parts that compare samples of one prompt, and groups of one.
        """
        found = unsupported(self.parts, group_size)
        if found:
            raise AlgorithmError(found)

    @property
    def needs_reference(self) -> bool:
        return "reference" in self.kl.kind.traits and self.kl.coef > 0

    @property
    def kl_in_reward(self) -> bool:
        return self.needs_reference and "reward" in self.kl.kind.traits

    @property
    def kl_in_loss(self) -> bool:
        return self.needs_reference and "loss" in self.kl.kind.traits

    @property
    def needs_critic(self) -> bool:
        return "values" in self.advantage.kind.traits

    @property
    def reads_steps(self) -> bool:
        """Whether a part reads the rewards of steps. One that is not of the library may read whatever the table has."""
        return any("steps" in part.kind.traits or not part.kind.of_library for part in self.parts.values())

    def silent_without_advantage(self, *, on_policy: bool) -> bool:
        """Whether a row whose advantages are 0 has no gradient at all.

        Args:
            on_policy: the weights are those that start the update, so that all log-ratios to them are 0.
        """
        quadratic = "log" in self.trust.kind.traits and not (on_policy and self.ratio.anchor == "old")
        return not (self.kl_in_loss or self.needs_critic or quadratic)

    @property
    def top_logprobs(self) -> int:
        """How many of the likeliest tokens the engine has to report beside each sampled one."""
        return self.trust.k if "topk" in self.trust.kind.traits else 0

    def explain(self) -> str:
        """The card, in Markdown: the equation that runs, with its numbers, in text and LaTeX."""
        return card(self)


def resolve(algorithm: Algorithm) -> dict[str, Any]:
    """Every slot as a table with its kind and numbers, for the resolved configuration."""
    return {slot: {"kind": part.name, **part.numbers} for slot, part in algorithm.parts.items()}
