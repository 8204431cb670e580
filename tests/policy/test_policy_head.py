"""The head in float32: what it changes for half-precision weights, and that it changes nothing for others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from policy_models import build, odd_head, packed_of, plain_logprobs, policy_of, some_samples
from torch import Tensor

from surefoot.errors import ModelError
from surefoot.policy.config import ModelConfig
from surefoot.policy.head import Head
from surefoot.policy.layout import hidden_states
from surefoot.policy.loading import load_policy, save_policy
from surefoot.policy.logprob import chunked_logprobs, token_logprobs

HALF = [torch.bfloat16, torch.float16]


def linear(dtype: torch.dtype, bias: bool = True) -> torch.nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return torch.nn.Linear(24, 50, bias=bias).to(dtype)


def inputs(dtype: torch.dtype, rows: int = 40) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, targets and temperatures."""
    generator = torch.Generator().manual_seed(2)
    hidden = (3 * torch.randn(rows, 24, generator=generator)).to(dtype)
    return hidden, torch.randint(0, 50, (rows,), generator=generator), 0.5 + torch.rand(rows, generator=generator)


def in_float32(head: Head, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The logits written out: both sides of the product in float32."""
    logits = head.scale * (hidden.float() @ weight.float().T + (0 if bias is None else bias.float()))
    return logits if head.softcap is None else head.softcap * (logits / head.softcap).tanh()


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("scale", "softcap"), [(1.0, None), (0.3, 2.0)])
@pytest.mark.parametrize("dtype", HALF)
def test_value_and_gradient_are_those_of_the_product_in_float32(
    dtype: torch.dtype, scale: float, softcap: float | None, bias: bool, chunk: int
) -> None:
    module = linear(dtype, bias)
    head = Head(module, scale, softcap, float32=True)
    hidden, target, temperature = inputs(dtype)
    upstream = torch.linspace(-1, 2, len(hidden))

    def gradients(logp: Tensor, *leaves: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad((logp * upstream).sum(), leaves))

    hidden.requires_grad_()
    leaves = [hidden, *module.parameters()]
    found, _, _ = chunked_logprobs(hidden, head, target, temperature, chunk)
    logits = in_float32(head, hidden, module.weight, module.bias) / temperature[:, None]
    expected = logits.log_softmax(-1).gather(1, target[:, None]).squeeze(1)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert found.dtype == torch.float32
    for one, two in zip(gradients(found, *leaves), gradients(expected, *leaves), strict=True):
        assert one.dtype == two.dtype == dtype
        # Both are rounded once, to the dtype of the leaf: they differ by one last place at most.
        torch.testing.assert_close(one, two, rtol=torch.finfo(dtype).eps, atol=1e-4)


@pytest.mark.parametrize("dtype", HALF)
def test_the_gradient_of_the_weights_is_summed_up_in_float32(dtype: torch.dtype) -> None:
    """5,000 equal tokens: a sum in half precision would stop growing at 256 or 2,048 times the summand."""
    module = linear(dtype, bias=False)
    hidden, target, temperature = (part[:1] for part in inputs(dtype))
    many = [part.repeat(5000, *[1] * (part.ndim - 1)) for part in (hidden, target, temperature)]
    found, _, _ = chunked_logprobs(many[0], Head(module, float32=True), many[1], many[2], 1)
    (gradient,) = torch.autograd.grad(found.sum() / 5000, module.weight)
    one, _, _ = chunked_logprobs(hidden, Head(module, float32=True), target, temperature, 1)
    (expected,) = torch.autograd.grad(one.sum(), module.weight)
    torch.testing.assert_close(gradient, expected, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("dtype", HALF)
def test_logits_differ_from_the_half_precision_product(dtype: torch.dtype) -> None:
    module, (hidden, _, _) = linear(dtype), inputs(dtype)
    wide, narrow = Head(module, float32=True).logits(hidden), Head(module).logits(hidden)
    assert wide.dtype == narrow.dtype == torch.float32
    assert torch.equal(wide, torch.nn.functional.linear(hidden.float(), module.weight.float(), module.bias.float()))
    assert torch.equal(narrow, narrow.to(dtype).float()) and not torch.equal(wide, wide.to(dtype).float())
    assert 1e-4 < (wide - narrow).abs().max() < 0.1


def test_a_bfloat16_model_is_nearer_to_the_truth_with_its_head_in_float32() -> None:
    """The truth: the same bfloat16 hidden states and weights, multiplied in float64."""
    model, packed = build("llama", torch.bfloat16), packed_of(some_samples())
    with torch.no_grad():
        hidden = hidden_states(model, packed)
        table = (hidden.double() @ model.lm_head.weight.double().T / packed.temperature[packed.mask, None]).log_softmax(
            -1
        )
        truth = table.gather(1, packed.ids[packed.mask, None]).squeeze(1)
        narrow, wide = (
            token_logprobs(policy_of(model, 7, head_float32=flag), packed).logp.double() for flag in (False, True)
        )
    assert (wide - truth).abs().max() < 1e-5
    assert (narrow - truth).abs().max() > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_changes_nothing_for_wider_weights(dtype: torch.dtype) -> None:
    model, packed = build("gemma2-window", dtype), packed_of(some_samples())
    results = []
    for flag in (False, True):
        policy = policy_of(model, 7, head_float32=flag)
        head = policy.head
        assert head is not None and head.float32 is flag
        assert not head.widens and head.widened() is head
        model.zero_grad()
        found = token_logprobs(policy, packed)
        found.logp.sum().backward()
        results.append((found.logp.detach(), found.entropy, *[p.grad.clone() for p in model.parameters()]))
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("name", ["llama", "gpt2", "granite", "cohere", "gemma2-window"])
def test_a_bfloat16_model_trains_through_it(name: str) -> None:
    """Tied and untied heads, with scale and softcap: the gradient of every weight arrives in the weight's own dtype."""
    model, packed = build(name, torch.bfloat16), packed_of(some_samples())
    found = token_logprobs(policy_of(model, 5, head_float32=True), packed)
    found.logp.sum().backward()
    weight = model.get_output_embeddings().weight
    assert weight.grad.dtype == torch.bfloat16 and weight.grad.abs().sum() > 0
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    torch.testing.assert_close(found.logp, plain_logprobs(model, some_samples()), atol=0.2, rtol=0.1)


def test_a_frozen_head_gets_no_gradient_in_float32_either() -> None:
    model = build("llama", torch.bfloat16)
    model.lm_head.weight.requires_grad_(False)
    token_logprobs(policy_of(model, head_float32=True), packed_of(some_samples())).logp.sum().backward()
    assert model.lm_head.weight.grad is None
    assert model.model.layers[0].mlp.up_proj.weight.grad.abs().sum() > 0


def test_a_head_that_is_not_known_cannot_be_widened() -> None:
    with (
        pytest.warns(UserWarning, match="OddHead makes its logits in a way of its own"),
        pytest.raises(ModelError, match=r"head_float32 = true, but OddHead .*set model\.dtype = 'float32', or leave"),
    ):
        _ = policy_of(odd_head().bfloat16(), head_float32=True).head
    with pytest.warns(UserWarning, match="OddHead makes its logits in a way of its own"):
        assert policy_of(odd_head(), head_float32=True).head is None  # in float32 it is all there is to have


def test_the_configuration_reaches_the_head_and_the_reference_has_the_same(tmp_path: Path) -> None:
    plain = load_policy(ModelConfig(dtype="bfloat16"))
    wide = load_policy(ModelConfig(dtype="bfloat16", head_float32=True))
    assert plain.head is not None and not plain.head.widens
    assert wide.head is not None and wide.head.widens
    copied = wide.copy().head
    assert copied is not None and copied.widens and copied.weight is not wide.head.weight
    save_policy(wide, tmp_path / "model")
    again = load_policy(wide.config.model_copy(update={"path": str(tmp_path / "model")})).head
    assert again is not None and again.widens
    assert replace(wide.head, float32=False).widened().weight is wide.head.weight
