"""Log-probabilities of further tokens, and hidden states: from the chunks that make the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from policy_models import (
    BUILDERS,
    COMMON,
    NO_PACKING,
    VOCABULARY,
    Largest,
    build,
    odd_head,
    packed_of,
    policy_of,
    some_samples,
)

from surefoot.batches import Packed
from surefoot.errors import ModelError
from surefoot.policy.layout import hidden_states
from surefoot.policy.logprob import token_logprobs
from surefoot.types import Sample

LAYOUTS = ("right", "left", "packed")


def some_ids(packed: Packed, k: int, seed: int = 0) -> torch.Tensor:
    """[M, K] random tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY, (int(packed.mask.sum()), k), generator=generator)


def plain_top(model: Any, samples: list[Sample], top_ids: torch.Tensor) -> torch.Tensor:
    """The truth: each sample alone, a full log-softmax at its temperature, pick the tokens."""
    rows = []
    for sample in samples:
        logits = model(input_ids=torch.from_numpy(sample.ids)[None], use_cache=False).logits[0]
        places = [place for place in sample.mask.nonzero()[0] if place > 0]
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        rows += [(wide[place - 1] / float(sample.temperature[place])).log_softmax(-1) for place in places]
    return torch.stack(rows).gather(1, top_ids)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("name", BUILDERS)
