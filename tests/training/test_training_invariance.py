"""The update of a fixed batch depends on the batch, not on how it is cut, ordered or laid out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from surefoot.algorithms.presets import PRESETS
from surefoot.config import merge
from surefoot.policy.loading import load_policy
from surefoot.training import learner as learner_module
from surefoot.training.clock import Clock
from surefoot.training.loop import make_learner
from surefoot.training.state import RunState
from surefoot.types import Finish, Group, Origin, Prompt, Sample, Score, Status, StepScore
from tests.training.tiny import tiny

# What keeps an update from depending on rewards alone: taken out where a test says which rows have a gradient.
PLAIN = {"kl": "none", "reset": "never", "selection": "keep", "shaping": "none"}


def score(total: float, style: float) -> Score:
    """Rewards between 0 and 1, with named parts and a step, so that every preset takes them."""
    return Score(total, {"accuracy": total, "style": style}, correct=total > 0.5, steps=(StepScore(1, total, token=0),))


def make_groups(
    policy: Any, sizes: Sequence[int] = (4, 4, 3), *, seed: int = 0, eos_in_prompt: bool = False, preset: str = ""
) -> list[Group]:
    """Groups of random samples of unequal length, with the log-probabilities of these weights as behaviour.

    Rewards lie between 0 and 1; they are one of the two for a preset that counts successes.
    """
    counts = bool(preset) and PRESETS[preset].advantage.name == "maximum_likelihood"
    rng = np.random.default_rng(seed)
    groups = []
    for g, size in enumerate(sizes):
        prompt_ids = rng.integers(3, 60, size=rng.integers(3, 9))
        if eos_in_prompt:
            prompt_ids[1] = policy.tokenizer.eos_token_id
        samples = []
        for k in range(size):
            completion = rng.integers(3, 60, size=rng.integers(1, 12))
            completion[-1] = policy.tokenizer.eos_token_id
            samples.append(make_sample(policy, prompt_ids, completion, f"p{g}", k))
        scores = [score(float(rng.random()), float(rng.random())) for _ in samples]
        scores[0] = score(0.9 - 0.01 * g, 0.3)
        scores[-1] = score(0.1 + 0.01 * g, 0.7)
        if counts:
            scores = [score(float(one.total > 0.5), one.components["style"]) for one in scores]
        groups.append(Group(Prompt(f"p{g}", "?"), tuple(samples), tuple(scores), greedy=score(0.4, 0.5)))
    return groups


def make_sample(policy: Any, prompt_ids: np.ndarray, completion: np.ndarray, prompt_id: str, number: int) -> Sample:
    """A sample as the engine makes it, its likeliest tokens included; every other one holds a token that was injected."""
    n = len(prompt_ids)
    table = plain_logp(policy, np.concatenate([prompt_ids, completion]))
    logp = table[np.arange(n - 1, n + len(completion) - 1), completion]
    sample = Sample.of(prompt_ids, completion, prompt_id=prompt_id, sample_id=number, logp=logp, finish=Finish.STOP)
    ids = np.zeros((len(sample), 20), dtype=np.int32)
    top = np.full((len(sample), 20), -np.inf, dtype=np.float32)
    ids[n:] = np.argsort(-table[n - 1 : -1], axis=1)[:, :20]
    top[n:] = np.take_along_axis(table[n - 1 : -1], ids[n:].astype(np.int64), axis=1)
    origin = sample.origin.copy()
    if number % 2 and len(completion) > 3:
        origin[n + 1] = Origin.INJECTED
    return replace(sample, origin=origin, top_ids=ids, top_logp=top)


@torch.no_grad()
def plain_logp(policy: Any, ids: np.ndarray) -> np.ndarray:
    """[T, V], row t speaks of token t + 1."""
    return policy.model(input_ids=torch.from_numpy(ids)[None]).logits[0].log_softmax(-1).numpy()


def gradient(
    monkeypatch: pytest.MonkeyPatch, groups: list[Group], **over: Any
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """The gradient that the first optimiser step of an update would take, and the metrics."""
    config = tiny(Path("unused"), **over)
    policy = load_policy(config.model)
    algorithm = config.algorithm.build()
    grads: list[dict[str, torch.Tensor]] = []

    def record(optimiser: Any, model: torch.nn.Module, **_: Any) -> float:
        grads.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
        optimiser.zero_grad(set_to_none=True)
        return 0.0

    monkeypatch.setattr(learner_module, "take_step", record)
    learner = make_learner(config, policy, algorithm)
    _, report = learner.update(groups, RunState(step=1), Clock())
    return grads[0] if grads else {}, report.means()


def same(have: dict[str, torch.Tensor], want: dict[str, torch.Tensor], tolerance: float = 1e-6) -> None:
    assert have.keys() == want.keys() and want
    scale = torch.sqrt(sum((value.double() ** 2).sum() for value in want.values()))
    difference = torch.sqrt(sum(((have[name] - want[name]).double() ** 2).sum() for name in want))
    assert difference <= tolerance * scale, f"relative difference {difference / scale:.2e}"


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_split_into_micro_batches(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = make_groups(load_policy(tiny(Path("unused")).model), preset=preset)
    options = {"algorithm": {"preset": preset}}
    # In one layout: left to itself ("auto") a batch of another size lies in another way, which rounds otherwise (2e-6).
    rows = {"layout": "right"}
    whole, metrics = gradient(monkeypatch, groups, **options, train=rows | {"micro_batch_tokens": 10**6})
    for tokens in (1, 25, 60, 100):
        split, split_metrics = gradient(monkeypatch, groups, **options, train=rows | {"micro_batch_tokens": tokens})
        same(split, whole)
        for name, value in metrics.items():
            assert split_metrics[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_layout_and_chunks(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = make_groups(load_policy(tiny(Path("unused")).model), preset=preset)
    algorithm = {"preset": preset}
    right, _ = gradient(monkeypatch, groups, algorithm=algorithm)
    for layout in ("left", "packed"):
        other, _ = gradient(monkeypatch, groups, algorithm=algorithm, train={"layout": layout})
        same(other, right, 2e-6)
    chunked, _ = gradient(monkeypatch, groups, algorithm=algorithm, model={"logprob_chunk": 7})
    same(chunked, right)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_order_of_groups_and_of_samples(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = make_groups(load_policy(tiny(Path("unused")).model), preset=preset)
    want, _ = gradient(monkeypatch, groups, algorithm={"preset": preset})
    shuffled = [
        Group(group.prompt, tuple(reversed(group.samples)), tuple(reversed(group.scores)), group.greedy)
        for group in (groups[2], groups[0], groups[1])
    ]
    have, _ = gradient(monkeypatch, shuffled, algorithm={"preset": preset})
    same(have, want)


@pytest.mark.parametrize("preset", ["ppo", "high_entropy", "grpo_process", "gspo"])
def test_several_mini_batches_see_one_split(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of several updates, whatever its micro-batches: the old pass, token weights and values are in play."""
    groups = make_groups(load_policy(tiny(Path("unused")).model), preset=preset)
    options = {"algorithm": {"preset": preset}}
    whole, _ = gradient(monkeypatch, groups, **options, train={"updates_per_step": 2, "micro_batch_tokens": 10**6})
    split, _ = gradient(monkeypatch, groups, **options, train={"updates_per_step": 2, "micro_batch_tokens": 30})
    same(split, whole)


