"""Log-probabilities and entropies of the loss tokens, in chunks, never holding tokens x vocabulary.

The log-probability and the entropy are all that an objective needs from the vocabulary: every loss is a function of [M]
numbers. The logits of a chunk of tokens live for a moment in the forward pass and again, computed anew, in the backward
pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from surefoot.policy.head import Head, finish
from surefoot.policy.layout import Layout, hidden_states
from surefoot.policy.own_logits import own_logprobs
from surefoot.policy.policy import Policy
from surefoot.types import Packed


@dataclass(frozen=True)
class TokenLogprobs:
    """What the policy says of the loss tokens, in stream order.

    Attributes:
        logp: [M] float32 (float64 for a float64 model), log-probability in nats under the distribution that the token
            was sampled from: logits over its temperature, renormalised over the mass that top-p or top-k kept.
        entropy: [M], nats of the full distribution at the token's temperature, without gradient; None if not wanted.
    """

    logp: Tensor
    entropy: Tensor | None


def token_logprobs(policy: Policy, packed: Packed, *, layout: Layout = "right", entropy: bool = True) -> TokenLogprobs:
    """Log-probability (with gradient) and entropy of every loss token of a micro-batch.

    Args:
        policy: the model; ``policy.config.logprob_chunk`` tokens have their logits in memory at once.
        packed: the micro-batch, M loss tokens.
        layout: how the sequences lie in the forward pass; changes speed, not values. A model whose head is not known
            has its rows padded on the right whatever this says.
        entropy: whether to compute entropies.

    Raises:
        ModelError: when the model cannot take the layout.
    """
    packed = packed.to(policy.device)
    mask = packed.mask
    head = policy.head
    if head is None:
        logp, entropies = own_logprobs(policy.model, packed, policy.config.logprob_chunk, entropy=entropy)
    else:
        hidden = hidden_states(policy.model, packed, layout)
        logp, entropies = chunked_logprobs(
            hidden, head, packed.ids[mask], packed.temperature[mask], policy.config.logprob_chunk, entropy=entropy
        )
    return TokenLogprobs(logp - packed.kept_logmass[mask], entropies)


def chunked_logprobs(
    hidden: Tensor, head: Head, target: Tensor, temperature: Tensor, chunk: int, *, entropy: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Log-probability of ``target`` [M] given ``hidden`` [M, d] at ``temperature`` [M], and the entropy [M]."""
    logp, entropies = _Chunked.apply(
        hidden, head.weight, head.bias, target, temperature, head.scale, head.softcap, chunk, entropy
    )
    return logp, entropies if entropy else None


class _Chunked(torch.autograd.Function):
    """logp_t = z_t[y_t] - logsumexp(z_t) with z = finish(hidden @ weight.T + bias) / temperature, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        temperature: Tensor,
        scale: float,
        softcap: float | None,
        chunk: int,
        want_entropy: bool,
    ) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        logp = hidden.new_empty(len(hidden), dtype=dtype)
        normaliser = torch.empty_like(logp)
        entropy = torch.empty_like(logp) if want_entropy else logp.new_empty(0)
        temperature = temperature.to(dtype)
        for begin in range(0, len(hidden), chunk):
            part = slice(begin, begin + chunk)
            z = finish(functional.linear(hidden[part], weight, bias), scale, softcap)
            z.div_(temperature[part, None])
            torch.logsumexp(z, 1, out=normaliser[part])
            torch.sub(z.gather(1, target[part, None]).squeeze(1), normaliser[part], out=logp[part])
            if want_entropy:
                z.sub_(normaliser[part, None]).exp_()
                torch.sum(torch.special.entr(z), 1, out=entropy[part])
        ctx.save_for_backward(hidden, weight, bias, target, temperature, normaliser)
        ctx.scale, ctx.softcap, ctx.chunk = scale, softcap, chunk
        ctx.mark_non_differentiable(entropy)
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, target, temperature, normaliser = ctx.saved_tensors
        grad_logp = grads[0]
        wide = normaliser.dtype  # float32 at least: gradients of half-precision weights are summed up in it
        grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        grad_weight = torch.zeros_like(weight, dtype=wide) if ctx.needs_input_grad[1] else None
        grad_bias = torch.zeros_like(bias, dtype=wide) if bias is not None and ctx.needs_input_grad[2] else None
        for begin in range(0, len(hidden), ctx.chunk):
            part = slice(begin, begin + ctx.chunk)
            capped = finish(functional.linear(hidden[part], weight, bias), ctx.scale, ctx.softcap)
            # d logp / d z = onehot(target) - softmax(z), and z = capped / temperature.
            g = grad_logp[part] / temperature[part]
            z = capped if ctx.softcap is None else capped.clone()
            p = z.div_(temperature[part, None]).sub_(normaliser[part, None]).exp_()
            dz = p.mul_(-g[:, None]).scatter_add_(1, target[part, None], g[:, None])
            if ctx.softcap is not None:
                dz.mul_(1 - (capped / ctx.softcap).square_())
            if ctx.scale != 1.0:
                dz.mul_(ctx.scale)
            if grad_hidden is not None:
                torch.mm(dz.to(weight.dtype), weight, out=grad_hidden[part])
            if grad_weight is not None:
                grad_weight.addmm_(dz.t(), hidden[part].to(wide))
            if grad_bias is not None:
                grad_bias.add_(dz.sum(0))
        if grad_weight is not None:
            grad_weight = grad_weight.to(weight.dtype)
        if grad_bias is not None and bias is not None:
            grad_bias = grad_bias.to(bias.dtype)
        return grad_hidden, grad_weight, grad_bias, None, None, None, None, None, None
