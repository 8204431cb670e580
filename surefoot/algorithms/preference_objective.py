"""A preference objective is a value: one loss of pairs (or of labelled completions) with its card, and its mean."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from surefoot.algorithms import preference, preference_odds
from surefoot.algorithms.card import card
from surefoot.algorithms.part import Part, build
from surefoot.algorithms.preference_pairs import Labelled, Pairs
from surefoot.errors import AlgorithmError
from surefoot.metrics import StepReport

SLOT = "preference"
# Imported for the parts that they register.
PARTS = (preference, preference_odds)


@dataclass(frozen=True)
class PreferenceObjective:
    """A loss of direct alignment with what is said about it.

    Attributes:
        name: its name.
        loss: a part for the slot "preference".
        paper, ancestor, changes, note: for the card: the paper's title and arXiv id, the preset that this one varies and what
            it changes in it, what it assumes and when it fails.

    Raises:
        AlgorithmError: ``loss`` is no part for the slot "preference".
    """

    name: str
    loss: Part
    paper: str = ""
    ancestor: str = ""
    changes: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Part) or self.loss.slot != SLOT:
            raise AlgorithmError(f"{self.name}: loss = {self.loss!r} is not a part for the slot '{SLOT}'")

    def but(self, **changes: Any) -> PreferenceObjective:
        """A variant: ``dpo.but(loss={"beta": 0.05}, name="mine")``.

        ``loss`` takes a part, the name of one, or a table of numbers over the present one.
        """
        for name in changes:
            if name not in {field.name for field in fields(self)}:
                raise AlgorithmError(f"a preference objective has no '{name}': it has one part, loss")
        if "loss" in changes and not isinstance(changes["loss"], Part):
            changes["loss"] = build(SLOT, changes["loss"], self.loss)
        return replace(self, **changes)

    @property
    def parts(self) -> dict[str, Part]:
        """The part of its only slot."""
        return {SLOT: self.loss}

    @property
    def needs_reference(self) -> bool:
        """Whether the loss reads the log-probabilities of a reference policy."""
        return "reference" in self.loss.kind.traits

    @property
    def unpaired(self) -> bool:
        """Whether it takes labelled completions instead of pairs."""
        return "unpaired" in self.loss.kind.traits

    def explain(self) -> str:
        """The card, in Markdown: the equation that runs, with its numbers, in text and LaTeX."""
        return card(self)

    def equation(self, latex: bool = False) -> list[str]:
        """The mean, the loss of one pair, and what its symbols stand for: lines of text, or of LaTeX."""
        traits = self.loss.kind.traits
        if latex:
            over = r"\tfrac1N\sum_i\ell_i" if self.unpaired else r"\tfrac1P\sum_{p = (y_w \succ y_l)}\ell_p"
            mean = f"L = {over}"
            at, p = r"r = \log\pi_\theta(y)-\log\pi_{\text{ref}}(y)", r"p = \pi_\theta(y)^{1/|y|}"
            odds = rf"o = \log\tfrac{{p}}{{1-p}},\; {p}"
        else:
            over = "1/N sum_i l_i,  " if self.unpaired else "1/P sum_p l_p,  p = (y_w preferred to y_l), "
            mean = f"L = {over}s the sigmoid"
            at, odds = "r = log pi(y) - log pi_ref(y)", "o = log(p / (1 - p)),  p = pi(y)^(1/|y|)"
        symbols = [at] * ("reference" in traits) + [odds] * ("odds" in traits)
        return [mean, self.loss.latex if latex else self.loss.text, *symbols]


def preference_loss(
    objective: PreferenceObjective, batch: Pairs | Labelled, total: float | None = None
) -> tuple[Tensor, StepReport]:
    """The mean loss over the pairs (or labelled completions), and its metrics.

    Args:
        objective: what to compute.
        batch: a micro-batch of P pairs, or N labelled completions for an unpaired loss.
        total: pairs (completions) of the whole optimiser step, where this is a micro-batch of it: the losses of the
            micro-batches then add up to the loss of the step. By default those of ``batch``.

    Returns:
        The scalar loss (exactly 0, attached to the graph, for an empty batch), and its metrics. ``loss/preference`` is a sum
        that adds up to the loss of the step; all others are means over pairs (completions).

    Raises:
        AlgorithmError: pairs for an unpaired loss or the reverse, or a missing reference.
    """
    if objective.unpaired != isinstance(batch, Labelled):
        expected = "labelled completions (Labelled)" if objective.unpaired else "pairs (Pairs)"
        raise AlgorithmError(
            f"the preference loss '{objective.loss.name}' takes {expected}, got {type(batch).__name__}"
        )
    losses = objective.loss(batch)
    count = float(len(losses)) if total is None else float(total)
    # The sum over an empty micro-batch stays attached to the graph, so that a distributed backward does not hang.
    loss = losses.sum() / max(count, 1.0)
    report = StepReport()
    report.total("loss/preference", loss.detach())
    if isinstance(batch, Labelled):
        _measure_labelled(objective.loss, batch, report)
    else:
        _measure_pairs(objective.loss, batch, report)
    return loss, report


def rewards(loss: Part, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """[P] each, the rewards of the chosen and the rejected completions that the loss implies, without a gradient.

    beta times the log-ratio to the reference (per token where the loss normalises by length); without a reference beta times
    the log odds, or times the mean log-probability. A loss without a beta counts as beta 1.
    """
    numbers = loss.numbers
    with torch.no_grad():
        if "reference" in loss.kind.traits:
            scores = pairs.log_ratios()
        elif "odds" in loss.kind.traits:
            scores = pairs.log_odds()
        else:
            scores = pairs.mean_logps()
        if numbers.get("length_normalise", False):
            lengths = pairs.lengths()
            scores = scores[0] / lengths[0], scores[1] / lengths[1]
        return numbers.get("beta", 1.0) * scores[0], numbers.get("beta", 1.0) * scores[1]


def remember(objective: PreferenceObjective, report: StepReport, memory: dict[str, float]) -> None:
    """Move what a loss keeps between steps. Call it once a step, with the report merged over micro-batches and ranks.

    Args:
        objective: what was trained.
        report: metrics of the whole step.
        memory: the ``memory`` of the step's pairs; changed in place.
    """
    means = report.means()
    if "memory" in objective.loss.kind.traits and "preference/reward_chosen" in means:
        mean = (means["preference/reward_chosen"] + means["preference/reward_rejected"]) / 2
        memory[preference.SHIFT] = preference.moved_shift(memory, mean, objective.loss.decay)


@torch.no_grad()
def _measure_pairs(loss: Part, pairs: Pairs, report: StepReport) -> None:
    """Rewards apart and not only their difference: a growing margin can hide that the chosen completion grows unlikely."""
    count = float(len(pairs.logp_chosen))
    chosen, rejected = rewards(loss, pairs)
    report.add("preference/accuracy", (chosen > rejected).sum(), count)
    report.add("preference/margin", (chosen - rejected).sum(), count)
    report.add("preference/reward_chosen", chosen.sum(), count)
    report.add("preference/reward_rejected", rejected.sum(), count)
    report.add("preference/logp_chosen", pairs.logp_chosen.sum(), count)
    report.add("preference/logp_rejected", pairs.logp_rejected.sum(), count)


@torch.no_grad()
def _measure_labelled(loss: Part, completions: Labelled, report: StepReport) -> None:
    reward = loss.numbers.get("beta", 1.0) * completions.log_ratio()
    for name, kind in (("desirable", completions.desirable), ("undesirable", ~completions.desirable)):
        report.add(f"preference/reward_{name}", reward[kind].sum(), kind.sum())
        report.add(f"preference/logp_{name}", completions.logp[kind].sum(), kind.sum())
    report.add("preference/reference_point", completions.mismatched.mean().clamp(min=0))
