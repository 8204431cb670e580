"""The arithmetic that a dry run prints is that of the run, and its memory is what PyTorch keeps."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surefoot.config import load
from surefoot.policy.config import ModelConfig
from surefoot.policy.loading import Policy, load_policy
from surefoot.policy.logprob import token_logprobs
from surefoot.policy.packing import count, pack
from surefoot.training.arithmetic import Arithmetic, Shape, describe, memory
from surefoot.training.config import RunConfig
from surefoot.types import Sample

LLAMA_7B = Shape(6_738_415_616, 32000, layers=32, width=4096, inner=11008, kv_width=4096, context=4096)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(ModelConfig())


def batch(rows: int, prompt: int, budget: int) -> list[Sample]:
    random = np.random.default_rng(0)
    return [
        Sample.of(random.integers(3, 99, prompt), random.integers(3, 99, budget), prompt_id="p", sample_id=i)
        for i in range(rows)
    ]


small = st.integers(1, 12)


@given(small, small, small, st.integers(1, 4), st.integers(1, 400), st.integers(1, 30), st.integers(1, 30))
def test_counts_are_those_of_the_packing(
    prompts: int, group: int, updates: int, epochs: int, micro: int, prompt: int, budget: int
) -> None:
    """For rows that are all as long as can be, the number of micro-batches is what pack() makes."""
    options = {
        "algorithm.preset": "reinforce",
        "train.prompts_per_step": prompts,
        "train.group_size": group,
        "train.updates_per_step": min(updates, prompts),
        "train.epochs": epochs,
        "train.micro_batch_tokens": micro,
        "rollout.max_new_tokens": budget,
    }
    config = load(RunConfig, [], options)
    n = Arithmetic.of(config, prompt)
    assert n.sequences == prompts * group
    assert n.optimiser_steps == config.train.steps * epochs * min(updates, prompts)
    rows = batch(n.mini_batch_sequences, prompt, budget)
    numbers = list(range(len(rows)))
    packs = pack(rows, [1.0] * len(rows), numbers, count(rows, numbers, 1.0), max_tokens=micro)
    assert n.micro_batches == len(packs)
    assert n.rows_per_micro_batch == max(packed.sequences for packed in packs)


def test_the_weights_are_those_of_the_model(policy: Policy) -> None:
    parameters = list(policy.model.parameters())
    shape = Shape.of(policy.model.config, sum(parameter.numel() for parameter in parameters))
    config = load(RunConfig, [], {"algorithm.kl": "none"})
    parts = memory(config, shape, 8)
    held = sum(parameter.nbytes for parameter in parameters)
    optimiser = torch.optim.AdamW(parameters)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    moments = sum(state[name].nbytes for state in optimiser.state.values() for name in ("exp_avg", "exp_avg_sq"))
    policy.model.zero_grad()
    assert (parts["weights"], parts["gradients"], parts["AdamW moments"]) == (held, held, moments)
    assert parts["reference weights"] == 0
    assert memory(load(RunConfig, [], {}), shape, 8)["reference weights"] == held


@pytest.mark.parametrize(("rows", "prompt", "budget"), [(32, 8, 40), (4, 40, 88)])
def test_the_activations_are_what_autograd_keeps(policy: Policy, rows: int, prompt: int, budget: int) -> None:
    shape = Shape.of(policy.model.config, sum(parameter.numel() for parameter in policy.model.parameters()))
    options = {"rollout.max_new_tokens": budget, "train.micro_batch_tokens": rows * (prompt + budget)}
    estimate = memory(load(RunConfig, [], options), shape, prompt)["activations of a micro-batch"]
    samples = batch(rows, prompt, budget)
    numbers = list(range(rows))
    (packed,) = pack(samples, [1.0] * rows, numbers, count(samples, numbers, 1.0), max_tokens=10**6)
    weights = {parameter.untyped_storage().data_ptr() for parameter in policy.model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        found = token_logprobs(policy, packed)
    assert found.logp.requires_grad
    assert sum(storage.nbytes() for storage in kept.values()) == pytest.approx(estimate, rel=0.15)


def test_words_say_the_numbers() -> None:
    options = {
        "train.steps": 10,
        "train.prompts_per_step": 16,
        "train.group_size": 4,
        "train.updates_per_step": 2,
        "train.epochs": 3,
        "train.micro_batch_tokens": 1000,
        "rollout.max_new_tokens": 90,
        "rollout.max_batch_tokens": 3000,
        "evaluation.every": 2,
        "evaluation.samples": 2,
        "evaluation.temperature": 1.0,
    }
    text = describe(load(RunConfig, [], options), LLAMA_7B, longest_prompt=10, train_size=320, heldout_size=100)
    for line in (
        "16 prompts x 4 samples = 64 sequences, each of at most 10 + 90 = 100 tokens",
        "3 waves of at most 30 rows",
        "2 mini-batches of 32 sequences, gone through 3 times: 6 optimiser steps per step",
        "at most 4 micro-batches of 10 rows",
        "10 steps = 60 optimiser steps, 640 sequences, at most 57,600 generated tokens",
        "160 prompts drawn from 320: 0.50 epochs",
        "100 problems x 2 samples, before the first step, after every 2nd step and after the last",
    ):
        assert line in " ".join(text.split())
    assert re.search(r"weights +26.95 GB\n", text) and re.search(r"AdamW moments +53.91 GB\n", text)
    assert re.search(r"peak while updating +\d+\.\d\d GB\n", text)


@pytest.mark.parametrize(
    ("every", "words"), [(0, "and after the last"), (1, "after every step"), (3, "3rd"), (11, "11th")]
)
def test_when_it_is_evaluated(every: int, words: str) -> None:
    config = load(RunConfig, [], {"evaluation.every": every})
    text = describe(config, LLAMA_7B, longest_prompt=10, train_size=1, heldout_size=1)
    assert words in " ".join(text.split()) and "y  step" not in text
    assert max(map(len, text.splitlines())) < 80


def test_the_key_that_lowers_the_peak_does() -> None:
    config = load(RunConfig, [], {})
    text = describe(config, LLAMA_7B, longest_prompt=10, train_size=1, heldout_size=1)
    (key,) = re.findall(r"(\S+) lowers the peak most", text)
    lower = load(RunConfig, [], {key: "500"})
    assert sum(memory(lower, LLAMA_7B, 10).values()) < sum(memory(config, LLAMA_7B, 10).values())
