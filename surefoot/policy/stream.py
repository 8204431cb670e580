"""Sequences as one stream without padding, in which a prefix that several of them share is there once.

Everything but attention works on single tokens and runs over the stream as it is. Attention takes the tokens out of the
stream into rows, and its answers back: rows of *starts* (a prefix that is shared, or a whole sequence that shares
nothing) look at themselves, rows of *rests* (what a sequence has of its own) look at the start that they continue and at
themselves. The result is that of every sequence alone; a group of G samples with a prompt of P tokens and answers of A
tokens costs P + G A tokens in the matrix products, instead of G (P + A).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from surefoot.batches import Packed


@dataclass(frozen=True)
class Stream:
    """N tokens, row after row, and how attention finds them. U starts of at most P tokens, R rests of at most A tokens.

    Attributes:
        ids, positions: [N] int64.
        slots: [U P + R A] int64, the token of each place of the rows, rows of starts first; 0 for padding.
        place: [N] int64, the place of each token.
        starts, rests: (U, P) and (R, A).
        start_lengths, rest_lengths: [U] and [R] int64, their tokens.
        continues: [R] int64, the start that each rest continues.
        dtype: of the mask.
        predicts: [M] int64, for each loss token the token of the stream that predicts it.
    """

    ids: Tensor
    positions: Tensor
    slots: Tensor
    place: Tensor
    starts: tuple[int, int]
    rests: tuple[int, int]
    start_lengths: Tensor
    rest_lengths: Tensor
    continues: Tensor
    dtype: torch.dtype
    predicts: Tensor

    @property
    def longest(self) -> int:
        """No sequence has more tokens."""
        return self.starts[1] + self.rests[1]

    @cached_property
    def mask(self) -> Tensor:
        """[R, 1, A, P + A], added to the products of the rests with the start and themselves: 0 where they may look, the
        most negative number elsewhere."""
        (count, size), width = self.rests, self.starts[1]
        device = self.ids.device
        behind = torch.arange(width, device=device) >= self.start_lengths[self.continues, None]
        # Padding comes at the end of a rest, where nothing but padding sees it.
        later = torch.ones(size, size, dtype=torch.bool, device=device).triu(1)
        hidden = torch.cat([behind[:, None].expand(-1, size, -1), later.expand(count, -1, -1)], dim=2)
        mask = torch.zeros(hidden.shape, dtype=self.dtype, device=device)
        return mask.masked_fill_(hidden, torch.finfo(self.dtype).min)[:, None]


def make_stream(packed: Packed, dtype: torch.dtype, *, share: bool) -> Stream:
    """The stream of a micro-batch. The last token of a sequence predicts nothing and is left out.

    Args:
        packed: the micro-batch.
        dtype: of the mask, that of the model.
        share: whether sequences with the same tokens before their first loss token share them.
    """
    lengths = packed.lengths - 1
    number = torch.arange(len(lengths), device=lengths.device)
    start, owner = shared_starts(packed, lengths) if share else (lengths, number)
    size = start.new_zeros(int(owner.max()) + 1).index_copy_(0, owner, start)
    first = torch.full_like(size, len(lengths)).scatter_reduce_(0, owner, number, "amin")  # whose tokens are taken
    rest = lengths - start
    continued = (rest > 0).nonzero().squeeze(1)
    rank = torch.zeros_like(rest).index_copy_(0, continued, number[: len(continued)])
    starts, rests = (len(size), int(size.max())), (len(continued), int(rest.max()))

    def in_rows(row: Tensor, position: Tensor) -> Tensor:
        """The place of tokens, given by sequence and position."""
        after = position - start[row]
        of_rest = starts[0] * starts[1] + rank[row] * rests[1] + after
        return torch.where(after < 0, owner[row] * starts[1] + position, of_rest)

    row, position = packed.seq_index, packed.positions
    of_start = position < start[row]
    kept = torch.where(of_start, first[owner[row]] == row, position < lengths[row]).nonzero().squeeze(1)
    place, order = in_rows(row[kept], position[kept]).sort()
    kept = kept[order]
    slots = place.new_zeros(starts[0] * starts[1] + rests[0] * rests[1])
    slots.index_copy_(0, place, torch.arange(len(kept), device=place.device))
    target = packed.mask.nonzero().squeeze(1)
    return Stream(
        ids=packed.ids[kept],
        positions=position[kept],
        slots=slots,
        place=place,
        starts=starts,
        rests=rests,
        start_lengths=size,
        rest_lengths=rest[continued],
        continues=owner[continued],
        dtype=dtype,
        predicts=slots[in_rows(row[target], position[target] - 1)],
    )


def shared_starts(packed: Packed, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """[S] tokens of the start of each sequence, and [S] which start that is, numbered from 0.

    The start of a sequence that shares its prompt is the prompt; that of any other is the whole of it.
    """
    ids, mask, begin = packed.ids.cpu().numpy(), packed.mask.cpu().numpy(), packed.seq_start.tolist()
    prompts: list[bytes] = []
    for here, end in pairwise(begin):
        loss = mask[here:end]
        prompts.append(ids[here : here + (int(loss.argmax()) if loss.any() else end - here - 1)].tobytes())
    members: dict[bytes, list[int]] = {}
    for index, prompt in enumerate(prompts):
        members.setdefault(prompt, []).append(index)
    start, owner = lengths.clone(), torch.zeros_like(lengths)
    for number, (prompt, rows) in enumerate(members.items()):
        owner[rows] = number
        if len(rows) > 1:
            start[rows] = len(prompt) // ids.itemsize
    return start, owner


def shared_tokens(packed: Packed) -> int:
    """Tokens of the stream in which prompts are shared."""
    lengths = packed.lengths - 1
    start, owner = shared_starts(packed, lengths)
    once = torch.zeros(int(owner.max()) + 1, dtype=torch.int64, device=start.device).index_copy_(0, owner, start)
    return int((lengths - start).sum() + once.sum())
