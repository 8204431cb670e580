"""A trained reward model as a Reward: a sequence classifier with one output that reads the prompt and the completion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from surefoot.config import Section, validate
from surefoot.errors import ConfigError, ModelError, RewardError
from surefoot.policy.loading import find_device, looks_local, one_line, remove_dropout, told
from surefoot.policy.quiet import quiet
from surefoot.rewards.base import Completion
from surefoot.types import Score, Status

NAME = "model"


class RewardModelConfig(Section):
    """Which model, and how much of it at once."""

    path: str = Field(
        min_length=1, description="a Hugging Face folder or hub name of a sequence classifier with one output"
    )
    batch_tokens: int = Field(8192, gt=0, description="tokens of a forward pass, padding included")
    device: str = Field("", description="as model.device (empty: the device of the policy)")


class RewardModel:
    """The one output of a sequence classifier, in float32.

    The text is what the model's own tokenizer makes of the chat (the prompt's messages and the completion as the
    assistant's) with its own chat template; where it has none, the prompt with the completion behind it. A text that is
    longer than the model's context is not cut: its sample is ``Status.INVALID``.

    Args:
        config: which model.
        device: where it runs.

    Raises:
        ModelError: a folder or name that is not there, a classifier with several outputs, weights that are missing.
    """

    name = NAME
    asks_model = True
    threads = 0  # on the device that the policy is sampled on

    def __init__(self, config: RewardModelConfig, device: torch.device) -> None:
        self.config, self.device = config, device
        subject = f"the reward model '{config.path}'"
        source: str | Path = config.path
        folder = Path(config.path).expanduser()
        if folder.exists() or looks_local(config.path):
            if not (folder / "config.json").is_file():
                raise ModelError(f"{subject} has no config.json: give a folder in Hugging Face layout, or a hub name")
            source = folder
        with quiet(), told(subject):
            self.tokenizer: Any = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
            # With random weights in the place of missing ones the rewards would be noise.
            loaded: Any = AutoModelForSequenceClassification.from_pretrained(
                source, dtype=torch.float32, trust_remote_code=False, output_loading_info=True
            )
            self.model, report = loaded
            if missing := sorted(map(str, report["missing_keys"])):
                raise ModelError(f"{subject} lacks weights of a sequence classifier, the first is {missing[0]}")
            if self.model.config.num_labels != 1:
                raise ModelError(f"{subject} has {self.model.config.num_labels} outputs: expected one, the reward")
            self._name_padding()
            remove_dropout(self.model)
            self.model.to(device)
        self.context: int | None = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        rows = [self._ids(completion) for completion in completions]
        fits = [self.context is None or len(row) <= self.context for row in rows]
        values: dict[int, float] = {}
        order = sorted((index for index, fit in enumerate(fits) if fit), key=lambda index: len(rows[index]))
        with torch.inference_mode():
            while order:
                # The longest is the last: it says how many of those before it fit beside it.
                count = max(1, self.config.batch_tokens // max(1, len(rows[order[-1]])))
                chosen, order = order[-count:], order[:-count]
                values |= dict(zip(chosen, self._forward([rows[index] for index in chosen]).tolist(), strict=True))
        return [
            Score(values[index], {self.name: values[index]})
            if fits[index]
            else Score.failed(
                Status.INVALID, f"{len(row)} tokens, more than the reward model's context of {self.context}"
            )
            for index, row in enumerate(rows)
        ]

    def _forward(self, rows: Sequence[list[int]]) -> Tensor:
        """[B] float32."""
        longest = max(len(row) for row in rows)
        ids = torch.full((len(rows), longest), self.model.config.get_text_config().pad_token_id)
        mask = torch.zeros_like(ids)
        for place, row in enumerate(rows):  # padded on the right, where classifiers look for their last token
            ids[place, : len(row)] = torch.tensor(row)
            mask[place, : len(row)] = 1
        logits: Tensor = self.model(input_ids=ids.to(self.device), attention_mask=mask.to(self.device)).logits
        return logits[:, 0].float().cpu()

    def _ids(self, completion: Completion) -> list[int]:
        content = completion.prompt.content
        if not getattr(self.tokenizer, "chat_template", None):
            return list(self.tokenizer(completion.prompt.text + completion.text)["input_ids"])
        messages = [{"role": "user", "content": content}] if isinstance(content, str) else [dict(m) for m in content]
        messages.append({"role": "assistant", "content": completion.text})
        try:
            text = self.tokenizer.apply_chat_template(messages, tokenize=False)
        except Exception as error:  # templates raise whatever they like
            raise RewardError(f"the chat template of the reward model refuses a chat: {one_line(error)}") from error
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _name_padding(self) -> None:
        """Classifiers find the last token of a padded row by the id of the padding."""
        settings = self.model.config.get_text_config()
        if settings.pad_token_id is None:
            pads = (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id, 0)
            settings.pad_token_id = next(pad for pad in pads if pad is not None)


def make_reward_model(options: Mapping[str, Any], *, device: torch.device) -> RewardModel:
    """A reward model from the options of a configuration, those of :class:`RewardModelConfig`.

    Raises:
        RewardError: an unknown option or a bad value.
        ModelError: a model that cannot be loaded.
    """
    try:
        config = validate(RewardModelConfig, options)
    except ConfigError as error:
        raise RewardError(f"the options of the reward model: {error}") from error
    return RewardModel(config, find_device(config.device) if config.device else device)
