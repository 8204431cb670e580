"""The critic predicts what a plain forward pass predicts, moves only what it may move, and comes back from its folder."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from policy_models import BUILDERS, NO_PACKING, build, packed_of, policy_of, some_samples
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

from surefoot.config import validate
from surefoot.errors import ConfigError, ModelError, RunFolderError
from surefoot.policy.config import CriticConfig, ModelConfig
from surefoot.policy.critic import VALUE_HEAD, Critic, make_critic, save_critic
from surefoot.policy.embedded import character_tokenizer
from surefoot.policy.layout import Layout, hidden_states
from surefoot.policy.loading import Policy, load_policy, save_policy

LAYOUTS: tuple[Layout, ...] = ("right", "left", "packed")
KINDS = ("head", "model")


def critic_of(policy: Policy, kind: str = "model", seed: int | None = 0, **options: Any) -> Critic:
    """A critic whose head is not zero, so that its values say something; ``seed=None`` leaves it as it is made."""
    critic = make_critic(policy, CriticConfig(kind=kind, **options))
    if seed is not None:
        random = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in critic.head.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=random))
    return critic


def embedded(**options: Any) -> Policy:
    return load_policy(ModelConfig(device="cpu", **options))


def values_of(critic: Critic, policy: Policy, packed: Any, layout: Layout = "right") -> torch.Tensor:
    return critic.predict(packed, hidden_states(policy.model, packed, layout) if critic.shared else None, layout)


def plain_values(model: torch.nn.Module, critic: Critic, samples: list) -> torch.Tensor:
    """The truth: each sample alone through the whole model, its last hidden state before each token, times the head."""
    values = []
    for sample in samples:
        states = model(
            input_ids=torch.from_numpy(sample.ids)[None], use_cache=False, output_hidden_states=True
        ).hidden_states[-1][0]
        for place in sample.mask.nonzero()[0]:
            if place > 0:
                values.append((states[place - 1].float() * critic.head.weight[0]).sum() + critic.head.bias[0])
    return torch.stack(values)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BUILDERS)
def test_predictions_are_those_of_a_plain_forward_pass(name: str, kind: str, layout: Layout) -> None:
    policy, samples = policy_of(build(name)), some_samples()
    critic = critic_of(policy, kind)
    with torch.no_grad():
        expected = plain_values(policy.model, critic, samples)
        found = values_of(critic, policy, packed_of(samples), layout)
    assert found.dtype == torch.float32 and found.shape == (sum(sample.length for sample in samples),)
    assert float(expected.std()) > 0.1
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("name", NO_PACKING)
def test_a_model_that_would_mix_packed_sequences_refuses_them(name: str) -> None:
    policy, samples = policy_of(build(name)), some_samples()
    critic = critic_of(policy)
    with pytest.raises(ModelError, match=r"set train\.layout = 'right'"):
        critic.predict(packed_of(samples), None, "packed")
    with torch.no_grad():
        for layout in ("right", "left"):
            torch.testing.assert_close(
                critic.predict(packed_of(samples), None, layout),
                plain_values(policy.model, critic, samples),
                atol=2e-5,
                rtol=2e-5,
            )


def test_a_value_does_not_see_the_token_that_it_stands_before() -> None:
    policy, sample = policy_of(build("llama")), some_samples(((3, 6),))
    critic = critic_of(policy)
    with torch.no_grad():
        before = critic.predict(packed_of(sample))
        sample[0].ids[5] = (sample[0].ids[5] + 1) % 61  # the third completion token
        after = critic.predict(packed_of(sample))
    assert torch.equal(before[:3], after[:3])
    assert (before[3:] - after[3:]).abs().min() > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_zero_at_first_and_learns_from_the_first_gradient(kind: str) -> None:
    policy = policy_of(build("llama"))
    critic = critic_of(policy, kind, seed=None)
    values = values_of(critic, policy, packed_of(some_samples()))
    assert not values.any()
    (values - 1).square().sum().backward()
    assert critic.head.weight.grad is not None and float(critic.head.weight.grad.abs().min()) > 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_head_sends_its_gradient_through_the_policys_states(layout: Layout) -> None:
    policy, samples = policy_of(build("llama", torch.float64)), some_samples()
    critic = critic_of(policy, "head")
    assert critic.shared and sorted(dict(critic.module.named_parameters())) == ["head.bias", "head.weight"]
    plain_values(policy.model, critic, samples).square().sum().backward()
    parameters = dict(policy.model.named_parameters()) | dict(critic.module.named_parameters())
    expected = {name: p.grad.clone() for name, p in parameters.items() if p.grad is not None}
    for parameter in parameters.values():
        parameter.grad = None
    values_of(critic, policy, packed_of(samples), layout).square().sum().backward()
    assert {name for name, p in parameters.items() if p.grad is not None} == set(expected)
    assert set(parameters) - set(expected) == {"lm_head.weight"}
    for name, value in expected.items():
        assert float(value.norm()) > 0, name
        assert (parameters[name].grad - value).norm() <= 1e-4 * value.norm(), name  # the head is float32


@pytest.mark.parametrize("name", ["llama", "gpt2", "mamba"])  # untied, tied, recurrent
def test_a_model_of_its_own_takes_the_gradient_and_the_policy_none(name: str) -> None:
    policy = policy_of(build(name))
    critic = critic_of(policy)
    mine = policy.model.base_model.state_dict()
    assert not critic.shared
    packed = packed_of(some_samples())
    hidden = hidden_states(policy.model, packed)  # is given, and not looked at
    critic.predict(packed, hidden).square().sum().backward()
    assert all(parameter.grad is None for parameter in policy.model.parameters())
    for key, parameter in critic.module.named_parameters():
        assert parameter.grad is not None and float(parameter.grad.norm()) > 0, key
    with torch.no_grad():
        for key, parameter in critic.trunk.named_parameters():
            assert torch.equal(parameter, mine[key]) and parameter.data_ptr() != mine[key].data_ptr(), key
            parameter.add_(1.0)
            assert not torch.equal(parameter, mine[key]), key


def test_a_frozen_policy_gives_a_critic_that_learns() -> None:
    critic = critic_of(policy_of(build("llama")).copy())
    critic.predict(packed_of(some_samples())).sum().backward()
    assert all(parameter.grad is not None for parameter in critic.module.parameters())


def test_a_head_without_hidden_states_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="hidden states"):
        critic_of(policy_of(build("llama")), "head").predict(packed_of(some_samples()))


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2-window"])
def test_the_language_model_head_is_neither_trained_nor_saved(name: str, tmp_path: Path) -> None:
    policy = real_policy(name)
    output, inputs = policy.model.get_output_embeddings().weight, policy.model.get_input_embeddings().weight
    critic = critic_of(policy)
    shapes = [tuple(parameter.shape) for parameter in critic.trunk.parameters()]
    assert shapes.count(tuple(inputs.shape)) == 1  # tied or not, the input embedding is there, once
    size = sum(parameter.numel() for parameter in policy.model.parameters())
    assert sum(p.numel() for p in critic.trunk.parameters()) == size - (0 if output is inputs else output.numel())
    save_critic(critic, tmp_path / "critic")
    stored = load_file(tmp_path / "critic" / "model.safetensors")
    assert {key: tuple(value.shape) for key, value in stored.items()} == {
        key: tuple(parameter.shape) for key, parameter in critic.trunk.named_parameters()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_bfloat16_policy_has_a_float32_head(kind: str, tmp_path: Path) -> None:
    policy = embedded(dtype="bfloat16")
    critic = critic_of(policy, kind)
    packed = packed_of(some_samples(vocabulary=99))
    values = values_of(critic, policy, packed)
    assert values.dtype == torch.float32 and {p.dtype for p in critic.head.parameters()} == {torch.float32}
    hidden = hidden_states(policy.model, packed)
    assert hidden.dtype == torch.bfloat16
    expected = hidden.double() @ critic.head.weight[0].double() + critic.head.bias.double()
    torch.testing.assert_close(values.double(), expected, atol=1e-5, rtol=1e-5)  # not rounded to bfloat16 anywhere
    values.sum().backward()
    trunk = policy.model.base_model if critic.shared else critic.trunk
    assert all(p.dtype == torch.bfloat16 and p.grad is not None for p in trunk.parameters())
    save_critic(critic, tmp_path / "critic")
    again = make_critic(policy, CriticConfig(kind=kind, path=str(tmp_path / "critic")))
    assert contents(again) == contents(critic)


# Folders


def real_policy(name: str) -> Policy:
    """A random model with a real tokenizer, which can be saved."""
    model, tokenizer = build(name), character_tokenizer()
    model.resize_token_embeddings(len(tokenizer))
    settings = ModelConfig(device="cpu", attention=(BUILDERS | NO_PACKING)[name][2])
    return Policy(model, tokenizer, settings, torch.device("cpu"))


def contents(critic: Critic) -> dict[str, tuple[Any, ...]]:
    return {
        name: (p.dtype, tuple(p.shape), p.detach().contiguous().view(torch.uint8).flatten().tolist())
        for name, p in critic.module.named_parameters()
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2-window", "mamba"])
def test_round_trip_is_bit_equal(name: str, kind: str, tmp_path: Path) -> None:
    policy = real_policy(name)
    critic = critic_of(policy, kind)
    if not critic.shared:
        with torch.no_grad():
            for parameter in critic.trunk.parameters():
                parameter.mul_(1.1)
    save_critic(critic, tmp_path / "critic")
    again = make_critic(policy, CriticConfig(kind=kind, path=str(tmp_path / "critic")))
    assert contents(again) == contents(critic)
    assert all(parameter.requires_grad for parameter in again.module.parameters())
    packed = packed_of(some_samples())
    with torch.no_grad():
        assert torch.equal(values_of(again, policy, packed), values_of(critic, policy, packed))
    save_critic(again, tmp_path / "again")
    files = sorted(file.name for file in (tmp_path / "critic").iterdir())
    assert files == sorted(file.name for file in (tmp_path / "again").iterdir())
    for file in files:
        assert (tmp_path / "critic" / file).read_bytes() == (tmp_path / "again" / file).read_bytes(), file
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "critic"]


def test_the_folder_is_one_that_transformers_reads(tmp_path: Path) -> None:
    critic = critic_of(embedded())
    save_critic(critic, tmp_path / "critic")
    plain = AutoModel.from_pretrained(tmp_path / "critic")
    for name, parameter in critic.trunk.named_parameters():
        assert torch.equal(plain.get_parameter(name), parameter)
    assert AutoTokenizer.from_pretrained(tmp_path / "critic").get_vocab() == character_tokenizer().get_vocab()
    assert set(load_file(tmp_path / "critic" / VALUE_HEAD)) == {"weight", "bias"}


def test_it_starts_from_another_model_where_the_path_names_one(tmp_path: Path) -> None:
    policy, other = embedded(), embedded(seed=1)
    save_policy(other, tmp_path / "other")
    critic = critic_of(policy, path=str(tmp_path / "other"), seed=None)
    for name, parameter in critic.trunk.named_parameters():
        assert torch.equal(parameter, other.model.base_model.get_parameter(name)), name
        assert parameter.requires_grad
    assert not critic.head.weight.any()
    # A model of another width, so long as it reads the same tokens.
    wide = real_policy("llama")
    save_policy(wide, tmp_path / "wide")
    assert critic_of(policy, path=str(tmp_path / "wide")).head.weight.shape == (1, 32) != (1, 96)


def test_dropout_stays_out_of_a_critic_that_is_read(tmp_path: Path) -> None:
    policy = real_policy("gpt2")
    critic = critic_of(policy)
    save_critic(critic, tmp_path / "critic")
    config = json.loads((tmp_path / "critic" / "config.json").read_text())
    assert config["attn_pdrop"] > 0  # as the model's makers wrote it
    again = critic_of(policy, path=str(tmp_path / "critic"), seed=None)
    packed = packed_of(some_samples())
    again.module.train()
    with torch.no_grad():
        assert torch.equal(again.predict(packed), critic.predict(packed))


def test_saving_replaces_a_critic_and_nothing_else(tmp_path: Path) -> None:
    policy = embedded()
    save_critic(critic_of(policy, seed=1), tmp_path / "critic")
    save_critic(critic_of(policy, "head", seed=2), tmp_path / "critic")
    assert [file.name for file in (tmp_path / "critic").iterdir()] == [VALUE_HEAD]
    save_policy(policy, tmp_path / "model")
    before = policy.checksum()
    with pytest.raises(RunFolderError, match="holds something that is not a critic"):
        save_critic(critic_of(policy), tmp_path / "model")
    assert load_policy(ModelConfig(path=str(tmp_path / "model"), device="cpu")).checksum() == before


def test_a_write_that_fails_leaves_the_old_critic(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk."""
    policy = embedded()
    old = critic_of(policy)
    save_critic(old, tmp_path / "critic")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(RunFolderError, match="critic"):
            save_critic(critic_of(policy, seed=1), tmp_path / "critic")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert contents(critic_of(policy, path=str(tmp_path / "critic"), seed=None)) == contents(old)
    assert [path.name for path in tmp_path.iterdir()] == ["critic"]


