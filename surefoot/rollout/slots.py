"""Keys and values of the rows that are decoded side by side: a prompt's once for its group, a row's own beside it.

Rows need not have begun together. All of them write into the same column at the same time, one column further at
every tick, and begin again at the first one when the last is full: keys carry their positions in themselves (they are
rotated), so that the order of columns does not matter, and no row lives longer than there are columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from surefoot.policy.blocks import Block, Blocks

# PyTorch multiplies batches of matrices on a CPU in a plain loop, up to 8 times slower than otherwise, where one product
# has fewer multiplications than this.
LEAST_PRODUCT = 400
# The room of a row grows by this factor whenever it is full. Keys that are far apart in memory are read several times more
# slowly than those that follow one another, so that room for tokens to come costs time at every step.
GROWTH = 1.25
# Prompts without a row are dropped when they are this share of all that are held.
DROP_SHARE = 0.25


@dataclass
class Held:
    """Keys and values of one layer.

    Attributes:
        prompt: two tensors [G, H, P, D], padded on the left.
        own: two tensors [R, H, W, D]; row i of the batch is row i here. W grows up to the columns that a row may need.
    """

    prompt: tuple[Tensor, Tensor]
    own: tuple[Tensor, Tensor]


class Slots:
    """The cache of a stream of rows. n rows are in the batch, at most R; G prompts are held.

    Args:
        blocks: the model's layers.
        rows: R, the most rows that are in the batch at once.
        budget: the most tokens of a row.

    Attributes:
        layers: what each layer holds.
        lengths: [G] int64, tokens of each prompt.
        group: [n] int64, the prompt of each row.
        born: [n] int64, the tick at which a row decodes its first token.
        tick: ticks so far.
    """

    def __init__(self, blocks: Blocks, rows: int, budget: int) -> None:
        weight = blocks.embedding.weight
        self.device, dtype = weight.device, weight.dtype
        self.windows = blocks.windows
        self.columns = max(1, budget - 1)
        self.layers = [_empty(block, rows, self.device, dtype) for block in blocks.layers]
        self.lengths = torch.zeros(0, dtype=torch.int64, device=self.device)
        self.group, self.born = self.lengths.clone(), self.lengths.clone()
        self.tick = -1
        self._arrange()

    def admit(self, prompts: list[tuple[Tensor, Tensor]], lengths: Tensor, repeats: Tensor) -> None:
        """Take in prompts, and behind the rows of the batch ``repeats`` rows of each.

        Args:
            prompts: for each layer the keys and values [g, H, p, D] of the prompts, padded on the left.
            lengths: [g] int64, their tokens.
            repeats: [g] int64, rows of each.
        """
        for held, new in zip(self.layers, prompts, strict=True):
            held.prompt = (_behind(held.prompt[0], new[0]), _behind(held.prompt[1], new[1]))
        index = torch.repeat_interleave(repeats)
        self.group = torch.cat([self.group, index + len(self.lengths)])
        self.born = torch.cat([self.born, torch.full_like(index, self.tick + 1)])
        self.lengths = torch.cat([self.lengths, lengths])
        self._arrange()

    def select(self, rows: Tensor) -> None:
        """Row i becomes what row ``rows[i]`` was; only the rows that change place are copied."""
        moved = (rows != torch.arange(len(rows), device=self.device)).nonzero().squeeze(-1)
        source = rows[moved]
        if len(moved) and self.tick >= 0:
            filled = self._filled()
            for held in self.layers:
                for own in held.own:
                    own[moved, :, filled] = own[source, :, filled]
        self.group, self.born = self.group[rows], self.born[rows]
        used, group = self.group.unique(return_inverse=True)
        if len(used) <= (1 - DROP_SHARE) * len(self.lengths):
            self.group, self.lengths = group, self.lengths[used]
            spare = self.width - (int(self.lengths.max()) if len(used) else 0)
            for held in self.layers:
                keys, values = (kept.index_select(0, used)[:, :, spare:] for kept in held.prompt)
                held.prompt = (keys, values)
        self._arrange()

    def advance(self) -> None:
        """One token more for every row."""
        self.tick += 1
        room = self.layers[0].own[0].shape[2]
        if self.column >= room:
            wider = min(self.columns, math.ceil(GROWTH * room))
            for held in self.layers:
                held.own = (self._wider(held.own[0], wider), self._wider(held.own[1], wider))

    def _wider(self, old: Tensor, width: int) -> Tensor:
        """Room for further columns, all zero: a place that is masked is multiplied by 0, which needs a finite number."""
        new = old.new_empty((*old.shape[:2], width, old.shape[3]))
        room, rows = old.shape[2], len(self.group)
        new[:rows, :, :room] = old[:rows]
        new[rows:] = 0
        new[:rows, :, room:] = 0
        return new

    @property
    def column(self) -> int:
        """Where the tokens of this tick are written."""
        return self.tick % self.columns

    @property
    def width(self) -> int:
        """P, the columns of the prompts."""
        return self.layers[0].prompt[0].shape[2]

    @property
    def position(self) -> Tensor:
        """[n] int64, positions of the tokens of this tick."""
        return self.lengths[self.group] + self.tick - self.born

    def _filled(self) -> slice:
        """The columns that hold anything of a row of the batch."""
        first, column = self.tick - self._oldest, self.column
        return slice(column - first, column + 1) if first <= column else slice(0, self.columns)

    def _arrange(self) -> None:
        """What follows from which rows and prompts there are."""
        n, groups = len(self.group), len(self.lengths)
        counts = torch.bincount(self.group, minlength=groups)
        self.size = int(counts.max()) if n else 0
        order = self.group.argsort(stable=True)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(n, device=self.device) - (counts.cumsum(0) - counts)[self.group[order]]
        place = self.group * self.size + rank
        whole = n == groups * self.size and bool((place == torch.arange(n, device=self.device)).all())
        self.place = None if whole else place
        self._oldest = int(self.born.min()) if n else 0
        self._together = n == 0 or int(self.born.max()) == self._oldest
        self._even = n == 0 or int(self.lengths.min()) == self.width

    def look(self) -> tuple[slice, dict[int | None, Tensor | None]]:
        """The columns to attend to, and for each window an additive mask [n, 1, 1, P + columns], None: all is seen."""
        filled = self._filled()
        return filled, {window: self._mask(window, filled) for window in self.windows}

    def _mask(self, window: int | None, filled: slice) -> Tensor | None:
        width = self.width
        if window is not None and width + self.tick - self._oldest < window:
            window = None
        of_all = self._together and filled.stop - filled.start == self.tick - self._oldest + 1
        if window is None and self._even and of_all:
            return None
        lived = (self.tick - self.born)[:, None]
        column = torch.arange(filled.start, filled.stop, device=self.device)
        age = (self.tick - column) % self.columns
        behind = width - torch.arange(width, device=self.device)  # from the last token of the prompt, which is 1
        own = age <= lived
        prompt = behind <= self.lengths[self.group][:, None]
        if window is not None:
            own = own & (age < window)
            prompt = prompt & (behind + lived < window)
        seen = torch.cat([prompt, own], dim=1)
        mask = torch.zeros(seen.shape, dtype=self.layers[0].own[0].dtype, device=self.device)
        return mask.masked_fill_(~seen, -torch.inf)[:, None, None]


def _empty(block: Block, rows: int, device: torch.device, dtype: torch.dtype) -> Held:
    """Room for the first tokens: as much as one product takes at least, and one column in any case."""
    prompt = (0, block.kv_heads, 0, block.width)
    own = (rows, block.kv_heads, least_columns(block.heads // block.kv_heads, block.width), block.width)
    keys, values = (torch.zeros(own, dtype=dtype, device=device) for _ in range(2))
    nothing = torch.zeros(prompt, dtype=dtype, device=device)
    return Held((nothing, nothing), (keys, values))


def least_columns(queries: int, width: int) -> int:
    """Columns that must be multiplied with ``queries`` vectors of this width at least, so that it does not take long."""
    return -(-LEAST_PRODUCT // (queries * width))


def _behind(old: Tensor, new: Tensor) -> Tensor:
    """[G + g, H, max(P, p), D], padded on the left."""
    if len(old) == 0:
        return new
    width = max(old.shape[2], new.shape[2])
    made = old.new_zeros((len(old) + len(new), old.shape[1], width, old.shape[3]))
    made[: len(old), :, width - old.shape[2] :] = old
    made[len(old) :, :, width - new.shape[2] :] = new
    return made
