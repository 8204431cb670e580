"""The layers of our own give the values and gradients of the layers of Transformers, and stand back where they would not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from policy_models import COMMON, build, packed_of
from test_policy_layout import alone, families
from torch import nn

from surefoot.policy import pieces
from surefoot.policy.checkpointing import set_checkpointing
from surefoot.policy.fused import Attention, FeedForward, Places, Shape
from surefoot.policy.layout import decoder, hidden_states
from surefoot.policy.own_decoder import LONGEST, own_decoder
from surefoot.policy.stream import Stream, make_stream

MODELS: dict[str, tuple[type, dict[str, Any]]] = {
    "llama": (transformers.LlamaConfig, {}),
    "llama-tied": (transformers.LlamaConfig, {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    "mistral": (transformers.MistralConfig, {"sliding_window": None}),
    "qwen2": (transformers.Qwen2Config, {}),
    "qwen3": (transformers.Qwen3Config, {"head_dim": 12}),
}


def model_of(name: str) -> Any:
    config, options = MODELS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config(**COMMON | options))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def stream_of(dtype: torch.dtype, *, share: bool = True) -> Stream:
    return make_stream(packed_of(families()), dtype, share=share)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces and blocks of a few tokens, so that the rows of a start are spread over several."""
    monkeypatch.setattr(pieces, "TOKENS", 9)
    monkeypatch.setattr("surefoot.policy.fused.TOKENS", 9)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_a_decoder_has_the_values_and_gradients_of_transformers(name: str, share: bool) -> None:
    model, samples = model_of(name).double(), families()
    stream = make_stream(packed_of(samples), torch.float64, share=share)
    own = own_decoder(decoder(model), stream.longest)
    assert own is not None
    values, gradients = [], []
    for forward in (lambda: alone(model, samples), lambda: own(stream)):
        model.zero_grad()
        states = forward()
        (states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum().backward()
        values.append(states.detach())
        gradients.append({key: value.grad for key, value in model.named_parameters() if value.grad is not None})
    # Transformers computes norms in float32 whatever the weights are.
    torch.testing.assert_close(values[1], values[0], atol=3e-6, rtol=1e-6)
    assert gradients[0].keys() == gradients[1].keys()
    for key, expected in gradients[0].items():
        assert (gradients[1][key] - expected).norm() <= 2e-6 * expected.norm(), key


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("with_norms", [True, False])
def test_attention_has_the_gradient_of_its_values(with_norms: bool, share: bool) -> None:
    stream = stream_of(torch.float64, share=share)
    shape, n, width = Shape(4, 2, 4, 1e-5, 1e-6), len(stream.ids), 6
    angle = torch.rand(n, shape.rotated // 2, dtype=torch.float64)
    places = Places(torch.polar(1 + angle, angle), pieces.cut(stream, 4, 2))
    sizes = [(n, width), (width,), (shape.every * 4, width), (shape.every * 4,), (shape.rotated,), (width, 16)]
    x, *weights = (torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes)
    if not with_norms:
        weights[2] = weights[3] = None

    def run(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        return Attention.apply(x, shape, places, *weights)

    assert torch.autograd.gradcheck(run, (x, *weights), fast_mode=True)


@pytest.mark.usefixtures("small_pieces")
def test_feed_forward_has_the_gradient_of_its_values() -> None:
    sizes = [(20, 6), (6,), (8, 6), (8, 6), (6, 8)]
    x, *weights = (torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes)
    assert torch.autograd.gradcheck(lambda x, *w: FeedForward.apply(x, 1e-5, *w), (x, *weights), fast_mode=True)


def test_a_graph_may_be_gone_through_twice() -> None:
    model = model_of("qwen3")
    states = hidden_states(model, packed_of(families()), "shared").square().sum()
    weights = list(model.model.parameters())
    first = torch.autograd.grad(states, weights, retain_graph=True)
    for one, two in zip(first, torch.autograd.grad(states, weights), strict=True):
        assert torch.equal(one, two)


def test_checkpointed_layers_have_the_same_gradient() -> None:
    model = model_of("llama")
    gradients = []
    for marked in (False, True):
        if marked:
            set_checkpointing(model, "llama")
        model.zero_grad()
        hidden_states(model, packed_of(families()), "shared").square().sum().backward()
        gradients.append([parameter.grad for parameter in model.model.parameters()])
    for plain, again in zip(*gradients, strict=True):
        torch.testing.assert_close(again, plain)


@pytest.mark.parametrize("name", ["gpt2", "gemma2-window", "mistral-window", "qwen2-window", "granite", "cohere"])
def test_other_architectures_keep_their_layers(name: str) -> None:
    assert own_decoder(decoder(build(name)), 8) is None


class Adapter(nn.Linear):
    """A projection that does more than its weight says."""


def test_a_model_that_is_not_plain_any_more_keeps_its_layers() -> None:
    base = decoder(model_of("llama"))
    assert own_decoder(base, 8) is not None
    assert own_decoder(base, LONGEST + 1) is None
    handle = base.layers[0].mlp.register_forward_hook(lambda *_: None)
    assert own_decoder(base, 8) is None
    handle.remove()
    assert own_decoder(base, 8) is not None
    base.layers[1].self_attn.v_proj = Adapter(32, 16, bias=False)
    assert own_decoder(base, 8) is None
    assert own_decoder(decoder(model_of("llama").bfloat16()), 8) is None
    assert own_decoder(decoder(model_of("llama").train()), 8) is None


def test_a_decoder_that_gives_something_else_is_not_taken() -> None:
    class Odd(transformers.LlamaModel):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = super().forward(*args, **kwargs)
            output.last_hidden_state = output.last_hidden_state * 1.01
            return output

    with torch.random.fork_rng(devices=[]):
        assert own_decoder(Odd(transformers.LlamaConfig(**COMMON)).eval(), 8) is None
