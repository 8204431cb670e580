"""The ``[reward]`` section: how completions are graded."""

from __future__ import annotations

from pydantic import Field

from surefoot.config import Section


class RewardConfig(Section):
    """How a completion is graded."""

    verifier: str = Field(
        "auto",
        description="'auto' (the task's own), 'exact', 'number' (last number), 'boxed', 'tag' (<answer>...</answer>)",
    )
    right: float = Field(1.0, description="reward of a right answer")
    wrong: float = Field(0.0, description="reward of a wrong answer")
    format_weight: float = Field(0.0, description="weight of an answer being found at all, added to the reward")
