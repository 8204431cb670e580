"""One list of weights and conditions for a sum of rewards and for the advantage that standardises its parts (GDPO)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from surefoot.algorithms.config import AlgorithmConfig
from surefoot.rewards.compose import Part


def with_parts(section: AlgorithmConfig, parts: Sequence[Part]) -> AlgorithmConfig:
    """The section, its advantage 'decoupled' with the weights and conditions of the reward's parts.

    So they stand in the card and in ``config.toml``, as everything that the objective uses. A section that names weights
    or conditions itself, one with another advantage, and a reward without parts leave it as it is.
    """
    if not parts:
        return section
    advantage = section.build().advantage
    if advantage.name != "decoupled" or advantage.weights or advantage.conditions:
        return section
    conditioned = [part for part in parts if part.when is not None]
    thresholds = {part.name: part.at_least for part in conditioned}
    numbers: dict[str, Any] = {
        "weights": {part.name: part.weight for part in parts},
        "conditions": {part.name: part.when for part in conditioned} or None,
    }
    if thresholds:
        same = len(set(thresholds.values())) == 1
        numbers["threshold"] = next(iter(thresholds.values())) if same else thresholds
    made = section.model_copy(update={"advantage": {"kind": "decoupled", **advantage.but(**numbers).numbers}})
    if section.advantage is None:  # derived, not given: made anew from the parts whenever the section is read again
        made.__pydantic_fields_set__.discard("advantage")
    return made
