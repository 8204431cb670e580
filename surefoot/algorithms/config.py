"""The ``[algorithm]`` section: a preset, and parts that replace or vary its own."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from surefoot.algorithms.algorithm import SLOTS, Algorithm, resolve
from surefoot.algorithms.presets import PRESETS
from surefoot.config import Section, nearest
from surefoot.errors import AlgorithmError

Choice = str | dict[str, Any] | None


class AlgorithmConfig(Section):
    """A preset and changes to its parts: a name (``trust = "clip"``) or a table (``trust.high = 0.28``)."""

    preset: str = Field("grpo", description="name of the preset to start from; `surefoot cards` lists them")
    name: str | None = Field(None, description="title of the card, for a variant")
    prompts: Choice = Field(None, description="which problems a step samples")
    head: Choice = Field(None, description="in which precision logits are made, on both sides")
    interruption: Choice = Field(None, description="when a completion that is still thinking is told to answer")
    truncated: Choice = Field(None, description="what becomes of completions that the budget cut")
    shaping: Choice = Field(None, description="what is added to the rewards before they are compared")
    selection: Choice = Field(None, description="which rows stay")
    advantage: Choice = Field(None, description="from rewards to advantages")
    ratio: Choice = Field(None, description="importance ratio and its anchor")
    trust: Choice = Field(None, description="surrogate and its bounds")
    weights: Choice = Field(None, description="how much each token counts")
    correction: Choice = Field(None, description="weights for an engine that differs from the trainer")
    kl: Choice = Field(None, description="term against a reference policy")
    value: Choice = Field(None, description="loss of the critic")
    aggregation: Choice = Field(None, description="how token losses become the loss of the step")
    reset: Choice = Field(None, description="when the reference and the optimiser start afresh")

    def build(self) -> Algorithm:
        """The algorithm that this section describes.

        Raises:
            AlgorithmError: unknown preset, part or number; parts that contradict each other.
        """
        if self.preset not in PRESETS:
            raise AlgorithmError(f"algorithm.preset = '{self.preset}' is not known.{nearest(self.preset, PRESETS)}")
        preset = PRESETS[self.preset]
        changed = preset.but(**{slot: getattr(self, slot) for slot in SLOTS if getattr(self, slot) is not None})
        differences = [slot for slot in SLOTS if getattr(changed, slot) != getattr(preset, slot)]
        if not differences:
            return preset.but(name=self.name or preset.name)
        return changed.but(
            name=self.name or f"{self.preset} (varied)",
            ancestor=self.preset,
            changes="; ".join(f"{slot} = {getattr(changed, slot)!r}" for slot in differences) + ".",
        )

    def resolved(self) -> dict[str, Any]:
        """The section with every part and number written out."""
        algorithm = self.build()
        return {"preset": self.preset, "name": algorithm.name, **resolve(algorithm)}

    @classmethod
    def of(cls, algorithm: Algorithm) -> AlgorithmConfig:
        """The section that builds this algorithm: its preset where it is one, else its parts over its ancestor's."""
        if PRESETS.get(algorithm.name) == algorithm:
            return cls(preset=algorithm.name)
        preset = next((name for name in (algorithm.name, algorithm.ancestor) if name in PRESETS), "reinforce")
        return cls(preset=preset, name=algorithm.name, **resolve(algorithm))
