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
        description="a built-in task ('addition', 'chain_mod'), 'gym:<reasoning-gym dataset>', 'hub:<data set>', 'file', "
        "or 'mixture'",
    )
    path: str | None = Field(
        None,
        description="of 'file': JSONL, JSON, CSV or TSV (each also .gz), or Parquet; of 'hub:...': a local copy, a file or a "
        "folder",
    )
    heldout_path: str | None = Field(
        None, description="file of held-out problems; without it a part is split off by hash"
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="options of the generator, for instance digits = 3; of 'file' and 'hub:...' the columns: prompt, answer, "
        "completion, system, metadata, verifier",
    )
    parts: tuple[dict[str, Any], ...] = Field(
        (), description="of 'mixture': a table for each part with the keys of [task], a 'weight' and a 'label'"
    )
    seed: int = Field(0, description="seed of generated problems")
    train_size: int = Field(4096, gt=0, description="number of training problems (generated, or at most from a file)")
    heldout_size: int = Field(256, ge=0, description="number of held-out problems")
    heldout_share: float = Field(
        0.1, gt=0, lt=1, description="share of all problems that the hash keeps for held-out use"
    )
    overlap: Literal["refuse", "drop"] = Field(
        "refuse",
        description="what a problem is that is both trained on and held out in the data: an error, or left out of training",
    )
    exclude: tuple[str | dict[str, Any], ...] = Field(
        (),
        description="evaluation sets (files, names of tasks, tables like [task]) whose problems are removed from training",
    )
    exclude_ngram: int = Field(
        13, gt=0, description="words in a row that a training problem may not share with an evaluation set"
    )
    template: Literal["auto", "chat", "plain"] = Field(
        "auto",
        description="'chat' applies the tokenizer's chat template, 'plain' encodes the text, 'auto' chats if it can",
    )
    system: str | None = Field(None, description="system prompt of the chat template")
    template_options: dict[str, Any] = Field(
        default_factory=dict, description="variables of the chat template, for instance enable_thinking = false"
    )
    think: str = Field(
        "", description="text that opens the answer, for instance '<think>\\n'; not doubled where the template opens it"
    )
    shots: int = Field(0, ge=0, description="worked examples before each prompt, the same for all")
    shots_path: str | None = Field(
        None,
        description="file of the worked examples (prompt, and completion or answer); without it they leave the training part",
    )
    max_prompt_tokens: int | None = Field(None, gt=0, description="longest prompt, everything included")
    overlong: Literal["refuse", "drop", "truncate"] = Field(
        "refuse",
        description="what becomes of a longer prompt: an error, left out, or its problem loses its beginning",
    )
    prompt: str = Field("{prompt}", description="wording around the problem; must hold {prompt}")

    @field_validator("prompt", "system", "think")
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
