"""The decode step of our own: equal to the plain forward for every composition of the batch, and proved before use."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from surefoot.rollout import local
from surefoot.rollout.decode import Decoder, find_decoder
from surefoot.rollout.engine import Interruption, Request, Sampling
from surefoot.rollout.forward import Forward
from surefoot.rollout.local import LocalEngine
from surefoot.rollout.slots import Slots

Build = Callable[[str], Any]  # a model
Requests = Callable[..., list[Request]]
Plain = Callable[..., np.ndarray]

OURS = ["llama", "llama-tied", "qwen2", "qwen2-window", "qwen3", "gemma", "gemma2", "gemma3", "mistral"]
THEIRS = ["gpt2", "bloom", "lfm2"]
STOPS = (0, 3, 5, 8, 13, 21)
MIXED = [9, 1, 23, 9, 16, 2, 7, 30]
SAMPLING = Sampling(max_new_tokens=16, stop_ids=STOPS, temperature=1.7)


def begun_alike(wanted: list[Request], length: int) -> list[Request]:
    """The same requests behind a beginning that all prompts have in common."""
    prefix = np.random.default_rng(5).integers(0, 71, size=length)
    return [replace(request, prompt_ids=np.concatenate([prefix, request.prompt_ids])) for request in wanted]


@pytest.mark.parametrize("name", OURS)
def test_known_architectures_have_a_step(tiny: Build, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LocalEngine(tiny(name), max_batch_tokens=100).decoder is not None


@pytest.mark.parametrize("name", THEIRS)
def test_unknown_architectures_are_told_and_generate_with_transformers(
    tiny: Build, requests: Requests, plain_logp: Plain, name: str
) -> None:
    model = tiny(name)
    with pytest.warns(UserWarning, match=f"{type(model).__name__} is none of the architectures with a decode step"):
        engine = LocalEngine(model, max_batch_tokens=1000)
    assert engine.decoder is None
    [[sample]] = engine.generate(requests([5], samples=1, sampling=SAMPLING))
    assert np.abs(plain_logp(model, sample.ids, 1.7) - sample.logp_behaviour)[sample.mask].max() < 1e-4


@pytest.mark.parametrize("samples", [1, 3, 9])
@pytest.mark.parametrize("bound", [10_000, 500, 150, 40])
@pytest.mark.parametrize("name", OURS)
def test_log_probabilities_equal_a_plain_forward_in_every_composition(
    tiny: Build, requests: Requests, plain_logp: Plain, name: str, bound: int, samples: int
) -> None:
    """Bounds from everything side by side to one row at a time, so that rows begin and end at all sorts of ticks."""
    model = tiny(name)
    wanted = requests(MIXED, samples=samples, sampling=SAMPLING)
    for group in LocalEngine(model, max_batch_tokens=bound).generate(wanted):
        for sample in group:
            plain = plain_logp(model, sample.ids, SAMPLING.temperature)
            assert np.abs(plain - sample.logp_behaviour)[sample.mask].max() < 1e-4


@pytest.mark.parametrize("bound", [10_000, 300])
@pytest.mark.parametrize("name", OURS)
def test_samples_equal_those_of_transformers(tiny: Build, requests: Requests, name: str, bound: int) -> None:
    sampling = replace(SAMPLING, top_logprobs=3, top_k=20, interrupt=Interruption(6, (40, 5, 41), (7,)))
    wanted = begun_alike(requests(MIXED, samples=5, sampling=sampling), 20)
    ours = LocalEngine(tiny(name), max_batch_tokens=bound).generate(wanted)
    theirs = LocalEngine(tiny(name), max_batch_tokens=10_000, own_steps=False).generate(wanted)
    for group, other in zip(ours, theirs, strict=True):
        for one, two in zip(group, other, strict=True):
            assert np.array_equal(one.ids, two.ids) and np.array_equal(one.origin, two.origin)
            assert one.finish == two.finish
            for field in ("logp_behaviour", "kept_logmass", "top_logp"):
                assert np.allclose(getattr(one, field), getattr(two, field), atol=1e-4)


@pytest.mark.parametrize("name", [*OURS, "gpt2"])
@pytest.mark.filterwarnings("ignore:.*decode step:UserWarning")
def test_what_all_prompts_begin_with_is_run_once(tiny: Build, requests: Requests, plain_logp: Plain, name: str) -> None:
    model, seen = tiny(name), []
    embedding = model.get_input_embeddings()
    hook = embedding.register_forward_pre_hook(lambda _, given: seen.append(tuple(given[0].shape)))
    wanted = begun_alike(requests(MIXED, samples=2, sampling=SAMPLING), 30)
    try:
        engine = LocalEngine(model, max_batch_tokens=10_000)
        seen.clear()
        groups = engine.generate(wanted)
    finally:
        hook.remove()
    # A window counts columns, and those of the padding would lie between the beginning and the rest.
    windowed = name in ("qwen2-window", "gemma2", "gemma3", "mistral")
    assert [shape for shape in seen if shape[-1] >= 30] == ([(8, 60)] if windowed else [(1, 30), (8, 30)])
    for group in groups:
        for sample in group:
            plain = plain_logp(model, sample.ids, SAMPLING.temperature)
            assert np.abs(plain - sample.logp_behaviour)[sample.mask].max() < 1e-4


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_prompts_are_prefilled_in_pieces(
    tiny: Build, requests: Requests, plain_logp: Plain, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, pieces = tiny(name), []
    prompts = Forward.prompts
    monkeypatch.setattr(local, "PREFILL_TOKENS", 50)
    monkeypatch.setattr(Forward, "prompts", lambda *given: pieces.append(len(given[1])) or prompts(*given))
    for group in LocalEngine(model, max_batch_tokens=10_000).generate(requests(MIXED, sampling=SAMPLING)):
        for sample in group:
            plain = plain_logp(model, sample.ids, SAMPLING.temperature)
            assert np.abs(plain - sample.logp_behaviour)[sample.mask].max() < 1e-4
    assert pieces == [1, 2, 5]


class Watch:
    """The rows of every decode step, and the slots that they are in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[int] = []
        self.slots: list[Slots] = []
        step = Decoder.step

        def watched(made: Decoder, ids: Tensor, slots: Slots, *rest: Any) -> Tensor:
            self.rows.append(len(ids))
            self.slots.append(slots)
            return step(made, ids, slots, *rest)

        monkeypatch.setattr(Decoder, "step", watched)


