"""Adapters: what they compute, what learns, what is shared, and files that PEFT reads and writes."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from policy_models import build, packed_of, plain_logprobs, policy_of, some_samples
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from surefoot.errors import ConfigError, ModelError
from surefoot.policy.config import CriticConfig, ModelConfig
from surefoot.policy.critic import make_critic, save_critic
from surefoot.policy.loading import Policy, load_policy, save_policy
from surefoot.policy.logprob import token_logprobs
from surefoot.policy.lora import LoraSpec, adapters, attach, base_parameters, copy_of, merged, own_parameters
from surefoot.policy.lora_files import load_adapter, save_adapter
from surefoot.rollout.engine import Request, Sampling
from surefoot.rollout.local import LocalEngine
from surefoot.rollout.quantise import quantised

ARCHITECTURES = ("llama", "qwen2", "gemma2-window", "gpt2")
SPEC = LoraSpec(rank=3, alpha=6.0)
IDS = torch.arange(12).view(2, 6) * 5


def stir(model: Any, size: float = 0.2) -> Any:
    """Adapters that do something: as if they had been trained."""
    with torch.no_grad():
        for number, layer in enumerate(adapters(model).values()):
            layer.lora_B.weight.normal_(0, size, generator=torch.Generator().manual_seed(number))
    return model


def adapted(name: str, spec: LoraSpec = SPEC, targets: tuple[str, ...] = ("all-linear",)) -> Any:
    model = build(name)
    attach(model, spec, targets, seed=0)
    return stir(model)


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=IDS).logits
    return found


def lora(rank: int = 4, **options: Any) -> Policy:
    return load_policy(ModelConfig(device="cpu", lora={"rank": rank, **options}))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_new_adapters_change_nothing_and_alone_learn(name: str) -> None:
    plain, model = build(name), build(name)
    attach(model, SPEC, ["all-linear"], seed=0)
    assert torch.equal(logits(model), logits(plain))
    model(input_ids=IDS).logits.square().sum().backward()
    learned = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert learned == set(own_parameters(model))
    assert all(name.endswith(("lora_A.weight", "lora_B.weight")) for name in learned)
    # A gradient reaches every B: no layer is read past its adapter.
    assert all(bool(layer.lora_B.weight.grad.any()) for layer in adapters(model).values())
    assert {id(p) for p in base_parameters(model)} == {id(p) for p in model.parameters() if not p.requires_grad}
    assert set(dict(plain.named_parameters())) == set(dict(model.named_parameters())) - learned
    linear = [m for m in plain.modules() if type(m).__name__ in ("Linear", "Conv1D")]
    assert len(adapters(model)) == len(linear) - 1  # all but the output embedding


@pytest.mark.parametrize("spec", [SPEC, LoraSpec(4, 6.0, rslora=True)])
def test_an_adapter_adds_its_scaled_product(spec: LoraSpec) -> None:
    model, plain = adapted("llama", spec), build("llama")
    scale = 6.0 / (2.0 if spec.rslora else 3.0)
    layer, base = model.model.layers[1].mlp.down_proj, plain.model.layers[1].mlp.down_proj
    x = torch.randn(3, 48, generator=torch.Generator().manual_seed(1))
    expected = base(x) + scale * (x @ layer.lora_A.weight.t() @ layer.lora_B.weight.t())
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_merged_weights_give_the_same_logits_and_leave_the_model_as_it_is(name: str) -> None:
    model = adapted(name)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    folded = merged(model)
    assert not adapters(folded) and type(folded) is type(model)
    torch.testing.assert_close(logits(folded), logits(model), rtol=1e-4, atol=1e-4)
    assert float((logits(model) - logits(build(name))).abs().max()) > 0.05
    assert before.keys() == model.state_dict().keys()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert merged(folded) is folded


@pytest.mark.parametrize("layout", ["right", "left", "packed", "shared"])
def test_log_probabilities_in_every_layout(layout: Any) -> None:
    model, samples = adapted("llama"), some_samples()
    policy = policy_of(model)
    assert policy.head is not None
    found = token_logprobs(policy, packed_of(samples), layout=layout).logp
    torch.testing.assert_close(found, plain_logprobs(merged(model), samples), rtol=1e-4, atol=1e-4)


def test_checkpointed_layers_give_the_same_gradient() -> None:
    found = []
    for checkpointing in (False, True):
        policy = load_policy(ModelConfig(device="cpu", lora={"rank": 4}, checkpointing=checkpointing))
        stir(policy.model)
        token_logprobs(policy, packed_of(some_samples())).logp.sum().backward()
        found.append([parameter.grad for parameter in own_parameters(policy.model).values()])
    assert found[0][0] is not None
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_adapters_follow_the_seed_the_rank_and_the_targets() -> None:
    state = torch.random.get_rng_state()
    one, same, other = lora(), lora(), load_policy(ModelConfig(device="cpu", seed=1, lora={"rank": 4}))
    assert torch.equal(state, torch.random.get_rng_state())
    assert one.checksum() == same.checksum() != other.checksum()
    down = one.model.model.layers[0].self_attn.q_proj.lora_A.weight
    assert down.shape == (4, 96) and 0.8 * 96**-0.5 < float(down.detach().abs().max()) <= 96**-0.5
    few = lora(target_modules=("q_proj", "v_proj"))
    assert {name.rsplit(".", 1)[-1] for name in adapters(few.model)} == {"q_proj", "v_proj"}
    single = lora(target_modules=("model.layers.1.mlp.up_proj",))
    assert list(adapters(single.model)) == ["model.layers.1.mlp.up_proj"]


@pytest.mark.parametrize(
    ("target", "words"),
    [("lm_head", "output embedding"), ("q_prj", "Did you mean 'q_proj'"), ("embed_tokens", "no linear layer")],
)
def test_targets_that_take_no_adapter_are_refused(target: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        lora(target_modules=("v_proj", target))


def test_layers_that_a_model_reads_without_calling_them_are_refused() -> None:
    with pytest.raises(ModelError, match=r"dt_proj .*target_modules to others \(in_proj, out_proj, x_proj\)"):
        attach(build("mamba"), SPEC, ["all-linear"], seed=0)
    model = build("mamba")
    attach(model, SPEC, ["in_proj", "x_proj", "out_proj"], seed=0)
    torch.testing.assert_close(logits(merged(stir(model))), logits(model), rtol=1e-3, atol=1e-3)


def test_adapters_stay_float32_in_a_bfloat16_model() -> None:
    policy = load_policy(ModelConfig(device="cpu", dtype="bfloat16", lora={"rank": 4}))
    stir(policy.model)
    assert policy.model.dtype == torch.bfloat16 and policy.head is not None
    assert {parameter.dtype for parameter in own_parameters(policy.model).values()} == {torch.float32}
    token_logprobs(policy, packed_of(some_samples())).logp.sum().backward()
    assert all(bool(parameter.grad.isfinite().all()) for parameter in own_parameters(policy.model).values())
    folded = merged(policy.model)
    assert {parameter.dtype for parameter in folded.parameters()} == {torch.bfloat16}


def test_a_reference_shares_the_base_and_says_what_a_frozen_copy_says() -> None:
    policy, packed = lora(), packed_of(some_samples(vocabulary=90))
    stir(policy.model)
    whole = Policy(copy.deepcopy(policy.model).requires_grad_(False), policy.tokenizer, policy.config, policy.device)
    reference = policy.copy()
    ours, theirs = dict(policy.model.named_parameters()), dict(reference.model.named_parameters())
    own = own_parameters(policy.model)
    assert {name for name in ours if ours[name] is not theirs[name]} == set(own) == set(own_parameters(reference.model))
    assert sum(parameter.numel() for parameter in own.values()) < 0.1 * sum(p.numel() for p in ours.values())
    assert not any(parameter.requires_grad for parameter in theirs.values())
    with torch.no_grad():
        for parameter in own.values():
            parameter.add_(0.1)
        expected, found = (token_logprobs(model, packed).logp for model in (whole, reference))
        assert float((token_logprobs(policy, packed).logp - found).abs().max()) > 0.01
    assert float((expected - found).abs().max()) <= 1e-6


def test_the_engine_samples_with_the_adapters() -> None:
    policy = lora()
    stir(policy.model)
    engine = LocalEngine(policy.model, max_batch_tokens=500)
    assert engine.decoder is not None
    sampling = Sampling(temperature=1.0, max_new_tokens=12, stop_ids=policy.stop_ids)
    (group,) = engine.generate([Request(np.arange(5, 15), "p", tuple(range(4)), sampling)])
    packed = packed_of(list(group))
    with torch.no_grad():
        found = token_logprobs(policy, packed).logp
        bare = token_logprobs(load_policy(ModelConfig(device="cpu")), packed).logp
    drawn = packed.logp_behaviour[packed.mask]
    torch.testing.assert_close(found, drawn, rtol=0, atol=1e-4)
    assert float((bare - drawn).abs().max()) > 0.01


def test_rounded_weights_are_those_with_the_adapters() -> None:
    model = adapted("llama")
    exact, rounded = logits(model), logits(quantised(model))
    assert float((rounded - exact).abs().max()) < 0.05 * float((exact - logits(build("llama"))).abs().max())
    assert not adapters(quantised(model))


@pytest.mark.parametrize("kind", ["model", "head"])
def test_a_critic_learns_by_adapters_on_the_same_base(kind: Any, tmp_path: Path) -> None:
    policy = lora()
    stir(policy.model)
    critic = make_critic(policy, CriticConfig(kind=kind))
    own = own_parameters(critic.module)
    assert all(parameter.requires_grad for parameter in own.values())
    base = {id(parameter) for parameter in base_parameters(policy.model)}
    mine = {id(parameter) for parameter in own_parameters(policy.model).values()}
    assert not {id(parameter) for parameter in own.values()} & (base | mine)
    rest = [parameter for name, parameter in critic.module.named_parameters() if name not in own]
    assert all(id(parameter) in base and not parameter.requires_grad for parameter in rest)
    assert len(own) == (2 if kind == "head" else 2 + len(mine))
    save_critic(critic, tmp_path / "critic")
    again = make_critic(policy, CriticConfig(kind=kind, path=str(tmp_path / "critic")))
    assert len(own_parameters(again.module)) == len(own)
    if kind == "model":
        packed = packed_of(some_samples(vocabulary=90))
        with torch.no_grad():
            for one in (critic, again):
                one.head.weight.fill_(1.0)
            torch.testing.assert_close(critic.predict(packed), again.predict(packed), rtol=1e-4, atol=1e-4)


def test_what_is_saved_loads_merged_and_as_an_adapter(tmp_path: Path) -> None:
    policy = lora(rslora=True, alpha=8.0)
    stir(policy.model)
    save_policy(policy, tmp_path / "model")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert set(plain.state_dict()) == set(load_policy(ModelConfig()).model.state_dict())
    torch.testing.assert_close(logits(plain), logits(policy.model), rtol=1e-4, atol=1e-4)
    assert load_policy(ModelConfig(path=str(tmp_path / "model"))).head is not None
    again = load_policy(ModelConfig(device="cpu", lora={"path": str(tmp_path / "model" / "adapter")}))
    assert again.checksum() == policy.checksum()
    assert torch.equal(logits(again.model), logits(policy.model))
    with pytest.raises(ModelError, match=r"is an adapter: give it as model\.lora\.path"):
        load_policy(ModelConfig(path=str(tmp_path / "model" / "adapter")))


def test_an_adapter_says_where_it_meets_another_base(tmp_path: Path) -> None:
    policy = lora()
    stir(policy.model)
    save_policy(policy, tmp_path / "model")
    path = str(tmp_path / "model" / "adapter")

    def told(**model: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            load_policy(ModelConfig(device="cpu", lora={"path": path}, **model))
        return [str(one.message) for one in given if "was trained on" in str(one.message)]

    assert told() == []
    (merged_already,) = told(path=str(tmp_path / "model"))
    assert "was trained on 'embedded'" in merged_already
    (seed,) = told(seed=1)
    assert "other weights of 'embedded'" in seed
    # In another type the weights have another hash: the names decide, as for an adapter that PEFT wrote.
    assert told(dtype="bfloat16") == []
    (Path(path) / "base.json").unlink()
    assert told() == [] and len(told(path=str(tmp_path / "model"))) == 1


@pytest.mark.parametrize("targets", [("all-linear",), ("q_proj", "down_proj"), ("model.layers.0.mlp.up_proj",)])
def test_peft_reads_our_adapters(targets: tuple[str, ...], tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = adapted("llama", LoraSpec(4, 6.0, rslora=len(targets) == 2), targets)
    save_adapter(model, tmp_path, "llama")
    theirs = peft.PeftModel.from_pretrained(build("llama"), tmp_path).eval()
    torch.testing.assert_close(logits(theirs), logits(model), rtol=1e-5, atol=1e-5)
    adapted_there = {name for name, _ in theirs.named_parameters() if "lora_A" in name}
    assert len(adapted_there) == len(adapters(model))


def test_peft_reads_our_adapters_of_gpt2(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = adapted("gpt2")
    save_adapter(model, tmp_path, "gpt2")
    theirs = peft.PeftModel.from_pretrained(build("gpt2"), tmp_path).eval()
    torch.testing.assert_close(logits(theirs), logits(model), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rslora", [False, True])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_we_read_adapters_that_peft_made(name: str, rslora: bool, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(
        r=4, lora_alpha=10, target_modules="all-linear", use_rslora=rslora, lora_dropout=0.1, task_type="CAUSAL_LM"
    )
    theirs = peft.get_peft_model(build(name), settings).eval()
    with torch.no_grad():
        for key, parameter in theirs.named_parameters():
            if "lora_B" in key:
                parameter.normal_(0, 0.2, generator=torch.Generator().manual_seed(3))
    theirs.save_pretrained(tmp_path)
    model = build(name)
    load_adapter(model, str(tmp_path))
    torch.testing.assert_close(logits(model), logits(theirs), rtol=1e-5, atol=1e-5)
    assert float((logits(model) - logits(build(name))).abs().max()) > 0.05


def change(**settings: Any) -> Callable[[Path], object]:
    def changed(folder: Path) -> None:
        file = folder / "adapter_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | settings))

    return changed


def rename(old: str, new: str) -> Callable[[Path], object]:
    def renamed(folder: Path) -> None:
        file = folder / "adapter_model.safetensors"
        save_file({key.replace(old, new): value for key, value in load_file(file).items()}, file)

    return renamed


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda folder: (folder / "adapter_model.safetensors").unlink(), "has no adapter_model"),
    "torn weights": (lambda folder: (folder / "adapter_model.safetensors").write_bytes(b"x"), "cannot be read"),
    "empty": (lambda folder: save_file({}, folder / "adapter_model.safetensors"), "is empty"),
    "no settings": (lambda folder: (folder / "adapter_config.json").unlink(), "has no adapter_config"),
    "torn settings": (lambda folder: (folder / "adapter_config.json").write_text('{"r": '), "malformed"),
    "a list": (lambda folder: (folder / "adapter_config.json").write_text("[]"), "malformed"),
    "another kind": (change(peft_type="IA3"), "peft_type = 'IA3'"),
    "rank 0": (change(r=0), "r = 0"),
    "DoRA": (change(use_dora=True), "use_dora = True"),
    "whole modules": (change(modules_to_save=["lm_head"]), "modules_to_save"),
    "ranks by layer": (change(rank_pattern={"q_proj": 2}), "rank_pattern"),
    "biases": (change(bias="all"), "bias = 'all'"),
    "another base": (change(init_lora_weights="pissa"), "pissa"),
    "another rank": (change(r=5), "shapes"),
    "another model": (rename("q_proj", "c_attn"), "not a linear layer"),
    "the head": (rename("model.layers.0.self_attn.q_proj", "lm_head"), "output embedding"),
    "half an adapter": (rename("lora_A", "lora_embedding_A"), "expected nothing but"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_adapters_that_cannot_be_used_are_refused_in_one_line(damage: str, tmp_path: Path) -> None:
    spoil, words = DAMAGES[damage]
    save_adapter(adapted("llama"), tmp_path, "llama")
    spoil(tmp_path)
    with pytest.raises(ModelError, match=words) as caught:
        load_adapter(build("llama"), str(tmp_path))
    assert "\n" not in str(caught.value)


def test_an_adapter_brings_its_own_settings() -> None:
    from surefoot.config import validate

    with pytest.raises(ConfigError, match=r"brings its own rank: leave model\.lora\.rank out"):
        validate(ModelConfig, {"lora": {"path": "somewhere", "rank": 8}})


def test_saving_targets_that_name_more_than_was_adapted_are_written_in_full(tmp_path: Path) -> None:
    save_adapter(adapted("llama", targets=("model.layers.0.mlp.up_proj",)), tmp_path, "llama")
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    assert settings["target_modules"] == ["model.layers.0.mlp.up_proj"]
    save_adapter(adapted("llama", targets=("up_proj",)), tmp_path, "llama")
    assert json.loads((tmp_path / "adapter_config.json").read_text())["target_modules"] == ["up_proj"]


def test_a_copy_of_a_copy_shares_the_base_too() -> None:
    model = adapted("llama")
    again = copy_of(copy_of(model))
    assert {id(p) for p in base_parameters(again)} == {id(p) for p in base_parameters(model)}
    assert torch.equal(logits(again), logits(model))