def test_equal_to_a_gather_from_the_full_distribution(name: str, chunk: int, layout: Any) -> None:
    """The kept mass of the behaviour policy, which renormalises the sampled token, has no part in it."""
    model, samples = build(name), some_samples(temperature=0.6, kept_logmass=-0.3)
    packed = packed_of(samples)
    top_ids = some_ids(packed, 5)
    with torch.no_grad():
        found = token_logprobs(policy_of(model, chunk), packed, layout=layout, top_ids=top_ids).top_logp
        assert found is not None and found.dtype == torch.float32
        torch.testing.assert_close(found, plain_top(model, samples, top_ids), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", NO_PACKING)
def test_models_that_cannot_be_packed_have_them_too(name: str) -> None:
    model, samples = build(name), some_samples()
    packed = packed_of(samples)
    top_ids = some_ids(packed, 3)
    with torch.no_grad():
        found = token_logprobs(policy_of(model, 4), packed, top_ids=top_ids).top_logp
        torch.testing.assert_close(found, plain_top(model, samples, top_ids), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("chunk", [1, 13, 1000])
def test_a_model_with_a_head_of_its_own_gathers_from_its_own_logits(chunk: int, entropy: bool) -> None:
    model, samples = odd_head().double(), some_samples(temperature=0.6)
    packed, policy = packed_of(samples), policy_of(odd_head().double(), chunk)
    top_ids = some_ids(packed, 4)
    with pytest.warns(UserWarning, match="in a way of its own"):
        found = token_logprobs(policy, packed, entropy=entropy, top_ids=top_ids)
    with torch.no_grad():
        assert found.top_logp is not None and not found.top_logp.requires_grad
        torch.testing.assert_close(found.top_logp, plain_top(model, samples, top_ids), atol=1e-6, rtol=1e-6)
    assert token_logprobs(policy, packed, entropy=entropy).top_logp is None
    found.logp.sum().backward()
    assert policy.model.model.embed_tokens.weight.grad.abs().sum() > 0


def test_the_whole_vocabulary_sums_to_one_and_holds_the_sampled_token_and_the_entropy() -> None:
    packed = packed_of(some_samples(temperature=1.4))
    everything = torch.arange(VOCABULARY).expand(int(packed.mask.sum()), -1)
    found = token_logprobs(policy_of(build("llama"), 6), packed, top_ids=everything)
    assert found.top_logp is not None and found.entropy is not None
    torch.testing.assert_close(found.top_logp.exp().sum(1), torch.ones(len(everything)), atol=1e-5, rtol=1e-5)
    sampled = found.top_logp.gather(1, packed.ids[packed.mask, None]).squeeze(1)
    torch.testing.assert_close(sampled, found.logp.detach(), atol=1e-6, rtol=1e-6)
    entropy = -(found.top_logp.exp() * found.top_logp).sum(1)
    torch.testing.assert_close(entropy, found.entropy, atol=1e-5, rtol=1e-5)


def test_they_are_detached_and_change_neither_value_nor_gradient_of_the_others() -> None:
    model, packed = build("llama"), packed_of(some_samples())
    results = []
    for top_ids in (None, some_ids(packed, 6)):
        model.zero_grad()
        found = token_logprobs(policy_of(model, 4), packed, top_ids=top_ids)
        found.logp.sum().backward()
        results.append((found.logp.detach(), found.entropy, model.lm_head.weight.grad.clone()))
        assert (found.top_logp is None) is (top_ids is None)
        assert found.top_logp is None or not found.top_logp.requires_grad
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


def test_impossible_tokens_are_minus_infinity() -> None:
    """A token that the head forbids: its probability is 0, and the others are finite beside it."""
    model = build("gpt2")
    model.lm_head = torch.nn.Linear(32, VOCABULARY)
    policy = policy_of(model, 2)
    assert policy.head is not None
    with torch.no_grad():
        model.lm_head.bias[7] = -torch.inf
    packed = packed_of(some_samples(((2, 3),)))
    found = token_logprobs(policy, packed, top_ids=torch.tensor([[7, 8]] * 3)).top_logp
    assert found is not None and (found[:, 0] == -torch.inf).all() and found[:, 1].isfinite().all()


def test_half_precision_weights_have_them_in_float32() -> None:
    model, packed = build("llama", torch.bfloat16), packed_of(some_samples())
    top_ids = some_ids(packed, 4)
    found = {
        flag: token_logprobs(policy_of(model, 3, head_float32=flag), packed, top_ids=top_ids) for flag in (False, True)
    }
    narrow, wide = found[False].top_logp, found[True].top_logp
    assert narrow is not None and wide is not None and narrow.dtype == wide.dtype == torch.float32
    torch.testing.assert_close(narrow, wide, atol=0.1, rtol=0.05)
    assert not torch.equal(narrow, wide)


@pytest.mark.parametrize("shape", [(5, 2), (24, 2), (23,)])
def test_ids_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    packed = packed_of(some_samples())
    assert int(packed.mask.sum()) != 5
    with pytest.raises(ValueError, match=r"top_ids of shape .*: expected \(30, K\)"):
        token_logprobs(policy_of(build("llama")), packed, top_ids=torch.zeros(shape, dtype=torch.int64))


def test_no_further_tokens_hold_tokens_times_vocabulary() -> None:
    vocabulary, chunk = 5000, 64
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**COMMON | {"vocab_size": vocabulary})).eval()
    packed, policy = (
        packed_of(some_samples(((4, 30),) * 20, vocabulary=vocabulary)),
        policy_of(model, chunk, logprob_keep=0),
    )
    assert policy.head is not None
    with Largest() as largest:
        token_logprobs(policy, packed, top_ids=some_ids(packed, 20), hidden=True).logp.sum().backward()
    assert largest.numbers == chunk * vocabulary > model.lm_head.weight.numel()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_hidden_states_are_those_that_predict_the_tokens_with_their_gradient(layout: Any) -> None:
    model, packed = build("llama", torch.float64), packed_of(some_samples())
    value_head = torch.linspace(-1, 1, 32, dtype=torch.float64)
    found = token_logprobs(policy_of(model, 4), packed, layout=layout, hidden=True)
    assert found.hidden is not None
    with torch.no_grad():
        torch.testing.assert_close(found.hidden, hidden_states(model, packed, layout))
    (found.logp.sum() + (found.hidden @ value_head).square().sum()).backward()
    together = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    token_logprobs(policy_of(model, 4), packed, layout=layout).logp.sum().backward()
    (hidden_states(model, packed, layout) @ value_head).square().sum().backward()
    for one, two in zip(together, model.parameters(), strict=True):
        # Llama computes its norms in float32 whatever the weights are.
        assert (one - two.grad).norm() <= 1e-5 * two.grad.norm()
    assert token_logprobs(policy_of(model, 4), packed).hidden is None


def test_hidden_states_of_a_head_that_is_not_known_are_refused() -> None:
    policy = policy_of(odd_head())
    with (
        pytest.warns(UserWarning, match="in a way of its own"),
        pytest.raises(ModelError, match=r"hidden states are wanted, but OddHead .*without a critic, or another model"),
    ):
        token_logprobs(policy, packed_of(some_samples()), hidden=True)