def test_the_place_of_a_row_that_is_over_is_taken_by_the_next(
    tiny: Build, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, wanted = tiny("llama"), requests([9] * 40, samples=2, sampling=SAMPLING)
    engine = LocalEngine(model, max_batch_tokens=16 * 25)
    watch = Watch(monkeypatch)
    lengths = [sample.length for group in engine.generate(wanted) for sample in group]
    assert len({id(slots) for slots in watch.slots}) == 1
    assert max(watch.rows) <= 16 and watch.slots[0].layers[0].own[0].shape[0] == 16
    busy = sum(lengths) - len(lengths)  # the first token of a row is drawn after its prompt
    assert sum(watch.rows) <= 1.25 * busy
    full = watch.rows[: -max(lengths)]
    assert sum(full) / len(full) > 13
    in_waves = sum(max(lengths[i : i + 16]) for i in range(0, 80, 16))
    assert len(watch.rows) < 0.85 * in_waves


def test_a_prompt_is_held_once_for_its_group(tiny: Build, requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    held: list[tuple[int, ...]] = []
    step = Decoder.step
    monkeypatch.setattr(
        Decoder,
        "step",
        lambda made, ids, slots, *rest: held.append(slots.layers[0].prompt[0].shape) or step(made, ids, slots, *rest),
    )
    engine = LocalEngine(tiny("llama"), max_batch_tokens=10_000)
    held.clear()
    engine.generate(requests([9, 7, 4], samples=16, sampling=SAMPLING))
    assert held[0] == (3, 2, 9, 16)
    assert held[-1][0] <= 3 and watch.slots[-1].layers[0].own[0].shape[0] == 48


def test_a_model_that_does_something_else_is_told_and_generates_with_transformers(
    tiny: Build, requests: Requests, plain_logp: Plain
) -> None:
    model = copy.deepcopy(tiny("llama"))
    model.model.layers[1].self_attn.register_forward_hook(lambda _, __, out: (1.5 * out[0], *out[1:]))
    with pytest.warns(UserWarning, match="own forward gives other logits than the decode step for llama"):
        engine = LocalEngine(model, max_batch_tokens=1000)
    assert engine.decoder is None
    [[sample]] = engine.generate(requests([5], samples=1, sampling=SAMPLING))
    assert np.abs(plain_logp(model, sample.ids, 1.7) - sample.logp_behaviour)[sample.mask].max() < 1e-4


@pytest.mark.parametrize("change", ["rope", "window"])
def test_rotations_that_depend_on_the_length_are_not_taken(tiny: Build, change: str) -> None:
    config = copy.deepcopy(tiny("llama").config)
    if change == "rope":
        config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    else:
        config.model_type = "looks like llama"
    model = type(tiny("llama"))(config).eval()
    with pytest.warns(UserWarning, match="none of the architectures"):
        assert find_decoder(model) is None


def test_half_precision_keeps_the_operations_of_the_trainer(tiny: Build) -> None:
    assert LocalEngine(copy.deepcopy(tiny("llama")).bfloat16(), max_batch_tokens=100).decoder is None


def test_a_projection_with_an_adapter_is_used_as_it_is(tiny: Build, requests: Requests, plain_logp: Plain) -> None:
    class Adapted(torch.nn.Module):
        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base, self.down, self.up = base, torch.nn.Linear(64, 4), torch.nn.Linear(4, base.out_features)

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + self.up(self.down(x))

    model = copy.deepcopy(tiny("qwen3"))
    for layer in model.model.layers:
        layer.self_attn.q_proj = Adapted(layer.self_attn.q_proj)
    engine = LocalEngine(model, max_batch_tokens=10_000)
    assert engine.decoder is not None
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.up.weight.add_(0.5)  # weights change after the engine was made
    for group in engine.generate(requests(MIXED, sampling=SAMPLING)):
        for sample in group:
            assert np.abs(plain_logp(model, sample.ids, 1.7) - sample.logp_behaviour)[sample.mask].max() < 1e-4


def test_nothing_is_copied_of_the_model(tiny: Build) -> None:
    model = tiny("llama")
    made = find_decoder(model)
    assert made is not None
    for block, layer in zip(made.blocks.layers, model.model.layers, strict=True):
        assert block.attention is layer.self_attn and block.mlp is layer.mlp
    assert made.blocks.embedding is model.get_input_embeddings() and made.head.module is model.get_output_embeddings()
