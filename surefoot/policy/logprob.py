"""Log-probabilities and entropies of the loss tokens, in chunks, never holding tokens x vocabulary.

The log-probability, the entropy and the log-probabilities of a few named tokens are all that an objective needs from
the vocabulary: every loss is a function of [M] and [M, K] numbers. The logits of a chunk of tokens live for a moment in
the forward pass and again, computed anew, in the backward pass; a micro-batch whose probabilities fit into a small budget
keeps them instead, which saves a quarter of the head's products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from surefoot.batches import Packed
from surefoot.errors import ModelError
from surefoot.policy.head import Head, finish
from surefoot.policy.layout import Layout, hidden_states
from surefoot.policy.own_logits import own_logprobs
from surefoot.policy.policy import Policy


@dataclass(frozen=True)
class TokenLogprobs:
    """What the policy says of the loss tokens, in stream order.

    Attributes:
        logp: [M] float32 (float64 for a float64 model), log-probability in nats under the distribution that the token
            was sampled from: logits over its temperature, renormalised over the mass that top-p or top-k kept.
        entropy: [M], nats of the full distribution at the token's temperature, without gradient; None if not wanted.
        top_logp: [M, K], log-probabilities of the ids that were asked for, under the full distribution at the token's
            temperature (nothing is cut, nothing renormalised), without gradient; None if not wanted.
        hidden: [M, d] in the model's dtype, the last hidden state that predicts the token, with gradient (for a value
            head); None if not wanted.
    """

    logp: Tensor
    entropy: Tensor | None
    top_logp: Tensor | None = None
    hidden: Tensor | None = None


def token_logprobs(
    policy: Policy,
    packed: Packed,
    *,
    layout: Layout = "right",
    entropy: bool = True,
    top_ids: Tensor | None = None,
    hidden: bool = False,
) -> TokenLogprobs:
    """Log-probability (with gradient) and entropy of every loss token of a micro-batch.

    Args:
        policy: the model; ``policy.config.logprob_chunk`` tokens have their logits in memory at once, and up to
            ``policy.config.logprob_keep`` megabytes of probabilities wait for the backward pass.
        packed: the micro-batch, M loss tokens.
        layout: how the sequences lie in the forward pass; changes speed, not values. A model whose head is not known
            has its rows padded on the right whatever this says.
        entropy: whether to compute entropies.
        top_ids: [M, K] int64, further tokens whose log-probabilities are wanted at each place, for instance
            ``packed.top_ids[packed.mask]``.
        hidden: whether to return the hidden states as well.

    Raises:
        ModelError: when the model cannot take the layout, or hidden states are wanted and its head is not known.
        ValueError: ``top_ids`` that are not [M, K].
    """
    packed = packed.to(policy.device)
    mask = packed.mask
    if top_ids is not None:
        if top_ids.ndim != 2 or len(top_ids) != int(mask.sum()):
            raise ValueError(f"top_ids of shape {tuple(top_ids.shape)}: expected ({int(mask.sum())}, K)")
        top_ids = top_ids.to(policy.device, torch.int64)
    head, chunk, keep = policy.head, policy.config.logprob_chunk, policy.config.logprob_keep * 2**20
    states = None
    if head is not None:
        with policy.autocast():
            states = hidden_states(policy.model, packed, layout)
        half = policy.config.autocast == "bfloat16" and not head.float32
        logp, entropies, top = chunked_logprobs(
            states,
            head,
            packed.ids[mask],
            packed.temperature[mask],
            chunk,
            keep=keep,
            entropy=entropy,
            top_ids=top_ids,
            product=torch.bfloat16 if half else None,
        )
    elif hidden:
        raise ModelError(
            f"hidden states are wanted, but {type(policy.model).__name__} makes its logits in a way of its own and does "
            f"not show what from: choose an algorithm without a critic, or another model"
        )
    else:
        with policy.autocast():
            logp, entropies, top = own_logprobs(policy.model, packed, chunk, entropy=entropy, top_ids=top_ids)
    return TokenLogprobs(logp - packed.kept_logmass[mask], entropies, top, states if hidden else None)


def chunked_logprobs(
    hidden: Tensor,
    head: Head,
    target: Tensor,
    temperature: Tensor,
    chunk: int,
    *,
    keep: int = 0,
    entropy: bool = True,
    top_ids: Tensor | None = None,
    product: torch.dtype | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Log-probability of ``target`` [M] given ``hidden`` [M, d] at ``temperature`` [M], and what else is wanted.

    ``chunk`` tokens have their logits in memory at once. Probabilities of all tokens that take at most ``keep`` bytes are
    kept for the backward pass, where there is one; the values are the same.

    The product runs in float32 where the head says so: ``hidden`` is turned into it chunk by chunk, the weights once. It
    runs in ``product`` where that is given (under autocast), forward and backward, and everything else in float32.

    Returns:
        Log-probabilities [M] with gradient, entropies [M], log-probabilities [M, K] of ``top_ids`` [M, K].
    """
    head = head.widened()
    learns = torch.is_grad_enabled() and (hidden.requires_grad or head.weight.requires_grad)
    wide = torch.promote_types(head.weight.dtype, torch.float32)
    kept = learns and head.softcap is None and len(hidden) * len(head.weight) * wide.itemsize <= keep
    how = _How(head.scale, head.softcap, chunk, kept, entropy, product or head.weight.dtype)
    logp, entropies, top = _Chunked.apply(hidden, head.weight, head.bias, target, temperature, top_ids, how)
    return logp, entropies if entropy else None, None if top_ids is None else top


