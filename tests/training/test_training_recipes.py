"""What a step does besides the loss: which prompts, how completions end, further rollouts, greedy baselines, resets."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from surefoot.config import validate
from surefoot.errors import AlgorithmError, ConfigError
from surefoot.rewards.functions import as_reward
from surefoot.training.assemble import assemble
from surefoot.training.clock import Clock
from surefoot.training.collect import collect
from surefoot.training.config import RunConfig
from surefoot.training.loop import make_learner, train
from surefoot.training.prompts import PromptSource
from surefoot.training.resets import reset_if_due
from surefoot.training.state import RunState
from surefoot.types import Finish, Origin, Prompt, Sample, Score
from tests.training.tiny import digits_reward, share_of_digits, tiny


def run(tmp_path: Path, reward: Any = None, resume: bool = False, **over: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(tiny(tmp_path, **over), reward=reward or digits_reward(), resume=resume).folder


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def parts_of(tmp_path: Path, reward: Any = None, **over: Any) -> tuple[Any, Any, Any]:
    config = tiny(tmp_path, **over)
    return config, assemble(config, reward=reward or digits_reward()), config.algorithm.build()


@as_reward
def half_of_the_prompts(prompt: str, completion: str, answer: object) -> Score:
    """Half of the prompts have right and wrong answers, the others only wrong ones."""
    right = hash_of(prompt) % 2 == 0 and hash_of(completion) % 2 == 0
    return Score(float(right), correct=right)


def hash_of(text: str) -> int:
    return sum(text.encode())


def test_refill_samples_until_the_step_is_full(tmp_path: Path) -> None:
    config, parts, algorithm = parts_of(tmp_path, half_of_the_prompts, algorithm={"preset": "dapo"})
    state = RunState(step=1)
    source = PromptSource(algorithm.prompts, parts.task.train, config.seed, state)
    rollouts = collect(config, parts, algorithm, source, state, Clock())
    assert len(rollouts.groups) == 3 and rollouts.rounds > 1
    for group in rollouts.groups:
        assert 0 < sum(score.correct for score in group.scores) < len(group.scores)
    assert len(rollouts.everything) == 3 * rollouts.rounds
    names = [(s.prompt_id, s.sample_id) for group in rollouts.everything for s in group.samples]
    assert len(set(names)) == len(names), "two samples of a prompt have one number, and so one stream of random numbers"
    assert state.cursor == 3 * rollouts.rounds


def test_refill_is_bounded_and_goes_on_with_what_there_is(tmp_path: Path) -> None:
    dapo = {"preset": "dapo", "selection": {"kind": "refill", "rounds": 3}}
    folder = run(tmp_path, as_reward(lambda p, c, a: 1.0), algorithm=dapo, train={"steps": 2})
    for record in lines(folder / "metrics.jsonl"):
        assert (record["rollout/rounds"], record["batch/groups"], record["batch/groups_sampled"]) == (3, 0, 9)
        assert record["reward/mean"] == 1.0 and "optimiser/grad_norm" not in record
    assert "refill" in [record["name"] for record in lines(folder / "warnings.jsonl")]


@pytest.mark.parametrize("preset", ["high_entropy", "prorl"])
def test_a_step_without_any_group_takes_no_step(preset: str, tmp_path: Path) -> None:
    """Also where passes before the update, a reference or a critic have nothing to compute."""
    algorithm = {"preset": preset, "selection": {"rounds": 2}}
    options = {"train": {"steps": 2, "updates_per_step": 2}, "evaluation": {"every": 1}}
    folder = run(tmp_path, as_reward(lambda p, c, a: 0.0), algorithm=algorithm, **options)
    assert json.loads((folder / "result.json").read_text())["updates"] == 0
    critic = {"preset": "ppo", "selection": {"kind": "refill", "rounds": 2}}
    folder = run(tmp_path / "ppo", as_reward(lambda p, c, a: 0.0), algorithm=critic, **options)
    assert json.loads((folder / "result.json").read_text())["updates"] == 0


def test_ungraded_rows_are_no_evidence_for_the_critic(tmp_path: Path) -> None:
    broken = as_reward(lambda p, c, a: float("nan"))
    folder = run(tmp_path, broken, algorithm={"preset": "ppo"}, train={"steps": 1})
    assert "critic/explained_variance" not in lines(folder / "metrics.jsonl")[0]


def test_metrics_are_of_everything_that_was_sampled(tmp_path: Path) -> None:
    folder = run(tmp_path, half_of_the_prompts, algorithm={"preset": "dapo"}, train={"steps": 1})
    (record,) = lines(folder / "metrics.jsonl")
    (times,) = lines(folder / "timings.jsonl")
    assert record["batch/groups_sampled"] > record["batch/groups"] == 3
    assert 0 < record["groups/no_signal"] < 1
    assert times["tokens_generated"] == record["tokens/generated"] > record["tokens/trained"]


def test_solved_prompts_leave_and_the_run_ends_when_none_is_left(tmp_path: Path) -> None:
    options = {
        "algorithm": {"preset": "scalerl", "interruption": "none"},
        "task": {"train_size": 6},
        "train": {"steps": 50},
    }
    folder = run(tmp_path, as_reward(lambda p, c, a: Score(1.0, correct=True)), **options)
    result = json.loads((folder / "result.json").read_text())
    assert result["steps"] == 2  # three prompts a step, each solved at once
    assert "exhausted" in [record["name"] for record in lines(folder / "warnings.jsonl")]
    assert result["ended"] == "prompts"
    assert [record["step"] for record in lines(folder / "evaluations.jsonl")][-1] == 2
    before = (folder / "metrics.jsonl").read_bytes()
    run(tmp_path, as_reward(lambda p, c, a: Score(1.0, correct=True)), resume=True, **options)
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_unsolved_prompts_stay_and_solved_ones_do_not_come_back(tmp_path: Path) -> None:
    config, parts, algorithm = parts_of(tmp_path, algorithm={"preset": "scalerl", "interruption": "none"})
    state = RunState(history={str(i): [10, 10 if i % 2 else 8] for i in range(24)})
    source = PromptSource(algorithm.prompts, parts.task.train, config.seed, state)
    taken = [i for step in range(8) for i in source.take(5, step, 1)]
    assert set(taken) == set(range(0, 24, 2)) and len(taken) == 40
    assert sorted(source.take(100, 9, 1)) == list(range(0, 24, 2)), "no prompt twice in a rollout batch"


def test_prioritised_prompts_follow_the_success_rates(tmp_path: Path) -> None:
    config, parts, algorithm = parts_of(tmp_path, algorithm={"preset": "kimi_k15"})
    state = RunState(history={str(i): [10, 10 if i < 20 else 0] for i in range(24)})
    source = PromptSource(algorithm.prompts, parts.task.train, config.seed, state)
    for step in range(5):
        taken = source.take(3, step, 1)
        assert len(set(taken)) == 3 and min(taken) >= 20
    assert source.take(3, 1, 1) == source.take(3, 1, 1) != source.take(3, 1, 2)


def test_a_curriculum_wants_labels(tmp_path: Path) -> None:
    prompts = [Prompt(f"p{i}", "?", metadata={"difficulty": i}) for i in range(10)]
    curriculum = {"prompts": {"kind": "curriculum", "start": 0.2, "steps": 10}}
    algorithm = tiny(tmp_path, algorithm=curriculum).algorithm.build()
    source = PromptSource(algorithm.prompts, prompts, 0, RunState())
    assert set(source.take(6, 1, 1)) <= {0, 1, 2}
    assert max(source.take(20, 11, 1)) == 9
    with pytest.raises(AlgorithmError, match="none has a label"):
        PromptSource(algorithm.prompts, [Prompt("p", "?")], 0, RunState())


def test_the_greedy_completion_is_a_baseline_and_nothing_else(tmp_path: Path) -> None:
    config, parts, algorithm = parts_of(tmp_path, algorithm={"preset": "remax"}, train={"group_size": 1})
    state = RunState(step=1)
    source = PromptSource(algorithm.prompts, parts.task.train, config.seed, state)
    rollouts = collect(config, parts, algorithm, source, state, Clock())
    learner = make_learner(config, parts.policy, algorithm)
    batch, report = learner.update(rollouts.groups, state, Clock())
    for row, group in enumerate(rollouts.groups):
        assert len(group.samples) == 1 and group.greedy is not None
        assert batch.advantage[row] == pytest.approx(group.scores[0].total - group.greedy.total)
    trained = sum(s.length for g, a in zip(rollouts.groups, batch.advantage, strict=True) for s in g.samples if a)
    assert report.sums["tokens/trained"] == trained


def test_interrupted_completions_hold_the_phrase_and_do_not_train_on_it(tmp_path: Path) -> None:
    options = {
        "algorithm": {"interruption": {"kind": "force_answer", "share": 0.4, "phrase": "\n=", "close": "="}},
        "rollout": {"max_new_tokens": 10},
    }
    config, parts, algorithm = parts_of(tmp_path, **options)
    state = RunState(step=1)
    source = PromptSource(algorithm.prompts, parts.task.train, config.seed, state)
    rollouts = collect(config, parts, algorithm, source, state, Clock())
    samples = [sample for group in rollouts.groups for sample in group.samples]
    phrase = list(parts.renderer.tokens("\n="))
    interrupted = [sample for sample in samples if (sample.origin == Origin.INJECTED).any()]
    assert interrupted
    for sample in interrupted:
        n = sample.prompt_length
        assert sample.ids[n + 4 : n + 6].tolist() == phrase and (sample.origin[n + 4 : n + 6] == Origin.INJECTED).all()
        assert "\n=" in parts.renderer.decode(sample), "a verifier must see where the answer begins"
    _, report = make_learner(config, parts.policy, algorithm).update(rollouts.groups, state, Clock())
    assert report.sums["tokens/trained"] <= sum(sample.length for sample in samples)
    assert report.means()["policy/mismatch_max"] < 1e-4
    evaluation = parts.evaluate(config)
    assert any((s.origin == Origin.INJECTED).any() for group in evaluation.samples for s in group)


def test_an_interruption_without_room_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AlgorithmError, match=r"its phrase takes \d+, which leaves none of rollout.max_new_tokens = 10"):
        parts_of(tmp_path, algorithm={"preset": "scalerl"})


def test_a_reset_makes_the_policy_its_own_reference(tmp_path: Path) -> None:
    algorithm = {"preset": "grpo", "reset": {"kind": "every", "steps": 2}}
    folder = run(tmp_path, algorithm=algorithm, train={"steps": 5, "updates_per_step": 1}, optimiser={"lr": 3e-3})
    divergence = [record["policy/kl_reference"] for record in lines(folder / "metrics.jsonl")]
    assert divergence[0] == 0 and divergence[2] == 0 and divergence[4] == 0
    assert divergence[1] > 1e-6 and divergence[3] > 1e-6
    resets = [{"step": 2, "what": ["reference", "optimiser"], "number": 1}]
    assert lines(folder / "resets.jsonl") == [*resets, resets[0] | {"step": 4, "number": 2}]


@pytest.mark.parametrize("alpha", [1.0, 0.25])
def test_the_reference_is_mixed_and_the_optimiser_cleared(alpha: float, tmp_path: Path) -> None:
    reset = {"kind": "every", "steps": 1, "alpha": alpha}
    config, parts, algorithm = parts_of(tmp_path, algorithm={"preset": "grpo", "reset": reset})
    learner, state = make_learner(config, parts.policy, algorithm), RunState(step=1)
    source = PromptSource(algorithm.prompts, parts.task.train, config.seed, state)
    learner.update(collect(config, parts, algorithm, source, state, Clock()).groups, state, Clock())
    assert learner.reference is not None and learner.optimiser.state
    old = [p.clone() for p in learner.reference.model.parameters()]
    assert reset_if_due(learner, state, [{"step": 0, "accuracy": 0.0}])
    assert not learner.optimiser.state and (state.reset_step, state.resets) == (1, 1)
    for before, after, new in zip(
        old, learner.reference.model.parameters(), parts.policy.model.parameters(), strict=True
    ):
        torch.testing.assert_close(after, alpha * new + (1 - alpha) * before)
        assert not after.requires_grad


def test_the_policy_term_is_measured_apart_without_changing_the_step(tmp_path: Path) -> None:
    base = {"algorithm": {"preset": "grpo", "kl": {"coef": 0.5}}, "train": {"steps": 2}, "optimiser": {"lr": 3e-3}}
    apart = lines(run(tmp_path / "a", **base, track={"policy_grad_norm": 1}) / "metrics.jsonl")
    never = lines(run(tmp_path / "b", **base, track={"policy_grad_norm": 0}) / "metrics.jsonl")
    assert all("optimiser/policy_grad_norm" not in record for record in never)
    for one, other in zip(apart, never, strict=True):
        assert one["optimiser/grad_norm"] == pytest.approx(other["optimiser/grad_norm"], rel=1e-4)
    # At the reference the KL term has no gradient; after a step it has one.
    assert apart[0]["optimiser/policy_grad_norm"] == pytest.approx(apart[0]["optimiser/grad_norm"], rel=1e-5)
    assert abs(apart[1]["optimiser/policy_grad_norm"] / apart[1]["optimiser/grad_norm"] - 1) > 1e-4
    plain = lines(run(tmp_path / "c", algorithm={"preset": "grpo_token"}, train={"steps": 1}) / "metrics.jsonl")
    assert plain[0]["optimiser/policy_grad_norm"] == plain[0]["optimiser/grad_norm"]


@pytest.mark.parametrize("kind", ["head", "model"])
def test_while_the_critic_warms_up_the_policy_waits(kind: str, tmp_path: Path) -> None:
    critic = {"kind": kind, "lr": 1e-2, "warmup_steps": 2}
    folder = run(tmp_path, algorithm={"preset": "ppo"}, critic=critic, train={"steps": 2})
    result = json.loads((folder / "result.json").read_text())
    assert result["updates"] == 0
    before, after = (assemble(tiny(tmp_path, model={"path": path})) for path in ("embedded", str(folder / "model")))
    assert before.policy.checksum() == after.policy.checksum()
    head = load_file(folder / "critic" / "value_head.safetensors")
    assert all(value.any() for value in head.values())
    first, second = lines(folder / "metrics.jsonl")
    assert second["loss/value"] < first["loss/value"]


@pytest.mark.parametrize("kind", ["head", "model"])
def test_the_critic_learns_how_large_the_returns_are(kind: str, tmp_path: Path) -> None:
    options = {
        "critic": {"kind": kind, "lr": 3e-3 if kind == "model" else 3e-2},
        "train": {"steps": 12, "prompts_per_step": 6, "epochs": 2},
        "optimiser": {"lr": 0.0},  # a policy that stays has returns that stay
    }
    folder = run(tmp_path, as_reward(lambda p, c, a: float(c[:1].isalpha())), algorithm={"preset": "ppo"}, **options)
    records = lines(folder / "metrics.jsonl")
    assert records[0]["critic/return"] > 0.3  # the head starts at 0
    assert abs(records[-1]["critic/value"] - records[-1]["critic/return"]) < 0.1
    assert records[0]["critic/explained_variance"] == 0.0  # of the values before the first step, all 0
    assert all(record["critic/explained_variance"] <= 1.0 for record in records)


def test_steps_are_placed_on_the_tokens_where_they_end(tmp_path: Path) -> None:
    task = {"name": "chain_mod", "train_size": 8, "heldout_size": 4, "template": "plain"}
    config = {"task": task, "rollout": {"max_new_tokens": 64}, "algorithm": {"preset": "grpo_process"}}
    parts = assemble(validate(RunConfig, config))
    prompt = parts.task.train[0]
    assert parts.task.demonstrate is not None
    completion = parts.renderer.completion_ids(parts.task.demonstrate(prompt, 0, 0.0))
    sample = Sample.of(parts.renderer.ids(prompt), completion, prompt_id="p", finish=Finish.STOP)
    (score,) = parts.grade([(prompt, sample)])
    assert len(score.steps) > 1 and all(step.value == 1.0 for step in score.steps)
    for step in score.steps:
        ids = sample.ids[sample.mask][: step.token + 1]
        assert len(parts.policy.tokenizer.decode(ids.tolist(), skip_special_tokens=True)) == step.end


def test_the_divergence_over_the_likeliest_tokens_runs_on_what_the_engine_reports(tmp_path: Path) -> None:
    algorithm = {"preset": "dppo_topk", "trust": {"k": 5, "delta": 1e-6}}
    folder = run(tmp_path, algorithm=algorithm, train={"steps": 2, "epochs": 3}, optimiser={"lr": 3e-3})
    assert all(0 < record["policy/masked"] < 1 for record in lines(folder / "metrics.jsonl"))


@pytest.mark.parametrize("how", ["keep", "mask_loss", "drop"])
def test_cut_completions(how: str, tmp_path: Path) -> None:
    config, parts, algorithm = parts_of(
        tmp_path, algorithm={"preset": "dr_grpo", "truncated": how}, rollout={"max_new_tokens": 60}
    )
    state = RunState(step=1)
    source = PromptSource(algorithm.prompts, parts.task.train, config.seed, state)
    groups = collect(config, parts, algorithm, source, state, Clock()).groups
    cut = np.array([s.finish == Finish.LENGTH for g in groups for s in g.samples])
    assert 0 < cut.sum() < len(cut)
    batch, _ = make_learner(config, parts.policy, algorithm).update(groups, state, Clock())
    assert batch.trained.tolist() == ([True] * len(cut) if how == "keep" else (~cut).tolist())
    assert batch.kept.tolist() == ((~cut).tolist() if how == "drop" else [True] * len(cut))
    for number, group in enumerate(groups):
        rewards = np.array([score.total for score in group.scores])
        of_group, stay = batch.group == number, batch.kept[batch.group == number]
        centred = np.where(stay, rewards - rewards[stay].mean(), 0.0)
        np.testing.assert_allclose(batch.advantage[of_group], centred, atol=1e-12)


def final_weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


def test_the_weight_of_the_critics_loss_acts_on_what_the_policy_shares(tmp_path: Path) -> None:
    options = {"critic": {"kind": "head", "lr": 1e-2}, "train": {"steps": 2}}
    small, large = (
        run(tmp_path / str(coef), algorithm={"preset": "ppo", "value": {"coef": coef}}, **options)
        for coef in (0.1, 5.0)
    )
    assert final_weights(small) != final_weights(large)


def test_the_kl_comes_off_before_or_after_the_baseline(tmp_path: Path) -> None:
    folders = []
    for after in (False, True):
        kl = {"kind": "in_reward", "coef": 0.5, "after_baseline": after}
        folders.append(run(tmp_path / str(after), algorithm={"preset": "grpo_token", "kl": kl}, train={"steps": 2}))
    before, after = (lines(folder / "metrics.jsonl") for folder in folders)
    # With the policy as its own reference there is no KL yet; afterwards advantages differ within a row.
    assert before[0]["advantage/abs_mean"] == pytest.approx(after[0]["advantage/abs_mean"], rel=0.2)
    assert final_weights(folders[0]) != final_weights(folders[1])
    assert before[1]["reward/kl_penalty"] != 0.0 and after[1]["reward/kl_penalty"] != 0.0


def test_the_adaptive_coefficient_is_logged_and_moves(tmp_path: Path) -> None:
    kl = {"target": 1e-6, "horizon": 20}
    folder = run(tmp_path, algorithm={"preset": "ppo", "kl": kl}, train={"steps": 3}, optimiser={"lr": 3e-3})
    coefficients = [record["reward/kl_coef"] for record in lines(folder / "metrics.jsonl")]
    assert len(set(coefficients)) == 3


def test_a_reset_by_accuracy_wants_evaluations(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"evaluation.every = 0 measures it only at the ends"):
        tiny(tmp_path, algorithm={"preset": "prorl"}, evaluation={"every": 0})


STATEFUL: dict[str, dict[str, Any]] = {
    "ppo": {"algorithm": {"preset": "ppo", "kl": {"target": 0.01, "horizon": 20}}, "critic": {"lr": 1e-3}},
    "ppo with a head": {"algorithm": {"preset": "ppo"}, "critic": {"kind": "head", "lr": 1e-3}},
    "resets": {"algorithm": {"preset": "grpo", "reset": {"kind": "every", "steps": 2, "alpha": 0.5}}},
    "stagnation": {"algorithm": {"preset": "prorl", "reset": {"patience": 1}, "selection": "keep"}},
    "refill": {"algorithm": {"preset": "dapo", "selection": {"measure": "reward"}}},
    "history": {"algorithm": {"preset": "scalerl", "interruption": "none", "prompts": {"rate": 0.3}}},
    "draws": {"algorithm": {"preset": "kimi_k15", "shaping": {"warmup_steps": 2}}, "train": {"epochs": 2}},
    "greedy": {"algorithm": {"preset": "remax"}},
    "entropy": {"algorithm": {"preset": "high_entropy", "selection": "keep"}, "train": {"updates_per_step": 2}},
}


@pytest.mark.parametrize("name", sorted(STATEFUL))
def test_a_run_in_two_parts_is_the_run_in_one(name: str, tmp_path: Path) -> None:
    common = {"checkpoint": {"every": 1}, "evaluation": {"every": 1}}

    @as_reward
    def reward(prompt: str, completion: str, answer: object) -> Score:
        share = share_of_digits(prompt, completion, answer)
        return Score(share, correct=share > 0.15)

    def go(runs: Path, steps: int, resume: bool = False) -> Path:
        options = {**STATEFUL[name], **common}
        options["train"] = {**options.get("train", {}), "steps": steps}
        return run(runs, reward, resume=resume, **options)

    whole = go(tmp_path / "whole", 6)
    go(tmp_path / "parts", 3)
    resumed = go(tmp_path / "parts", 6, resume=True)
    names = ["metrics.jsonl", "evaluations.jsonl", "resets.jsonl", "model/model.safetensors"]
    names += ["critic/value_head.safetensors", "critic/model.safetensors"]
    for file in names:
        assert (whole / file).exists() == (resumed / file).exists(), file
        assert not (whole / file).exists() or (whole / file).read_bytes() == (resumed / file).read_bytes(), file
