"""Repacked weights: the same numbers up to rounding, never stale, gone after the call, and only where they pay."""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from surefoot.errors import NonFiniteError
from surefoot.policy.lora import Adapted, LoraSpec, adapters, attach
from surefoot.rollout import repack
from surefoot.rollout.engine import Request, Sampling
from surefoot.rollout.local import LocalEngine
from surefoot.rollout.passes import repacked_passes
from surefoot.rollout.quantise import Int8Linear, quantised
from surefoot.rollout.repack import RepackedLinear, available, gains, pays, repacked

Build = Callable[[str], Any]  # a model
Requests = Callable[..., list[Request]]
Plain = Callable[..., np.ndarray]

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*decode step:UserWarning"),
    pytest.mark.skipif(not available(), reason="PyTorch is built without oneDNN"),
]
MIXED = [9, 1, 23, 9, 16, 2, 7, 30]
SAMPLING = Sampling(max_new_tokens=16, stop_ids=(0, 3, 5, 8, 13, 21), temperature=1.7)


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of any size are repacked."""
    monkeypatch.setattr(repack, "LEAST_WEIGHTS", 0)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[weakref.ref[RepackedLinear]]]:
    """References to all layers that are repacked."""
    seen: list[weakref.ref[RepackedLinear]] = []
    begin = RepackedLinear.__init__

    def noted(self: RepackedLinear, *given: Any) -> None:
        begin(self, *given)
        seen.append(weakref.ref(self))

    monkeypatch.setattr(RepackedLinear, "__init__", noted)
    yield seen


def check(groups: list[Any], logp: Callable[[np.ndarray], np.ndarray]) -> None:
    for group in groups:
        for sample in group:
            assert np.abs(logp(sample.ids) - sample.logp_behaviour)[sample.mask].max() < 1e-4


@pytest.mark.parametrize("bias", [True, False])
def test_products_are_those_of_the_layer_for_every_number_of_rows(bias: bool) -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(192, 320, bias=bias), torch.randn(140, 192)
    with torch.inference_mode():
        ours, expected = RepackedLinear(layer.weight, layer.bias), layer(x)
        for rows in [*range(1, 20), 31, 32, 33, 63, 64, 65, 127, 140]:
            torch.testing.assert_close(ours(x[:rows]), expected[:rows], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(ours(x.view(7, 20, 192)), expected.view(7, 20, 320), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(ours(x[::3]), expected[::3], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(ours(x.t().contiguous().t()), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bound", [10_000, 150])
@pytest.mark.parametrize(
    "name", ["llama", "llama-tied", "qwen2", "qwen3", "gemma2", "gemma3", "mistral", "gpt2", "bloom", "lfm2"]
)
def test_log_probabilities_equal_a_plain_forward(
    tiny: Build,
    requests: Requests,
    plain_logp: Plain,
    everything: None,
    made: list[Any],
    name: str,
    bound: int,
) -> None:
    """Biases, tied heads, norms of heads, bounds of logits, joined projections, and models without a step of their own."""
    model = tiny(name)
    wanted = requests(MIXED, sampling=SAMPLING)
    engine = LocalEngine(model, max_batch_tokens=bound)
    made.clear()
    groups = engine.generate(wanted)
    assert made
    check(groups, lambda ids: plain_logp(model, ids, SAMPLING.temperature))
    kept = LocalEngine(model, max_batch_tokens=bound, repack=False).generate(wanted)
    for group, other in zip(groups, kept, strict=True):
        assert all(np.array_equal(one.ids, two.ids) for one, two in zip(group, other, strict=True))
    assert not any(isinstance(module, RepackedLinear) for module in model.modules())


@pytest.mark.parametrize(("name", "layers"), [("llama", 2 * 5 + 1), ("qwen3", 2 * 7 + 1), ("gpt2", 1)])
def test_every_product_of_a_step_is_repacked_once(
    tiny: Build, requests: Requests, everything: None, made: list[Any], name: str, layers: int
) -> None:
    """Queries, keys and values of a plain layer are one product; GPT-2 has a linear head and no other linear layers."""
    engine = LocalEngine(tiny(name), max_batch_tokens=10_000)
    made.clear()
    engine.generate(requests(MIXED, sampling=SAMPLING))
    assert len(made) == layers


def test_copies_are_gone_after_a_call(tiny: Build, requests: Requests, everything: None, made: list[Any]) -> None:
    model = copy.deepcopy(tiny("llama"))
    engine = LocalEngine(model, max_batch_tokens=10_000)
    before = engine.decoder
    engine.generate(requests(MIXED, sampling=SAMPLING))
    gc.collect()
    assert made and all(one() is None for one in made)
    with torch.no_grad():
        model.lm_head.weight.fill_(torch.nan)
    with pytest.raises(NonFiniteError):
        engine.generate(requests(MIXED, sampling=SAMPLING))
    gc.collect()
    assert engine.decoder is before and all(one() is None for one in made)


@pytest.mark.parametrize("quantise", [False, True])
def test_changed_weights_show_in_the_next_call(
    tiny: Build, requests: Requests, everything: None, made: list[Any], quantise: bool
) -> None:
    model, wanted = copy.deepcopy(tiny("llama-tied")), requests(MIXED, sampling=Sampling(max_new_tokens=16))
    engine = LocalEngine(model, max_batch_tokens=10_000, quantise=quantise)
    before = engine.generate(wanted)
    for weight in (model.model.layers[0].mlp.down_proj.weight, model.lm_head.weight):
        with torch.no_grad():
            weight.copy_(weight.flip(0))
        after = engine.generate(wanted)
        fresh = LocalEngine(model, max_batch_tokens=10_000, quantise=quantise, repack=False).generate(wanted)
        for old, new, same in zip(before, after, fresh, strict=True):
            for i in range(3):
                assert not np.array_equal(old[i].ids, new[i].ids)
                assert np.array_equal(new[i].ids, same[i].ids)
        before = after


def test_rounded_layers_stay_and_their_head_is_repacked(
    tiny: Build, requests: Requests, plain_logp: Plain, everything: None, made: list[Any]
) -> None:
    rounded = quantised(tiny("llama"))
    copied, _ = repacked_passes(rounded, None)
    assert isinstance(copied.get_output_embeddings(), RepackedLinear)
    assert sum(isinstance(module, Int8Linear) for module in copied.modules()) == 14
    engine = LocalEngine(tiny("llama"), max_batch_tokens=10_000, quantise=True)
    made.clear()
    for group in engine.generate(requests(MIXED, sampling=SAMPLING)):
        for sample in group:
            far = np.abs(plain_logp(rounded, sample.ids, 1.7) - sample.logp_behaviour)[sample.mask]
            assert far.mean() < 0.01  # rounding makes a jump of what was a difference of 1e-6
    assert len(made) == 1


@pytest.mark.parametrize("targets", [("all-linear",), ("q_proj", "down_proj")])
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_adapters_are_in_the_repacked_weights(
    tiny: Build, requests: Requests, plain_logp: Plain, everything: None, name: str, targets: tuple[str, ...]
) -> None:
    bare, model = tiny(name), copy.deepcopy(tiny(name))
    attach(model, LoraSpec(4, 8.0), targets, seed=0)
    with torch.no_grad():
        for layer in adapters(model).values():
            layer.lora_B.weight.normal_(std=0.2)
    kept = {key: value.clone() for key, value in model.state_dict().items()}
    groups = LocalEngine(model, max_batch_tokens=10_000).generate(requests(MIXED, sampling=SAMPLING))
    check(groups, lambda ids: plain_logp(model, ids, SAMPLING.temperature))
    sample = groups[0][0]
    assert np.abs(plain_logp(bare, sample.ids, 1.7) - sample.logp_behaviour)[sample.mask].max() > 1e-2
    assert all(torch.equal(value, kept[key]) for key, value in model.state_dict().items())
    assert not any(isinstance(module, Adapted) for module in repacked(model).modules())


def test_small_layers_hooked_layers_and_half_precision_stay_as_they_are(tiny: Build) -> None:
    assert not gains(tiny("llama"))
    large = nn.Sequential(nn.Linear(512, 256), nn.Linear(256, 512), nn.Linear(16, 16), nn.Embedding(512, 512))
    large[1].register_forward_hook(lambda *_: None)
    kinds = [type(part) for part in repacked(large)]
    assert kinds == [RepackedLinear, nn.Linear, nn.Linear, nn.Embedding] and gains(large)
    assert not gains(large.bfloat16())


def test_hooks_see_every_call(tiny: Build, requests: Requests, plain_logp: Plain, everything: None) -> None:
    model, calls = copy.deepcopy(tiny("llama")), []
    model.model.layers[1].mlp.up_proj.register_forward_hook(lambda *_: calls.append(1))
    engine = LocalEngine(model, max_batch_tokens=10_000)
    calls.clear()
    groups = engine.generate(requests([5], samples=2, sampling=Sampling(max_new_tokens=16)))
    assert len(calls) == 16  # the prompt and 15 tokens
    check(groups, lambda ids: plain_logp(model, ids))


@pytest.mark.parametrize(
    ("samples", "tokens", "worth"),
    [(1, 4096, False), (2, 16, True), (2, 15, False), (64, 15, False), (200, 15, True), (0, 0, False)],
)
def test_repacking_waits_for_enough_tokens(requests: Requests, samples: int, tokens: int, worth: bool) -> None:
    asked = requests([5] if samples else [], samples=samples, sampling=Sampling(max_new_tokens=max(1, tokens)))
    assert pays(asked) is worth


def test_calls_of_few_tokens_are_left_alone(tiny: Build, requests: Requests, everything: None, made: list[Any]) -> None:
    engine = LocalEngine(tiny("llama"), max_batch_tokens=10_000)
    made.clear()
    engine.generate(requests(MIXED, sampling=replace(SAMPLING, max_new_tokens=3)))
    assert not made


@pytest.mark.parametrize("options", [{"repack": False}, {"autocast": "bfloat16"}])
def test_it_can_be_switched_off(
    tiny: Build, requests: Requests, everything: None, made: list[Any], options: dict[str, Any]
) -> None:
    LocalEngine(tiny("llama"), max_batch_tokens=10_000, **options).generate(requests(MIXED, sampling=SAMPLING))
    assert not made


@pytest.mark.parametrize("lacking", ["library", "operation", "right results", "right results in this model"])
def test_what_is_not_there_or_wrong_is_done_without(
    tiny: Build,
    requests: Requests,
    plain_logp: Plain,
    everything: None,
    monkeypatch: pytest.MonkeyPatch,
    lacking: str,
) -> None:
    model = tiny("llama")
    forward = RepackedLinear.forward
    if lacking == "library":
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    elif lacking == "operation":
        monkeypatch.setattr(repack.torch.ops, "mkldnn", object())
    else:
        wrong = {"right results": (96,), "right results in this model": (128,)}[lacking]
        monkeypatch.setattr(
            RepackedLinear, "forward", lambda self, x: forward(self, x) + 1e-2 * (self.out_features in wrong)
        )
    available.cache_clear()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            engine = LocalEngine(model, max_batch_tokens=10_000)
        groups = engine.generate(requests(MIXED, sampling=SAMPLING))
    finally:
        available.cache_clear()
    check(groups, lambda ids: plain_logp(model, ids, SAMPLING.temperature))
