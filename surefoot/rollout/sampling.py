"""Drawing one token per row, from the row's own uniform number.

Inverse transform sampling: with kept probabilities p_1 .. p_V in the order of the vocabulary, the token drawn is the
first one whose cumulative sum exceeds u. The draw is a pure function of the row's logits and its uniform number, so
it does not depend on the rows beside it. Sums are float64: in float32 the sum over 100,000 tokens would be off by
more than the mass of most of them. Where nothing is cut, blocks of tokens are summed first, and only the block that
the uniform number falls into is looked at token by token: the vocabulary is read three times and not sorted.

Top-k is Fan et al. 2018 (arXiv 1805.04833); top-p is nucleus sampling, Holtzman et al. 2019 (arXiv 1904.09751).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

# Rows are drawn in chunks of about this many logits: it bounds the float64 temporaries, and on a CPU they stay in the
# cache (4 times faster than 2^21 at a vocabulary of 49,152). An accelerator wants fewer, larger kernels.
CPU_CHUNK = 2**18
ACCELERATOR_CHUNK = 2**24
# Tokens that are summed at once where nothing is cut.
BLOCK = 32
# Tokens that are looked at first for a nucleus.
FIRST_CANDIDATES = 64


class Draw(NamedTuple):
    """One drawn token per row.

    Attributes:
        ids: [B] int64.
        logp: [B] float32, log-probability of the token under the distribution it was drawn from: tempered, and
            renormalised over the kept tokens. NaN where the logits held a NaN or no finite value.
        kept_logmass: [B] float32, log of the tempered mass that top-k and top-p kept (0: everything).
        top_ids: [B, K] int64, the likeliest tokens, likeliest first; None where none are wanted.
        top_logp: [B, K] float32, their log-probabilities under the tempered distribution before anything is cut; under
            temperature 0 the likeliest token has all the mass.
    """

    ids: Tensor
    logp: Tensor
    kept_logmass: Tensor
    top_ids: Tensor | None = None
    top_logp: Tensor | None = None


def draw(
    logits: Tensor,
    uniform: Tensor,
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    top_logprobs: int = 0,
) -> Draw:
    """Draw one token per row.

    Args:
        logits: [B, V] floating point; -inf forbids a token.
        uniform: [B] float64 in [0, 1), see :func:`surefoot.seeds.uniforms`. Not read when the temperature is 0.
        temperature: logits are divided by it; 0 takes the likeliest token (log-probability 0).
        top_p: keep the likeliest tokens until they hold at least this share of the mass that top-k left.
        top_k: keep the k likeliest tokens (0: all). Tokens that tie with the last one kept are kept too, so that
            the kept set is a function of the logits alone.
        top_logprobs: how many of the likeliest tokens to record (at most the vocabulary); does not change the draw.
    """
    chunk = CPU_CHUNK if logits.device.type == "cpu" else ACCELERATOR_CHUNK
    rows = max(1, chunk // logits.shape[-1])
    wanted = min(top_logprobs, logits.shape[-1])
    parts = [
        _draw_chunk(part, u, temperature, top_p, top_k, wanted)
        for part, u in zip(logits.split(rows), uniform.split(rows), strict=True)
    ]
    if len(parts) == 1:
        return parts[0]
    return Draw(*(torch.cat(column) for column in zip(*parts, strict=True) if column[0] is not None))


def _draw_chunk(logits: Tensor, uniform: Tensor, temperature: float, top_p: float, top_k: int, wanted: int) -> Draw:
    if temperature == 0:
        peak, best = logits.max(dim=-1, keepdim=True)
        zero = (peak - peak).squeeze(-1).float()  # 0, or NaN where the logits are not finite
        return Draw(best.squeeze(-1), zero, zero, *(_greedy_top(logits, best, zero, wanted) if wanted else ()))
    if top_k > 0 or top_p < 1:
        return _draw_cut(logits, uniform, temperature, top_p, top_k, wanted)
    return _draw_whole(logits, uniform, temperature, wanted)


def _draw_whole(logits: Tensor, uniform: Tensor, temperature: float, wanted: int) -> Draw:
    """From the whole distribution."""
    rows, vocabulary = logits.shape
    peak = logits.amax(dim=-1, keepdim=True)
    mass = (logits if temperature == 1 else (logits - peak) / temperature).softmax(dim=-1)
    # Its sum is 1 up to the rounding of a float32 sum. Every mass is exp((logit - peak) / T) times the same factor,
    # which is the largest mass.
    factor = mass.amax(dim=-1, keepdim=True)
    blocks = functional.pad(mass, (0, -vocabulary % BLOCK)).view(rows, -1, BLOCK)
    sums = blocks.sum(dim=-1, dtype=torch.float64)
    cumulative = sums.cumsum(dim=-1)
    total = cumulative[:, -1:]
    target = _target(uniform, total)
    block = torch.searchsorted(cumulative, target, right=True).clamp_(max=sums.shape[-1] - 1)
    rest = target - (cumulative.gather(-1, block) - sums.gather(-1, block))
    inside = blocks.gather(1, block[..., None].expand(-1, 1, BLOCK)).squeeze(1)
    place = torch.searchsorted(inside.double().cumsum(dim=-1), rest, right=True).clamp_(max=BLOCK - 1)
    # The sum of a block, and a parallel cumulative sum (CUDA), are off by a rounding error; never let that pick a token
    # without mass.
    place = torch.where(inside.gather(-1, place) > 0, place, inside.argmax(dim=-1, keepdim=True))
    ids = (block * BLOCK + place).clamp_(max=vocabulary - 1)
    norm = total.log() - factor.double().log()
    logp = ((logits.gather(-1, ids).double() - peak.double()) / temperature - norm).squeeze(-1).float()
    if not wanted:
        return Draw(ids.squeeze(-1), logp, torch.zeros_like(logp))
    top = logits.topk(wanted, dim=-1)
    top_logp = ((top.values.double() - peak.double()) / temperature - norm).float()
    return Draw(ids.squeeze(-1), logp, torch.zeros_like(logp), top.indices, top_logp)


def _draw_cut(logits: Tensor, uniform: Tensor, temperature: float, top_p: float, top_k: int, wanted: int) -> Draw:
    """From the tokens that top-k and top-p keep."""
    peak, best = logits.max(dim=-1, keepdim=True)
    scaled = (logits.double() - peak.double()) / temperature  # [B, V], at most 0
    mass = scaled.exp()  # likeliest token: 1
    everything = mass.sum(dim=-1, keepdim=True)
    mass = mass * (mass >= _threshold(mass, top_p, top_k))
    cumulative = mass.cumsum(dim=-1)
    total = cumulative[:, -1:]
    ids = torch.searchsorted(cumulative, _target(uniform, total), right=True).clamp_(max=logits.shape[-1] - 1)
    ids = torch.where(mass.gather(-1, ids) > 0, ids, best)
    logp = (scaled.gather(-1, ids) - total.log()).squeeze(-1).float()
    kept = (total / everything).log().squeeze(-1).float()
    if not wanted:
        return Draw(ids.squeeze(-1), logp, kept)
    top = scaled.topk(wanted, dim=-1)
    return Draw(ids.squeeze(-1), logp, kept, top.indices, (top.values - everything.log()).float())


def _target(uniform: Tensor, total: Tensor) -> Tensor:
    """[B, 1], u * total. u < 1, but the product may round up to the total, which no cumulative sum exceeds."""
    return torch.minimum(uniform.unsqueeze(-1) * total, torch.nextafter(total, torch.zeros_like(total)))


def _greedy_top(logits: Tensor, best: Tensor, zero: Tensor, wanted: int) -> tuple[Tensor, Tensor]:
    """Ids and log-probabilities [B, K] at temperature 0: the token that is taken has all the mass, the others none."""
    others = logits.scatter(-1, best, -torch.inf).topk(wanted - 1, dim=-1).indices
    top_logp = torch.full((len(logits), wanted), -torch.inf, dtype=torch.float32, device=logits.device)
    top_logp[:, 0] = zero
    return torch.cat([best, others], dim=-1), top_logp


def _threshold(mass: Tensor, top_p: float, top_k: int) -> Tensor:
    """[B, 1], the smallest mass that is kept."""
    vocabulary = mass.shape[-1]
    if top_k > 0:
        largest = mass.topk(min(top_k, vocabulary), dim=-1).values
        lowest = largest[:, -1:]
        if top_p == 1:
            return lowest
        whole = (mass * (mass >= lowest)).sum(dim=-1, keepdim=True)
        return torch.maximum(lowest, _nucleus(mass, whole, top_p))
    return _nucleus(mass, mass.sum(dim=-1, keepdim=True), top_p)


def _nucleus(mass: Tensor, whole: Tensor, top_p: float) -> Tensor:
    """[B, 1], the mass of the last token of the smallest set of likeliest tokens that holds ``top_p * whole``.

    A handful of tokens usually holds it, so the candidates grow until they do instead of sorting the vocabulary.
    """
    vocabulary = mass.shape[-1]
    count = min(FIRST_CANDIDATES, vocabulary)
    while True:
        largest = mass.topk(count, dim=-1).values
        before = largest.cumsum(dim=-1) - largest
        if count == vocabulary or bool((largest.sum(dim=-1, keepdim=True) >= top_p * whole).all()):
            kept = (before < top_p * whole).sum(dim=-1, keepdim=True).clamp_(min=1)
            return largest.gather(-1, kept - 1)
        count = min(8 * count, vocabulary)
