"""Key-value caches for a wave of rows: prefill each prompt once, expand it to its group, drop rows that are done.

Both caches are used as the ``cache=`` argument of a Transformers model:

- :class:`PreallocatedCache` for decoder layers with full or sliding-window attention. Its room is allocated once.
  Sliding-window layers keep their whole length and rely on the window in the model's own mask, so that rows can be
  padded on the left; the price is memory on sequences far longer than the window.
- :class:`GrowingCache` for everything else that Transformers has a dynamic layer for (recurrent states and the like).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PretrainedConfig
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DummyLayer,
    DynamicCache,
    get_layer_types_and_kwargs,
)

# "dummy" is a layer without a cache of its own (it shares another one's, or does not attend).
PADDABLE_LAYERS = frozenset({"full_attention", "sliding_attention", "dummy"})


class PreallocatedLayer(CacheLayerMixin):
    """Keys and values of one layer, [B, H, filled + room, D]; an update writes in place and returns the filled part."""

    is_sliding = False
    is_croppable = False

    def __init__(self) -> None:
        super().__init__()
        self.filled = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Hold the prefilled prompts as they are, without a copy; :meth:`expand` makes the room to go on."""
        self.device = key_states.device
        self.keys, self.values = key_states, value_states
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append [B, H, n, D] and return all that is filled, as views."""
        start, self.filled = self.filled, self.filled + key_states.shape[-2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            return key_states, value_states
        keys, values = cast(Tensor, self.keys), cast(Tensor, self.values)
        keys[:, :, start : self.filled] = key_states
        values[:, :, start : self.filled] = value_states
        return keys[:, :, : self.filled], values[:, :, : self.filled]

    def expand(self, index: Tensor, room: int) -> None:
        """Row i becomes a copy of row ``index[i]``, with room for further tokens."""
        if self.is_initialized:
            self.keys = self._expanded(cast(Tensor, self.keys), index, room)
            self.values = self._expanded(cast(Tensor, self.values), index, room)

    def _expanded(self, old: Tensor, index: Tensor, room: int) -> Tensor:
        _, heads, length, width = old.shape
        new = old.new_empty((len(index), heads, length + room, width))
        new[:, :, :length] = old.index_select(0, index)
        return new

    def select(self, moved: Tensor, source: Tensor, count: int) -> None:
        """Copy rows ``source`` over rows ``moved`` and keep the first ``count`` rows."""
        if self.is_initialized:
            for held in (cast(Tensor, self.keys), cast(Tensor, self.values)):
                filled = held[:, :, : self.filled]
                filled[moved] = filled[source]
            self.keys, self.values = cast(Tensor, self.keys)[:count], cast(Tensor, self.values)[:count]

    def shift(self, prefix: int, by: Tensor) -> None:
        """In row i the first ``prefix`` columns move ``by[i]`` columns on; all rows hold the same there."""
        if self.is_initialized and len(by):
            rows = torch.arange(len(by), device=by.device)[:, None]
            columns = by[:, None] + torch.arange(prefix, device=by.device)
            for held in (cast(Tensor, self.keys), cast(Tensor, self.values)):
                held[rows, :, columns] = held[0, :, :prefix].transpose(0, 1).clone()

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.filled + query_length, 0

    def get_seq_length(self) -> int:
        return self.filled

    def get_max_length(self) -> int:
        return -1


class PreallocatedCache(Cache):
    """A cache whose room is allocated once, when the prefilled prompts are expanded to the rows of their groups."""

    def __init__(self, layer_types: Sequence[str]) -> None:
        super().__init__(layers=[DummyLayer() if name == "dummy" else PreallocatedLayer() for name in layer_types])

    @property
    def _held(self) -> list[PreallocatedLayer]:
        return [layer for layer in self.layers if isinstance(layer, PreallocatedLayer)]

    def expand(self, repeats: Tensor, room: int) -> None:
        """Prompt row p becomes ``repeats[p]`` rows that follow one another.

        Args:
            repeats: [P] int64, samples of each prompt.
            room: tokens that will be appended to every row from here on.
        """
        index = torch.repeat_interleave(repeats)
        for layer in self._held:
            layer.expand(index, room)

    def shift(self, prefix: int, by: Tensor) -> None:
        """Close the gaps between a prefix that all rows share and the rest of each row, padded on the left.

        Args:
            prefix: columns of the prefix, the first ones of every row.
            by: [B] int64, the gap behind it in each row; the padding is in front of the row then.
        """
        for layer in self._held:
            layer.shift(prefix, by)

    def select(self, rows: Tensor) -> None:
        """Row i becomes what row ``rows[i]`` was; only the rows that change place are copied.

        Args:
            rows: [n] int64, n at most the rows held.
        """
        moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero().squeeze(-1)
        for layer in self._held:
            layer.select(moved, rows[moved], len(rows))


class GrowingCache(DynamicCache):
    """Transformers' own dynamic cache with the two operations of a wave."""

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config=config)

    def expand(self, repeats: Tensor, room: int) -> None:
        """As :meth:`PreallocatedCache.expand`; the room is not needed."""
        self.reorder_cache(cast(torch.LongTensor, torch.repeat_interleave(repeats)))

    def select(self, rows: Tensor) -> None:
        """As :meth:`PreallocatedCache.select`."""
        self.reorder_cache(cast(torch.LongTensor, rows))


def paddable(config: PretrainedConfig) -> bool:
    """Whether every layer of the model attends through a mask, so that rows may be padded on the left."""
    return PADDABLE_LAYERS.issuperset(_layer_types(config))


def new_cache(config: PretrainedConfig) -> PreallocatedCache | GrowingCache:
    """An empty cache for one wave of a model with this configuration."""
    return PreallocatedCache(_layer_types(config)) if paddable(config) else GrowingCache(config)


def _layer_types(config: PretrainedConfig) -> list[str]:
    types, _ = get_layer_types_and_kwargs(config.get_text_config(decoder=True))
    return list(types)
