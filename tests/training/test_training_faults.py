"""For every preset: gradings that fail are counted, and a number that is not finite stops the step under its name."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from surefoot.algorithms.presets import PRESETS
from surefoot.config import merge
from surefoot.errors import NonFiniteError
from surefoot.policy.loading import load_policy
from surefoot.rewards.functions import as_reward
from surefoot.training import learner as learner_module
from surefoot.training import streams as streams_module
from surefoot.training.batch import Batch
from surefoot.training.clock import Clock
from surefoot.training.collect import Rollouts
from surefoot.training.health import check
from surefoot.training.learner import Learner
from surefoot.training.loop import make_learner, train
from surefoot.training.measure import measure_batch
from surefoot.training.state import RunState
from surefoot.types import Group, Origin, Score, Status
from tests.training.test_training_invariance import make_groups
from tests.training.tiny import tiny

NAN, INF = float("nan"), float("inf")
NUMBERS = (NAN, INF, -INF)
EVERY = sorted(PRESETS)
EVERY_NUMBER = [(preset, NUMBERS[i % 3]) for i, preset in enumerate(EVERY)]
TWICE = {"updates_per_step": 2, "epochs": 2}


def verdict(score: Score) -> Score:
    """Rewards of 0 and 1, which every preset takes."""
    right = float(score.total > 0.5)
    return replace(score, total=right, components=score.components | {"accuracy": right}, correct=bool(right))


def prepared(preset: str, **over: Any) -> tuple[Learner, list[Group]]:
    """A learner whose reference and whose old policy are not the policy, and a batch."""
    algorithm = merge({"preset": preset}, over.pop("algorithm", {}))
    config = tiny(Path("unused"), algorithm=algorithm, **over)
    policy = load_policy(config.model)
    groups = [
        Group(group.prompt, group.samples, tuple(map(verdict, group.scores)), group.greedy)
        for group in make_groups(policy)
    ]
    return make_learner(config, policy, config.algorithm.build()), groups


def taken(learner: Learner, groups: list[Group], step: int = 7) -> tuple[Batch, dict[str, float]]:
    batch, report = learner.update(groups, RunState(step=step), Clock())
    report.merge(measure_batch(Rollouts(groups, [], 1), batch))
    return batch, report.means()


def update(learner: Learner, groups: list[Group]) -> dict[str, float]:
    return taken(learner, groups)[1]


def weights(learner: Learner) -> list[Tensor]:
    models = [learner.policy.model, *([] if learner.critic is None else [learner.critic.critic.module])]
    return [parameter.detach().clone() for model in models for parameter in model.parameters()]


# Gradings that fail

FAILED = Score.failed(Status.TIMEOUT, "the grader was away")
FAILURES: dict[str, Callable[[int, int], bool]] = {
    "all": lambda group, number: True,
    "one group": lambda group, number: group == 1,
    "all but one sample": lambda group, number: (group, number) != (0, 1),
    "all but one of each group and one whole group": lambda group, number: number != 0 or group == 2,
}


def failing(groups: list[Group], failed: Callable[[int, int], bool]) -> list[Group]:
    return [
        replace(group, scores=tuple(FAILED if failed(g, n) else score for n, score in enumerate(group.scores)))
        for g, group in enumerate(groups)
    ]


@pytest.mark.parametrize("which", list(FAILURES))
@pytest.mark.parametrize("preset", EVERY)
def test_gradings_that_fail_are_counted_and_leave_the_statistics(preset: str, which: str) -> None:
    learner, groups = prepared(preset, train=TWICE)
    groups = failing(groups, FAILURES[which])
    scores = [score for group in groups for score in group.scores]
    batch, metrics = taken(learner, groups)
    assert all(math.isfinite(value) for value in metrics.values()), metrics
    assert metrics["reward/ungraded"] == pytest.approx(sum(not s.valid for s in scores) / len(scores))
    assert all(bool(value.isfinite().all()) for value in weights(learner))
    ungraded = np.array([not score.valid for score in scores])
    assert not batch.advantage[ungraded].any() and np.isfinite(batch.advantage).all()


@pytest.mark.parametrize("preset", ["remax"])
@pytest.mark.parametrize("failed", [(0,), (0, 1, 2)], ids=["one", "all"])
def test_greedy_completions_that_fail_are_counted(preset: str, failed: tuple[int, ...]) -> None:
    learner, groups = prepared(preset)
    groups = [replace(group, greedy=FAILED) if g in failed else group for g, group in enumerate(groups)]
    metrics = update(learner, groups)
    assert metrics["reward/greedy_ungraded"] == pytest.approx(len(failed) / 3)
    assert ("reward/greedy" in metrics) == (len(failed) < 3)


GDPO = [
    {"weights": {"accuracy": 1.0, "style": 0.5}},
    {"weights": {"accuracy": 1.0, "style": 0.5}, "conditions": {"style": "accuracy"}},
    {"conditions": {"style": "accuracy"}, "weighting": "tokens"},
]


@pytest.mark.parametrize("numbers", GDPO, ids=["weights", "conditions", "tokens"])
def test_named_rewards_of_a_batch_without_a_grade_end_no_run(numbers: dict[str, Any]) -> None:
    learner, groups = prepared("gdpo", algorithm={"advantage": numbers})
    metrics = update(learner, failing(groups, FAILURES["all"]))
    assert metrics["reward/ungraded"] == 1.0 and metrics["advantage/abs_max"] == 0.0


def test_a_run_goes_on_after_a_batch_that_could_not_be_graded(tmp_path: Path) -> None:
    """The whole loop: at the first of two steps every grading of a preset with explicit weights is NaN."""
    asked = [0]

    def reward(prompt: str, completion: str, answer: object) -> Score:
        asked[0] += 1
        if asked[0] <= 12:
            return Score(NAN)
        return Score(float(asked[0] % 2), {"accuracy": float(asked[0] % 2), "style": float(asked[0] % 3)})

    algorithm = {"preset": "gdpo", "advantage": {"weights": {"accuracy": 1.0, "style": 0.5}}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = tiny(
            tmp_path, algorithm=algorithm, train={"steps": 2}, evaluation={"every": 0}, task={"heldout_size": 0}
        )
        result = train(config, reward=as_reward(reward))
    assert result.summary["updates"] == 1


@pytest.mark.parametrize("preset", ["grpo", "grpo_process", "dapo"])
def test_the_task_is_not_blamed_where_nothing_could_be_graded(preset: str) -> None:
    learner, groups = prepared(preset)
    metrics = update(learner, failing(groups, FAILURES["all"])) | {"rollout/rounds": 1.0, "batch/groups": 0.0}
    said = [name for name, _ in check(metrics, RunState(step=1), learner.config, learner.algorithm)]
    assert said == ["ungraded"]


# Numbers that are not finite, on the trainer's side


def poison(value: Tensor, number: float) -> Tensor:
    """One entry of the last row is another number; the gradient of the others stays."""
    if not len(value):
        return value
    wrong = value.clone()
    wrong[-1] = number
    return wrong


def poisoned_logprobs(learner: Learner, field: str, number: float, of: str, skip: int) -> Callable[..., Any]:
    """``token_logprobs`` with one wrong number in what ``of`` the models says, from call ``skip`` on."""
    plain, calls = learner_module.token_logprobs, [0]
    model = learner.policy if of == "policy" else learner.reference

    def found(policy: Any, packed: Any, **options: Any) -> Any:
        made = plain(policy, packed, **options)
        if policy is not model or getattr(made, field) is None:
            return made
        calls[0] += 1
        return replace(made, **{field: poison(getattr(made, field), number)}) if calls[0] > skip else made

    return found


def reads(preset: str) -> list[str]:
    """The tensors of the trainer's side that an update of a preset is made from."""
    algorithm = PRESETS[preset]
    found = ["logp", "entropy"]
    found += ["reference"] if "reference" in algorithm.kl.kind.traits else []
    found += ["top_logp"] if "topk" in algorithm.trust.kind.traits else []
    found += ["values", "prediction"] if algorithm.needs_critic else []
    return found