@pytest.mark.parametrize("tokens", [1, 30, 10**6])
@pytest.mark.parametrize("preset", ["grpo", "grpo_token", "dr_grpo"])
def test_on_policy_the_ratio_is_one_and_the_engine_agrees(
    preset: str, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = make_groups(load_policy(tiny(Path("unused")).model), preset=preset)
    _, metrics = gradient(monkeypatch, groups, algorithm={"preset": preset}, train={"micro_batch_tokens": tokens})
    assert metrics["policy/ratio_max"] == 1.0
    assert metrics["policy/ratio_inverse_max"] == 1.0
    assert metrics["policy/mismatch_max"] < 1e-4
    behaviour = {"preset": preset, "ratio": {"anchor": "behaviour"}}
    _, metrics = gradient(monkeypatch, groups, algorithm=behaviour, train={"micro_batch_tokens": tokens})
    assert abs(metrics["policy/ratio_max"] - 1) < 1e-4


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_skipped_rows_count_in_the_denominators(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group with equal rewards has no gradient, is not computed, and still dilutes the others."""
    policy = load_policy(tiny(Path("unused")).model)
    groups = make_groups(policy, preset=preset)
    flat = Group(groups[1].prompt, groups[1].samples, tuple(score(1.0, 1.0) for _ in groups[1].samples))
    with_flat = [groups[0], flat, groups[2]]
    plain = {"preset": preset} | PLAIN
    have, metrics = gradient(monkeypatch, with_flat, algorithm=plain)
    # Whitening by tokens moves the mean, so that no row is left at 0.
    if "group" in PRESETS[preset].advantage.kind.traits and preset != "reinforce_pp_baseline":
        trained = sum(sample.length for group in (groups[0], groups[2]) for sample in group.samples)
        assert metrics["tokens/trained"] == trained
    # The same gradient, without the skip: a vanishing KL term keeps every row in the forward pass.
    kept, kept_metrics = gradient(monkeypatch, with_flat, algorithm=plain | {"kl": {"kind": "in_loss", "coef": 1e-30}})
    same(have, kept)
    assert kept_metrics["tokens/trained"] == sum(sample.length for group in with_flat for sample in group.samples)


def test_dropped_groups_leave_the_denominators(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = make_groups(load_policy(tiny(Path("unused")).model))
    flat = Group(groups[1].prompt, groups[1].samples, tuple(score(1.0, 1.0) for _ in groups[1].samples))
    options = {"preset": "dr_grpo"}
    kept, _ = gradient(monkeypatch, [groups[0], flat], algorithm=options)
    dropped, _ = gradient(monkeypatch, [groups[0], flat], algorithm=options | {"selection": "drop_no_signal"})
    alone, _ = gradient(monkeypatch, [groups[0]], algorithm=options)
    same(dropped, alone)
    same({name: 2 * value for name, value in kept.items()}, alone)


def test_pad_equal_to_eos_changes_nothing_and_eos_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load_policy(tiny(Path("unused")).model)
    groups = make_groups(policy, eos_in_prompt=True)
    want, metrics = gradient(monkeypatch, groups, algorithm={"preset": "grpo_token"})
    assert metrics["tokens/trained"] == sum(sample.length for group in groups for sample in group.samples)
    real = load_policy

    def with_pad_as_eos(config: Any) -> Any:
        loaded = real(config)
        loaded.tokenizer.pad_token = loaded.tokenizer.eos_token
        loaded.model.config.pad_token_id = loaded.tokenizer.eos_token_id
        return loaded

    monkeypatch.setitem(globals(), "load_policy", with_pad_as_eos)
    have, _ = gradient(monkeypatch, groups, algorithm={"preset": "grpo_token"})
    same(have, want, 1e-12)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_batches_with_nothing_to_learn_take_no_step(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load_policy(tiny(Path("unused")).model)
    groups = make_groups(policy, preset=preset)
    options = {"algorithm": {"preset": preset} | PLAIN}
    critic = PRESETS[preset].needs_critic
    invalid = [
        Group(g.prompt, g.samples, tuple(Score.failed(Status.INVALID, "nan") for _ in g.samples), g.greedy)
        for g in groups
    ]
    # A group without a success pushes all of its samples down where the objective is the likelihood of a success.
    equal = 1.0 if preset == "maxrl" else 0.0
    zero = [Group(g.prompt, g.samples, tuple(score(equal, 0.0) for _ in g.samples), score(equal, 0.0)) for g in groups]
    empty = [
        Group(g.prompt, tuple(Sample.of(s.ids[:3], s.ids[:0], prompt_id="e") for s in g.samples), g.scores, g.greedy)
        for g in groups
    ]
    for batch in (invalid, zero, empty):
        grads, metrics = gradient(monkeypatch, batch, **options)
        assert not any(value.any() for value in grads.values())
        assert critic or grads == {}
        assert critic or metrics.get("updates/taken", 0.0) == 0.0
        assert all(np.isfinite(value) for value in metrics.values())


def test_an_empty_completion_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load_policy(tiny(Path("unused")).model)
    (group,) = make_groups(policy, (4,))
    empty = Sample.of(group.samples[0].ids[:3], group.samples[0].ids[:0], prompt_id="p0")
    samples = (empty, *group.samples[1:])
    grads, metrics = gradient(monkeypatch, [Group(group.prompt, samples, group.scores)], algorithm={"preset": "grpo"})
    assert all(value.isfinite().all() for value in grads.values())
    assert metrics["tokens/trained"] == sum(sample.length for sample in samples)


def test_an_ungraded_sample_is_as_if_it_had_not_been_in_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load_policy(tiny(Path("unused")).model)
    (group,) = make_groups(policy, (4,))
    options = {"algorithm": {"preset": "dr_grpo", "aggregation": "token_sum"}}
    bad = (group.scores[0], Score.failed(Status.INVALID, "the reward is nan"), *group.scores[2:])
    have, _ = gradient(monkeypatch, [Group(group.prompt, group.samples, bad)], **options)
    rest = Group(group.prompt, (group.samples[0], *group.samples[2:]), (group.scores[0], *group.scores[2:]))
    want, _ = gradient(monkeypatch, [rest], **options)
    same(have, want)


def test_untrusted_behaviour_tokens_have_no_gradient_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load_policy(tiny(Path("unused")).model)
    (group,) = make_groups(policy, (4,))
    logp = group.samples[0].logp_behaviour.copy()
    logp[-2] = -np.inf
    broken = replace(group.samples[0], logp_behaviour=logp)
    batch = [Group(group.prompt, (broken, *group.samples[1:]), group.scores)]
    options = {"preset": "dr_grpo", "ratio": {"anchor": "behaviour"}}
    grads, metrics = gradient(monkeypatch, batch, algorithm=options)
    assert all(value.isfinite().all() for value in grads.values())
    assert metrics["policy/untrusted_tokens"] == pytest.approx(
        1 / sum(len(s.logp_behaviour[s.mask]) for s in group.samples)
    )


def test_non_finite_weights_stop_the_step_and_name_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    from surefoot.errors import NonFiniteError

    policy = load_policy(tiny(Path("unused")).model)
    groups = make_groups(policy)

    def poisoned(config: Any) -> Any:
        loaded = load_policy_before(config)
        with torch.no_grad():
            next(loaded.model.parameters())[5] = float("nan")
        return loaded

    load_policy_before = load_policy
    monkeypatch.setitem(globals(), "load_policy", poisoned)
    with pytest.raises(NonFiniteError, match="no step was taken"):
        gradient(monkeypatch, groups, algorithm={"preset": "dr_grpo"})


def test_several_updates_see_the_old_policy_of_the_batch(tmp_path: Path) -> None:
    """With two epochs the ratio leaves 1 in the second, against the weights at the start of the batch."""
    from surefoot.training.loop import train
    from tests.training.tiny import digits_reward

    config = tiny(
        tmp_path, train={"steps": 1, "epochs": 3}, optimiser={"lr": 3e-3}, algorithm=merge({"preset": "grpo_token"}, {})
    )
    result = train(config, reward=digits_reward())
    import json

    (metrics,) = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()]
    assert metrics["policy/ratio_max"] > 1.01
    assert metrics["policy/kl_behaviour"] > 0
    assert result.summary["updates"] == 3
