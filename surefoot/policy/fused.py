"""A decoder layer in two functions with backward passes of their own: attention and feed-forward, norms and sums included.

What autograd does with the layers of Transformers is many passes over memory: a norm is six operations, a rotation six, and
each keeps its operands. Here tokens go through a layer in blocks that stay in the caches, the products write where they are
needed, a rotation is one product with complex numbers, and the backward pass computes again what costs less than reading it.

For a token x with its norm n(x) = w x / sqrt(mean(x^2) + eps):

    x + o_proj(attention(rotate(q_proj(n(x))), rotate(k_proj(n(x))), v_proj(n(x))))        x + down(silu(gate(n(x))) up(n(x)))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from surefoot.policy.pieces import TOKENS, Piece


@dataclass(frozen=True)
class Shape:
    """H query heads, K heads of keys and values, of D features each; ``eps`` of the norms of a token and of a head."""

    heads: int
    kv_heads: int
    width: int
    eps: float
    head_eps: float = 0.0

    @property
    def rotated(self) -> int:
        """Columns of queries and keys."""
        return (self.heads + self.kv_heads) * self.width

    @property
    def every(self) -> int:
        return self.heads + 2 * self.kv_heads


@dataclass(frozen=True)
class Places:
    """What all layers need to know of a stream: ``turns`` [N, (H + K) D / 2] complex, the rotation of each token (that of
    queries times the factor of the scores), and its pieces."""

    turns: Tensor
    pieces: Sequence[Piece]


def blocks(tokens: int) -> Iterator[slice]:
    """Slices of at most TOKENS tokens."""
    for begin in range(0, tokens, TOKENS):
        yield slice(begin, min(begin + TOKENS, tokens))


def inverse_rms(x: Tensor, eps: float) -> Tensor:
    """[..., 1], 1 / sqrt(mean(x^2) + eps)."""
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()


def norm_backward(grad: Tensor, unit: Tensor, rms: Tensor, weight: Tensor, grad_weight: Tensor) -> Tensor:
    """Gradient of the input of a norm, without the residual: rms * (g w - unit * mean(g w unit)).

    Args:
        grad: [n, d], that of ``unit * weight``; it is written into.
        unit: [n, d], the input times ``rms`` [n, 1].
        weight: [d].
        grad_weight: [d], to which that of the weight is added.
    """
    product = grad * unit
    grad_weight += product.sum(0)
    mean = torch.mv(product, weight).div_(len(weight))
    return grad.mul_(weight).addcmul_(unit, mean[:, None], value=-1).mul_(rms)


class FeedForward(torch.autograd.Function):
    """x [N, d] to x + down(silu(gate(n(x))) up(n(x))); weights as in ``nn.Linear``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float, norm: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        out, rms = torch.empty_like(x), inverse_rms(x, eps)
        gated, raised = x.new_empty(2, len(x), len(gate)).unbind(0)
        for part in blocks(len(x)):
            normed = (x[part] * rms[part]).mul_(norm)
            torch.mm(normed, gate.t(), out=gated[part])
            torch.mm(normed, up.t(), out=raised[part])
            torch.addmm(x[part], functional.silu(gated[part]).mul_(raised[part]), down.t(), out=out[part])
        ctx.save_for_backward(x, rms, gated, raised, norm, gate, up, down)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, rms, gated, raised, norm, gate, up, down = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        grad_norm, grad_gate, grad_up, grad_down = (torch.zeros_like(w) for w in (norm, gate, up, down))
        for part in blocks(len(x)):
            grad, act = grads[0][part], functional.silu(gated[part])
            grad_down.addmm_(grad.t(), act * raised[part])
            inner = grad @ down
            grad_raised = act.mul_(inner)
            grad_gated = torch.ops.aten.silu_backward(inner.mul_(raised[part]), gated[part])
            unit = x[part] * rms[part]
            normed = unit * norm
            grad_gate.addmm_(grad_gated.t(), normed)
            grad_up.addmm_(grad_raised.t(), normed)
            below = torch.mm(grad_gated, gate, out=normed).addmm_(grad_raised, up)
            torch.add(norm_backward(below, unit, rms[part], norm, grad_norm), grad, out=grad_x[part])
        return grad_x, None, grad_norm, grad_gate, grad_up, grad_down


