"""The engine in the trainer's own process: any Transformers causal language model through its own forward.

A sample depends on its prompt, its seed, its sampling and the weights, and on nothing that is generated beside it:
its random numbers come from its own counter, and padding is masked and takes no position. What is left is the rounding
of matrix products, which differs between batch shapes by about 1e-6 in a logit; a draw changes only if its uniform
number lies that close to the border between two tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from surefoot.errors import ConfigError, DataError, ModelError
from surefoot.policy.head import Head
from surefoot.policy.layout import decoder
from surefoot.rollout.cache import GrowingCache, PreallocatedCache, new_cache, paddable
from surefoot.rollout.engine import Request, check_budget
from surefoot.rollout.rows import Rows
from surefoot.rollout.sampling import draw
from surefoot.rollout.waves import Wave, plan
from surefoot.types import Sample

# Rows that are done leave the batch when they are this share of it. Moving a row is cheap beside running it for
# nothing. Measured on one thread with 0.2 to 6 million weights and completions of random length: 0.001 to 0.25 are
# equal within 10 %, 0.5 is 20 % slower at 512 rows, never moving any is 20 to 50 % slower.
COMPACT_SHARE = 0.1


class LocalEngine:
    """Generates with the model as it is: the trainer's own tensors, no copy.

    Args:
        model: a Transformers causal language model.
        max_batch_tokens: key-value slots held at once; bounds the rows that are decoded side by side.
        version: version of the weights that the model holds now.
        head: the model's head, as the trainer knows it (``policy.head``). Where it asks for float32 on half-precision
            weights (``model.head_float32``), logits are made by it from the hidden states; otherwise by the model.
    """

    reports_kept_logmass = True

    def __init__(
        self, model: PreTrainedModel, *, max_batch_tokens: int, version: int = 0, head: Head | None = None
    ) -> None:
        self.model = model
        self.head = head
        self.max_batch_tokens = max_batch_tokens
        self.version = version
        names = inspect.signature(model.forward).parameters
        if "cache" not in names:
            raise ModelError(
                f"{type(model).__name__} takes no 'cache': expected a causal language model of Transformers"
            )
        self._takes_positions = "position_ids" in names
        self._keep_last: dict[str, Any] = {"logits_to_keep": 1} if "logits_to_keep" in names else {}
        text = model.config.get_text_config(decoder=True)
        self._vocabulary = int(text.vocab_size)
        self._context: int | None = getattr(text, "max_position_embeddings", None)
        self._equal_lengths = not (self._takes_positions and paddable(model.config))

    def load(self, version: int) -> None:
        """Call the weights that the model holds now by this version. Nothing is cached between two generations."""
        self.version = version

    def generate(self, requests: Sequence[Request]) -> list[tuple[Sample, ...]]:
        """For each request, in order, its samples, in the order of its seeds.

        Raises:
            ConfigError: a budget of no tokens, an interruption that the budget does not reach or that forces what is no
                token of the model.
            DataError: a prompt is empty or holds an id outside the model's vocabulary.
            ModelError: a prompt and its budget together are longer than the model's context.
            NonFiniteError: the model's logits are not finite.
        """
        for request in requests:
            self._check(request)
        found: list[list[Sample | None]] = [[None] * len(request.seeds) for request in requests]
        with torch.inference_mode(), _evaluating(self.model):
            # The float32 copy of the head's weights is made once for all steps, and forgotten with the weights.
            head = self.head.widened() if self.head is not None and self.head.widens else None
            for wave in plan(requests, self.max_batch_tokens, equal_lengths=self._equal_lengths):
                samples = iter(self._generate(wave, requests, head))
                for part in wave.parts:
                    for place in range(part.first, part.stop):
                        found[part.index][place] = next(samples)
        return [tuple(sample for sample in group if sample is not None) for group in found]

    def _check(self, request: Request) -> None:
        length, budget = len(request.prompt_ids), request.sampling.max_new_tokens
        if length == 0:
            raise DataError(f"prompt '{request.prompt_id}' has no tokens: expected at least one to start from")
        check_budget(request.sampling)
        interrupt = request.sampling.interrupt
        for token in () if interrupt is None else interrupt.phrase_ids:
            if not 0 <= token < self._vocabulary:
                raise ConfigError(
                    f"the interruption forces token id {token}, the model knows 0 to {self._vocabulary - 1}: use the "
                    f"tokenizer that belongs to the model"
                )
        low, high = int(request.prompt_ids.min()), int(request.prompt_ids.max())
        if low < 0 or high >= self._vocabulary:
            raise DataError(
                f"prompt '{request.prompt_id}' holds token id {low if low < 0 else high}, the model knows "
                f"0 to {self._vocabulary - 1}: use the tokenizer that belongs to the model"
            )
        if self._context is not None and length + budget > self._context:
            raise ModelError(
                f"prompt '{request.prompt_id}' has {length} tokens and rollout.max_new_tokens is {budget}, together "
                f"{length + budget}, but the model's context is {self._context}: shorten the prompt or the budget"
            )

    def _generate(self, wave: Wave, requests: Sequence[Request], head: Head | None) -> list[Sample]:
        """The samples of a wave, part after part. ``head`` makes the logits where the model is not to."""
        rows = Rows(self.model.device, wave, requests)
        sampling = wave.sampling
        cache = new_cache(self.model.config)
        ids, positions, mask = rows.prompts()
        logits = self._forward(ids, positions, mask, cache, head)
        cache.expand(rows.repeats, sampling.max_new_tokens - 1)
        logits = logits.repeat_interleave(rows.repeats, dim=0)
        for step in range(sampling.max_new_tokens):
            drawn = draw(
                logits,
                rows.uniform[rows.alive, step],
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                top_logprobs=sampling.top_logprobs,
            )
            ids = rows.write(step, drawn)
            running = len(rows.alive) - rows.done
            if running == 0 or step + 1 == sampling.max_new_tokens:
                break
            if rows.done >= COMPACT_SHARE * len(rows.alive):
                keep = rows.compact()
                cache.select(keep)
                ids = ids[keep]
            positions, mask = rows.next(step)
            logits = self._forward(ids.unsqueeze(-1), positions, mask, cache, head)
        return rows.samples(self.version)

    def _forward(
        self,
        ids: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: PreallocatedCache | GrowingCache,
        head: Head | None,
    ) -> Tensor:
        """[B, V], logits after the last of ``ids`` [B, n]."""
        given = {"input_ids": ids, "attention_mask": mask, "cache": cache, "use_cache": True}
        if self._takes_positions:
            given["position_ids"] = positions
        if head is not None:
            return head.logits(decoder(self.model)(**given).last_hidden_state[:, -1])
        logits: Tensor = self.model(**given, **self._keep_last).logits[:, -1]
        return logits


@contextmanager
def _evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Dropout off for the time being; the modules that were training train again afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
