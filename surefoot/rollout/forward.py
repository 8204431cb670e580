"""The forward pass of Transformers with a cache: prompts, and the decode steps of models without a step of our own."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from surefoot.errors import ModelError
from surefoot.policy.head import Head
from surefoot.policy.layout import decoder
from surefoot.rollout.cache import GrowingCache, PreallocatedCache, new_cache, paddable

# The beginning that all prompts have in common is run once where that saves so many tokens: a forward pass of its own
# costs about as much as a few dozen tokens do.
WORTH_SHARING = 64


class Forward:
    """Runs one model, whose weights are read anew in every call.

    Args:
        model: a Transformers causal language model.

    Attributes:
        equal_lengths: whether the model must not see padded rows.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        names = inspect.signature(model.forward).parameters
        if "cache" not in names:
            raise ModelError(
                f"{type(model).__name__} takes no 'cache': expected a causal language model of Transformers"
            )
        self.model = model
        self._takes_positions = "position_ids" in names
        self._keep_last: dict[str, Any] = {"logits_to_keep": 1} if "logits_to_keep" in names else {}
        self.equal_lengths = not (self._takes_positions and paddable(model.config))
        text = model.config.get_text_config(decoder=True)
        self._window: int | None = getattr(text, "sliding_window", None)

    def prompts(
        self, prompts: Sequence[np.ndarray], head: Head | None
    ) -> tuple[Tensor, PreallocatedCache | GrowingCache]:
        """Logits [P, V] after the last token of each prompt, and the cache that holds them, padded on the left.

        What all prompts begin with is run once for all of them.
        """
        device = self.model.device
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
        longest = max(len(prompt) for prompt in prompts)
        prefix = self._prefix(prompts, longest)
        ids = np.zeros((len(prompts), longest - prefix), dtype=np.int64)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = prompt[prefix:]
        cache = new_cache(self.model.config)
        if prefix:
            first = torch.from_numpy(np.ascontiguousarray(prompts[0][None, :prefix])).to(device)
            decoder(self.model)(
                input_ids=first, position_ids=torch.arange(prefix, device=device)[None], cache=cache, use_cache=True
            )
            cache.expand(torch.tensor([len(prompts)], device=device), longest - prefix)
        gap = longest - lengths
        columns = torch.arange(prefix, longest, device=device)
        positions = columns - gap[:, None]
        mask = None
        if bool((gap > 0).any()):
            mask = (positions >= prefix).long()
            mask = torch.cat([mask.new_ones((len(prompts), prefix)), mask], dim=1)
        logits = self(torch.from_numpy(ids).to(device), positions.clamp_(min=0), mask, cache, head)
        if prefix and mask is not None:
            assert isinstance(cache, PreallocatedCache)
            cache.shift(prefix, gap)
        return logits, cache

    def _prefix(self, prompts: Sequence[np.ndarray], longest: int) -> int:
        """Tokens that all prompts begin with, at least one less than the shortest has; 0 where sharing does not pay.

        A window counts columns, and those of the padding behind the prefix would be among them.
        """
        if self.equal_lengths or len(prompts) == 1 or (self._window is not None and self._window < longest):
            return 0
        shortest = min(len(prompt) for prompt in prompts)
        equal = np.stack([prompt[: shortest - 1] for prompt in prompts])
        same = (equal == equal[0]).all(axis=0)
        prefix = shortest - 1 if same.all() else int(np.argmin(same))
        return prefix if prefix * (len(prompts) - 1) >= WORTH_SHARING else 0

    def __call__(
        self,
        ids: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: PreallocatedCache | GrowingCache,
        head: Head | None,
    ) -> Tensor:
        """[B, V], logits after the last of ``ids`` [B, n]; ``head`` makes them where the model is not to."""
        given = {"input_ids": ids, "attention_mask": mask, "cache": cache, "use_cache": True}
        if self._takes_positions:
            given["position_ids"] = positions
        if head is not None:
            return head.logits(decoder(self.model)(**given).last_hidden_state[:, -1])
        logits: Tensor = self.model(**given, **self._keep_last).logits[:, -1]
        return logits
