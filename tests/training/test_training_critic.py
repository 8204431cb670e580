"""The critic learns with its own optimiser, and its values are those of its own forward passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from surefoot.errors import NonFiniteError
from surefoot.policy.config import CriticConfig, ModelConfig
from surefoot.policy.critic import make_critic
from surefoot.policy.loading import Policy, load_policy
from surefoot.policy.logprob import token_logprobs
from surefoot.policy.packing import count, pack
from surefoot.policy.stream_attention import takes_streams
from surefoot.training import state as states
from surefoot.training.config import OptimiserConfig
from surefoot.training.critic import CriticLearner, explained_variance
from surefoot.training.state import RunState
from surefoot.types import Sample

KINDS = ("head", "model")
LENGTHS = ((3, 9), (1, 1), (5, 2), (2, 12), (4, 0), (1, 6))


def embedded(**options: Any) -> Policy:
    return load_policy(ModelConfig(device="cpu", **options))


def learner_of(policy: Policy, optimiser: dict[str, Any] | None = None, **options: Any) -> CriticLearner:
    config = CriticConfig(**options)
    return CriticLearner(make_critic(policy, config), policy, config, OptimiserConfig(**optimiser or {}))


def shake(learner: CriticLearner) -> CriticLearner:
    """A head that says something."""
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in learner.critic.head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=random))
    return learner


def some_samples(lengths: tuple[tuple[int, int], ...] = LENGTHS, seed: int = 0) -> list[Sample]:
    rng = np.random.default_rng(seed)
    return [
        Sample.of(rng.integers(3, 99, prompt), rng.integers(3, 99, completion), prompt_id=f"p{i}")
        for i, (prompt, completion) in enumerate(lengths)
    ]


def packs_of(samples: list[Sample], max_tokens: int = 10**6) -> list[Any]:
    group = list(range(len(samples)))
    return pack(samples, [1.0] * len(samples), group, count(samples, group, 1.0), max_tokens=max_tokens)


def predict(learner: CriticLearner, packed: Any) -> torch.Tensor:
    hidden = token_logprobs(learner.policy, packed, hidden=True).hidden if learner.critic.shared else None
    return learner.predict(packed, hidden)


# Values of a batch


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("budget", [1, 30, 10**6])
@pytest.mark.parametrize("layout", ["right", "left", "packed"])
def test_values_are_those_of_each_sample_alone_in_any_split(kind: str, budget: int, layout: Any) -> None:
    policy, samples = embedded(), some_samples()
    learner = shake(learner_of(policy, kind=kind))
    values = learner.values(samples, budget, layout)
    assert [len(row) for row in values] == [sample.length for sample in samples]
    for sample, row in zip(samples, values, strict=True):
        assert row.dtype == torch.float32 and not row.requires_grad
        if not sample.length:
            continue
        with torch.no_grad():
            states_of = policy.model.base_model(input_ids=torch.from_numpy(sample.ids)[None]).last_hidden_state[0]
            before = states_of[sample.mask.nonzero()[0] - 1]
            expected = (before * learner.critic.head.weight).sum(1) + learner.critic.head.bias
        torch.testing.assert_close(row, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_what_the_training_pass_predicts(kind: str) -> None:
    learner = shake(learner_of(embedded(), kind=kind))
    samples = some_samples()
    (packed,) = packs_of(samples)
    rows = learner.values(samples, 10**6)
    flat = torch.cat([rows[i] for i in packed.sample_index.tolist()])
    assert torch.equal(predict(learner, packed).detach(), flat)


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_a_batch_make_no_logits(kind: str) -> None:
    policy = embedded()
    learner = learner_of(policy, kind=kind)

    def refuse(*_: Any) -> None:
        raise AssertionError("logits were made")

    policy.model.lm_head.register_forward_pre_hook(refuse)
    with pytest.raises(AssertionError, match="logits"):
        policy.model(input_ids=torch.ones(1, 1, dtype=torch.int64))
    assert len(learner.values(some_samples(), 10**6)) == len(LENGTHS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("layout", "shape"), [("right", (5, 13)), ("left", (5, 13)), ("packed", (1, 37))])
def test_values_come_from_a_pass_in_the_layout_asked_for(layout: Any, shape: tuple[int, int], kind: str) -> None:
    policy = embedded()
    learner = learner_of(policy, kind=kind)
    seen = []

    def note(module: Any, args: Any, inputs: dict[str, Any]) -> None:
        seen.append(tuple(inputs["input_ids"].shape))

    trunk = policy.model.base_model if kind == "head" else learner.critic.trunk
    assert takes_streams(trunk)  # proved on a few tokens of its own
    trunk.register_forward_pre_hook(note, with_kwargs=True)
    learner.values(some_samples(), 10**6, layout)
    assert seen == [shape]


def test_values_that_are_not_finite_are_refused() -> None:
    learner = learner_of(embedded())
    with torch.no_grad():
        learner.critic.head.bias.fill_(torch.nan)
    with pytest.raises(NonFiniteError, match=r"critic\.lr") as caught:
        learner.values(some_samples(), 10**6)
    assert "\n" not in str(caught.value)


# Steps


def fit(learner: CriticLearner, step: int = 1, steps: int = 10, target: float = 1.0) -> float:
    (packed,) = packs_of(some_samples())
    (0.5 * (predict(learner, packed) - target).square().mean()).backward()
    return learner.step(step, steps)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_moves_its_own_weights_and_no_others(kind: str) -> None:
    policy = embedded()
    learner = shake(learner_of(policy, kind=kind, lr=1e-3))
    before, mine = policy.checksum(), {n: p.detach().clone() for n, p in learner.critic.module.named_parameters()}
    norm = fit(learner)
    assert norm > 0 and policy.checksum() == before
    for name, parameter in learner.critic.module.named_parameters():
        assert not torch.equal(parameter, mine[name]), name
        assert parameter.grad is None, name
    # The gradient of the policy's weights is the policy's to step with, and only a shared critic makes one.
    assert any(parameter.grad is not None for parameter in policy.model.parameters()) == (kind == "head")


def test_its_rate_is_its_own_and_its_schedule_and_betas_are_the_runs() -> None:
    run = {
        "lr": 5.0,
        "schedule": "linear",
        "warmup_steps": 2,
        "beta1": 0.7,
        "beta2": 0.8,
        "weight_decay": 0.5,
        "eps": 1e-3,
    }
    learner = learner_of(embedded(), run, lr=1e-2)
    for group in learner.optimiser.param_groups:
        assert group["betas"] == (0.7, 0.8) and group["eps"] == 1e-3
        decays = {parameter.ndim >= 2 for parameter in group["params"]}
        assert decays == {group["weight_decay"] == 0.5} or decays == {group["weight_decay"] != 0.0}
    rates = []
    for step in range(1, 7):
        fit(learner, step, 6)
        rates.append({group["lr"] for group in learner.optimiser.param_groups})
    assert rates == [{0.005}, {0.01}, {0.01}, {0.0075}, {0.005}, {0.0025}]


def test_its_gradient_is_clipped_to_its_own_norm() -> None:
    moves = {}
    for bound in (1e-9, 1.0):
        learner = learner_of(embedded(), {"max_grad_norm": 1e6, "eps": 1e-6}, kind="head", lr=1.0, max_grad_norm=bound)
        norm = fit(learner)
        assert norm == pytest.approx(float(norm)) and norm > 1e-3  # before clipping
        moves[bound] = float(learner.critic.head.weight.detach().abs().max())
    assert moves[1e-9] < 1e-2 < 0.9 < moves[1.0]  # Adam's step is lr until the gradient is below eps


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_that_is_not_finite_touches_nothing(kind: str) -> None:
    learner = shake(learner_of(embedded(), kind=kind))
    before = {name: p.detach().clone() for name, p in learner.critic.module.named_parameters()}
    (packed,) = packs_of(some_samples())
    (predict(learner, packed) * torch.inf).sum().backward()
    with pytest.raises(NonFiniteError, match=r"the critic: .*critic\.lr") as caught:
        learner.step(1, 10)
    assert "optimiser.lr" not in str(caught.value)
    assert all(torch.equal(p, before[name]) for name, p in learner.critic.module.named_parameters())
    assert not learner.optimiser.state_dict()["state"]


def test_the_policy_waits_for_the_first_steps() -> None:
    learner = learner_of(embedded(), warmup_steps=2)
    assert [learner.alone(step) for step in (1, 2, 3)] == [True, True, False]
    assert not learner_of(embedded()).alone(1)


# Learning


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_what_the_returns_are(kind: str) -> None:
    """The return depends on the token before and on how many digits came so far; a shared critic moves the policy too."""
    policy = embedded()
    samples = some_samples(tuple((2, 10) for _ in range(24)), seed=3)
    target = []
    for sample in samples:
        digits = np.isin(sample.ids, policy.tokenizer.convert_tokens_to_ids(list("0123456789"))).cumsum()
        before = sample.mask.nonzero()[0] - 1
        target.append(torch.from_numpy(sample.ids[before] / 99 + 0.1 * digits[before]).float())
    learner = learner_of(policy, kind=kind, lr=3e-3, max_grad_norm=10.0)
    trunk = torch.optim.AdamW(policy.model.parameters(), lr=3e-3)
    start = policy.checksum()

    def explained() -> float:
        return explained_variance(torch.cat(learner.values(samples, 4096)), torch.cat(target))

    assert explained() == 0.0  # it says nothing yet
    for step in range(1, 61):
        for packed in packs_of(samples, 4096):
            returns = torch.cat([target[i] for i in packed.sample_index.tolist()])
            (0.5 * (predict(learner, packed) - returns).square().mean()).backward()
        learner.step(step, 60)
        trunk.step()
        trunk.zero_grad()
    assert explained() > 0.9
    assert (policy.checksum() == start) == (kind == "model")


@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_from_a_saved_state_bit_for_bit(kind: str, tmp_path: Path) -> None:
    def fresh() -> tuple[CriticLearner, torch.optim.Optimizer]:
        policy = embedded()
        learner = learner_of(policy, {"schedule": "cosine", "warmup_steps": 2, "weight_decay": 0.1}, kind=kind, lr=1e-2)
        return learner, torch.optim.SGD(policy.model.parameters(), lr=0.1)

    def parts(learner: CriticLearner, optimiser: torch.optim.Optimizer) -> tuple[dict[str, Any], dict[str, Any]]:
        modules = {"model": learner.policy.model, **learner.modules()}
        return modules, {"model": optimiser, **learner.optimisers()}

    def go(learner: CriticLearner, optimiser: torch.optim.Optimizer, first: int, last: int) -> None:
        for step in range(first, last + 1):
            fit(learner, step, 6, target=0.3 * step)
            optimiser.step()
            optimiser.zero_grad()

    whole, broken = fresh(), fresh()
    go(*whole, 1, 6)
    go(*broken, 1, 3)
    states.save(tmp_path, RunState(step=3), *parts(*broken))
    again = fresh()
    state, held = states.load(tmp_path / "step-000003", *parts(*again))
    assert state.step == 3 and held == {"model", "critic"}
    go(*again, 4, 6)
    for name, parameter in whole[0].critic.module.named_parameters():
        assert torch.equal(again[0].critic.module.get_parameter(name), parameter), name
    assert again[0].policy.checksum() == whole[0].policy.checksum()


# Explained variance


def test_explained_variance_of_a_worked_case() -> None:
    returns, values = torch.tensor([1.0, 2.0, 4.0, 5.0]), torch.tensor([1.5, 1.5, 4.5, 4.5])
    # Var(returns) = 2.5; the errors are -0.5, 0.5, -0.5, 0.5, with a variance of 0.25.
    assert explained_variance(values, returns) == pytest.approx(1 - 0.25 / 2.5)
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(returns + 3.0, returns) == pytest.approx(1.0)  # a constant error does not show
    assert explained_variance(torch.zeros(4), returns) == 0.0
    assert explained_variance(torch.full((4,), 7.0), returns) == 0.0
    assert explained_variance(-returns, returns) == pytest.approx(-3.0)


@pytest.mark.parametrize(
    ("values", "returns"),
    [
        ([], []),
        ([1.0], [2.0]),
        ([0.1, 0.7, 0.3], [0.3, 0.3, 0.3]),
        ([0.0, 0.0], [0.0, 0.0]),
        ([0.1, 0.7, 0.3], [0.3, 0.3 + 5e-8, 0.3]),  # what float32 makes of (0.3 - v) + v
        ([100.0, -100.0], [1.0, 1.0 + 7e-6]),
    ],
)
def test_explained_variance_is_zero_where_the_returns_do_not_vary(values: list[float], returns: list[float]) -> None:
    assert explained_variance(torch.tensor(values), torch.tensor(returns)) == 0.0


def test_explained_variance_sees_small_differences_that_are_real() -> None:
    returns = 1 + torch.tensor([0.0, 1e-5, 2e-5, 5e-5])
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(1 + 0.5 * (returns - 1), returns) == pytest.approx(0.75, abs=0.02)


def test_explained_variance_does_not_depend_on_the_scale_or_lose_digits() -> None:
    random = torch.Generator().manual_seed(0)
    returns = torch.randn(1000, generator=random)
    values = returns + 0.5 * torch.randn(1000, generator=random)
    expected = explained_variance(values, returns)
    assert 0.7 < expected < 0.8
    for scale in (1e-6, 1e6):
        assert explained_variance(values * scale, returns * scale) == pytest.approx(expected, rel=1e-5)
    assert explained_variance(values.requires_grad_(), returns) == pytest.approx(expected)
