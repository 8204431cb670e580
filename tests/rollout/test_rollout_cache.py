"""Caches: what they hold gives the logits of a plain forward, and the room is allocated once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from surefoot.rollout.cache import GrowingCache, PreallocatedCache, new_cache, paddable

Build = Callable[[str], Any]  # a model


def plain(model: PreTrainedModel, ids: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(input_ids=ids, use_cache=False).logits[:, -1]
    return logits


@pytest.mark.parametrize("name", ["llama", "llama-eager", "qwen2", "gpt2", "gemma2", "mistral", "lfm2"])
def test_prefill_expand_decode_select_gives_the_logits_of_a_plain_forward(tiny: Build, name: str) -> None:
    model = tiny(name)
    torch.manual_seed(0)
    cache = new_cache(model.config)
    rows = torch.randint(71, (3, 10))
    with torch.inference_mode():
        logits = model(input_ids=rows, cache=cache, use_cache=True).logits[:, -1]
        assert torch.allclose(logits, plain(model, rows), atol=1e-4)
        repeats = torch.tensor([2, 1, 3])
        cache.expand(repeats, 12)
        rows = rows.repeat_interleave(repeats, dim=0)
        for step in range(12):
            if step in (3, 8):  # rows leave, the others change places
                keep = torch.tensor([5, 1, 0, 3]) if step == 3 else torch.tensor([2, 1])
                cache.select(keep)
                rows = rows[keep]
            token = torch.randint(71, (len(rows), 1))
            rows = torch.cat([rows, token], dim=1)
            logits = model(input_ids=token, cache=cache, use_cache=True).logits[:, -1]
            assert torch.allclose(logits, plain(model, rows), atol=1e-4)


def test_the_room_is_allocated_once_and_updates_return_views_of_it(tiny: Build) -> None:
    model = tiny("llama")
    cache = new_cache(model.config)
    assert isinstance(cache, PreallocatedCache)
    with torch.inference_mode():
        model(input_ids=torch.randint(71, (2, 7)), cache=cache, use_cache=True)
        cache.expand(torch.tensor([2, 2]), 5)
        layers: list[Any] = cache.layers
        held = [(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in layers]
        assert layers[0].keys.shape == (4, 2, 12, 16)
        for step in range(5):
            if step == 2:
                cache.select(torch.tensor([0, 3]))
            model(input_ids=torch.randint(71, (4 if step < 2 else 2, 1)), cache=cache, use_cache=True)
            assert [(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in layers] == held
        assert cache.get_seq_length() == 12
        states = torch.randn(2, 2, 1, 16)
        layers[0].filled -= 1
        keys, values = cache.update(states, -states, 0)
        assert keys.shape == (2, 2, 12, 16) and keys.data_ptr() == held[0][0]
        assert torch.equal(keys[:, :, -1:], states) and torch.equal(values[:, :, -1:], -states)


def test_selecting_rows_in_any_order_moves_the_right_ones() -> None:
    torch.manual_seed(1)
    for _ in range(50):
        cache = PreallocatedCache(["full_attention"])
        states = torch.randn(8, 2, 3, 4)
        cache.update(states, 2 * states, 0)
        cache.expand(torch.ones(8, dtype=torch.int64), 1)
        rows = torch.randperm(8)[: int(torch.randint(1, 9, ()))]
        cache.select(rows)
        keys, values = cache.update(torch.zeros(len(rows), 2, 1, 4), torch.zeros(len(rows), 2, 1, 4), 0)
        assert torch.equal(keys[:, :, :3], states[rows])
        assert torch.equal(values[:, :, :3], 2 * states[rows])


def test_layers_that_hold_more_than_keys_and_values_take_the_growing_cache(tiny: Build) -> None:
    for name in ("llama", "gemma2", "mistral"):
        assert paddable(tiny(name).config)
        assert isinstance(new_cache(tiny(name).config), PreallocatedCache)
    assert not paddable(tiny("lfm2").config)
    assert isinstance(new_cache(tiny("lfm2").config), GrowingCache)


def test_layers_without_a_cache_of_their_own_are_passed_over() -> None:
    cache = PreallocatedCache(["dummy", "full_attention"])
    states = torch.randn(2, 1, 3, 4)
    cache.update(states, states, 1)
    cache.expand(torch.tensor([1, 2]), 1)
    cache.select(torch.tensor([2, 0]))
    keys, _ = cache.update(torch.zeros(2, 1, 1, 4), torch.zeros(2, 1, 1, 4), 1)
    assert torch.equal(keys[:, :, :3], states[[1, 0]])
