"""Every way to compute an update gives the same update: layouts, shared prompts, kept probabilities, layers computed again."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from surefoot.algorithms.presets import PRESETS
from surefoot.metrics import StepReport
from surefoot.policy import layout as layout_module
from surefoot.policy.loading import load_policy
from surefoot.policy.packing import count, pack
from surefoot.training import learner as learner_module
from surefoot.training import streams as streams_module
from surefoot.training.clock import Clock
from surefoot.training.learner import Learner, Update
from surefoot.training.loop import make_learner
from surefoot.training.state import RunState
from surefoot.training.streams import Streams
from surefoot.types import Group, Sample
from tests.training.test_training_invariance import gradient, make_groups, same, score
from tests.training.tiny import tiny


def groups_of_tiny(**options: Any) -> list[Group]:
    return make_groups(load_policy(tiny(Path("unused")).model), **options)


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Tokens that each stream has, and those that its sequences have one by one."""
    seen: list[tuple[int, int]] = []
    real = layout_module.make_stream

    def noted(packed: Any, *arguments: Any, **options: Any) -> Any:
        stream = real(packed, *arguments, **options)
        seen.append((len(stream.ids), int((packed.lengths - 1).sum())))
        return stream

    monkeypatch.setattr(layout_module, "make_stream", noted)
    return seen


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_shared_prompts_and_no_padding(
    preset: str, shapes: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, algorithm = groups_of_tiny(preset=preset), {"preset": preset}
    plain, metrics = gradient(monkeypatch, groups, algorithm=algorithm, train={"layout": "right"})
    assert not shapes
    for layout in ("packed", "shared", "auto"):
        shapes.clear()
        for tokens in (40, 10**6):
            train = {"layout": layout, "micro_batch_tokens": tokens}
            have, found = gradient(monkeypatch, groups, algorithm=algorithm, train=train)
            same(have, plain, 3e-6)
            for name, value in metrics.items():
                assert found[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
        assert shapes
        assert any(have < alone for have, alone in shapes) == (layout != "packed")


@pytest.mark.parametrize("kind", ["head", "model"])
def test_a_critic_on_shared_prompts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = groups_of_tiny()
    options = {"algorithm": {"preset": "ppo"}, "critic": {"kind": kind}}
    plain, _ = gradient(monkeypatch, groups, **options, train={"layout": "right"})
    shared, _ = gradient(monkeypatch, groups, **options, train={"layout": "shared"})
    same(shared, plain, 3e-6)


def test_a_long_prompt_and_short_answers(shapes: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The case that sharing is for, an empty and a one-token answer included."""
    policy = load_policy(tiny(Path("unused")).model)
    rng = np.random.default_rng(1)
    prompt = rng.integers(3, 60, 150)
    answers = [rng.integers(3, 60, n) for n in (6, 1, 0, 4, 2, 8)]
    logp = [np.full(len(answer), -4.0) for answer in answers]
    samples = tuple(
        Sample.of(prompt, answer, prompt_id="p", sample_id=k, logp=logp[k]) for k, answer in enumerate(answers)
    )
    group = Group(make_groups(policy, (1,))[0].prompt, samples, tuple(score(k / 6, 0.5) for k in range(6)))
    options = {"algorithm": {"preset": "dr_grpo"}}
    plain, _ = gradient(monkeypatch, [group], **options, train={"layout": "right"})
    auto, _ = gradient(monkeypatch, [group], **options)
    same(auto, plain, 3e-6)
    assert shapes == [(150 + 5 + 3 + 1 + 7, 5 * 149 + 21)]


def test_rows_that_are_skipped_leave_a_shared_prompt_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = groups_of_tiny()
    flat = Group(groups[1].prompt, groups[1].samples, tuple(score(1.0, 1.0) for _ in groups[1].samples))
    options = {"preset": "grpo_token", "advantage": "leave_one_out"}
    skipped, metrics = gradient(monkeypatch, [groups[0], flat], algorithm=options, train={"layout": "shared"})
    assert metrics["tokens/trained"] == sum(sample.length for sample in groups[0].samples)
    every = options | {"kl": {"kind": "in_loss", "coef": 1e-30}}
    kept, _ = gradient(monkeypatch, [groups[0], flat], algorithm=every, train={"layout": "right"})
    same(skipped, kept, 3e-6)


@pytest.mark.parametrize("preset", ["dr_grpo", "grpo", "high_entropy", "dppo_topk"])
@pytest.mark.parametrize("layout", ["right", "shared"])
def test_probabilities_kept_or_computed_again_and_layers_too(
    preset: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = groups_of_tiny()
    # The terms of the loss apart where there are several, which takes two backward passes of one graph.
    options = {"algorithm": {"preset": preset}, "train": {"layout": layout}, "track": {"policy_grad_norm": 1}}
    kept, _ = gradient(monkeypatch, groups, **options)
    for model in ({"logprob_keep": 0}, {"checkpointing": True}, {"logprob_keep": 0, "logprob_chunk": 5}):
        have, _ = gradient(monkeypatch, groups, **options, model=model)
        same(have, kept)


@pytest.mark.parametrize("layout", ["right", "packed", "shared"])
@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum"])
def test_skipped_rows_are_not_computed_and_stay_in_the_denominators(
    aggregation: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = groups_of_tiny()
    flat = Group(groups[1].prompt, groups[1].samples, tuple(score(1.0, 1.0) for _ in groups[1].samples))
    computed: list[int] = []
    real = learner_module.token_logprobs

    def noted(policy: Any, packed: Any, **how: Any) -> Any:
        computed.append(packed.sequences)
        return real(policy, packed, **how)

    options = {"preset": "grpo_token", "advantage": "leave_one_out", "aggregation": aggregation}
    with monkeypatch.context() as patch:
        patch.setattr(learner_module, "token_logprobs", noted)
        skipped, _ = gradient(patch, [groups[0], flat], algorithm=options, train={"layout": layout})
        spoken = sum(sample.length > 0 for sample in groups[0].samples)
        assert sum(computed) == spoken
        computed.clear()
        patch.setattr(type(PRESETS["grpo_token"]), "silent_without_advantage", lambda self, *, on_policy: False)
        kept, _ = gradient(patch, [groups[0], flat], algorithm=options, train={"layout": layout})
        assert sum(computed) == spoken + sum(sample.length > 0 for sample in flat.samples)
    same(skipped, kept, 3e-6)
    alone, _ = gradient(monkeypatch, groups[:1], algorithm=options, train={"layout": layout})
    name = next(iter(alone))
    assert not torch.allclose(alone[name], skipped[name], rtol=1e-2)  # the rows that are skipped are counted


def updated(groups: list[Group], **over: Any) -> tuple[Learner, dict[str, float]]:
    """A learner after the steps of one batch, and the metrics."""
    config = tiny(Path("unused"), **over)
    learner = make_learner(config, load_policy(config.model), config.algorithm.build())
    _, report = learner.update(groups, RunState(step=1), Clock())
    return learner, report.means()


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in learner.policy.model.named_parameters()}


@pytest.mark.parametrize("cut", [{"updates_per_step": 3}, {"epochs": 2}, {"updates_per_step": 2, "epochs": 2}])
@pytest.mark.parametrize("preset", ["grpo_token", "gspo", "ppo", "decoupled_ppo"])
def test_the_old_policy_is_read_only_where_the_first_step_does_not_show_it(
    preset: str, cut: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = groups_of_tiny()
    options = {"algorithm": {"preset": preset}, "train": cut | {"layout": "right"}, "optimiser": {"lr": 1e-3}}
    rows: list[int] = []
    real = streams_module.row_logprobs

    def noted(policy: Any, samples: Any, **how: Any) -> Any:
        rows.append(len(samples))
        return real(policy, samples, **how)

    def everything(self: Learner, batch: Any, streams: Any, step: int, report: Any) -> Any:
        limit = self.config.train.micro_batch_tokens
        return real(self.policy, batch.samples, max_tokens=limit, layout=self.layout)[0]

    monkeypatch.setattr(learner_module, "row_logprobs", noted)
    have, metrics = updated(groups, **options)
    if not have.algorithm.kl_in_reward:  # which needs it of every row beforehand
        assert sum(rows) < sum(len(group.samples) for group in groups)
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "_old", everything)
        want, all_metrics = updated(groups, **options)
    assert metrics["policy/ratio_max"] == pytest.approx(all_metrics["policy/ratio_max"], rel=1e-4)
    before = dict(load_policy(tiny(Path("unused")).model).model.named_parameters())
    same(
        {name: value - before[name].detach() for name, value in weights(have).items()},
        {name: value - before[name].detach() for name, value in weights(want).items()},
        1e-3,  # Adam turns rounding in gradients near zero into steps of full size
    )


def test_what_the_engine_sampled_with_stands_for_the_old_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = groups_of_tiny()
    options: dict[str, Any] = {"algorithm": {"preset": "grpo_token"}}
    rows: list[int] = []
    real = streams_module.row_logprobs
    monkeypatch.setattr(
        learner_module,
        "row_logprobs",
        lambda policy, samples, **how: (rows.append(len(samples)), real(policy, samples, **how))[1],
    )
    plain, _ = gradient(monkeypatch, groups, **options, train={"updates_per_step": 2})
    assert rows
    rows.clear()
    have, metrics = gradient(monkeypatch, groups, **options, train={"updates_per_step": 2, "old": "behaviour"})
    assert not rows
    same(have, plain, 2e-5)
    assert metrics["policy/ratio_max"] == pytest.approx(1, abs=1e-4)
    # A log-probability that is not finite cannot be the old one.
    broken = groups[0].samples[0].logp_behaviour.copy()
    broken[-1] = -np.inf
    sample = replace(groups[0].samples[0], logp_behaviour=broken)
    first = Group(groups[0].prompt, (sample, *groups[0].samples[1:]), groups[0].scores, groups[0].greedy)
    have, _ = gradient(monkeypatch, [first, *groups[1:]], **options, train={"updates_per_step": 2, "old": "behaviour"})
    assert rows and all(value.isfinite().all() for value in have.values())


@pytest.mark.parametrize("preset", ["grpo_token", "gspo", "reinforce"])
def test_one_update_needs_a_single_pass_over_each_row(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    groups, passes = groups_of_tiny(), []
    real = learner_module.token_logprobs

    def noted(policy: Any, packed: Any, **how: Any) -> Any:
        passes.extend(packed.sample_index.tolist())
        return real(policy, packed, **how)

    for module in (learner_module, streams_module):
        monkeypatch.setattr(module, "token_logprobs", noted)
    gradient(monkeypatch, groups, algorithm={"preset": preset})
    assert passes and len(passes) == len(set(passes))


def test_a_kl_term_in_the_reward_reads_what_the_engine_sampled_with(monkeypatch: pytest.MonkeyPatch) -> None:
    groups, read = groups_of_tiny(), []
    real = streams_module.row_logprobs

    def noted(policy: Any, samples: Any, **how: Any) -> Any:
        read.append(policy)
        return real(policy, samples, **how)

    monkeypatch.setattr(learner_module, "row_logprobs", noted)
    options = {"algorithm": {"preset": "grpo_token", "kl": {"kind": "in_reward", "coef": 0.1}}}
    plain, _ = gradient(monkeypatch, groups, **options)
    assert len(read) == 2  # the policy and the reference
    read.clear()
    have, _ = gradient(monkeypatch, groups, **options, train={"old": "behaviour"})
    assert len(read) == 1
    same(have, plain, 2e-5)


def test_rows_with_and_without_old_log_probabilities_side_by_side() -> None:
    """Known ones are kept, unknown ones are those of the first step; after it an unknown one is refused."""
    config = tiny(Path("unused"), train={"updates_per_step": 2})
    learner = make_learner(config, load_policy(config.model), config.algorithm.build())
    samples = [sample for sample in groups_of_tiny()[0].samples if sample.length]
    totals = count(samples, [0] * len(samples), 1.0)
    (packed,) = pack(samples, [1.0] * len(samples), [0] * len(samples), totals, max_tokens=10**6, order="given")
    now = torch.arange(float(packed.mask.sum()))
    parts = now.split(packed.loss_tokens.long().tolist())
    old = [torch.zeros(0), *(part - 100 for part in parts[1:])]
    batch: Any = None
    update = Update(batch, Streams(), old, RunState(step=1), StepReport(), Clock())
    rows = np.arange(len(samples))
    expected = torch.cat([parts[0], *(part - 100 for part in parts[1:])])
    assert torch.equal(learner._old_of(now, packed, update, rows), expected)
    update.first = False
    assert torch.equal(learner._old_of(now + 7, packed, update, rows), expected)
    update.old[1] = torch.zeros(0)
    with pytest.raises(AssertionError, match="row 1 has no log-probability"):
        learner._old_of(now, packed, update, rows)


CHILD = """
import resource, torch
from surefoot.policy.config import ModelConfig
from surefoot.policy.head import Head
from surefoot.policy.logprob import chunked_logprobs
torch.set_num_threads(1)
head = Head(torch.nn.Linear(8, 150_000, bias=False))
hidden = torch.randn({tokens}, 8, requires_grad=True)
target = torch.zeros({tokens}, dtype=torch.long)
settings = ModelConfig()
logp, entropy, _ = chunked_logprobs(hidden, head, target, torch.ones({tokens}), 256, keep=settings.logprob_keep * 2**20)
logp.sum().backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def peak(tokens: int) -> float:
    """Megabytes that a process of its own needs at its peak."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(tokens=tokens)], capture_output=True, text=True, check=True
    )
    return float(done.stdout.splitlines()[-1])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("tokens", [1024, pytest.param(16384, marks=pytest.mark.slow)])
def test_memory_does_not_grow_with_tokens_times_vocabulary(tokens: int) -> None:
    """A vocabulary of 150,000: the logits of these tokens alone would take 600 MB for every 1,024 of them."""
    assert peak(tokens) < peak(512) + 100
