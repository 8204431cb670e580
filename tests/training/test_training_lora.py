"""Runs with adapters: what learns and what is kept, the reference and its resets, a resume, the critic, the files."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from surefoot.config import validate
from surefoot.errors import ConfigError
from surefoot.policy.config import ModelConfig
from surefoot.policy.loading import Policy, load_policy
from surefoot.policy.lora import adapters, copy_of, own_parameters
from surefoot.training import loop as loop_module
from surefoot.training.arithmetic import Shape, memory
from surefoot.training.config import RunConfig, SftConfig
from surefoot.training.learner import Learner
from surefoot.training.loop import make_learner, train
from surefoot.training.resets import reset_if_due
from surefoot.training.sft import sft
from surefoot.training.state import RunState
from tests.training.tiny import TINY, digits_reward, tiny

RANK = {"lora": {"rank": 4, "alpha": 8.0}}
FAST: dict[str, Any] = {"evaluation": {"every": 0, "problems": 1}, "optimiser": {"lr": 5e-3}}


def lora(runs: Path, **over: Any) -> RunConfig:
    return tiny(runs, **{**FAST, "model": RANK, "algorithm": {"preset": "grpo"}, **over})


def run(config: RunConfig, **options: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(config, reward=digits_reward(), **options).folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps with a KL term, adapters alone learning."""
    return run(lora(tmp_path_factory.mktemp("lora")))


def test_only_adapters_are_trained_and_kept(finished: Path) -> None:
    base = load_policy(ModelConfig(device="cpu")).model.state_dict()
    model = AutoModelForCausalLM.from_pretrained(finished / "model")
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, base[name])}
    assert changed and all(name.endswith("_proj.weight") for name in changed) and len(changed) == 14
    again = load_policy(ModelConfig(device="cpu", lora={"path": str(finished / "model" / "adapter")}))
    ids = torch.arange(10)[None]
    with torch.no_grad():
        torch.testing.assert_close(again.model(input_ids=ids).logits, model(input_ids=ids).logits, rtol=1e-4, atol=1e-4)
    state = finished / "state" / "step-000004"
    weights = load_file(state / "model.safetensors")
    assert set(weights) == set(own_parameters(again.model))
    assert all(torch.equal(value, weights[name]) for name, value in own_parameters(again.model).items())
    size = sum(file.stat().st_size for file in state.iterdir())
    assert size < 0.5 * (finished / "model" / "model.safetensors").stat().st_size
    assert not (state / "reference.safetensors").exists()  # it is what the run starts from


def test_the_optimiser_holds_adapters_alone_and_the_base_has_no_gradient(tmp_path: Path) -> None:
    config = lora(tmp_path)
    policy = load_policy(config.model)
    learner = make_learner(config, policy, config.algorithm.build())
    held = {id(p) for group in learner.optimiser.param_groups for p in group["params"]}
    assert held == {id(parameter) for parameter in own_parameters(policy.model).values()}
    assert learner.reference is not None
    models = [policy.model, learner.reference.model]
    stored = {p.data_ptr(): p.numel() for model in models for p in model.parameters()}
    whole = sum(parameter.numel() for parameter in policy.model.parameters())
    own = sum(parameter.numel() for parameter in own_parameters(policy.model).values())
    assert sum(stored.values()) == whole + own < 1.2 * whole


def frozen_copy(policy: Policy) -> Policy:
    return Policy(copy.deepcopy(policy.model).requires_grad_(False), policy.tokenizer, policy.config, policy.device)


def test_the_shared_reference_gives_the_metrics_of_a_frozen_copy(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Policy, "copy", frozen_copy)
    other = run(lora(tmp_path))
    records = [(folder / "metrics.jsonl").read_text() for folder in (other, finished)]
    assert records[0] == records[1]
    assert json.loads(records[0].splitlines()[-1])["policy/kl_reference"] > 1e-4


def shared(runs: Path, steps: int, **over: Any) -> RunConfig:
    """A critic, a reference that is reset, two optimisers, and several steps of both for each batch."""
    return lora(
        runs,
        **{
            "algorithm": {
                "preset": "ppo",
                "kl": {"target": 0.01, "horizon": 20},
                "reset": {"kind": "every", "steps": 2},
            },
            "critic": {"lr": 1e-3},
            "train": {"steps": steps, "updates_per_step": 2},
            "checkpoint": {"every": 1},
            **over,
        },
    )


@pytest.mark.parametrize("kind", ["model", "head"])
def test_a_resumed_run_is_the_run_that_was_not_stopped(kind: str, tmp_path: Path) -> None:
    over = {"critic": {"kind": kind, "lr": 1e-3}}
    whole = run(shared(tmp_path / "whole", 5, **over))
    run(shared(tmp_path / "parts", 3, **over))
    parts = run(shared(tmp_path / "parts", 5, **over), resume=True)
    files = ["metrics.jsonl", "model/model.safetensors", "model/adapter/adapter_model.safetensors"]
    files += [
        f"critic/{name}" for name in (["model.safetensors"] if kind == "model" else []) + ["value_head.safetensors"]
    ]
    for file in files:
        assert (whole / file).read_bytes() == (parts / file).read_bytes(), file
    kept = load_file(whole / "state" / "step-000005" / "critic.safetensors")
    assert set(kept) >= {"head.weight", "head.bias"} and not any(name.endswith("embed_tokens.weight") for name in kept)
    assert (whole / "state" / "step-000005" / "reference.safetensors").exists()


