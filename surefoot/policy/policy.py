"""The policy: a causal language model, its tokenizer, and what the other rooms ask of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jinja2 import TemplateError

from surefoot.errors import ModelError
from surefoot.policy.autocast import autocast
from surefoot.policy.config import ModelConfig
from surefoot.policy.head import HALF, Head, find_head
from surefoot.policy.lora import copy_of


@dataclass
class Policy:
    """A causal language model with its tokenizer.

    Attributes:
        model: a Transformers model with a language-model head, in evaluation mode.
        tokenizer: a Transformers tokenizer.
        config: what it was loaded from.
        device: where its weights are.
    """

    model: Any
    tokenizer: Any
    config: ModelConfig
    device: torch.device

    @cached_property
    def head(self) -> Head | None:
        """How hidden states become logits, proved on a few tokens; None where only the model itself knows.

        Raises:
            ModelError: ``model.head_float32`` is set for half-precision weights, and only the model itself knows.
        """
        head = find_head(self.model)
        if head is not None:
            return replace(head, float32=self.config.head_float32)
        if self.config.head_float32 and self.model.dtype in HALF:
            raise ModelError(
                f"model.head_float32 = true, but {type(self.model).__name__} makes its logits in a way of its own, in "
                f"the format of its weights: set model.dtype = 'float32', or leave model.head_float32 out"
            )
        return None

    def autocast(self) -> AbstractContextManager[Any]:
        """The context that every pass of the decoder runs in, see :mod:`surefoot.policy.autocast`."""
        return autocast(self.config.autocast, self.device)

    @cached_property
    def stop_ids(self) -> tuple[int, ...]:
        """Tokens that end a completion: those of the generation config, the tokenizer's, and the chat template's.

        Raises:
            ModelError: the generation config names something that is no token.
        """
        generation = getattr(self.model, "generation_config", None)
        named = getattr(generation, "eos_token_id", None)
        ids = set(named if isinstance(named, (list, tuple)) else [named])
        for token in ids:
            if token is not None and (isinstance(token, bool) or not isinstance(token, int)):
                raise ModelError(
                    f"model.path = '{self.config.path}': generation_config.json says eos_token_id = {named!r}: "
                    f"expected the number of a token, or a list of them"
                )
        ids |= {self.tokenizer.eos_token_id, turn_end(self.tokenizer)}
        return tuple(sorted(int(token) for token in ids if token is not None))

    @property
    def context(self) -> int:
        """The longest sequence, prompt and completion together, in tokens."""
        longest = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if longest is None and self.tokenizer.model_max_length < 10**9:
            longest = self.tokenizer.model_max_length
        if longest is None:
            raise ModelError(f"model.path = '{self.config.path}': config.json has no max_position_embeddings")
        return int(longest)

    def copy(self) -> Policy:
        """A frozen copy of the weights as they are now: a reference policy. It shares the tokenizer.

        With adapters the base, which nothing changes, is shared as well, and only the adapters are copied.
        """
        model = copy_of(self.model).requires_grad_(False).eval()
        return Policy(model, self.tokenizer, self.config, self.device)

    def checksum(self) -> str:
        """Hash of the names, shapes, dtypes and bytes of all parameters (tied ones once)."""
        return digest_of(self.model.named_parameters())


def digest_of(parameters: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Hash of names, shapes, dtypes and bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for name, parameter in parameters:
        digest.update(f"{name}{tuple(parameter.shape)}{parameter.dtype}".encode())
        flat = parameter.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def turn_end(tokenizer: Any) -> int | None:
    """The special token that the chat template puts after an assistant's words, or None where there is none."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    words = "xyzzy"
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": words}]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    except (TemplateError, ValueError, KeyError, TypeError):
        return None  # a template that wants more than two plain messages
    after = text.rpartition(words)[2].strip()
    ids = tokenizer(after, add_special_tokens=False)["input_ids"] if after else []
    added = set(tokenizer.get_added_vocab().values())
    return ids[0] if ids and ids[0] in added else None