SAYS = {
    "logp": "the trainer's log-probability",
    "entropy": "entropy",
    "reference": "the reference's log-probability",
    "top_logp": r"\(top_logp\)",
    "values": "the critic's values",
    "prediction": "the critic's value",
}
CASES = [(preset, name) for preset in EVERY for name in reads(preset)]


@pytest.mark.parametrize(
    ("preset", "name", "number"),
    [(*case, NUMBERS[i % 3]) for i, case in enumerate(CASES)],
    ids=[f"{preset}-{name}-{NUMBERS[i % 3]}" for i, (preset, name) in enumerate(CASES)],
)
def test_a_number_of_the_trainer_that_is_not_finite_stops_the_step(
    preset: str, name: str, number: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "top_logp" and number == -INF:
        number = NAN  # of a likely token -inf is a number like others: the policy excludes it
    learner, groups = prepared(preset)
    before = weights(learner)
    if name in ("values", "prediction"):
        assert learner.critic is not None
        plain, calls = type(learner.critic.critic).predict, [0]

        def predict(self: Any, *given: Any) -> Tensor:
            calls[0] += 1
            made = plain(self, *given)
            return poison(made, number) if (calls[0] == 1) == (name == "values") else made

        monkeypatch.setattr(type(learner.critic.critic), "predict", predict)
    else:
        of, field = ("reference", "logp") if name == "reference" else ("policy", name)
        wrong = poisoned_logprobs(learner, field, number, of, 0)
        for module in (learner_module, streams_module):
            monkeypatch.setattr(module, "token_logprobs", wrong)
    with pytest.raises(NonFiniteError, match=SAYS[name]) as caught:
        update(learner, groups)
    assert (
        str(caught.value).startswith("step 7: ") and str(number).lstrip("-") in str(caught.value)
    ) or name == "values"
    assert all(torch.equal(one, other) for one, other in zip(weights(learner), before, strict=True))


WITH_REFERENCE = [preset for preset in EVERY if "reference" in PRESETS[preset].kl.kind.traits]


@pytest.mark.parametrize("number", [NAN, INF], ids=["nan", "inf"])
@pytest.mark.parametrize("preset", WITH_REFERENCE)
def test_a_reference_with_weights_that_are_not_finite_is_named(preset: str, number: float) -> None:
    learner, groups = prepared(preset)
    assert learner.reference is not None
    with torch.no_grad():
        for parameter in learner.reference.model.parameters():
            parameter.fill_(number)
    with pytest.raises(NonFiniteError, match="step 7: the reference's log-probability is nan at token"):
        update(learner, groups)


@pytest.mark.parametrize("preset", EVERY)
def test_policy_weights_that_are_not_finite_are_named(preset: str) -> None:
    learner, groups = prepared(preset)
    with torch.no_grad():
        next(learner.policy.model.parameters()).fill_(NAN)
    with pytest.raises(NonFiniteError, match=r"step 7: (the trainer's log-probability is nan|the critic's values)"):
        update(learner, groups)


@pytest.mark.parametrize(("preset", "number"), EVERY_NUMBER)
def test_a_gradient_that_is_not_finite_is_named(preset: str, number: float) -> None:
    learner, groups = prepared(preset)
    before = weights(learner)
    name, parameter = list(learner.policy.model.named_parameters())[-1]
    parameter.register_hook(lambda gradient: torch.full_like(gradient, number))
    with pytest.raises(NonFiniteError, match=rf"step 7: the gradient norm is (nan|-?inf) \(the gradient of {name}\)"):
        update(learner, groups)
    if learner.critic is None:
        assert all(torch.equal(one, other) for one, other in zip(weights(learner), before, strict=True))


@pytest.mark.parametrize("preset", ["grpo", "ppo", "gspo", "high_entropy", "dppo_topk"])
def test_later_updates_of_a_batch_are_looked_at_as_the_first(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, groups = prepared(preset, train=TWICE)
    wrong = poisoned_logprobs(learner, "logp", NAN, "policy", 3)
    for module in (learner_module, streams_module):
        monkeypatch.setattr(module, "token_logprobs", wrong)
    with pytest.raises(NonFiniteError, match="step 7: the trainer's log-probability is nan"):
        update(learner, groups)


# Numbers that are not finite, on the engine's side


def with_tokens(group: Group, field: str, number: float) -> Group:
    """A group whose first sample has another number at its last token."""
    sample = group.samples[0]
    value = getattr(sample, field).copy()
    value[-1] = number
    return replace(group, samples=(replace(sample, **{field: value}), *group.samples[1:]))


FIELDS = [(preset, ("kept_logmass", "temperature")[i % 2]) for i, preset in enumerate(EVERY)]


@pytest.mark.parametrize(("preset", "field"), FIELDS)
def test_what_the_engine_reports_of_its_sampling_is_named(preset: str, field: str) -> None:
    learner, groups = prepared(preset)
    groups[0] = with_tokens(groups[0], field, NAN)
    said = rf"step 7: the engine's {field} is nan at token \d+|the critic's values"
    with pytest.raises(NonFiniteError, match=said):
        update(learner, groups)


@pytest.mark.parametrize(("preset", "number"), EVERY_NUMBER)
def test_an_unknown_behaviour_probability_is_the_documented_exclusion(preset: str, number: float) -> None:
    learner, groups = prepared(preset, train=TWICE)
    groups[0] = with_tokens(groups[0], "logp_behaviour", number)
    metrics = update(learner, groups)
    assert metrics["policy/untrusted_tokens"] > 0
    assert all(math.isfinite(value) for value in metrics.values()), metrics
    assert all(bool(value.isfinite().all()) for value in weights(learner))


@pytest.mark.parametrize(("number", "untrusted"), [(NAN, True), (INF, True), (-INF, False)], ids=["nan", "inf", "-inf"])
def test_an_unknown_probability_of_a_likely_token_makes_its_place_untrusted(number: float, untrusted: bool) -> None:
    learner, groups = prepared("dppo_topk")
    sample = groups[0].samples[0]
    top = sample.top_logp.copy()
    top[-1, 3] = number
    assert sample.origin[-1] == Origin.POLICY
    changed = (replace(sample, top_logp=top), *groups[0].samples[1:])
    metrics = update(learner, [replace(groups[0], samples=changed), *groups[1:]])
    assert (metrics["policy/untrusted_tokens"] > 0) == untrusted
