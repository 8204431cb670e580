"""The ``[algorithm]`` section: a preset, and parts that replace or vary its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from surefoot.algorithms.algorithm import SLOTS, Algorithm, resolve
from surefoot.algorithms.card import words_of
from surefoot.algorithms.preference_presets import PREFERENCES
from surefoot.algorithms.presets import PRESETS
from surefoot.config import Section, nearest
from surefoot.errors import AlgorithmError
from surefoot.terms import presets

Choice = str | dict[str, Any] | None
WORDS = ("paper", "note")


def _stranger(name: str) -> str:
    """What a name is that is no preset, as the end of a sentence."""
    if name in PREFERENCES:
        return (
            "is a loss of preference pairs or labelled completions, and a run samples completions and rewards them: "
            f"`surefoot cards {name}` prints its equation, docs/preferences.md computes it from Python, and no command trains "
            "with it yet"
        )
    if name in presets():
        return f"is not known. Did you mean '{presets()[name]}'?"
    return f"is not known.{nearest(name, PRESETS)}"


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

    paper: str | None = Field(None, description="for the card of a variant: title and number of its paper")
    note: str | None = Field(None, description="for the card of a variant: what it assumes and when it fails")

    @field_validator(*SLOTS, mode="before")
    @classmethod
    def _is_a_part(cls, value: Any) -> Any:
        if value is not None and not isinstance(value, (str, Mapping)):
            raise ValueError("input should be the name of a part, or a table of its numbers")
        return value

    def build(self) -> Algorithm:
        """The algorithm that this section describes.

        Raises:
            AlgorithmError: unknown preset, part or number; parts that contradict each other.
        """
        if self.preset not in PRESETS:
            raise AlgorithmError(f"algorithm.preset = '{self.preset}' {_stranger(self.preset)}")
        preset = PRESETS[self.preset]
        words = {key: getattr(self, key) for key in WORDS if getattr(self, key) is not None}
        changed = preset.but(
            **{slot: getattr(self, slot) for slot in SLOTS if getattr(self, slot) is not None}, **words
        )
        differences = [slot for slot in SLOTS if getattr(changed, slot) != getattr(preset, slot)]
        if not differences:
            return changed.but(name=self.name or preset.name)
        return changed.but(
            name=self.name or f"{self.preset} (varied)",
            ancestor=self.preset,
            changes="; ".join(f"{slot} = {getattr(changed, slot)!r}" for slot in differences) + ".",
        )

    def resolved(self) -> dict[str, Any]:
        """The section with every part and number written out."""
        algorithm = self.build()
        words = {key: getattr(self, key) for key in WORDS if getattr(self, key) is not None}
        return {"preset": self.preset, "name": algorithm.name, **resolve(algorithm), **words}

    @classmethod
    def of(cls, algorithm: Algorithm) -> AlgorithmConfig:
        """The section that builds this algorithm: its preset where it is one, else its parts over the preset that it varies.

        Raises:
            AlgorithmError: a part that is not registered (any more) under its name, so that a configuration cannot name it.
        """
        if PRESETS.get(algorithm.name) == algorithm:
            return cls(preset=algorithm.name)
        # A variant made with ``but`` has the words of its preset; one with words of its own says what it varies.
        before = words_of(algorithm)
        name = before.name if before is not algorithm else algorithm.ancestor
        preset = PRESETS.get(name, PRESETS["reinforce"])
        words = {key: getattr(algorithm, key) for key in WORDS if getattr(algorithm, key) != getattr(preset, key)}
        section = cls(preset=preset.name, name=algorithm.name, **resolve(algorithm), **words)
        built = section.build()
        for slot, part in algorithm.parts.items():
            if built.parts[slot] != part:
                raise AlgorithmError(
                    f"{algorithm.name}: {slot} = {part!r} is not the part that is registered under the name '{part.name}': "
                    "give it a name of its own, or make it again after its function was defined anew"
                )
        return section
