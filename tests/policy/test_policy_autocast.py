"""Autocast: products in bfloat16, everything else in float32, the same in every pass that has to agree."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from policy_models import build, odd_head, packed_of, policy_of, some_samples
from torch.utils._python_dispatch import TorchDispatchMode

from surefoot.errors import ModelError
from surefoot.policy.checkpointing import set_checkpointing
from surefoot.policy.config import CriticConfig, ModelConfig
from surefoot.policy.critic import make_critic
from surefoot.policy.head import Head
from surefoot.policy.layout import Layout
from surefoot.policy.loading import load_policy
from surefoot.policy.logprob import chunked_logprobs, token_logprobs
from surefoot.rollout.engine import Request, Sampling
from surefoot.rollout.local import LocalEngine

GROUPS = ((3, 9), (3, 1), (3, 2), (2, 12), (4, 0), (1, 6))
PRODUCTS = {"linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "_scaled_dot_product_flash_attention_for_cpu"}
COARSE = 0.15  # nats: what 8 bits of a logit of up to 10 leave


class Products(TorchDispatchMode):
    """Records the dtypes that matrix products read."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: list[torch.dtype] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__.removesuffix("_") in PRODUCTS:
            read = [arg for arg in args if isinstance(arg, torch.Tensor)][-2:]
            if read[-1].shape[-2] > 1:  # the angles of positions are products of single numbers, in float32 on purpose
                self.dtypes += [arg.dtype for arg in read]
        return func(*args, **(kwargs or {}))


def policy(name: str = "llama", **options: Any) -> Any:
    return policy_of(build(name), **({"autocast": "bfloat16"} | options))


def gradient(mine: Any, packed: Any, layout: Layout = "right") -> dict[str, torch.Tensor]:
    mine.model.zero_grad()
    logp = token_logprobs(mine, packed, layout=layout).logp
    (logp * torch.linspace(-1, 2, len(logp))).sum().backward()
    return {name: p.grad.clone() for name, p in mine.model.named_parameters() if p.grad is not None}


def cosine(have: dict[str, torch.Tensor], want: dict[str, torch.Tensor]) -> float:
    flat = [torch.cat([part[name].flatten().double() for name in sorted(want)]) for part in (have, want)]
    return float(torch.nn.functional.cosine_similarity(*flat, dim=0))


@pytest.mark.parametrize("layout", ["right", "packed"])
def test_products_run_in_bfloat16_forward_and_backward_and_weights_learn_in_float32(layout: Layout) -> None:
    mine, packed = policy(), packed_of(some_samples(GROUPS))
    token_logprobs(mine, packed, layout=layout)  # what is proved once about a model is proved in float32
    with Products() as seen:
        found = token_logprobs(mine, packed, layout=layout)
        assert seen.dtypes and set(seen.dtypes) == {torch.bfloat16}
        seen.dtypes.clear()
        found.logp.sum().backward()
        assert seen.dtypes and set(seen.dtypes) == {torch.bfloat16}
    assert found.logp.dtype == found.entropy.dtype == torch.float32
    assert all(p.dtype == torch.float32 and p.grad.dtype == torch.float32 for p in mine.model.parameters())


def test_a_float32_head_stays_one() -> None:
    packed = packed_of(some_samples(GROUPS))
    with Products() as seen:
        token_logprobs(policy(head_float32=True), packed).logp.sum().backward()
    assert set(seen.dtypes) == {torch.bfloat16, torch.float32}
    exact, float32, half = (
        token_logprobs(policy(**options), packed).logp.detach()
        for options in ({"autocast": "off"}, {"head_float32": True}, {})
    )
    assert 0 < (float32 - exact).abs().mean() < (half - exact).abs().mean()


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma2-window", "gpt2"])
def test_values_and_gradients_lie_near_those_of_float32(name: str) -> None:
    packed = packed_of(some_samples(GROUPS))
    with torch.no_grad():
        have, want = (
            token_logprobs(
                policy(name, autocast=kind), packed, top_ids=torch.arange(3).expand(int(packed.mask.sum()), 3)
            )
            for kind in ("bfloat16", "off")
        )
    for mine, theirs in ((have.logp, want.logp), (have.entropy, want.entropy), (have.top_logp, want.top_logp)):
        assert 1e-5 < (mine - theirs).abs().max() < COARSE
    assert 0.99 < cosine(gradient(policy(name), packed), gradient(policy(name, autocast="off"), packed)) < 1