@dataclass(frozen=True)
class _How:
    scale: float
    softcap: float | None
    chunk: int
    keep: bool
    entropy: bool
    product: torch.dtype

    def narrowed(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Weights and bias as the product reads them."""
        return weight.to(self.product), None if bias is None else bias.to(self.product)


class _Chunked(torch.autograd.Function):
    """logp_t = z_t[y_t] - logsumexp(z_t) with z = finish(hidden @ weight.T + bias) / temperature, chunk by chunk.

    The product runs in a dtype that may be wider than that of the hidden states, or narrower than that of the weights.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        temperature: Tensor,
        top_ids: Tensor | None,
        how: _How,
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        logp = hidden.new_empty(len(hidden), dtype=dtype)
        normaliser = torch.empty_like(logp)
        entropy = torch.empty_like(logp) if how.entropy else logp.new_empty(0)
        top = logp.new_empty(0 if top_ids is None else top_ids.shape)
        temperature = temperature.to(dtype)
        kept = None
        if how.keep:
            kept = hidden.new_empty(len(hidden), len(weight), dtype=torch.promote_types(weight.dtype, torch.float32))
        w, b = how.narrowed(weight, bias)
        for begin in range(0, len(hidden), how.chunk):
            part = slice(begin, begin + how.chunk)
            z = finish(functional.linear(hidden[part].to(w.dtype), w, b), how.scale, how.softcap)
            z.div_(temperature[part, None])
            torch.logsumexp(z, 1, out=normaliser[part])
            torch.sub(z.gather(1, target[part, None]).squeeze(1), normaliser[part], out=logp[part])
            if top_ids is not None:
                torch.sub(z.gather(1, top_ids[part]), normaliser[part, None], out=top[part])
            if how.entropy or kept is not None:
                z.sub_(normaliser[part, None])
                p = torch.exp(z, out=None if kept is None else kept[part])
                if how.entropy:
                    # An impossible token has z = -inf and p = 0, whose product is not a number.
                    torch.sum(p.mul(z.clamp_(min=torch.finfo(z.dtype).min)).neg_(), 1, out=entropy[part])
        ctx.save_for_backward(hidden, weight, bias, target, temperature, normaliser, kept)
        ctx.how = how
        ctx.mark_non_differentiable(entropy, top)
        return logp, entropy, top

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, target, temperature, normaliser, kept = ctx.saved_tensors
        how = ctx.how
        wide = normaliser.dtype  # float32 at least: gradients of half-precision weights are summed up in it
        grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        grad_weight = torch.zeros_like(weight, dtype=wide) if ctx.needs_input_grad[1] else None
        grad_bias = torch.zeros_like(bias, dtype=wide) if bias is not None and ctx.needs_input_grad[2] else None
        w, b = how.narrowed(weight, bias)
        for begin in range(0, len(hidden), how.chunk):
            part = slice(begin, begin + how.chunk)
            # d logp / d z = onehot(target) - softmax(z), and z = capped / temperature.
            g = grads[0][part] / temperature[part]
            if kept is None:
                capped = finish(functional.linear(hidden[part].to(w.dtype), w, b), how.scale, how.softcap)
                z = capped if how.softcap is None else capped.clone()
                p = z.div_(temperature[part, None]).sub_(normaliser[part, None]).exp_()
                dz = p.mul_(-g[:, None])
            else:
                dz = kept[part] * -g[:, None]  # kept as it is, for a second backward pass
            dz.scatter_add_(1, target[part, None], g[:, None])
            if how.softcap is not None:
                dz.mul_(1 - (capped / how.softcap).square_())
            if how.scale != 1.0:
                dz.mul_(how.scale)
            if grad_hidden is not None:
                grad_hidden[part] = dz.to(w.dtype) @ w
            if grad_weight is not None and w.dtype == weight.dtype:
                grad_weight.addmm_(dz.t(), hidden[part].to(wide))
            elif grad_weight is not None:
                grad_weight.add_(dz.t().to(w.dtype) @ hidden[part].to(w.dtype))
            if grad_bias is not None:
                grad_bias.add_(dz.sum(0))
        if grad_weight is not None:
            grad_weight = grad_weight.to(weight.dtype)
        if grad_bias is not None and bias is not None:
            grad_bias = grad_bias.to(bias.dtype)
        return grad_hidden, grad_weight, grad_bias, None, None, None, None
