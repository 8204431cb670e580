"""Sampling from rounded weights: what is recorded is what was sampled from, and every version is rounded anew."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from surefoot.errors import ConfigError
from surefoot.rollout.engine import Request, Sampling
from surefoot.rollout.local import LocalEngine
from surefoot.rollout.quantise import Int8Linear, quantised

Build = Callable[[str], Any]  # a model
Requests = Callable[..., list[Request]]

pytestmark = pytest.mark.filterwarnings("ignore:.*decode step:UserWarning")
MIXED = [9, 1, 23, 9]
SAMPLING = Sampling(max_new_tokens=12, stop_ids=(0, 3))


@pytest.mark.parametrize("bias", [True, False])
def test_a_product_is_close_and_independent_of_the_rows_beside_it(bias: bool) -> None:
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(64, 48, bias=bias), torch.randn(20, 64)
    x[:, 7] *= 100  # a feature far larger than the others
    made = Int8Linear(linear)
    with torch.inference_mode():
        whole = made(x)
        assert (whole - linear(x)).norm() < 0.01 * linear(x).norm()
        assert torch.equal(torch.cat([made(x[:3]), made(x[3:])]), whole)
        assert torch.equal(made(x.view(4, 5, 64)), whole.view(4, 5, 48))
        assert torch.equal(made(torch.zeros(1, 64)), linear(torch.zeros(1, 64)))


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma3", "mistral", "lfm2"])
def test_log_probabilities_are_those_of_the_rounded_model(
    tiny: Build, requests: Requests, plain_logp: Callable[..., np.ndarray], name: str
) -> None:
    model = tiny(name)
    rounded, before = quantised(model), model.state_dict()
    far = 0.0
    for group in LocalEngine(model, max_batch_tokens=10_000, quantise=True).generate(
        requests(MIXED, sampling=SAMPLING)
    ):
        for sample in group:
            own = plain_logp(rounded, sample.ids)
            # Rounding makes a jump of what was a difference of 1e-6.
            assert np.abs(own - sample.logp_behaviour)[sample.mask].mean() < 0.01
            far = max(far, np.abs(plain_logp(model, sample.ids) - sample.logp_behaviour)[sample.mask].max())
    assert 1e-3 < far < 1.0
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not any(isinstance(module, Int8Linear) for module in model.modules())
    assert rounded.get_output_embeddings() is model.get_output_embeddings()


@pytest.mark.parametrize("told", [True, False])
def test_new_weights_are_rounded_anew(tiny: Build, requests: Requests, told: bool) -> None:
    model, wanted = copy.deepcopy(tiny("llama")), requests(MIXED, sampling=SAMPLING)
    engine = LocalEngine(model, max_batch_tokens=10_000, quantise=True)
    before = engine.generate(wanted)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.down_proj.weight.copy_(layer.mlp.down_proj.weight.flip(0))
    if told:
        engine.load(1)
    after = engine.generate(wanted)
    fresh = LocalEngine(model, max_batch_tokens=10_000, quantise=True).generate(wanted)
    for old, new, same in zip(before, after, fresh, strict=True):
        for i in range(3):
            assert not np.array_equal(old[i].ids, new[i].ids)
            assert np.array_equal(new[i].ids, same[i].ids)


def test_models_that_it_is_not_for_are_refused(tiny: Build) -> None:
    with pytest.raises(ConfigError, match=r"this one is torch.bfloat16 on cpu"):
        quantised(copy.deepcopy(tiny("llama")).bfloat16())
    with pytest.raises(ConfigError, match="finds no linear layer in GPT2LMHeadModel"):
        quantised(tiny("gpt2"))
