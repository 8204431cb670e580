"""The three layouts give the states that each sequence has alone, whatever lies beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from policy_models import BUILDERS, NO_PACKING, VOCABULARY, build, packed_of, policy_of, some_samples

from surefoot.errors import ModelError
from surefoot.policy.layout import Layout, arrange, hidden_states
from surefoot.policy.logprob import token_logprobs

LAYOUTS: tuple[Layout, ...] = ("right", "left", "packed")


def alone(model: torch.nn.Module, samples: list) -> torch.Tensor:
    """[M, d], the states that predict the loss tokens with every sample in a forward pass of its own."""
    states = []
    for sample in samples:
        every = model.base_model(input_ids=torch.from_numpy(sample.ids)[None], use_cache=False).last_hidden_state[0]
        states += [every[place - 1] for place in sample.mask.nonzero()[0] if place > 0]
    return torch.stack(states)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", BUILDERS)
def test_every_layout_gives_the_states_of_the_sequence_alone(name: str, layout: Layout) -> None:
    model, samples = build(name), some_samples()
    with torch.no_grad():
        expected, found = alone(model, samples), hidden_states(model, packed_of(samples), layout)
    assert found.shape == (sum(sample.length for sample in samples), expected.shape[1])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", BUILDERS)
def test_layouts_agree_in_the_gradient(name: str) -> None:
    model = build(name, torch.float64)
    packed = packed_of(some_samples())
    gradients = []
    for layout in LAYOUTS:
        model.zero_grad()
        hidden_states(model, packed, layout).square().sum().backward()
        gradients.append({key: value.grad.clone() for key, value in model.named_parameters() if value.grad is not None})
    for key, value in gradients[0].items():
        assert value.isfinite().all()
        for other in gradients[1:]:
            # Some architectures compute norms and softmax in float32 whatever the weights are.
            assert (other[key] - value).norm() <= 1e-5 * value.norm(), key


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["llama", "gemma2-window", "gpt2"])
def test_a_sequence_does_not_feel_its_neighbours(name: str, layout: Layout) -> None:
    model, samples = build(name), some_samples()
    packed = packed_of(samples)
    changed = 3
    ids = packed.ids.clone()
    ids[packed.seq_index == changed] = (ids[packed.seq_index == changed] + 7) % VOCABULARY
    with torch.no_grad():
        before, after = (hidden_states(model, one, layout) for one in (packed, replace(packed, ids=ids)))
    mine = packed.seq_index[packed.mask] == changed
    torch.testing.assert_close(after[~mine], before[~mine], atol=1e-6, rtol=1e-6)
    assert (after[mine] - before[mine]).abs().amax(1).min() > 1e-3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_state_does_not_see_the_token_that_it_predicts(layout: Layout) -> None:
    model = build("llama")
    packed = packed_of(some_samples(((3, 5), (2, 4))))
    ids = packed.ids.clone()
    last = packed.seq_start[1:] - 1
    ids[last] = (ids[last] + 1) % VOCABULARY
    with torch.no_grad():
        torch.testing.assert_close(
            hidden_states(model, replace(packed, ids=ids), layout), hidden_states(model, packed, layout), atol=0, rtol=0
        )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("attention", ["llama", "llama-eager"])
def test_rows_of_very_different_length_stay_finite(attention: str, layout: Layout) -> None:
    model = build(attention)
    states = hidden_states(model, packed_of(some_samples(((1, 1), (1, 60), (2, 1)))), layout)
    states.sum().backward()
    assert states.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)


def test_equal_lengths_need_no_mask() -> None:
    model, packed = build("llama"), packed_of(some_samples(((3, 4), (3, 4), (2, 5))))
    for layout in ("right", "left"):
        assert set(arrange(model, packed, layout).inputs) == {"input_ids"}
    assert set(arrange(model, packed_of(some_samples(((3, 4),))), "packed").inputs) == {"input_ids"}


def test_packed_mask_is_block_diagonal_and_causal() -> None:
    packed = packed_of(some_samples(((2, 2), (1, 2))))
    mask = arrange(build("llama"), packed, "packed").inputs["attention_mask"][0, 0]
    sequence, order = [0, 0, 0, 1, 1], range(5)
    for query in order:
        for key in order:
            seen = sequence[query] == sequence[key] and key <= query
            assert mask[query, key] == (0 if seen else torch.finfo(torch.float32).min)


@pytest.mark.parametrize("name", NO_PACKING)
def test_models_that_would_mix_packed_sequences_refuse_them(name: str) -> None:
    model, samples = build(name), some_samples()
    with pytest.raises(ModelError, match=r"'packed'.*set train\.layout = 'right'"):
        hidden_states(model, packed_of(samples), "packed")
    with torch.no_grad():
        for layout in ("right", "left"):
            torch.testing.assert_close(
                hidden_states(model, packed_of(samples), layout), alone(model, samples), atol=1e-5, rtol=1e-5
            )


def test_no_logits_are_made() -> None:
    model = build("llama")
    policy = policy_of(model)
    assert policy.head is not None  # the proof runs the whole model once, at load time
    model.lm_head.register_forward_hook(lambda *_: pytest.fail("the head ran outside of the chunks"))
    token_logprobs(policy, packed_of(some_samples()))
