"""An algorithm is a value: named parts that compose into one objective."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, fields, replace
from typing import Any

from surefoot.algorithms import (
    advantages,
    aggregation,
    correction,
    decoupled,
    kl,
    likelihood,
    ratios,
    selection,
    trust,
)
from surefoot.algorithms.part import Part, build
from surefoot.errors import AlgorithmError

SLOTS = ("selection", "advantage", "ratio", "trust", "correction", "kl", "aggregation")
# Imported for the parts that they register.
MORE_PARTS = (decoupled, likelihood)


@dataclass(frozen=True)
class Algorithm:
    """An objective, as the parts that it is made of.

    Attributes:
        selection: which rows of the batch stay.
        advantage: from rewards to one number per row.
        ratio: importance ratio and its anchor.
        trust: the surrogate: loss of each token from ratio, advantage and log-probability.
        correction: weights for an engine that differs from the trainer.
        kl: term against a reference policy.
        aggregation: how token losses become the loss of the step.
        name, paper, ancestor, changes, note: for the card: the paper's title and arXiv id, the preset that this one
            varies and what it changes in it, what it assumes and when it fails.

    Raises:
        AlgorithmError: when parts contradict each other.
    """

    name: str = "custom"
    selection: Part = selection.keep()
    advantage: Part = advantages.reward()
    ratio: Part = ratios.none()
    trust: Part = trust.score()
    correction: Part = correction.none()
    kl: Part = kl.none()
    aggregation: Part = aggregation.seq_mean_token_sum()
    paper: str = ""
    ancestor: str = ""
    changes: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        for slot in SLOTS:
            given = getattr(self, slot)
            if not isinstance(given, Part) or given.slot != slot:
                raise AlgorithmError(f"{self.name}: {slot} = {given!r} is not a part for the slot '{slot}'")
        self._refuse_contradictions()

    def _refuse_contradictions(self) -> None:
        anchored = self.ratio.numbers.get("anchor") == "behaviour"
        if "ratio" in self.trust.kind.traits and self.ratio.name == "none":
            raise AlgorithmError(
                f"{self.name}: the surrogate '{self.trust.name}' needs an importance ratio, and the ratio is 'none': "
                "set algorithm.ratio = 'token', or algorithm.trust = 'score'"
            )
        if self.trust.name == "score" and self.ratio.name != "none":
            raise AlgorithmError(
                f"{self.name}: the surrogate 'score' does not read the ratio '{self.ratio.name}': "
                "set algorithm.ratio = 'none', or a surrogate that uses it (algorithm.trust = 'clip')"
            )
        if "row" in self.ratio.kind.traits and "rows" not in self.aggregation.kind.traits:
            raise AlgorithmError(
                f"{self.name}: the ratio '{self.ratio.name}' gives a loss per row, and '{self.aggregation.name}' would weigh "
                "rows by their length: set algorithm.aggregation = 'seq_mean_token_mean', or algorithm.ratio = 'token'"
            )
        if anchored and self.correction.name != "none":
            raise AlgorithmError(
                f"{self.name}: the ratio is anchored on the behaviour policy and the correction '{self.correction.name}' would "
                "correct a second time: set algorithm.correction = 'none', or algorithm.ratio.anchor = 'old'"
            )
        if "behaviour" in self.trust.kind.traits and not anchored:
            raise AlgorithmError(
                f"{self.name}: the surrogate '{self.trust.name}' measures the divergence from the behaviour policy: "
                "set algorithm.ratio.anchor = 'behaviour'"
            )

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
        """Refuse what the batch cannot support."""
        if "group" in self.advantage.kind.traits and group_size < 2:
            raise AlgorithmError(
                f"the advantage '{self.advantage.name}' compares samples of one prompt, and train.group_size = {group_size}: "
                "set train.group_size to 2 or more, or algorithm.advantage = 'batch_mean'"
            )
        if self.selection.name == "drop_no_signal" and group_size < 2:
            raise AlgorithmError(
                f"algorithm.selection = 'drop_no_signal' drops every group of one (train.group_size = {group_size}): "
                "set train.group_size to 2 or more, or algorithm.selection = 'keep'"
            )

    @property
    def needs_reference(self) -> bool:
        return "reference" in self.kl.kind.traits and self.kl.coef > 0

    def explain(self) -> str:
        """The card, in Markdown: the equation that runs, with its numbers, in text and LaTeX."""
        return card(self)


def card(algorithm: Algorithm) -> str:
    """See :meth:`Algorithm.explain`."""
    text = [f"# {algorithm.name}", ""]
    if algorithm.paper:
        text += [algorithm.paper, ""]
    if algorithm.ancestor:
        text += [f"From **{algorithm.ancestor}**: {algorithm.changes}", ""]
    text += ["```text", *equation(algorithm), "```", "", "$$", *equation(algorithm, latex=True), "$$", ""]
    text += ["| part | choice | what it does |", "|---|---|---|"]
    for slot in SLOTS:
        chosen = getattr(algorithm, slot)
        first = " ".join(chosen.kind.doc.split("\n\n")[0].split())
        text += [f"| {slot} | `{chosen!r}` | {first} |"]
    if algorithm.note:
        text += ["", textwrap.fill(algorithm.note, 120)]
    return "\n".join(text) + "\n"


def equation(algorithm: Algorithm, latex: bool = False) -> list[str]:
    """The composed objective, a line per part that says something."""

    def say(chosen: Part) -> str:
        return chosen.latex if latex else chosen.text

    loss = algorithm.kl if "loss" in algorithm.kl.kind.traits else None
    aggregated = say(algorithm.aggregation)
    if algorithm.correction.name != "none":
        aggregated = (
            aggregated.replace(r"\ell_{it}", r"w_{it}\ell_{it}") if latex else aggregated.replace("l_it", "w_it l_it")
        )
    if loss is not None:
        aggregated = (
            aggregated.replace(r"\ell_{it}", rf"\big(\ell_{{it}} + {loss.latex}\big)")
            if latex
            else (aggregated.replace("l_it", f"(l_it + {loss.text})"))
        )
    lines = [aggregated, say(algorithm.trust)]
    if algorithm.ratio.name != "none":
        lines.append(say(algorithm.ratio))
    if algorithm.correction.name != "none":
        lines.append(say(algorithm.correction))
    if "reward" in algorithm.kl.kind.traits:
        lines.append(say(algorithm.kl))
    lines.append(say(algorithm.advantage))
    over = say(algorithm.selection)
    if latex:
        return [r"\begin{aligned}", *[f"& {line} \\\\" for line in lines], rf"& \text{{over }}{over}", r"\end{aligned}"]
    return [*lines, f"over {over}"]


def resolve(algorithm: Algorithm) -> dict[str, Any]:
    """Every slot as a table with its kind and numbers, for the resolved configuration."""
    return {slot: {"kind": getattr(algorithm, slot).name, **getattr(algorithm, slot).numbers} for slot in SLOTS}
