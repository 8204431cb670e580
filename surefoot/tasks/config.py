"""The ``[task]`` section: where prompts and gold answers come from, and how a prompt is written for the model."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from surefoot.config import Section
from surefoot.tasks.base import unreadable


class TaskConfig(Section):
    """Where the prompts come from."""

    name: str = Field(
        "addition",
        description="a built-in task ('addition', 'chain_mod'), 'gym:<reasoning-gym dataset>', or 'file'",
    )
    path: str | None = Field(None, description="JSONL or Parquet file of the task 'file': prompt, answer, metadata")
    heldout_path: str | None = Field(
        None, description="file of held-out problems; without it a part is split off by hash"
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="options of the generator, for instance digits = 3"
    )
    seed: int = Field(0, description="seed of generated problems")
    train_size: int = Field(4096, gt=0, description="number of training problems (generated, or at most from a file)")
    heldout_size: int = Field(256, ge=0, description="number of held-out problems")
    heldout_share: float = Field(
        0.1, gt=0, lt=1, description="share of all problems that the hash keeps for held-out use"
    )
    template: Literal["auto", "chat", "plain"] = Field(
        "auto",
        description="'chat' applies the tokenizer's chat template, 'plain' encodes the text, 'auto' chats if it can",
    )
    system: str | None = Field(None, description="system prompt of the chat template")
    prompt: str = Field("{prompt}", description="wording around the problem; must hold {prompt}")

    @field_validator("prompt", "system")
    @classmethod
    def _is_unicode(cls, value: str | None) -> str | None:
        if value is not None and (trouble := unreadable(value)):
            raise ValueError(trouble)
        return value

    @field_validator("prompt")
    @classmethod
    def _holds_the_problem(cls, value: str) -> str:
        if "{prompt}" not in value:
            raise ValueError("the wording must hold {prompt}, where the problem goes")
        return value
