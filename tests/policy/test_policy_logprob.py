"""Chunked log-probabilities are those of the plain path, in value and gradient, without its memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from policy_models import (
    BUILDERS,
    COMMON,
    VOCABULARY,
    Largest,
    build,
    odd_head,
    packed_of,
    plain_logprobs,
    policy_of,
    some_samples,
)

from surefoot.policy.head import Head
from surefoot.policy.logprob import chunked_logprobs, token_logprobs


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("name", BUILDERS)
def test_equal_to_the_models_own_logits(name: str, chunk: int) -> None:
    model, samples = build(name), some_samples(temperature=0.6, kept_logmass=-0.3)
    with torch.no_grad():
        found = token_logprobs(policy_of(model, chunk), packed_of(samples)).logp
        torch.testing.assert_close(found, plain_logprobs(model, samples), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("chunk", [1, 4, 1000])
@pytest.mark.parametrize("name", ["llama", "gemma2-window", "gpt2", "granite", "cohere"])
def test_gradient_equals_that_of_the_plain_path(name: str, chunk: int) -> None:
    model, samples = build(name, torch.float64), some_samples(temperature=0.6)
    weight = torch.linspace(-1, 2, sum(sample.length for sample in samples), dtype=torch.float64)

    def gradient(logp: torch.Tensor) -> dict[str, torch.Tensor]:
        model.zero_grad()
        (logp * weight).sum().backward()
        return {key: value.grad.clone() for key, value in model.named_parameters()}

    plain = gradient(plain_logprobs(model, samples))
    chunked = gradient(token_logprobs(policy_of(model, chunk), packed_of(samples)).logp)
    for key, value in plain.items():
        # Samples keep temperatures in float32, which is the precision of this comparison.
        torch.testing.assert_close(chunked[key], value, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("scale", "softcap"), [(1.0, None), (0.3, 2.0)])
def test_gradients_of_the_head_by_finite_differences(bias: bool, scale: float, softcap: float | None) -> None:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)

    linear = torch.nn.Linear(5, 11, bias=bias, dtype=torch.float64)
    target = torch.randint(0, 11, (7,), generator=generator)
    temperature = torch.tensor([0.5, 1.0, 2.0, 1.0, 0.7, 1.3, 1.0], dtype=torch.float64)

    def logp(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        holder = torch.nn.Module()
        holder.weight, holder.bias = weight, bias
        return chunked_logprobs(hidden, Head(holder, scale, softcap), target, temperature, 3)[0]

    assert torch.autograd.gradcheck(logp, (draw(7, 5), draw(11, 5), *([draw(11)] if linear.bias is not None else [])))


def test_chunks_change_neither_value_nor_gradient() -> None:
    model = build("llama")
    packed = packed_of(some_samples())
    results = []
    for chunk in (1, 2, 5, 1000):
        model.zero_grad()
        found = token_logprobs(policy_of(model, chunk), packed)
        found.logp.sum().backward()
        results.append((found.logp.detach(), found.entropy, model.lm_head.weight.grad.clone()))
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            torch.testing.assert_close(two, one, atol=1e-5, rtol=1e-5)


def test_entropy_is_that_of_the_full_tempered_distribution_and_has_no_gradient() -> None:
    model = build("llama")
    samples = some_samples(((3, 5), (1, 4)), temperature=1.7, kept_logmass=-0.5)
    found = token_logprobs(policy_of(model, 4), packed_of(samples))
    table = torch.cat(
        [
            (
                model(input_ids=torch.from_numpy(sample.ids)[None]).logits[0, sample.prompt_length - 1 : -1] / 1.7
            ).softmax(-1)
            for sample in samples
        ]
    )
    assert found.entropy is not None and not found.entropy.requires_grad
    torch.testing.assert_close(found.entropy, -(table * table.log()).sum(-1).detach(), atol=1e-5, rtol=1e-5)
    assert token_logprobs(policy_of(model, 4), packed_of(samples), entropy=False).entropy is None


def test_impossible_tokens_leave_the_entropy_finite() -> None:
    linear = torch.nn.Linear(4, 6)
    with torch.no_grad():
        linear.bias[3:] = -float("inf")
    hidden = torch.randn(5, 4, requires_grad=True)
    logp, entropy, _ = chunked_logprobs(hidden, Head(linear), torch.zeros(5, dtype=torch.long), torch.ones(5), 2)
    logp.sum().backward()
    assert entropy is not None and entropy.isfinite().all() and (entropy <= np.log(3) + 1e-6).all()
    assert hidden.grad is not None and hidden.grad.isfinite().all()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_ratio_is_one_under_top_p_on_the_weights_that_sampled(temperature: float) -> None:
    """Sampling by hand: temperature, nucleus of 0.8, renormalise; the trainer must find the same log-probability."""
    model, rng = build("qwen2"), np.random.default_rng(3)
    (blank,) = some_samples(((3, 8),), temperature=temperature)
    ids, behaviour, kept = blank.ids.copy(), blank.logp_behaviour.copy(), blank.kept_logmass.copy()
    with torch.no_grad():
        for place in range(3, 11):
            logits = model(input_ids=torch.from_numpy(ids[:place])[None]).logits[0, -1].double().numpy() / temperature
            p = np.exp(logits - logits.max())
            p /= p.sum()
            ranked = np.argsort(-p)
            nucleus = ranked[: int(np.searchsorted(np.cumsum(p[ranked]), 0.8)) + 1]
            mass = p[nucleus].sum()
            ids[place] = rng.choice(nucleus, p=p[nucleus] / mass)
            behaviour[place], kept[place] = np.log(p[ids[place]] / mass), np.log(mass)
        packed = packed_of([replace(blank, ids=ids, logp_behaviour=behaviour, kept_logmass=kept)])
        logp = token_logprobs(policy_of(model), packed).logp
    assert kept[3:].min() < -0.05
    torch.testing.assert_close(logp, packed.logp_behaviour[packed.mask], atol=1e-5, rtol=1e-5)


def test_pad_and_eos_mean_nothing_to_the_mask() -> None:
    """A completion of nothing but pad-and-eos tokens has as many loss tokens as it has tokens, each as it should be."""
    model = build("llama")
    assert model.config.pad_token_id == model.config.eos_token_id == 1
    samples = some_samples(((3, 5), (2, 9)))
    samples[0] = replace(samples[0], ids=np.ones(8, dtype=np.int64))
    packed = packed_of(samples)
    assert int(packed.mask.sum()) == 14
    with torch.no_grad():
        for layout in ("right", "left", "packed"):
            found = token_logprobs(policy_of(model), packed, layout=layout).logp
            torch.testing.assert_close(found, plain_logprobs(model, samples), atol=1e-5, rtol=1e-5)


def test_the_order_of_the_samples_changes_no_value() -> None:
    model, samples = build("llama"), some_samples()
    with torch.no_grad():
        forth = token_logprobs(policy_of(model), packed_of(samples)).logp
        back = token_logprobs(policy_of(model), packed_of(samples[::-1])).logp
    sizes = [sample.length for sample in samples]
    torch.testing.assert_close(torch.cat(forth.split(sizes)[::-1]), back, atol=1e-6, rtol=1e-6)


def test_tokens_times_vocabulary_is_never_held() -> None:
    vocabulary, chunk = 5000, 64
    config = transformers.LlamaConfig(**COMMON | {"vocab_size": vocabulary})
    model = transformers.LlamaForCausalLM(config).eval()
    packed = packed_of(some_samples(((4, 30),) * 20, vocabulary=vocabulary))
    policy = policy_of(model, chunk, logprob_keep=0)
    assert policy.head is not None
    with Largest() as largest:
        token_logprobs(policy, packed).logp.sum().backward()
    assert largest.numbers == chunk * vocabulary > model.lm_head.weight.numel()
    with Largest() as largest, torch.no_grad():  # the same watch does see the plain path's logits
        plain_logprobs(model, some_samples(((4, 100),), vocabulary=vocabulary))
    assert largest.numbers == 104 * vocabulary


def test_half_precision_weights_have_float32_statistics() -> None:
    model = build("llama", torch.bfloat16)
    samples = some_samples()
    found = token_logprobs(policy_of(model), packed_of(samples))
    found.logp.sum().backward()
    assert found.logp.dtype == torch.float32 and model.lm_head.weight.grad.dtype == torch.bfloat16
    torch.testing.assert_close(found.logp, plain_logprobs(model, samples), atol=0.15, rtol=0.1)


def test_a_frozen_head_gets_no_gradient() -> None:
    model = build("llama")
    model.lm_head.weight.requires_grad_(False)
    token_logprobs(policy_of(model), packed_of(some_samples())).logp.sum().backward()
    assert model.lm_head.weight.grad is None
    assert model.model.layers[0].mlp.up_proj.weight.grad.abs().sum() > 0


def test_a_head_of_its_own_is_noticed_and_obeyed() -> None:
    model = odd_head().double()
    samples = some_samples(temperature=0.6, kept_logmass=-0.2)
    policy = policy_of(model, 20)
    with pytest.warns(UserWarning, match="OddHead makes its logits in a way of its own"):
        assert policy.head is None
    found = token_logprobs(policy, packed_of(samples))
    torch.testing.assert_close(found.logp, plain_logprobs(model, samples), atol=1e-6, rtol=1e-6)
    found.logp.sum().backward()
    gradient = model.model.embed_tokens.weight.grad.clone()
    model.zero_grad()
    plain_logprobs(model, samples).sum().backward()
    torch.testing.assert_close(gradient, model.model.embed_tokens.weight.grad, atol=1e-5, rtol=1e-5)
    assert found.entropy is not None and (found.entropy > 0).all() and (found.entropy < np.log(VOCABULARY)).all()
    assert token_logprobs(policy, packed_of(samples), entropy=False).entropy is None


@pytest.mark.parametrize(
    ("name", "scale", "softcap"),
    [
        ("llama", 1.0, None),
        ("gpt2", 1.0, None),
        ("granite", 0.25, None),
        ("cohere", 0.25, None),
        ("gemma2-window", 1.0, 3.0),
    ],
)
def test_the_head_is_read_from_the_model(name: str, scale: float, softcap: float | None) -> None:
    head = policy_of(build(name)).head
    assert head is not None and (head.scale, head.softcap) == (scale, softcap)
