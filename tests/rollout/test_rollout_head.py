"""The head in float32 on the engine's side: where its logits come from, and that the trainer finds the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from surefoot.policy.config import ModelConfig
from surefoot.policy.head import Head, find_head
from surefoot.policy.layout import decoder
from surefoot.policy.loading import load_policy
from surefoot.rollout import local
from surefoot.rollout.engine import Request, Sampling
from surefoot.rollout.local import LocalEngine

Build = Callable[[str], Any]  # a model
Requests = Callable[..., list[Request]]

pytestmark = pytest.mark.filterwarnings("ignore:.*decode step:UserWarning")

MIXED = [9, 1, 23, 9]
SAMPLING = Sampling(max_new_tokens=12, stop_ids=(0, 3), temperature=1.3)


def half(model: Any) -> Any:
    return copy.deepcopy(model).bfloat16()


def head_of(model: Any) -> Head:
    head = find_head(model)
    assert head is not None
    return replace(head, float32=True)


def engine_of(model: Any, *, wide: bool = True) -> LocalEngine:
    return LocalEngine(model, max_batch_tokens=10_000, head=head_of(model) if wide else None)


@pytest.fixture
def logits(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The logits of every step of what is generated from here on."""
    seen: list[Tensor] = []
    draw = local.draw

    def watched(logits: Tensor, *args: Any, **kwargs: Any) -> Any:
        seen.append(logits.clone())
        return draw(logits, *args, **kwargs)

    monkeypatch.setattr(local, "draw", watched)
    return seen


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2", "gemma2", "bloom", "lfm2"])
def test_logits_are_the_product_in_float32_of_the_last_hidden_state(
    tiny: Build, requests: Requests, logits: list[Tensor], name: str
) -> None:
    """The first logits, after prompts of one length, written out from the hidden states of the same forward."""
    model = half(tiny(name))
    wanted = requests([9, 9, 9], samples=1, sampling=SAMPLING)
    head = head_of(model)
    engine_of(model).generate(wanted)
    ids = torch.from_numpy(np.stack([request.prompt_ids for request in wanted]))
    with torch.inference_mode():
        hidden = decoder(model)(input_ids=ids, use_cache=False).last_hidden_state[:, -1]
        expected = head.scale * (hidden.float() @ head.weight.float().T)
        if head.softcap is not None:
            expected = head.softcap * (expected / head.softcap).tanh()
        narrow = model(input_ids=ids, use_cache=False).logits[:, -1].float()
    assert hidden.dtype == torch.bfloat16 and logits[0].dtype == torch.float32
    torch.testing.assert_close(logits[0], expected, atol=1e-5, rtol=1e-5)
    assert (logits[0] - narrow).abs().max() > 1e-3
    assert all(step.dtype == torch.float32 for step in logits)
    assert not any(torch.equal(step, step.bfloat16().float()) for step in logits)


def test_the_models_own_head_does_not_run(tiny: Build, requests: Requests) -> None:
    model = half(tiny("llama"))
    engine = engine_of(model)
    model.lm_head.register_forward_hook(lambda *_: pytest.fail("the model's own head ran"))
    widths: list[int] = []
    product = Head.logits
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Head, "logits", lambda self, hidden: widths.append(hidden.ndim) or product(self, hidden))
        engine.generate(requests(MIXED, sampling=SAMPLING))
    assert set(widths) == {2}  # [rows, d]: the last position alone


def test_the_copy_of_the_weights_is_made_once_and_not_kept_for_the_next_weights(
    tiny: Build, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, made = half(tiny("llama")), []
    widened = Head.widened

    def watched(self: Head) -> Head:
        head = widened(self)
        if head is not self:
            made.append(head)
        return head

    monkeypatch.setattr(Head, "widened", watched)
    wanted, engine = requests(MIXED, sampling=SAMPLING), engine_of(model)
    before = engine.generate(wanted)
    assert len(made) == 1
    with torch.no_grad():
        model.lm_head.weight.copy_(model.lm_head.weight.flip(0))
    engine.load(1)
    after, fresh = engine.generate(wanted), engine_of(model).generate(wanted)
    for old, new, same in zip(before, after, fresh, strict=True):
        for i in range(3):
            assert not np.array_equal(old[i].ids, new[i].ids)
            assert np.array_equal(new[i].ids, same[i].ids)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_a_float32_model_is_sampled_as_without_it(tiny: Build, requests: Requests, name: str) -> None:
    model, wanted = tiny(name), requests(MIXED, sampling=SAMPLING)
    for plain, wide in zip(
        engine_of(model, wide=False).generate(wanted), engine_of(model).generate(wanted), strict=True
    ):
        for one, two in zip(plain, wide, strict=True):
            assert np.array_equal(one.ids, two.ids)
            assert np.array_equal(one.logp_behaviour, two.logp_behaviour)


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2", "gemma2", "bloom", "lfm2"])
def test_the_trainer_finds_the_same(tiny: Build, requests: Requests, trained: Callable[..., Any], name: str) -> None:
    model = half(tiny(name))
    groups = engine_of(model).generate(requests(MIXED, sampling=SAMPLING))
    packed, found = trained(model, groups, head_float32=True)
    # Hidden states are bfloat16 and differ between batch shapes; the sum of 64 of them times weights of 0.2 shows it.
    assert (found.logp - packed.logp_behaviour[packed.mask]).abs().mean() < 0.05


def mismatch(model: Any, wide: bool, trained: Callable[..., Any]) -> float:
    """Root mean square distance between the log-probabilities of engine and trainer, for the embedded model."""
    rng = np.random.default_rng(0)
    wanted = [
        Request(rng.integers(3, 99, 5 + i % 9), str(i), tuple(range(8 * i, 8 * i + 8)), Sampling(max_new_tokens=32))
        for i in range(16)
    ]
    packed, found = trained(model, engine_of(model, wide=wide).generate(wanted), head_float32=wide)
    assert len(found.logp) == 16 * 8 * 32
    return float((found.logp - packed.logp_behaviour[packed.mask]).square().mean().sqrt())


def test_engine_and_trainer_are_closer_with_it(trained: Callable[..., Any]) -> None:
    """Logits of trained models have a large part in common: it changes no probability, and costs bfloat16 its digits.

    A bias of 20 gives it to the embedded model. Without it the rounding of the hidden states is most of the mismatch.
    """
    model = load_policy(ModelConfig(dtype="bfloat16")).model
    plain = mismatch(model, False, trained), mismatch(model, True, trained)
    assert plain[1] < plain[0] < 0.01
    lifted = torch.nn.Linear(96, 99, dtype=torch.bfloat16)
    with torch.no_grad():
        lifted.weight.copy_(model.lm_head.weight)
        lifted.bias.fill_(20.0)
    model.lm_head = lifted
    narrow, wide = mismatch(model, False, trained), mismatch(model, True, trained)
    assert wide == pytest.approx(plain[1], rel=0.3)
    assert narrow > 3 * wide
