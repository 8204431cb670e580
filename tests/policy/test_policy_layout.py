"""Every layout gives the states that each sequence has alone, whatever lies beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from policy_models import BUILDERS, NO_PACKING, VOCABULARY, build, packed_of, policy_of, some_samples

from surefoot.errors import ModelError
from surefoot.policy.checkpointing import set_checkpointing
from surefoot.policy.layout import Layout, arrange, hidden_states, settle, usable
from surefoot.policy.logprob import token_logprobs
from surefoot.policy.stream import make_stream
from surefoot.types import Sample

LAYOUTS: tuple[Layout, ...] = ("right", "left", "packed", "auto")
STREAMS = ("llama", "qwen2", "gpt2", "granite", "cohere")


def families() -> list[Sample]:
    """Samples of which some share a prompt: prompts of 1 to 9 tokens, answers of 0 to 7."""
    rng, samples = np.random.default_rng(0), []
    for prompt, answers in ((5, (3, 1, 7)), (2, (4,)), (9, (2, 2)), (1, (0, 6, 3)), (4, (0,))):
        start = rng.integers(0, VOCABULARY, prompt)
        for length in answers:
            answer = rng.integers(0, VOCABULARY, length)
            samples.append(Sample.of(start, answer, prompt_id=str(prompt), sample_id=len(samples), temperature=0.7))
    return samples


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


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", STREAMS)
def test_shared_prompts_give_the_states_of_the_sequence_alone(name: str, checkpointing: bool) -> None:
    model, samples = build(name, torch.float64), families()
    packed = packed_of(samples)
    if checkpointing:
        set_checkpointing(model, name)
    found = {}
    for layout in ("right", "packed", "shared"):
        model.zero_grad()
        states = hidden_states(model, packed, layout)
        (states * torch.linspace(-1, 2, len(states), dtype=states.dtype)[:, None]).square().sum().backward()
        found[layout] = states.detach(), {key: value.grad for key, value in model.named_parameters()}
    with torch.no_grad():
        torch.testing.assert_close(found["shared"][0], alone(model, samples), atol=1e-5, rtol=1e-5)
    for layout in ("packed", "shared"):
        for key, value in found["right"][1].items():
            if value is not None:
                assert (found[layout][1][key] - value).norm() <= 1e-5 * value.norm(), key
    assert not any(module.training for module in model.modules())


def test_layers_are_computed_again_only_where_there_is_a_gradient() -> None:
    model, packed, calls = build("llama"), packed_of(families()), []
    set_checkpointing(model, "llama")
    model.model.layers[0].self_attn.register_forward_pre_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        hidden_states(model, packed)
    assert len(calls) == 1
    hidden_states(model, packed).sum().backward()
    assert len(calls) == 3
    with pytest.raises(ModelError, match=r"no layers that can be computed again"):
        set_checkpointing(torch.nn.Linear(2, 2), "x")


def test_a_shared_prompt_is_in_the_stream_once() -> None:
    samples = families()
    stream = make_stream(packed_of(samples), torch.float32, share=True)
    # A prompt, and what its answers add without their last token; samples without an answer are not in the batch.
    assert len(stream.ids) == (5 + 2 + 0 + 6) + (2 + 4 - 1) + (9 + 1 + 1) + (1 + 5 + 2)
    whole = make_stream(packed_of(samples), torch.float32, share=False)
    assert len(whole.ids) == sum(len(sample) - 1 for sample in samples if sample.length) and whole.rests[0] == 0


def test_auto_takes_what_has_the_fewest_tokens() -> None:
    model = build("granite")
    assert settle(model, packed_of(families()), "auto") == "shared"
    assert settle(model, packed_of(some_samples(((3, 4), (2, 5), (1, 6)))), "auto") == "right"
    assert settle(build("llama"), packed_of(some_samples(((3, 4), (2, 5), (1, 6)))), "auto") == "shared"  # no padding
    assert settle(model, packed_of(some_samples(((3, 4), (2, 15), (1, 1)))), "auto") == "packed"


@pytest.mark.parametrize("name", ["llama-eager", "qwen2-window", "mistral-window", "gemma2-window", "bloom"])
def test_models_that_cannot_share_prompts_say_so(name: str) -> None:
    model, packed = build(name), packed_of(families())
    with pytest.raises(ModelError, match=r"'shared' needs attention .* set train\.layout = 'auto'"):
        hidden_states(model, packed, "shared")
    assert settle(model, packed, "auto") == "right"
    assert usable(model, "auto") == ("auto" if "sdpa" in BUILDERS.get(name, ("", "", ""))[2] else "right")
    with torch.no_grad():
        torch.testing.assert_close(hidden_states(model, packed, "auto"), alone(model, families()), atol=1e-5, rtol=1e-5)
