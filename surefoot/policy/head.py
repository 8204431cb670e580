"""The head of a causal language model: from the last hidden state to logits, as a recipe that can run in chunks.

Transformers computes ``logits = softcap(scale * (hidden @ weight.T + bias))`` for almost every architecture, with a
scale of 1 and no softcap for most of them. The recipe is read from the model and its configuration, and then proved on
a few tokens against the model's own logits; a model that does something else keeps its own path.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from surefoot.policy.autocast import no_autocast
from surefoot.policy.layout import decoder

HALF = (torch.float16, torch.bfloat16)
# Names under which configurations keep a factor of the logits. Some architectures divide by what others multiply with.
SCALES = ("logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier")


@dataclass(frozen=True)
class Head:
    """``logits = softcap * tanh(scale * (hidden @ weight.T + bias) / softcap)``.

    Attributes:
        module: the output embedding, which holds ``weight`` [V, d] and perhaps ``bias`` [V].
        scale: factor of the logits.
        softcap: bound of the logits (Gemma 2, arXiv 2408.00118); None: unbounded.
        float32: whether half-precision weights and hidden states are turned into float32 before the product, and an
            autocast around it does not apply. A
            bfloat16 logit keeps 8 bits, so that a log-probability is off by up to 0.4 % of the largest logit, by
            another amount in the engine than in the trainer (MiniMax-M1, arXiv 2506.13585; ScaleRL, arXiv 2510.13786).
            Wider weights are left as they are.
    """

    module: Any
    scale: float = 1.0
    softcap: float | None = None
    float32: bool = False

    @property
    def weight(self) -> Tensor:
        weight: Tensor = self.module.weight
        return weight

    @property
    def bias(self) -> Tensor | None:
        return getattr(self.module, "bias", None)

    @property
    def widens(self) -> bool:
        """Whether the product runs in float32 on weights that are kept in less."""
        return self.float32 and self.weight.dtype in HALF

    def widened(self) -> Head:
        """This head, with a float32 copy of its weights [V, d] where the product is to run in it; otherwise itself.

        Gradients go through the copy: they are summed up in float32 and then turned into the dtype of the weights.
        """
        if not self.widens:
            return self
        bias = None if self.bias is None else self.bias.float()
        return replace(self, module=SimpleNamespace(weight=self.weight.float(), bias=bias))

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., d] to [..., V], in float32 at least; the matrix product runs in the dtype of the weights, or float32."""
        head = self.widened()
        with no_autocast(hidden.device) if self.float32 else nullcontext():
            product = functional.linear(hidden.to(head.weight.dtype), head.weight, head.bias)
        return finish(product, self.scale, self.softcap)


def finish(logits: Tensor, scale: float, softcap: float | None) -> Tensor:
    """Scale and softcap of the raw product [..., V], in float32 at least. May write into ``logits``."""
    if logits.dtype in HALF:
        logits = logits.float()
    if scale != 1.0:
        logits = logits * scale
    if softcap is not None:
        logits = (logits / softcap).tanh() * softcap
    return logits


def find_head(model: Any) -> Head | None:
    """The recipe that reproduces the model's own logits, or None (with a warning) where none does."""
    with torch.no_grad():
        hidden, logits = probe(model)
        for head in candidates(model):
            if hidden is not None and agrees(head.logits(hidden), logits):
                return head
    warnings.warn(
        f"{type(model).__name__} makes its logits in a way of its own: log-probabilities take its own path, which is "
        f"slower and needs more memory",
        stacklevel=2,
    )
    return None


def candidates(model: Any) -> Iterator[Head]:
    module = model.get_output_embeddings()
    if getattr(module, "weight", None) is None or module.weight.ndim != 2:
        return
    config = model.config.get_text_config()
    softcap = getattr(config, "final_logit_softcapping", None)
    yield Head(module, 1.0, softcap)
    for name in SCALES:
        value = getattr(config, name, None)
        if value:
            yield Head(module, float(value), softcap)
            yield Head(module, 1.0 / float(value), softcap)


def probe(model: Any) -> tuple[Tensor | None, Tensor]:
    """Hidden states [L, d] (None without a base model) and the model's own logits [L, V] of a few tokens."""
    vocabulary = model.get_input_embeddings().weight.shape[0]
    device = model.get_input_embeddings().weight.device
    ids = torch.linspace(0, vocabulary - 1, 8, device=device).long()[None]
    logits = model(input_ids=ids, use_cache=False).logits[0]
    base = decoder(model)
    if base is model:
        return None, logits
    return base(input_ids=ids, use_cache=False).last_hidden_state[0], logits


def agrees(ours: Tensor, theirs: Tensor) -> bool:
    if ours.shape != theirs.shape:
        return False
    half = theirs.dtype in HALF
    bound = (2e-2 if half else 1e-4) * max(1.0, float(theirs.abs().max()))
    return float((ours - theirs).abs().max()) <= bound
