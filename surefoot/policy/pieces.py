"""The rows of a stream in pieces that attend side by side, each as small as the caches of a processor like it.

The tokens of a stream lie row after row, so that a piece is a slice of it. Queries, keys and values of a token are one
row of H + 2 K heads; a piece takes the heads that it needs out of these rows, and its answers and gradients back, by
indices that are the same in every layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from surefoot.policy.stream import Stream

# Tokens of a piece, and of a matrix product: its operands stay in the caches (widths of 96 to 576 on 1 MB of L2 a core).
TOKENS = 1024


@dataclass(frozen=True)
class Piece:
    """R rows of at most A tokens, each of which sees at most P tokens of a start and those before it in its row.

    H heads of queries, K of keys and as many of values; L = P + A, n tokens. Heads of padding are those behind the last
    token of the stream.

    Attributes:
        tokens: of the stream.
        shape: (R, A, P).
        take: [R H A + 2 R K L] int64, of N + 1 tokens with H + 2 K heads, those that the piece needs: queries by row and
            head, then keys, then values.
        give: [n (H + 2 K)] int64, the place in ``take`` of each token's own heads.
        take_out: [R H A] and ``give_out`` [n H] int64, the same for the answers of H heads.
        mask: [R, 1, 1, A, L], added to the products: 0, or -inf where a query does not look.
        starts: [S] int64, the starts that the rows continue, and ``adds`` [S, R], which row continues which; None for
            rows that are starts.
    """

    tokens: slice
    shape: tuple[int, int, int]
    take: Tensor
    give: Tensor
    take_out: Tensor
    give_out: Tensor
    mask: Tensor
    starts: Tensor | None
    adds: Tensor | None


def cut(stream: Stream, heads: int, kv_heads: int) -> list[Piece]:
    """The pieces of a stream, those of starts first; no row is in two of them."""
    device = stream.ids.device
    start_first, rest_first = (lengths.cumsum(0) - lengths for lengths in (stream.start_lengths, stream.rest_lengths))
    rest_first = rest_first + stream.start_lengths.sum()
    pieces = []
    for lengths, first, of_rests in (
        (stream.start_lengths, start_first, False),
        (stream.rest_lengths, rest_first, True),
    ):
        for begin, end in _spans(lengths.tolist()):
            rows = torch.arange(begin, end, device=device)
            own, places = _places(lengths[rows], first[rows], len(stream.ids))
            before, starts, adds = own[:, :0], None, None
            if of_rests:
                continues = stream.continues[rows]
                before, _ = _places(stream.start_lengths[continues], start_first[continues], len(stream.ids))
                starts, member = continues.unique(return_inverse=True)
                adds = (torch.arange(len(starts), device=device)[:, None] == member).to(stream.dtype)
            tokens = slice(int(first[begin]), int(first[end - 1] + lengths[end - 1]))
            mask = _mask(before, own.shape[1], len(stream.ids), stream.dtype)
            shape = (len(rows), own.shape[1], before.shape[1])
            pieces.append(Piece(tokens, shape, *_heads(own, before, places, heads, kv_heads), mask, starts, adds))
    return pieces


def _spans(lengths: list[int]) -> list[tuple[int, int]]:
    """Rows that follow one another, cut wherever one more would make more than TOKENS places."""
    spans, begin, longest = [], 0, 0
    for row, length in enumerate(lengths):
        longest = max(longest, length)
        if row > begin and (row + 1 - begin) * longest > TOKENS:
            spans.append((begin, row))
            begin, longest = row, length
    return [*spans, (begin, len(lengths))] if lengths else []


def _places(lengths: Tensor, first: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    """[R, A] the tokens of rows, and [n] the places r A + a that are not padding."""
    column = torch.arange(int(lengths.max()), device=lengths.device)
    inside = column < lengths[:, None]
    return torch.where(inside, first[:, None] + column, padding), inside.flatten().nonzero().squeeze(1)


def _mask(before: Tensor, size: int, padding: int, dtype: torch.dtype) -> Tensor:
    later = torch.ones(size, size, dtype=torch.bool, device=before.device).triu(1)
    hidden = torch.cat([(before == padding)[:, None].expand(-1, size, -1), later.expand(len(before), -1, -1)], dim=2)
    mask = torch.zeros(hidden.shape, dtype=dtype, device=before.device)
    return mask.masked_fill_(hidden, -torch.inf)[:, None, None]


def _heads(
    own: Tensor, before: Tensor, places: Tensor, heads: int, kv_heads: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``take``, ``give``, ``take_out`` and ``give_out`` of a piece with the tokens [R, A] and [R, P] before them."""
    (rows, size), every = own.shape, heads + 2 * kv_heads
    q, kv = (torch.arange(n, device=own.device) for n in (heads, kv_heads))
    keys = torch.cat([before, own], dim=1)
    width = keys.shape[1]
    of_keys = (keys[:, None] * every + heads + kv[:, None]).flatten()
    take = torch.cat([(own[:, None] * every + q[:, None]).flatten(), of_keys, of_keys + kv_heads])
    row, column = places // size, places % size
    give_out = (row[:, None] * heads + q) * size + column[:, None]
    give_keys = rows * heads * size + (row[:, None] * kv_heads + kv) * width + before.shape[1] + column[:, None]
    give = torch.cat([give_out, give_keys, give_keys + rows * kv_heads * width], dim=1)
    return take, give.flatten(), (own[:, None] * heads + q[:, None]).flatten(), give_out.flatten()