def test_a_reset_makes_the_reference_the_policy_and_leaves_the_base_alone(tmp_path: Path) -> None:
    config = lora(tmp_path, algorithm={"preset": "grpo", "reset": {"kind": "every", "steps": 1}})
    policy = load_policy(config.model)
    learner: Learner = make_learner(config, policy, config.algorithm.build())
    assert learner.reference is not None
    with torch.no_grad():
        for parameter in own_parameters(policy.model).values():
            parameter.add_(0.1)
    base = {name: value.clone() for name, value in policy.model.state_dict().items()}
    assert learner.reference.checksum() != policy.checksum()
    assert reset_if_due(learner, RunState(step=1), [])
    assert learner.reference.checksum() == policy.checksum()
    assert all(torch.equal(value, base[name]) for name, value in policy.model.state_dict().items())
    with torch.no_grad():  # a snapshot: it does not move with the policy
        for parameter in own_parameters(policy.model).values():
            parameter.add_(0.1)
    assert learner.reference.checksum() != policy.checksum()


def test_an_average_of_adapters_is_refused(tmp_path: Path) -> None:
    mixed = {"preset": "grpo", "reset": {"kind": "every", "steps": 1, "alpha": 0.5}}
    with pytest.raises(ConfigError, match=r"higher rank than they: set algorithm\.reset\.alpha = 1"):
        lora(tmp_path, algorithm=mixed)
    lora(tmp_path, algorithm=mixed, model={})
    lora(tmp_path, algorithm={**mixed, "reset": {**mixed["reset"], "reference": False}})  # type: ignore[dict-item]


def test_going_on_from_an_adapter_starts_where_it_was(finished: Path, tmp_path: Path, monkeypatch: Any) -> None:
    seen = []
    real = loop_module.make_learner

    def spied(config: Any, policy: Policy, algorithm: Any) -> Learner:
        learner = real(config, policy, algorithm)
        seen.append((policy.checksum(), learner.reference and learner.reference.checksum()))
        return learner

    monkeypatch.setattr(loop_module, "make_learner", spied)
    path = str(finished / "model" / "adapter")
    further = run(lora(tmp_path, model={"lora": {"path": path}}, train={"steps": 2}))
    start = load_policy(ModelConfig(device="cpu", lora={"path": path}))
    assert seen == [(start.checksum(), start.checksum())]  # the reference is what the run starts from, adapter and all
    after = load_policy(ModelConfig(device="cpu", lora={"path": str(further / "model" / "adapter")}))
    assert after.checksum() != start.checksum()


def test_a_saved_critic_goes_on_with_adapters(tmp_path: Path) -> None:
    first = run(shared(tmp_path / "first", 2))
    again = run(shared(tmp_path / "again", 2, critic={"path": str(first / "critic"), "lr": 1e-3}))
    kept = load_file(again / "state" / "step-000002" / "critic.safetensors")
    assert len(kept) == 2 + 2 * 14
    from surefoot.policy.embedded import fresh_model  # a critic that starts from another model

    fresh_model(3)[0].save_pretrained(tmp_path / "other")
    load_policy(ModelConfig()).tokenizer.save_pretrained(tmp_path / "other")
    other = run(shared(tmp_path / "third", 2, critic={"path": str(tmp_path / "other"), "lr": 1e-3}))
    assert len(load_file(other / "state" / "step-000002" / "critic.safetensors")) == 2 + 2 * 14


def test_supervised_training_with_adapters(tmp_path: Path) -> None:
    config = validate(
        SftConfig,
        {
            "runs": str(tmp_path),
            "model": RANK,
            "task": TINY["task"],
            "rollout": {"max_new_tokens": 4},
            "evaluation": {"problems": 2},
            "steps": 6,
            "batch": 8,
        },
    )
    result = sft(config)
    losses = [
        line.split('"loss/nll_per_token": ')[1] for line in (result.folder / "metrics.jsonl").read_text().splitlines()
    ]
    assert float(losses[-1].split(",")[0]) < float(losses[0].split(",")[0])
    trained = load_policy(ModelConfig(device="cpu", lora={"path": str(result.model / "adapter")}))
    assert len(adapters(trained.model)) == 14
    base = load_policy(ModelConfig(device="cpu")).model
    assert torch.equal(trained.model.get_input_embeddings().weight, base.get_input_embeddings().weight)


def test_rounded_rollouts_with_adapters(tmp_path: Path) -> None:
    folder = run(lora(tmp_path, rollout={"quantise": "int8"}, train={"steps": 2}))
    assert (folder / "result.json").exists()


def test_the_estimate_of_memory_counts_what_learns(tmp_path: Path) -> None:
    config = lora(tmp_path)
    model = load_policy(config.model).model
    every, own = (sum(p.numel() for p in ps) for ps in (model.parameters(), own_parameters(model).values()))
    whole, adapted = (memory(config, Shape.of(model.config, every, learned), 10) for learned in (None, own))
    assert adapted["weights"] == whole["weights"]
    for name in ("gradients", "AdamW moments", "reference weights"):
        assert adapted[name] == pytest.approx(whole[name] * own / every)


def test_a_copy_holds_nothing_of_the_base(tmp_path: Path) -> None:
    model = load_policy(lora(tmp_path).model).model
    before = {p.data_ptr() for p in model.parameters()}
    fresh = [p for p in copy_of(model).parameters() if p.data_ptr() not in before]
    assert len(fresh) == 2 * len(adapters(model))


@pytest.mark.slow
def test_adapters_learn(tmp_path: Path) -> None:
    train_config = {"steps": 25, "prompts_per_step": 4, "group_size": 8}
    folder = run(
        tiny(tmp_path, **FAST | {"model": {"lora": {"rank": 8}}, "optimiser": {"lr": 1e-2}, "train": train_config})
    )
    rewards = [json.loads(line)["reward/mean"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rewards[0] < 0.3 and rewards[-1] > 0.8
