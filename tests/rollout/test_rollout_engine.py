"""The local engine: what a sample depends on, what it records, what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from surefoot.errors import ConfigError, DataError, ModelError, NonFiniteError
from surefoot.rollout.engine import Request, Sampling
from surefoot.rollout.local import LocalEngine
from surefoot.types import Finish, Origin, Sample

Build = Callable[[str], Any]  # a model
Requests = Callable[..., list[Request]]

EVERY = ["llama", "llama-eager", "qwen2", "gpt2", "gemma2", "mistral", "bloom", "lfm2"]
pytestmark = pytest.mark.filterwarnings("ignore:.*decode step:UserWarning")
STOPS = (0, 3, 5, 8, 13, 21)
SAMPLINGS = [
    Sampling(max_new_tokens=16, stop_ids=STOPS),
    Sampling(max_new_tokens=16, stop_ids=STOPS, temperature=1.7),
    Sampling(max_new_tokens=16, stop_ids=STOPS, temperature=2.5, top_p=0.9),
    Sampling(max_new_tokens=16, stop_ids=STOPS, temperature=2.5, top_k=8),
    Sampling(max_new_tokens=16, stop_ids=STOPS, temperature=3.0, top_k=20, top_p=0.8),
    Sampling(max_new_tokens=16, stop_ids=STOPS, temperature=0.0),
]
MIXED = [9, 1, 23, 9, 16, 2]


def alone(engine: LocalEngine, request: Request, place: int) -> Sample:
    [[sample]] = engine.generate([replace(request, seeds=(request.seeds[place],))])
    return sample


class Watch:
    """What the model was called with."""

    def __init__(self, model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[dict[str, Any]] = []
        forward = model.forward

        @wraps(forward)
        def recorded(**arguments: Any) -> Any:
            self.calls.append(arguments)
            output = forward(**arguments)
            self.calls[-1]["logits_made"] = output.logits.shape
            return output

        monkeypatch.setattr(model, "forward", recorded)

    def shapes(self) -> list[tuple[int, ...]]:
        return [tuple(call["input_ids"].shape) for call in self.calls]


@pytest.mark.parametrize("bound", [10_000, 150])
@pytest.mark.parametrize("name", EVERY)
def test_log_probabilities_equal_a_plain_forward(
    tiny: Build, requests: Requests, plain_logp: Callable[..., np.ndarray], name: str, bound: int
) -> None:
    model = tiny(name)
    engine = LocalEngine(model, max_batch_tokens=bound)
    for request, group in zip(wanted := requests(MIXED, sampling=SAMPLINGS[1]), engine.generate(wanted), strict=True):
        for sample in group:
            plain = plain_logp(model, sample.ids, request.sampling.temperature)
            assert np.abs(plain - sample.logp_behaviour)[sample.mask].max() < 1e-4


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda s: f"t{s.temperature}-p{s.top_p}-k{s.top_k}")
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_a_sample_generated_alone_is_the_same(tiny: Build, requests: Requests, name: str, sampling: Sampling) -> None:
    engine = LocalEngine(tiny(name), max_batch_tokens=10_000)
    wanted = requests(MIXED, sampling=sampling)
    for request, group in zip(wanted, engine.generate(wanted), strict=True):
        for place, sample in enumerate(group):
            lonely = alone(engine, request, place)
            assert np.array_equal(lonely.ids, sample.ids)
            assert lonely.finish == sample.finish
            assert np.abs(lonely.logp_behaviour - sample.logp_behaviour).max() < 1e-4
            assert np.abs(lonely.kept_logmass - sample.kept_logmass).max() < 1e-4


@pytest.mark.parametrize("name", EVERY)
def test_batch_composition_changes_nothing(tiny: Build, requests: Requests, name: str) -> None:
    wanted = requests(MIXED, samples=4, sampling=SAMPLINGS[1])
    engine = LocalEngine(tiny(name), max_batch_tokens=10_000)
    together = engine.generate(wanted)
    backwards = engine.generate(wanted[::-1])[::-1]
    # Slots for two or three rows: groups are split over waves.
    narrow = LocalEngine(tiny(name), max_batch_tokens=100).generate(wanted)
    with_others = engine.generate([*wanted, *requests([30, 3, 12], samples=5, sampling=SAMPLINGS[1], seed=9)])
    for group, *others in zip(together, backwards, narrow, with_others[: len(wanted)], strict=True):
        for other in others:
            assert [sample.ids.tolist() for sample in other] == [sample.ids.tolist() for sample in group]


def test_mixed_sampling_in_one_call(tiny: Build, requests: Requests) -> None:
    engine = LocalEngine(tiny("llama"), max_batch_tokens=10_000)
    wanted = [
        replace(request, sampling=replace(sampling, max_new_tokens=4 + i))
        for i, (request, sampling) in enumerate(zip(requests(MIXED), SAMPLINGS, strict=True))
    ]
    for request, group in zip(wanted, engine.generate(wanted), strict=True):
        assert [s.ids.tolist() for s in group] == [alone(engine, request, i).ids.tolist() for i in range(3)]
        assert max(sample.length for sample in group) <= request.sampling.max_new_tokens


def test_what_a_sample_records(tiny: Build, requests: Requests) -> None:
    engine = LocalEngine(tiny("llama"), max_batch_tokens=10_000, version=7)
    wanted = [replace(request, first_sample_id=4) for request in requests(MIXED, sampling=SAMPLINGS[1])]
    for request, group in zip(wanted, engine.generate(wanted), strict=True):
        n = len(request.prompt_ids)
        for place, sample in enumerate(group):
            assert (sample.prompt_id, sample.sample_id, sample.seed) == (
                request.prompt_id,
                4 + place,
                request.seeds[place],
            )
            assert np.array_equal(sample.ids[:n], request.prompt_ids)
            assert (sample.origin[:n] == Origin.PROMPT).all() and (sample.origin[n:] == Origin.POLICY).all()
            assert (sample.version[:n] == -1).all() and (sample.version[n:] == 7).all()
            assert (sample.temperature[:n] == 1).all() and np.allclose(sample.temperature[n:], 1.7)
            assert (sample.logp_behaviour[:n] == 0).all() and (sample.logp_behaviour[n:] < 0).all()
            assert (sample.kept_logmass == 0).all()
            assert 1 <= sample.length <= 16


def test_kept_mass_makes_the_ratio_whole(
    tiny: Build, requests: Requests, plain_logp: Callable[..., np.ndarray]
) -> None:
    model = tiny("qwen2")
    sampling = SAMPLINGS[4]
    for group in LocalEngine(model, max_batch_tokens=10_000).generate(requests(MIXED, sampling=sampling)):
        for sample in group:
            whole = sample.logp_behaviour + sample.kept_logmass
            plain = plain_logp(model, sample.ids, sampling.temperature)
            assert np.abs(plain - whole)[sample.mask].max() < 1e-4
            assert (sample.kept_logmass[sample.mask] < 0).all()


def test_stop_and_length(tiny: Build, requests: Requests) -> None:
    # Prompts are full of stop tokens, and 0 (which pads) is one of them: neither may end a completion early.
    seen = set()
    for group in LocalEngine(tiny("llama"), max_batch_tokens=10_000).generate(
        requests(MIXED, samples=16, sampling=SAMPLINGS[1])
    ):
        for sample in group:
            written = sample.ids[sample.mask]
            seen.add(sample.finish)
            assert not np.isin(written[:-1], STOPS).any()
            if sample.finish == Finish.STOP:
                assert written[-1] in STOPS
            else:
                assert sample.finish == Finish.LENGTH and len(written) == 16 and written[-1] not in STOPS
    assert seen == {Finish.STOP, Finish.LENGTH}


def test_a_stop_token_on_the_last_place_of_the_budget_is_a_stop(tiny: Build, requests: Requests) -> None:
    engine = LocalEngine(tiny("llama"), max_batch_tokens=10_000)
    [[sample]] = engine.generate(requests([5], samples=1, sampling=Sampling(max_new_tokens=6)))
    last = int(sample.ids[-1])
    assert last not in sample.ids[5:-1]
    [[again]] = engine.generate(requests([5], samples=1, sampling=Sampling(max_new_tokens=6, stop_ids=(last,))))
    assert np.array_equal(again.ids, sample.ids)
    assert (sample.finish, again.finish) == (Finish.LENGTH, Finish.STOP)


def test_equal_seeds_give_equal_samples_and_other_seeds_others(tiny: Build, requests: Requests) -> None:
    [request] = requests([6], sampling=Sampling(max_new_tokens=12))
    [group] = LocalEngine(tiny("llama"), max_batch_tokens=10_000).generate([replace(request, seeds=(5, 6, 5))])
    assert np.array_equal(group[0].ids, group[2].ids)
    assert not np.array_equal(group[0].ids, group[1].ids)
    assert [sample.sample_id for sample in group] == [0, 1, 2]


def test_greedy_is_the_argmax_of_plain_forwards(tiny: Build, requests: Requests) -> None:
    model = tiny("gemma2")
    wanted = requests([4, 11], samples=1, sampling=Sampling(temperature=0.0, max_new_tokens=10))
    for [sample] in LocalEngine(model, max_batch_tokens=10_000).generate(wanted):
        with torch.no_grad():
            best = model(input_ids=torch.from_numpy(sample.ids)[None], use_cache=False).logits[0].argmax(-1)
        assert np.array_equal(sample.ids[-10:], best[-11:-1].numpy())
        assert (sample.logp_behaviour == 0).all()


def test_a_prompt_is_prefilled_once_and_finished_rows_are_not_run(
    tiny: Build, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("llama")
    wanted = requests([9, 9, 9, 9], samples=16, sampling=SAMPLINGS[1])
    watch = Watch(model, monkeypatch)
    out = LocalEngine(model, max_batch_tokens=10_000, own_steps=False).generate(wanted)
    shapes = watch.shapes()
    assert shapes[0] == (4, 9)
    rows = [batch for batch, _ in shapes[1:]]
    assert {length for _, length in shapes[1:]} == {1}
    running = [sum(sample.length > step + 1 for group in out for sample in group) for step in range(len(rows))]
    assert all(needed <= run <= needed / 0.9 + 1 for needed, run in zip(running, rows, strict=True))
    assert rows[-1] < 32  # most had stopped by then
    assert all(call["logits_made"][1] == 1 for call in watch.calls)


def test_a_mask_is_passed_only_where_a_row_is_padded(
    tiny: Build, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("llama")
    watch = Watch(model, monkeypatch)
    engine = LocalEngine(model, max_batch_tokens=10_000, own_steps=False)
    engine.generate(requests([9, 9]))
    assert all(call["attention_mask"] is None for call in watch.calls)
    watch.calls.clear()
    engine.generate(requests([9, 7]))
    assert all(call["attention_mask"] is not None for call in watch.calls)
    assert watch.calls[0]["position_ids"].tolist() == [list(range(9)), [0, 0, *range(7)]]
    assert watch.calls[1]["position_ids"].flatten().tolist() == [9] * 3 + [7] * 3


@pytest.mark.parametrize("name", ["bloom", "lfm2"])
def test_models_that_padding_could_reach_get_prompts_of_one_length(
    tiny: Build, requests: Requests, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """No position_ids, or a state that runs over every token: such a model never sees a padded row."""
    model = tiny(name)
    watch = Watch(model, monkeypatch)
    LocalEngine(model, max_batch_tokens=10_000, own_steps=False).generate(requests(MIXED))
    assert all(call["attention_mask"] is None for call in watch.calls)
    assert [shape for shape in watch.shapes() if shape[1] > 1] == [(1, 23), (1, 16), (2, 9), (1, 2)]


def test_the_bound_holds_for_every_forward(tiny: Build, requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    watch = Watch(model, monkeypatch)
    LocalEngine(model, max_batch_tokens=200, own_steps=False).generate(requests(MIXED, samples=9))
    assert len(watch.calls) > 30
    for call in watch.calls:
        assert len(call["input_ids"]) * call["cache"].get_seq_length() <= 200


def test_new_weights_are_used_from_the_next_generation_on(tiny: Build, requests: Requests) -> None:
    model = tiny("llama")
    engine = LocalEngine(model, max_batch_tokens=10_000)
    wanted = requests(MIXED)
    before = engine.generate(wanted)
    weight = model.get_input_embeddings().weight
    kept = weight.detach().clone()
    try:
        with torch.no_grad():
            weight.copy_(kept.flip(0))
        engine.load(1)
        after = engine.generate(wanted)
        fresh = LocalEngine(model, max_batch_tokens=10_000, version=1).generate(wanted)
    finally:
        with torch.no_grad():
            weight.copy_(kept)
    for old, new, same in zip(before, after, fresh, strict=True):
        for i in range(3):
            assert not np.array_equal(old[i].ids, new[i].ids)
            assert np.array_equal(new[i].ids, same[i].ids)
            assert (new[i].version[new[i].mask] == 1).all()


def test_dropout_is_off_and_the_model_trains_on_afterwards(
    tiny: Build, requests: Requests, plain_logp: Callable[..., np.ndarray]
) -> None:
    model = tiny("gpt2")
    model.train()
    model.lm_head.eval()
    try:
        [[sample]] = LocalEngine(model, max_batch_tokens=10_000).generate(requests([8], samples=1))
        assert model.training and model.transformer.h[0].attn.training and not model.lm_head.training
        model(input_ids=torch.from_numpy(sample.ids)[None], use_cache=False).logits.sum().backward()
        assert model.transformer.wte.weight.grad is not None
    finally:
        model.eval()
        model.zero_grad()
    assert np.abs(plain_logp(model, sample.ids) - sample.logp_behaviour)[sample.mask].max() < 1e-4


def test_nothing_asked_for(tiny: Build, requests: Requests) -> None:
    engine = LocalEngine(tiny("llama"), max_batch_tokens=10_000)
    assert engine.generate([]) == []
    assert [len(group) for group in engine.generate([*requests([4]), *requests([4], samples=0)])] == [3, 0]


def test_a_budget_beyond_the_context_is_refused(tiny: Build, requests: Requests) -> None:
    engine = LocalEngine(tiny("llama"), max_batch_tokens=10_000)
    with pytest.raises(ModelError, match=r"'p0' has 100 tokens.*max_new_tokens is 29, together 129.*context is 128"):
        engine.generate(requests([100], sampling=Sampling(max_new_tokens=29)))
    [[sample]] = engine.generate(requests([100], samples=1, sampling=Sampling(max_new_tokens=28)))
    assert len(sample) == 128


def test_prompts_that_cannot_be_read_are_refused(tiny: Build, requests: Requests) -> None:
    engine = LocalEngine(tiny("llama"), max_batch_tokens=10_000)
    with pytest.raises(DataError, match="'p0' has no tokens"):
        engine.generate(requests([0]))
    for bad in (71, -1):
        [request] = requests([3])
        with pytest.raises(DataError, match=f"token id {bad}, the model knows 0 to 70"):
            engine.generate([replace(request, prompt_ids=np.array([1, bad, 2]))])
    with pytest.raises(ConfigError, match="max_new_tokens is 0"):
        engine.generate(requests([3], sampling=Sampling(max_new_tokens=0)))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_refused(tiny: Build, requests: Requests, temperature: float) -> None:
    model = tiny("llama")
    norm = model.model.norm.weight
    kept = norm.detach().clone()
    try:
        with torch.no_grad():
            norm[3] = torch.nan
        with pytest.raises(NonFiniteError, match="'p0' are not finite"):
            LocalEngine(model, max_batch_tokens=10_000).generate(requests([5], sampling=Sampling(temperature)))
    finally:
        with torch.no_grad():
            norm.copy_(kept)


def test_a_model_without_a_cache_is_refused() -> None:
    class Encoder(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return input_ids

    with pytest.raises(ModelError, match="Encoder takes no 'cache'"):
        LocalEngine(Encoder(), max_batch_tokens=10)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", EVERY)
def test_context_order_and_positions_matter_to_these_models(
    tiny: Build, plain_logp: Callable[..., np.ndarray], name: str
) -> None:
    """Otherwise the tests above would not see a wrong mask or position."""
    ids = np.random.default_rng(0).integers(0, 71, size=30)
    other = ids.copy()
    other[[24, 26]] = other[[26, 24]]
    assert abs(plain_logp(tiny(name), ids)[-1] - plain_logp(tiny(name), other)[-1]) > 1e-2
