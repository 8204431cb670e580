"""The engine in the trainer's own process, for any Transformers causal language model.

Prompts go through the model's own forward. The tokens after them are made by a decode step of our own where one is
known for the architecture and agrees with the model (:mod:`surefoot.rollout.decode`): then the place of a sample that
is over is taken by the next one. Any other model makes them by its own forward, wave after wave.

A sample depends on its prompt, its seed, its sampling and the weights, and on nothing that is generated beside it:
its random numbers come from its own counter, and padding is masked and takes no position. What is left is the rounding
of matrix products, which differs between batch shapes by about 1e-6 in a logit; a draw changes only if its uniform
number lies that close to the border between two tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import PreTrainedModel

from surefoot.errors import ConfigError, DataError, ModelError
from surefoot.policy.autocast import Autocast, autocast
from surefoot.policy.head import Head
from surefoot.policy.layout import decoder
from surefoot.rollout.cache import PreallocatedCache
from surefoot.rollout.decode import Decoder, find_decoder
from surefoot.rollout.engine import Finished, Request, Sampling, check_budget
from surefoot.rollout.forward import Forward
from surefoot.rollout.made import Made
from surefoot.rollout.passes import repacked_passes, repacking_agrees
from surefoot.rollout.quantise import quantised
from surefoot.rollout.repack import pays
from surefoot.rollout.rows import Rows
from surefoot.rollout.sampling import Draw, draw
from surefoot.rollout.slots import Slots
from surefoot.rollout.waves import plan
from surefoot.types import Sample

# Rows that are done leave the batch when they are this share of it. Moving a row is cheap beside running it for
# nothing. Measured on one thread with 0.2 to 6 million weights and completions of random length: 0.001 to 0.25 are
# equal within 10 %, 0.5 is 20 % slower at 512 rows, never moving any is 20 to 50 % slower.
COMPACT_SHARE = 0.1
# Prompts are prefilled so many tokens at a time, which bounds the activations.
PREFILL_TOKENS = 8192


class LocalEngine:
    """Generates with the model as it is: the trainer's own tensors, no copy.

    Args:
        model: a Transformers causal language model.
        max_batch_tokens: key-value slots held at once; bounds the rows that are decoded side by side.
        version: version of the weights that the model holds now.
        head: the model's head, as the trainer knows it (``policy.head``). Where it asks for float32 on half-precision
            weights (``model.head_float32``), logits are made by it from the hidden states; otherwise by the model.
        own_steps: whether to use the decode step for the model's architecture where there is one.
        quantise: whether to sample from a copy that is rounded to 8 bits, see :mod:`surefoot.rollout.quantise`.
        repack: whether calls that make many tokens multiply with repacked weights where they are faster (float32 on a
            CPU), see :mod:`surefoot.rollout.repack`.
        autocast: what the model's passes run in, that of the trainer (``model.autocast``).

    Attributes:
        decoder: makes the tokens after the prompts; None: the forward of Transformers does.
    """

    reports_kept_logmass = True
    reports_finished = True

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        max_batch_tokens: int,
        version: int = 0,
        head: Head | None = None,
        own_steps: bool = True,
        quantise: bool = False,
        repack: bool = True,
        autocast: Autocast = "off",
    ) -> None:
        self.model = model
        self.head = head
        self.max_batch_tokens = max_batch_tokens
        self.version = version
        self._forward = Forward(model)
        text = model.config.get_text_config(decoder=True)
        self._vocabulary = int(text.vocab_size)
        self._context: int | None = getattr(text, "max_position_embeddings", None)
        with _evaluating(model):
            self.decoder: Decoder | None = find_decoder(model) if own_steps else None
            self._repack = repack and autocast == "off" and repacking_agrees(model, self.decoder)
        self._quantise = quantise
        self._autocast: Autocast = autocast
        self._rounded: tuple[int, int] | None = None  # the version of the rounded copy, and of its tensors

    def load(self, version: int) -> None:
        """Call the weights that the model holds now by this version; a rounded copy of older ones is used no more."""
        self.version = version

    def generate(self, requests: Sequence[Request], *, finished: Finished | None = None) -> list[tuple[Sample, ...]]:
        """For each request, in order, its samples, in the order of its seeds.

        Args:
            requests: what to sample.
            finished: told of every request as soon as its samples are made.

        Raises:
            ConfigError: a budget of no tokens, an interruption that the budget does not reach or that forces what is no
                token of the model.
            DataError: a prompt is empty or holds an id outside the model's vocabulary.
            ModelError: a prompt and its budget together are longer than the model's context.
            NonFiniteError: the model's logits are not finite.
        """
        for request in requests:
            self._check(request)
        made = Made(requests, finished)
        if self._quantise:
            self._round()
        # One context around all steps: the weights are rounded once for them.
        within = autocast(self._autocast, self.model.device)
        with torch.inference_mode(), _evaluating(self.model), within, self._repacked(requests):
            # The float32 copy of the head's weights is made once for all steps, and forgotten with the weights.
            head = self.head.widened() if self.head is not None and self.head.widens else None
            refill = self.decoder is not None
            if self.decoder is not None:
                self.decoder.begin(decoder(self._forward.model), max(map(_longest, requests), default=1))
            equal_lengths = self._forward.equal_lengths
            for wave in plan(requests, self.max_batch_tokens, equal_lengths=equal_lengths, refill=refill):
                rows = Rows(self.model.device, wave, requests)
                made.begin(rows, self.version)
                if self.decoder is None:
                    self._side_by_side(rows, head, made)
                else:
                    self._stream(rows, head, self.decoder, made)
                made.end()
        return made.groups()

    def _round(self) -> None:
        """Make the rounded copy, unless there is one of these weights."""
        now = self.version, sum(parameter._version for parameter in self.model.parameters())
        if self._rounded == now:
            return
        with _evaluating(self.model):
            model = quantised(self.model)
        self._forward = Forward(model)
        if self.decoder is not None:  # proved on the weights as they are; rounding would hide a small difference
            self.decoder = self.decoder.on(model)
        self._rounded = now

    @contextmanager
    def _repacked(self, requests: Sequence[Request]) -> Iterator[None]:
        """Repacked weights for a call, where they pay."""
        if not (self._repack and pays(requests)):
            yield
            return
        before = self._forward, self.decoder
        try:
            model, self.decoder = repacked_passes(self._forward.model, self.decoder)
            self._forward = Forward(model)
            yield
        finally:
            self._forward, self.decoder = before

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

    def _stream(self, rows: Rows, head: Head | None, decoder: Decoder, made: Made) -> None:
        """The rows of a wave through decode steps of our own; a row that is over makes room for the next ones."""
        sampling, counts = rows.wave.sampling, rows.counts
        capacity = min(rows.wave.rows, sum(counts))
        slots = Slots(decoder.blocks, capacity, sampling.max_new_tokens)
        part, logits = 0, torch.zeros((0, self._vocabulary), device=self.model.device)
        while part < len(counts) or len(rows.alive):
            stop, free = part, capacity - len(rows.alive)
            while stop < len(counts) and counts[stop] <= free:
                free -= counts[stop]
                stop += 1
            if stop > part:
                new = self._admit(rows, slots, part, stop, head)
                logits, part = torch.cat([logits, new]) if len(logits) else new, stop
            ids = rows.write(_drawn(logits, rows, sampling))
            if rows.done >= COMPACT_SHARE * len(rows.alive):
                keep = rows.compact()
                made.look()
                slots.select(keep)
                ids = ids[keep]
            logits = decoder.step(ids, slots, head) if len(ids) else logits[:0]

    def _admit(self, rows: Rows, slots: Slots, first: int, stop: int, head: Head | None) -> Tensor:
        """[n, V] logits after the prompts of the parts ``first`` to ``stop`` (exclusive), for all their rows."""
        made = []
        while first < stop:
            prompts = rows.prompts(first, stop)
            # The longest prompt comes first, so that it says how many fit.
            count = min(len(prompts), max(1, PREFILL_TOKENS // len(prompts[0])))
            logits, cache = self._forward.prompts(prompts[:count], head)
            assert isinstance(cache, PreallocatedCache) and self.decoder is not None
            chosen = slice(first, first + count)
            self.decoder.admit(slots, cache, rows.lengths[chosen], rows.repeats[chosen])
            rows.admit(sum(rows.counts[chosen]))
            made.append(logits.repeat_interleave(rows.repeats[chosen], dim=0))
            first += count
        return torch.cat(made)

    def _side_by_side(self, rows: Rows, head: Head | None, made: Made) -> None:
        """The rows of a wave through the model's own forward, all from their beginning to their end."""
        sampling, prompts = rows.wave.sampling, rows.prompts(0, len(rows.counts))
        logits, cache = self._forward.prompts(prompts, head)
        cache.expand(rows.repeats, sampling.max_new_tokens - 1)
        logits = logits.repeat_interleave(rows.repeats, dim=0)
        lengths = rows.lengths.repeat_interleave(rows.repeats)
        padded = bool((lengths < rows.longest).any())
        rows.admit(len(lengths))
        for step in range(sampling.max_new_tokens):
            ids = rows.write(_drawn(logits, rows, sampling))
            if rows.done == len(rows.alive):
                break
            if rows.done >= COMPACT_SHARE * len(rows.alive):
                keep = rows.compact()
                made.look()
                cache.select(keep)
                ids = ids[keep]
            own = lengths[rows.alive]
            columns = torch.arange(rows.longest + step + 1, device=own.device)
            mask = (columns >= (rows.longest - own)[:, None]).long() if padded else None
            logits = self._forward(ids[:, None], (own + step)[:, None], mask, cache, head)


def _longest(request: Request) -> int:
    return len(request.prompt_ids) + request.sampling.max_new_tokens


def _drawn(logits: Tensor, rows: Rows, sampling: Sampling) -> Draw:
    return draw(
        logits,
        rows.random,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        top_logprobs=sampling.top_logprobs,
    )


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
