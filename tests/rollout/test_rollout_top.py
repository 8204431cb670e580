"""The likeliest tokens of every place: which they are, what is recorded of them, and that the trainer finds the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from surefoot.errors import ConfigError
from surefoot.rollout import sampling as sampling_module
from surefoot.rollout.engine import Request, Sampling
from surefoot.rollout.local import LocalEngine
from surefoot.rollout.sampling import draw

Build = Callable[[str], Any]  # a model
Requests = Callable[..., list[Request]]

pytestmark = pytest.mark.filterwarnings("ignore:.*decode step:UserWarning")

MIXED = [9, 1, 23, 9]
PLAIN = Sampling(max_new_tokens=12, stop_ids=(0, 3))
SAMPLINGS = [
    PLAIN,
    replace(PLAIN, temperature=1.7),
    replace(PLAIN, temperature=2.5, top_p=0.8),
    replace(PLAIN, temperature=2.5, top_k=3),
    replace(PLAIN, temperature=2.5, top_k=20, top_p=0.7),
]


def generate(model: Any, wanted: list[Request]) -> list[Any]:
    return LocalEngine(model, max_batch_tokens=10_000).generate(wanted)


def whole_distribution(model: Any, ids: np.ndarray, temperature: float) -> np.ndarray:
    """[T - 1, V] float64, the tempered log-probabilities after each token, in one plain forward."""
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(ids)[None], use_cache=False).logits[0, :-1]
    return torch.log_softmax(logits.double() / temperature, dim=-1).numpy()


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda s: f"t{s.temperature}-p{s.top_p}-k{s.top_k}")
@pytest.mark.parametrize("name", ["llama", "gemma2", "lfm2"])
def test_they_are_the_likeliest_of_the_whole_tempered_distribution(
    tiny: Build, requests: Requests, name: str, sampling: Sampling
) -> None:
    model, k = tiny(name), 5
    for group in generate(model, requests(MIXED, sampling=replace(sampling, top_logprobs=k))):
        for sample in group:
            assert (sample.top_ids.shape, sample.top_ids.dtype) == ((len(sample), k), np.int32)
            assert (sample.top_logp.shape, sample.top_logp.dtype) == ((len(sample), k), np.float32)
            prompt = sample.prompt_length
            assert (sample.top_ids[:prompt] == 0).all() and (sample.top_logp[:prompt] == -np.inf).all()
            table = whole_distribution(model, sample.ids, sampling.temperature)[prompt - 1 :]
            ranked = -np.sort(-table, axis=1)[:, :k]
            assert np.abs(sample.top_logp[prompt:] - ranked).max() < 1e-4
            # Ids by their log-probabilities: two tokens may lie within the rounding of each other.
            named = np.take_along_axis(table, sample.top_ids[prompt:].astype(np.int64), axis=1)
            assert np.abs(named - ranked).max() < 1e-4
            assert all(len(set(row)) == k for row in sample.top_ids[prompt:].tolist())


def test_recording_them_changes_no_draw(tiny: Build, requests: Requests) -> None:
    for sampling in SAMPLINGS:
        wanted = requests(MIXED, sampling=sampling)
        recorded = [replace(request, sampling=replace(sampling, top_logprobs=4)) for request in wanted]
        for plain, other in zip(generate(tiny("llama"), wanted), generate(tiny("llama"), recorded), strict=True):
            for one, two in zip(plain, other, strict=True):
                assert one.top_ids is one.top_logp is None
                assert np.array_equal(one.ids, two.ids)
                assert np.array_equal(one.logp_behaviour, two.logp_behaviour)
                assert np.array_equal(one.kept_logmass, two.kept_logmass)


def test_a_sample_generated_alone_has_the_same(tiny: Build, requests: Requests) -> None:
    wanted = requests(MIXED, samples=4, sampling=replace(SAMPLINGS[2], top_logprobs=6))
    for request, group in zip(wanted, generate(tiny("llama"), wanted), strict=True):
        for place, sample in enumerate(group):
            [[alone]] = generate(tiny("llama"), [replace(request, seeds=(request.seeds[place],))])
            mask = sample.mask
            assert np.array_equal(alone.ids, sample.ids)
            assert np.abs(alone.top_logp[mask] - sample.top_logp[mask]).max() < 1e-4


@pytest.mark.parametrize("layout", ["right", "left", "packed"])
@pytest.mark.parametrize("sampling", [SAMPLINGS[1], SAMPLINGS[4]], ids=["whole", "cut"])
def test_the_trainer_finds_the_same_on_the_same_weights(
    tiny: Build, requests: Requests, trained: Callable[..., Any], sampling: Sampling, layout: str
) -> None:
    """Top-K divergences of a policy to itself are 0: of the named tokens, and of the sampled one beside them."""
    model = tiny("qwen2")
    groups = generate(model, requests(MIXED, sampling=replace(sampling, top_logprobs=5)))
    packed, found = trained(model, groups, layout=layout)
    mask = packed.mask
    torch.testing.assert_close(found.top_logp, packed.top_logp_behaviour[mask], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.logp, packed.logp_behaviour[mask], atol=1e-5, rtol=1e-5)
    sampled = packed.top_ids[mask] == packed.ids[mask, None]
    inside = sampled.any(1)
    assert inside.any() and not inside.all()  # some sampled tokens are none of the likeliest
    whole = (found.logp + packed.kept_logmass[mask])[:, None].expand(-1, 5)
    torch.testing.assert_close(found.top_logp[sampled], whole[sampled], atol=1e-5, rtol=1e-5)
    assert (whole[~inside] <= found.top_logp[~inside].amin(1, keepdim=True) + 1e-5).all()


def test_more_than_the_vocabulary_is_all_of_it(tiny: Build, requests: Requests) -> None:
    [[sample]] = generate(tiny("llama"), requests([5], samples=1, sampling=replace(PLAIN, top_logprobs=1000)))
    assert sample.top_ids.shape == (len(sample), 71)
    completion = sample.mask
    assert (np.sort(sample.top_ids[completion], axis=1) == np.arange(71)).all()
    assert np.exp(sample.top_logp[completion]).sum(1) == pytest.approx(1, abs=1e-5)
    with pytest.raises(ConfigError, match="top_logprobs is -1: expected 0 or more"):
        generate(tiny("llama"), requests([5], sampling=replace(PLAIN, top_logprobs=-1)))


@pytest.mark.parametrize("k", [1, 4])
def test_greedy_has_all_its_mass_on_the_token_that_it_takes(tiny: Build, requests: Requests, k: int) -> None:
    sampling = replace(PLAIN, temperature=0.0, top_logprobs=k)
    for [sample] in generate(tiny("llama"), requests([4, 11], samples=1, sampling=sampling)):
        own = sample.mask
        assert np.array_equal(sample.top_ids[own, 0], sample.ids[own])
        assert (sample.top_logp[own, 0] == 0).all() and (sample.top_logp[own, 1:] == -np.inf).all()
        table = whole_distribution(tiny("llama"), sample.ids, 1.0)[sample.prompt_length - 1 :]
        assert np.array_equal(sample.top_ids[own], np.argsort(-table, axis=1)[:, :k])


def test_ties_at_temperature_zero_record_the_token_that_is_taken() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 3.0, 0.0]]).expand(6, -1)
    for k in (1, 2, 5):
        drawn = draw(logits, torch.zeros(6, dtype=torch.float64), temperature=0.0, top_logprobs=k)
        assert drawn.top_ids is not None and drawn.top_logp is not None
        assert torch.equal(drawn.top_ids[:, 0], drawn.ids)
        assert all(len(set(row)) == k for row in drawn.top_ids.tolist())


@pytest.mark.parametrize("setting", [{}, {"top_p": 0.7}, {"temperature": 0.0}])
def test_chunks_of_rows_are_put_together(setting: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    logits, uniform = torch.randn(23, 50), torch.rand(23, dtype=torch.float64)
    together = draw(logits, uniform, top_logprobs=3, **setting)
    monkeypatch.setattr(sampling_module, "CPU_CHUNK", 5 * 50)
    for one, two in zip(together, draw(logits, uniform, top_logprobs=3, **setting), strict=True):
        assert torch.equal(one, two)
    plain = draw(logits, uniform, **setting)
    assert plain.top_ids is plain.top_logp is None
    assert torch.equal(plain.ids, together.ids) and torch.equal(plain.logp, together.logp)


def test_forbidden_tokens_have_no_mass() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 1.0, -torch.inf]])
    drawn = draw(logits, torch.tensor([0.5], dtype=torch.float64), top_logprobs=4)
    assert drawn.top_ids is not None and drawn.top_logp is not None
    assert drawn.top_ids[0, :2].tolist() == [2, 0] and set(drawn.top_ids[0, 2:].tolist()) == {1, 3}
    assert drawn.top_logp[0, :2].tolist() == pytest.approx(torch.tensor([1.0, 0.0]).log_softmax(0).tolist())
    assert (drawn.top_logp[0, 2:] == -torch.inf).all()