# What is refused


@pytest.fixture
def critics(tmp_path: Path) -> Path:
    """Folders: a critic of each kind, a plain model, and a model that reads other tokens."""
    policy = embedded()
    for kind in KINDS:
        save_critic(critic_of(policy, kind), tmp_path / kind)
    save_policy(policy, tmp_path / "plain")
    tokenizer = character_tokenizer()
    words = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = words["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    other = embedded()
    other.tokenizer._tokenizer = type(tokenizer.backend_tokenizer).from_str(json.dumps(words))
    save_policy(other, tmp_path / "other tokens")
    (tmp_path / "text").write_text("no folder")
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "path", "says"),
    [
        ("model", "nowhere", r"critic\.path = .* does not exist"),
        ("model", "text", r"critic\.path = .* is a file"),
        ("model", "other tokens", r"critic\.path = .* another tokenizer than model\.path = 'embedded' .* same family"),
        ("model", "head", r"critic\.path = .* head without a model.*set critic\.kind = 'head'"),
        ("head", "model", r"critic\.path = .* a model of its own: set critic\.kind = 'model'"),
        ("head", "plain", r"critic\.path = .* has no value_head\.safetensors.*set critic\.kind = 'model'"),
        ("head", "nowhere", r"critic\.path = .* has no value_head\.safetensors"),
    ],
)
def test_a_path_that_does_not_fit_is_one_line_that_names_the_key(
    kind: str, path: str, says: str, critics: Path
) -> None:
    with pytest.raises(ModelError, match=says) as caught:
        make_critic(embedded(), CriticConfig(kind=kind, path=str(critics / path)))
    assert "\n" not in str(caught.value)


