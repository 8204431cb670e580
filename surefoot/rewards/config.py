"""The ``[reward]`` section: how completions are graded."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from surefoot.config import Section
from surefoot.rewards.compose import Part, check_parts

SHORT_FORM = ("verifier", "options", "right", "wrong", "format_weight")


class RewardPart(Section):
    """One reward of several."""

    verifier: str = Field("auto", description="as reward.verifier")
    options: dict[str, Any] = Field({}, description="options of the verifier, the judge or the model")
    weight: float = Field(1.0, description="factor of its value in the total")
    when: str | None = Field(None, description="name of the part that must be met for this one to count (none: always)")
    at_least: float = Field(1.0, description="value from which the part named by 'when' is met")


class RewardConfig(Section):
    """How a completion is graded: by one verifier (verifier, right, wrong, format_weight), or by several parts."""

    verifier: str = Field(
        "auto",
        description="'auto' (the task's own), or the name of a verifier: 'exact', 'number' (last number), 'boxed', 'tag' "
        "(<answer>...</answer>), 'math' ...; or 'code' (programs), 'judge', 'model'",
    )
    options: dict[str, Any] = Field({}, description="options of the verifier")
    right: float = Field(1.0, description="reward of a right answer")
    wrong: float = Field(0.0, description="reward of a wrong answer")
    format_weight: float = Field(0.0, description="weight of an answer being found at all, added to the reward")
    parts: dict[str, RewardPart] = Field(
        {},
        description="several rewards, added with weights: a table [reward.parts.NAME] for each, instead of the above",
    )
    overlap: Literal["auto", "always", "never"] = Field(
        "auto",
        description="grade in the background while later groups are sampled. 'auto': rewards that say that they can be called "
        "from another thread; 'always': every reward, also a plain function",
    )
    concurrency: int = Field(32, gt=0, description="calls of an async function, or of a judge, that run at once")
    deadline: float = Field(
        60.0,
        gt=0,
        description="seconds that one call of an async function, or one judgement with its retries, may take",
    )

    @model_validator(mode="after")
    def _one_form(self) -> RewardConfig:
        if not self.parts:
            return self
        for key in SHORT_FORM:
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(
                    f"reward.{key} and reward.parts are both set: a sum of parts has its numbers in the parts; move it to a "
                    f"table [reward.parts.NAME]"
                )
        check_parts(self.terms())
        return self

    def terms(self) -> list[Part]:
        """The parts with their weights and conditions; what grades them is made by :func:`.build.build_reward`."""
        return [Part(name, None, part.weight, part.when, part.at_least) for name, part in self.parts.items()]
