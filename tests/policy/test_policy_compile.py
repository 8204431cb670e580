"""Compiled layers give the values and gradients of plain ones, from a number of graphs that does not grow.

The quick tests trace and differentiate as compiling does and run the operations one by one (the backend ``aot_eager``);
the slow ones make programs of them.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from policy_models import build, odd_head, packed_of, policy_of, some_samples
from torch._dynamo.utils import counters

from surefoot.errors import ModelError
from surefoot.policy import compile as compile_module
from surefoot.policy.checkpointing import set_checkpointing
from surefoot.policy.compile import refuse_without_compiler, set_compile
from surefoot.policy.config import ModelConfig
from surefoot.policy.loading import load_policy
from surefoot.policy.logprob import token_logprobs

pytestmark = pytest.mark.timeout(600)  # tracing is slow on a busy machine
CPU = torch.device("cpu")
# Several rows and one. No size is that of a head or a layer: the compiler takes sizes that are equal for one and the same.
SHAPES = (((3, 5), (2, 9), (2, 4)), ((6, 5),))


@pytest.fixture(autouse=True)
def fresh_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compile_module, "BACKEND", "aot_eager")
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def marked(model: Any) -> Any:
    set_compile(model, "here", CPU)
    return model


def gradient(
    model: Any, shape: Any, layout: Any, *, twice: bool = False
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Log-probabilities, and the gradient of a sum of them; ``twice``: as two terms of one graph."""
    model.zero_grad()
    logp = token_logprobs(policy_of(model), packed_of(some_samples(shape)), layout=layout).logp
    weights = torch.linspace(-1, 2, len(logp))
    if twice:
        (logp * weights / 2).sum().backward(retain_graph=True)
        (logp * weights / 2).sum().backward()
    else:
        (logp * weights).sum().backward()
    return logp.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def same(have: Any, want: Any) -> None:
    torch.testing.assert_close(have[0], want[0], atol=1e-5, rtol=0)
    for name, value in want[1].items():
        worst = float((have[1][name] - value).abs().max() / value.abs().max().clamp(min=1e-9))
        assert worst < 1e-5, (name, worst)


@pytest.mark.parametrize("layout", ["right", "packed"])
def test_values_and_gradients_for_any_shape_from_few_graphs(layout: str) -> None:
    plain, model = build("llama"), marked(build("llama"))
    for shape in SHAPES:
        same(gradient(model, shape, layout), gradient(plain, shape, layout))
    seen = counters["stats"]["unique_graphs"]
    assert seen > 0
    for offset in range(3):  # lengths that were not there before, of the kinds that were
        gradient(model, ((7 + offset, 4), (2, 11 + offset)), layout)
    assert counters["stats"]["unique_graphs"] == seen
    assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.parametrize("name", ["qwen2", "gemma2-window"])
def test_other_architectures(name: str) -> None:
    same(gradient(marked(build(name)), SHAPES[0], "right"), gradient(build(name), SHAPES[0], "right"))


@pytest.mark.parametrize("layout", ["right"])
def test_layers_that_are_computed_again_and_two_backward_passes(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    want = gradient(build("llama"), SHAPES[0], layout)
    model = marked(build("llama"))
    same(gradient(model, SHAPES[0], layout, twice=True), want)
    set_checkpointing(model, "here")
    again = []
    real = compile_module._compiled_or_plain
    monkeypatch.setattr(compile_module, "_compiled_or_plain", lambda *a, **o: (again.append(a[0]), real(*a, **o))[1])
    same(gradient(model, SHAPES[0], layout), want)
    assert len(again) == 2 * len(model.model.layers)  # forward, and again in the backward pass


def test_a_copy_is_compiled_and_reads_its_own_weights() -> None:
    policy = policy_of(marked(build("llama")))
    packed = packed_of(some_samples(SHAPES[0]))
    with torch.no_grad():
        before = token_logprobs(policy, packed).logp
        copy = policy.copy()
        for parameter in policy.model.parameters():
            parameter.mul_(1.5)
        torch.testing.assert_close(token_logprobs(copy, packed).logp, before, atol=1e-6, rtol=0)
        assert (token_logprobs(policy, packed).logp - before).abs().max() > 1e-2
    assert all(layer.surefoot_compile for layer in copy.model.model.layers)


def test_too_many_graphs_are_told_and_the_layers_run_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_module, "GRAPHS", 1)
    want = [gradient(build("llama"), shape, "right") for shape in SHAPES]
    model = marked(build("llama"))
    with pytest.warns(UserWarning, match="run uncompiled from here on"):
        have = [gradient(model, shape, "right") for shape in SHAPES]
    for mine, theirs in zip(have, want, strict=True):
        same(mine, theirs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # told once
        same(gradient(model, SHAPES[0], "right"), want[0])


def test_no_compiler_is_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(ModelError, match=r"needs a C\+\+ compiler, and 'no-such-compiler -O2' is not found"):
        load_policy(ModelConfig(compile=True))
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ModelError, match="CXX"):
        refuse_without_compiler(CPU)


def test_a_model_without_layers_is_refused() -> None:
    with pytest.raises(ModelError, match="no layers that can be compiled"):
        set_compile(torch.nn.Linear(2, 2), "here", CPU)


def test_a_model_that_makes_its_own_logits_runs_plain() -> None:
    plain = gradient(odd_head(), SHAPES[0], "right")
    same(gradient(marked(odd_head()), SHAPES[0], "right"), plain)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma2-window"])
def test_compiled_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_module, "BACKEND", "inductor")
    plain, model = build(name), marked(build(name))
    for shape in SHAPES:
        same(gradient(model, shape, "right"), gradient(plain, shape, "right"))