@pytest.mark.parametrize("layout", ["left", "packed", "shared", "auto"])
def test_layouts_agree_up_to_rounding(layout: Layout) -> None:
    samples = some_samples(GROUPS)
    first = samples[0].ids[:3]
    for sample in samples[1:3]:
        sample.ids[:3] = first
    packed = packed_of(samples)
    with torch.no_grad():
        have, want = (token_logprobs(policy(), packed, layout=kind).logp for kind in (layout, "right"))
    assert (have - want).abs().max() < COARSE
    assert cosine(gradient(policy(), packed, layout), gradient(policy(), packed)) > 0.99


def test_layers_computed_again_compute_the_same() -> None:
    packed = packed_of(some_samples(GROUPS))
    want = gradient(policy(), packed)
    mine = policy()
    set_checkpointing(mine.model, "here")
    have = gradient(mine, packed)
    for name, value in want.items():
        torch.testing.assert_close(have[name], value, atol=0, rtol=0)


@pytest.mark.parametrize("keep", [0, 10**9])
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_the_head_rounds_what_it_multiplies_and_nothing_else(softcap: float | None, keep: int) -> None:
    torch.manual_seed(0)
    linear = torch.nn.Linear(16, 40)
    hidden, target, temperature = torch.randn(9, 16), torch.arange(9), torch.linspace(0.5, 1.5, 9)
    made = []
    for chunked in (True, False):
        linear.zero_grad()
        state = hidden.clone().requires_grad_()
        if chunked:
            logp, *_ = chunked_logprobs(
                state, Head(linear, 1.0, softcap), target, temperature, 4, keep=keep, product=torch.bfloat16
            )
        else:
            logits = torch.nn.functional.linear(
                state.bfloat16(), linear.weight.bfloat16(), linear.bias.bfloat16()
            ).float()
            if softcap is not None:
                logits = (logits / softcap).tanh() * softcap
            logp = (logits / temperature[:, None]).log_softmax(-1).gather(1, target[:, None]).squeeze(1)
        (logp * torch.linspace(-1, 2, 9)).sum().backward()
        made.append((logp.detach(), state.grad, linear.weight.grad.clone(), linear.bias.grad.clone()))
    (logp, *slopes), (plain, *expected) = made
    torch.testing.assert_close(logp, plain, atol=1e-6, rtol=1e-6)
    for have, want in zip(slopes, expected, strict=True):  # autograd sums in bfloat16, the chunks in float32
        assert (have - want).abs().max() < 2e-2 * want.abs().max()


def test_a_copy_gives_the_same_numbers_and_a_critic_runs_under_it() -> None:
    mine, packed = policy(), packed_of(some_samples(GROUPS))
    with torch.no_grad():
        torch.testing.assert_close(
            token_logprobs(mine.copy(), packed).logp, token_logprobs(mine, packed).logp, atol=0, rtol=0
        )
    critic = make_critic(mine, CriticConfig(kind="model"))
    with Products() as seen:
        values = critic.predict(packed)
    assert torch.bfloat16 in seen.dtypes and values.dtype == torch.float32


def test_a_model_that_makes_its_own_logits() -> None:
    packed = packed_of(some_samples(GROUPS))
    with pytest.warns(UserWarning, match="in a way of its own"):
        have, want = (token_logprobs(policy_of(odd_head(), autocast=kind), packed).logp for kind in ("bfloat16", "off"))
    assert have.dtype == torch.float32
    assert 1e-5 < (have - want).abs().max() < 1.0
    have.sum().backward()


@pytest.mark.parametrize("own_steps", [True, False])
def test_the_engine_samples_under_the_same_autocast(own_steps: bool) -> None:
    mine = load_policy(ModelConfig(autocast="bfloat16"))
    engine = LocalEngine(mine.model, max_batch_tokens=4096, own_steps=own_steps, autocast="bfloat16")
    rng = np.random.default_rng(0)
    requests = [
        Request(rng.integers(3, 90, length), str(length), tuple(range(4)), Sampling(max_new_tokens=16, stop_ids=(1,)))
        for length in (5, 12)
    ]
    with Products() as seen:
        samples = [sample for group in engine.generate(requests) for sample in group]
    assert torch.bfloat16 in seen.dtypes
    packed = packed_of(samples)
    with torch.no_grad():
        difference = token_logprobs(mine, packed).logp - packed.logp_behaviour[packed.mask]
    assert 1e-5 < difference.abs().mean() < 2e-2
    assert float((difference.exp() - 1 - difference).mean()) < 1e-3


def test_half_precision_weights_are_refused() -> None:
    with pytest.raises(ModelError, match=r"model\.dtype = 'bfloat16'"):
        load_policy(ModelConfig(autocast="bfloat16", dtype="bfloat16"))


def test_a_cpu_that_would_emulate_it_is_told_of_and_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    with pytest.warns(UserWarning, match="no instructions for products in bfloat16"):
        load_policy(ModelConfig(autocast="bfloat16"))
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_policy(ModelConfig(autocast="bfloat16"))
