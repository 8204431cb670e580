"""The ``[audit]`` section: what is checked about the task and its reward before the first step."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from surefoot.config import Section


class AuditConfig(Section):
    """What is checked about the task and its reward before the first step."""

    before: Literal["stop", "warn", "off"] = Field(
        "stop",
        description="what a fault of the reward does that is found before the first step: it stops the run, or is a warning; "
        "'off' looks for none",
    )
    prompts: int = Field(32, gt=0, description="prompts that are looked at, spread evenly over the task")
    seconds: float = Field(
        2.0, gt=0, description="time for gradings; fewer prompts are looked at, or none, where the reward is slow"
    )