def damage_head(folder: Path) -> None:
    (folder / VALUE_HEAD).write_bytes(b"half a file")


def narrow_head(folder: Path) -> None:
    save_file({"weight": torch.zeros(1, 5), "bias": torch.zeros(1)}, folder / VALUE_HEAD)


def headless(folder: Path) -> None:
    save_file({"weight": torch.zeros(1, 96)}, folder / VALUE_HEAD)


def lose_a_weight(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")
    del stored["layers.0.mlp.up_proj.weight"]
    save_file(stored, folder / "model.safetensors", {"format": "pt"})


def reshape_a_weight(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")
    stored["norm.weight"] = torch.ones(7)
    save_file(stored, folder / "model.safetensors", {"format": "pt"})


def add_a_weight(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")
    save_file(stored | {"extra": torch.ones(7)}, folder / "model.safetensors", {"format": "pt"})


DAMAGES = {
    "value_head": damage_head,
    "weight": narrow_head,
    "bias": headless,
    "up_proj": lose_a_weight,
    "norm": reshape_a_weight,
    "extra": add_a_weight,
    "tokenizer": lambda folder: [file.unlink() for file in folder.glob("tokenizer*")],
    "cannot be loaded": lambda folder: (folder / "config.json").write_text("{"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_critic_folder_that_is_not_whole_is_refused(damage: str, critics: Path) -> None:
    DAMAGES[damage](critics / "model")
    with pytest.raises(ModelError, match=r"critic\.path = .*") as caught:
        make_critic(embedded(), CriticConfig(path=str(critics / "model")))
    assert "\n" not in str(caught.value)
    assert damage in str(caught.value) or damage == "value_head"


def test_a_policy_that_makes_its_logits_in_its_own_way_has_no_head_on_its_states() -> None:
    policy = policy_of(build("llama"))
    policy.__dict__["head"] = None
    with pytest.raises(ModelError, match=r"critic\.kind = 'head' .* set critic\.kind = 'model'"):
        critic_of(policy, "head")
    packed = packed_of(some_samples())
    with torch.no_grad():
        assert critic_of(policy).predict(packed).any()


def test_a_model_that_is_all_one_piece_makes_no_critic() -> None:
    class Whole(torch.nn.Module):
        @property
        def base_model(self) -> torch.nn.Module:
            return self

    with pytest.raises(ModelError, match=r"Whole makes no hidden states .* set critic\.path to another model"):
        make_critic(policy_of(Whole()), CriticConfig())


@pytest.mark.parametrize("kind", KINDS)
def test_the_global_random_state_is_left_as_it_was(kind: str) -> None:
    policy = policy_of(build("llama"))
    before = torch.random.get_rng_state()
    critic_of(policy, kind)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_section_knows_its_keys() -> None:
    assert validate(CriticConfig, {"kind": "head", "lr": 2e-5}).lr == 2e-5
    for wrong in (
        {"kind": "tail"},
        {"lr": -1.0},
        {"max_grad_norm": 0},
        {"warmup_steps": -1},
        {"path": ""},
        {"rate": 1},
    ):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            validate(CriticConfig, wrong)