class Attention(torch.autograd.Function):
    """x [N, d] to x + o_proj(attention(x)) in the pieces of a stream.

    ``weight`` [(H + 2 K) D, d] and ``bias`` are those of queries, keys and values one below the other, ``head_norm``
    [(H + K) D] those of the norms of queries and keys, or None; features that are rotated against each other lie side by
    side, as complex numbers do.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        shape: Shape,
        places: Places,
        norm: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        head_norm: Tensor | None,
        out_weight: Tensor,
    ) -> Tensor:
        rms, n = inverse_rms(x, shape.eps), len(x)
        qkv = x.new_empty(n + 1, len(weight))
        qkv[n] = 0  # padding
        for part in blocks(n):
            normed = (x[part] * rms[part]).mul_(norm)
            if bias is None:
                torch.mm(normed, weight.t(), out=qkv[part])
            else:
                torch.addmm(bias, normed, weight.t(), out=qkv[part])
        unit = head_rms = None
        turned = qkv[:n, : shape.rotated]
        if head_norm is not None:
            by_head = turned.unflatten(1, (-1, shape.width))
            head_rms = inverse_rms(by_head, shape.head_eps)
            unit = by_head * head_rms
            torch.mul(unit, head_norm.view(-1, shape.width), out=by_head)
        _complex(turned).mul_(places.turns)
        seen = x.new_empty(n, shape.heads * shape.width)
        kept = []
        for piece in places.pieces:
            held = qkv.view(-1, shape.width).index_select(0, piece.take)
            q, k, v = _parts(held, shape, piece)
            scores = torch.bmm(q, k.transpose(1, 2))
            _by_row(scores, shape, piece).add_(piece.mask)
            weights = scores.softmax(-1)
            heads = torch.bmm(weights, v).view(-1, shape.width)
            torch.index_select(heads, 0, piece.give_out, out=seen[piece.tokens].view(-1, shape.width))
            kept += [held, weights]
        out = torch.empty_like(x)
        for part in blocks(n):
            torch.addmm(x[part], seen[part], out_weight.t(), out=out[part])
        ctx.shape, ctx.places = shape, places
        ctx.save_for_backward(x, rms, seen, norm, weight, bias, head_norm, out_weight, unit, head_rms, *kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, rms, seen, norm, weight, bias, head_norm, out_weight, unit, head_rms, *kept = ctx.saved_tensors
        shape, (grad,), n = ctx.shape, grads, len(x)
        grad_out_weight = torch.zeros_like(out_weight)
        grad_seen = x.new_empty(n + 1, seen.shape[1])
        grad_seen[n] = 0  # padding has no gradient
        for part in blocks(n):
            grad_out_weight.addmm_(grad[part].t(), seen[part])
            torch.mm(grad[part], out_weight, out=grad_seen[part])
        grad_qkv = _pieces_backward(grad_seen, kept, shape, ctx.places, len(weight))
        turned = grad_qkv[:, : shape.rotated]
        _complex(turned).mul_(ctx.places.turns.conj())
        grad_head_norm = None
        if head_norm is not None:
            by_head, per_head = turned.unflatten(1, (-1, shape.width)), head_norm.view(-1, shape.width)
            product = by_head * unit
            grad_head_norm = product.sum(0).flatten()
            mean = (product * per_head).mean(-1, keepdim=True)
            by_head.mul_(per_head).addcmul_(unit, mean, value=-1).mul_(head_rms)
        grad_x, grad_norm, grad_weight = torch.empty_like(x), torch.zeros_like(norm), torch.zeros_like(weight)
        for part in blocks(n):
            plain = x[part] * rms[part]
            grad_weight.addmm_(grad_qkv[part].t(), plain * norm)
            below = norm_backward(grad_qkv[part] @ weight, plain, rms[part], norm, grad_norm)
            torch.add(below, grad[part], out=grad_x[part])
        grad_bias = None if bias is None else grad_qkv.sum(0)
        return grad_x, None, None, grad_norm, grad_weight, grad_bias, grad_head_norm, grad_out_weight


def _pieces_backward(grad_seen: Tensor, kept: Sequence[Tensor], shape: Shape, places: Places, columns: int) -> Tensor:
    """[N, (H + 2 K) D], gradients of queries, keys and values, from those of what was seen [N + 1, H D].

    Rests come first, since what they have looked at in their starts adds to the gradients of these.
    """
    grad_qkv = grad_seen.new_empty(len(grad_seen) - 1, columns)
    of_starts: Tensor | None = None  # [starts, 2, K, P, D]
    first = 0  # of the starts that a piece of starts holds, counted from the last
    numbered = list(zip(places.pieces, kept[::2], kept[1::2], strict=True))
    starts = sum(piece.shape[0] for piece in places.pieces if piece.starts is None)
    longest = max((piece.shape[2] for piece in places.pieces), default=0)
    first = starts
    for piece, held, weights in reversed(numbered):
        rows, size, before = piece.shape
        q, k, v = _parts(held, shape, piece)
        grad = grad_seen.view(-1, shape.width).index_select(0, piece.take_out).view_as(q)
        made = torch.empty_like(held)
        grad_q, grad_k, grad_v = _parts(made, shape, piece)
        torch.bmm(weights.transpose(1, 2), grad, out=grad_v)
        grad_weights = torch.bmm(grad, v.transpose(1, 2))
        scores = torch.ops.aten._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
        torch.bmm(scores, k, out=grad_q)
        torch.bmm(scores.transpose(1, 2), q, out=grad_k)
        both = made[len(piece.take_out) :].view(2, rows, shape.kv_heads, before + size, shape.width)
        if piece.starts is not None and piece.adds is not None:
            if of_starts is None:
                of_starts = made.new_zeros(starts, 2, shape.kv_heads, longest, shape.width)
            looked = both[:, :, :, :before].transpose(0, 1).reshape(rows, -1)
            of_starts[piece.starts, :, :, :before] += (piece.adds @ looked).view(
                -1, 2, shape.kv_heads, before, shape.width
            )
        else:
            first -= rows
            if of_starts is not None:
                width = min(size, longest)
                both[:, :, :, :width] += of_starts[first : first + rows, :, :, :width].transpose(0, 1)
        torch.index_select(made, 0, piece.give, out=grad_qkv[piece.tokens].view(-1, shape.width))
    return grad_qkv


def _complex(rotated: Tensor) -> Tensor:
    return torch.view_as_complex(rotated.unflatten(1, (-1, 2)))


def _parts(held: Tensor, shape: Shape, piece: Piece) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [R K, r A, D], keys and values [R K, L, D] of a piece; r query heads look at a head of keys."""
    rows, size, before = piece.shape
    q = held[: len(piece.take_out)].view(rows * shape.kv_heads, -1, shape.width)
    k, v = held[len(piece.take_out) :].view(2, rows * shape.kv_heads, before + size, shape.width).unbind(0)
    return q, k, v


def _by_row(scores: Tensor, shape: Shape, piece: Piece) -> Tensor:
    """[R K, r A, L] as [R, K, r, A, L]."""
    rows, size, before = piece.shape
    return scores.view(rows, shape.kv_heads, -1, size, before + size)
