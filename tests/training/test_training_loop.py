"""Whole runs: what they write, what they refuse, what they warn of."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from surefoot.config import validate
from surefoot.errors import RewardError, RunFolderError, SurefootError
from surefoot.rewards.functions import as_reward
from surefoot.training.config import SftConfig
from surefoot.training.health import check
from surefoot.training.loop import train
from surefoot.training.sft import sft
from surefoot.training.state import RunState
from tests.training.tiny import TINY, digits_reward, tiny


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_run_leaves_the_files_that_the_documentation_names(tmp_path: Path) -> None:
    told = []
    result = train(tiny(tmp_path), reward=digits_reward(), watch=told.append)
    run = result.folder
    assert {path.name for path in run.iterdir()} >= {
        "config.toml", "card.md", "environment.json", "metrics.jsonl", "timings.jsonl", "evaluations.jsonl",
        "result.json", "samples", "state", "model", "best",
    }  # fmt: skip
    metrics, evaluations = lines(run / "metrics.jsonl"), lines(run / "evaluations.jsonl")
    assert [record["step"] for record in metrics] == [1, 2, 3, 4]
    assert [record["step"] for record in evaluations] == [0, 2, 4]
    assert all(math.isfinite(value) for record in metrics for value in record.values())
    right = [record.pop("right") for record in evaluations]
    assert result.summary["before"] == evaluations[0] and result.summary["after"] == evaluations[-1]
    gain = (sum(right[-1]) - sum(right[0])) / len(right[0])
    assert result.summary["difference"]["value"] == pytest.approx(gain)
    assert result.summary["difference"]["low"] <= gain <= result.summary["difference"]["high"]
    timings = lines(run / "timings.jsonl")
    assert all(record["generate"] > 0 and record["train"] > 0 for record in timings)
    generated = sum(record["tokens_generated"] for record in timings)
    assert result.summary["tokens_generated"] == generated > 0
    assert told[-1].step == told[-1].steps == 4 and told[-1].seconds_left == 0
    assert any(progress.phase == "evaluate" for progress in told)
    samples = lines(run / "samples" / "step-000001.jsonl")
    groups = {record["prompt_id"] for record in samples}
    assert all(sum(r["prompt_id"] == g for r in samples) == 4 for g in groups)
    assert all(abs(sum(r["advantage"] for r in samples if r["prompt_id"] == g)) < 1e-6 for g in groups)


def test_the_model_of_a_run_loads_with_transformers_and_is_the_trained_one(tmp_path: Path) -> None:
    result = train(tiny(tmp_path), reward=digits_reward())
    model = AutoModelForCausalLM.from_pretrained(result.model)
    tokenizer = AutoTokenizer.from_pretrained(result.model)
    from safetensors.torch import load_file

    state = load_file(sorted((result.folder / "state").iterdir())[-1] / "model.safetensors")
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, state[name])
    assert tokenizer.decode(tokenizer("12+34=").input_ids) == "12+34="
    again = train(
        tiny(tmp_path, name="again", model={"path": str(result.model)}, train={"steps": 1}), reward=digits_reward()
    )
    assert again.summary["before"]["accuracy"] == result.summary["after"]["accuracy"]


def test_the_reward_goes_up(tmp_path: Path) -> None:
    config = tiny(
        tmp_path,
        train={"steps": 12, "prompts_per_step": 6, "group_size": 6},
        optimiser={"lr": 3e-3},
        evaluation={"every": 0},
    )
    metrics = lines(train(config, reward=digits_reward()).folder / "metrics.jsonl")
    assert metrics[-1]["reward/mean"] > metrics[0]["reward/mean"] + 0.2


def test_two_runs_of_one_configuration_are_equal_and_another_seed_differs(tmp_path: Path) -> None:
    files = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run = train(tiny(tmp_path, name=name, seed=seed), reward=digits_reward()).folder
        files.append(((run / "metrics.jsonl").read_bytes(), (run / "model" / "model.safetensors").read_bytes()))
    assert files[0] == files[1]
    assert files[0] != files[2]


def test_a_learning_rate_of_zero_leaves_the_policy_and_its_divergence_at_rest(tmp_path: Path) -> None:
    config = tiny(
        tmp_path, algorithm={"preset": "grpo"}, optimiser={"lr": 0.0}, train={"updates_per_step": 3, "epochs": 2}
    )
    result = train(config, reward=digits_reward())
    for record in lines(result.folder / "metrics.jsonl"):
        assert record["policy/kl_behaviour"] < 1e-10
        assert record["policy/kl_reference"] == 0.0
        assert record["policy/mismatch_max"] < 1e-4
    assert (result.folder / "best" / "model.safetensors").read_bytes() == (
        result.model / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("bad", [float("nan"), None, float("inf")])
def test_an_unusable_reward_marks_its_sample_and_no_other(bad: Any, tmp_path: Path) -> None:
    calls = [0]

    def sometimes(prompt: str, completion: str, answer: object) -> float | None:
        calls[0] += 1
        return bad if calls[0] % 4 == 1 else len(set(completion)) / 10

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = train(
            tiny(tmp_path, train={"steps": 2}, evaluation={"every": 0, "problems": 4}), reward=as_reward(sometimes)
        )
    assert any("could not be graded" in str(warning.message) for warning in caught)
    for record in lines(result.folder / "metrics.jsonl"):
        assert record["reward/ungraded"] == pytest.approx(0.25)
        assert all(math.isfinite(value) for value in record.values())
    samples = lines(result.folder / "samples" / "step-000001.jsonl")
    invalid = [record for record in samples if record["status"] == "invalid"]
    assert len(invalid) == len(samples) / 4
    assert all(record["reward"] is None and record["advantage"] == 0 for record in invalid)


def test_rewards_of_the_wrong_length_are_refused_by_name(tmp_path: Path) -> None:
    class Short:
        name = "my short reward"

        def score(self, completions: Any) -> list[Any]:
            return digits_reward().score(completions)[:-1]

    with pytest.raises(RewardError, match="my short reward"):
        train(tiny(tmp_path), reward=as_reward(Short()))


def test_equal_rewards_take_no_step_and_say_so(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = train(tiny(tmp_path), reward=as_reward(lambda prompt, completion, answer: 1.0))
    assert result.summary["updates"] == 0
    assert sum("nothing to learn from" in str(warning.message) for warning in caught) == 1
    first, last = result.folder / "best" / "model.safetensors", result.model / "model.safetensors"
    assert first.read_bytes() == last.read_bytes()


def test_truncation_is_reported_and_no_stop_token_is_made_up(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = train(
            tiny(tmp_path, rollout={"max_new_tokens": 3}, health={"truncated_above": 0.2}), reward=digits_reward()
        )
    assert sum("cut by rollout.max_new_tokens" in str(warning.message) for warning in caught) == 1
    assert [record["name"] for record in lines(result.folder / "warnings.jsonl")].count("truncated") == 1
    for record in lines(result.folder / "samples" / "step-000001.jsonl"):
        if record["finish"] == "length":
            assert record["length"] == 3 and len(record["completion"]) == 3


def test_a_collapse_of_entropy_is_reported_once() -> None:
    state = RunState()
    assert warned({"rollout/entropy": 1.0}, state) == []
    assert warned({"rollout/entropy": 0.11}, state) == []
    ((name, text),) = warned({"rollout/entropy": 0.09}, state)
    assert name == "entropy" and "0.09" in text
    assert warned({"rollout/entropy": 0.01}, state) == []


def test_mismatch_is_reported() -> None:
    ((name, _),) = warned({"policy/mismatch": 0.5}, RunState())
    assert name == "mismatch"


def test_what_an_algorithm_misses_is_reported() -> None:
    metrics = {"reward/steps": 0.0, "batch/groups": 1.0, "rollout/rounds": 10.0}
    assert warned(metrics, RunState()) == []
    ((name, text),) = warned(metrics, RunState(), "grpo_process")
    assert name == "steps" and "Score.steps" in text
    assert warned(metrics | {"reward/steps": 2.0}, RunState(), "grpo_process") == []
    ((name, text),) = warned(metrics, RunState(), "dapo")
    assert name == "refill" and "10 rollout batches gave 1 prompts" in text
    ((name, text),) = warned({}, RunState(step=7, exhausted=True), "scalerl")
    assert name == "exhausted" and "step 7" in text


def warned(metrics: dict[str, float], state: RunState, preset: str = "grpo_token") -> list[tuple[str, str]]:
    config = tiny(Path("unused"), algorithm={"preset": preset})
    return check(metrics, state, config, config.algorithm.build())


def test_a_full_disk_while_saving_is_one_line_and_the_run_goes_on_from_the_last_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from surefoot.training import state as states

    expected = train(tiny(tmp_path / "whole"), reward=digits_reward())
    save_file, calls = states.save_file, [0]

    def full(tensors: Any, path: Path) -> None:
        calls[0] += 1
        if calls[0] == 3:
            path.write_bytes(b"part")
            raise OSError(28, "No space left on device", str(path))
        save_file(tensors, path)

    monkeypatch.setattr(states, "save_file", full)
    with pytest.raises(RunFolderError, match="no space left") as caught:
        train(tiny(tmp_path), reward=digits_reward())
    assert "\n" not in str(caught.value)
    assert [path.name for path in (tmp_path / "tiny" / "state").iterdir()] == ["step-000002"]
    monkeypatch.undo()
    result = train(tiny(tmp_path), reward=digits_reward(), resume=True)
    assert (result.model / "model.safetensors").read_bytes() == (expected.model / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ({"runs": "<file>"}, "cannot write"),
        ({"rollout": {"max_new_tokens": 400}}, "256"),
        ({"train": {"updates_per_step": 9}}, "whole"),
        ({"model": {"path": "no/such/folder"}}, "no/such/folder"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(over: dict[str, Any], says: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    over = {key: str(tmp_path / "file") if value == "<file>" else value for key, value in over.items()}
    runs = over.pop("runs", str(tmp_path / "runs"))
    with pytest.raises(SurefootError) as caught:
        train(tiny(Path(runs), **over), reward=digits_reward())
    assert says in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_supervised_training_learns_its_demonstrations(tmp_path: Path) -> None:
    values = {
        "runs": str(tmp_path),
        "task": TINY["task"] | {"options": {"digits": 1}, "train_size": 40},
        "rollout": {"max_new_tokens": 14},
        "evaluation": {"problems": 6},
        "optimiser": {"lr": 3e-3},
        "steps": 80,
        "batch": 16,
        "check_every": 40,
    }
    told: list[Any] = []
    result = sft(validate(SftConfig, values), watch=told.append)
    losses = [record["loss/nll_per_token"] for record in lines(result.folder / "metrics.jsonl")]
    assert losses[0] > 3 and losses[-1] < 0.5 * losses[0]
    assert told[-1].phase == "warm-up" and told[-1].step == 80
    AutoModelForCausalLM.from_pretrained(result.model)


def test_supervised_gradient_is_the_mean_over_tokens_whatever_the_split(tmp_path: Path) -> None:
    import numpy as np

    from surefoot.training.assemble import assemble
    from surefoot.training.sft import supervised_gradient
    from surefoot.types import Sample

    parts = assemble(tiny(tmp_path))
    rng = np.random.default_rng(0)
    samples = [Sample.of(rng.integers(3, 60, 5), rng.integers(3, 60, n), prompt_id=str(n)) for n in (1, 4, 9)]
    results = []
    for limit in (10**6, 20, 1):
        value = supervised_gradient(parts, samples, limit)
        results.append((value, [p.grad.clone() for p in parts.policy.model.parameters() if p.grad is not None]))
        parts.policy.model.zero_grad()
    total = tokens = 0.0
    for sample in samples:
        ids = torch.from_numpy(sample.ids)[None]
        logp = parts.policy.model(input_ids=ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[4:]
        total, tokens = total - float(logp.sum()), tokens + len(logp)
    for value, grads in results:
        assert value == pytest.approx(total / tokens, rel=1e-5)
        for have, want in zip(grads, results[0][1], strict=True):
            torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-6)


def in_the_way(kind: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "file":
        path.write_text("x")
    elif kind == "dangling link":
        path.symlink_to(path.parent / "nowhere")
    elif kind == "loop":
        path.symlink_to(path)


@pytest.mark.parametrize("kind", ["file", "dangling link", "loop", "long", "proc"])
def test_something_in_the_way_of_the_run_folder_is_one_line(kind: str, tmp_path: Path) -> None:
    runs = {"long": tmp_path / ("x" * 300), "proc": Path("/proc/x")}.get(kind, tmp_path / "runs")
    if kind not in ("long", "proc"):
        in_the_way(kind, runs / "tiny")
    with pytest.raises(RunFolderError) as caught:
        train(tiny(runs), reward=digits_reward())
    assert "\n" not in str(caught.value)


def test_a_file_limit_while_the_state_is_written_is_one_line(tmp_path: Path) -> None:
    """A refusal of the real kernel, through the writer of the weights, in a child process."""
    import resource
    import signal

    from tests.training.test_training_resume import in_child

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        try:
            train(tiny(tmp_path, checkpoint={"keep_best": False}), reward=digits_reward())
        except RunFolderError as error:
            assert "cannot write" in str(error) and "\n" not in str(error)
            raise SystemExit(7) from None

    assert in_child(work) == 7
    assert not list((tmp_path / "tiny" / "state").iterdir())


def test_a_run_that_fails_before_its_first_step_frees_its_name(tmp_path: Path) -> None:
    def broken(prompt: str, completion: str, answer: object) -> float:
        raise ValueError("not today")

    with pytest.raises(RewardError, match="not today"):
        train(tiny(tmp_path), reward=as_reward(broken))
    assert not (tmp_path / "tiny").exists()
    train(tiny(tmp_path, train={"steps": 1}), reward=digits_reward())


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    from surefoot.errors import NonFiniteError

    config = tiny(tmp_path, train={"steps": 1}, optimiser={"lr": 1e38}, task={"heldout_size": 0})
    with pytest.raises(NonFiniteError, match=r"lower optimiser\.lr"):
        train(config, reward=digits_reward())
    assert not (tmp_path / "tiny" / "model").exists() and not (tmp_path / "tiny" / "state").exists()


def test_a_reward_that_changes_the_working_folder_does_not_move_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    def wanders(prompt: str, completion: str, answer: object) -> float:
        os.chdir(tmp_path / "elsewhere")
        return len(set(completion)) / 10

    result = train(tiny(Path("runs"), train={"steps": 2}), reward=as_reward(wanders))
    assert result.folder == tmp_path / "runs" / "tiny" and (result.folder / "result.json").exists()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_demonstrations_that_do_not_fit_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    from surefoot.errors import DataError

    data = tmp_path / "data.jsonl"
    rows = [{"prompt": f"{i}+1=", "answer": str(i + 1), "completion": "9" * (300 if i == 3 else 3)} for i in range(6)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = {
        "runs": str(tmp_path / "runs"),
        "task": {"name": "file", "path": str(data), "heldout_size": 0, "heldout_share": 0.01, "template": "plain"},
        "rollout": {"max_new_tokens": 4},
        "steps": 2,
    }
    with pytest.raises(DataError, match=r"more than the model's context of 256"):
        sft(validate(SftConfig, values))
    assert not (tmp_path / "runs").exists()
    with pytest.raises(SurefootError):
        sft(validate(SftConfig, values | {"error_rate": 0.5}))
    assert not (tmp_path / "runs").exists()


def test_supervised_training_without_held_out_problems(tmp_path: Path) -> None:
    values = {"runs": str(tmp_path), "task": TINY["task"] | {"heldout_size": 0}, "steps": 2, "batch": 4}
    result = sft(validate(SftConfig, values))
    assert result.summary["before"] is None and result.summary["steps"] == 2
    with pytest.raises(RunFolderError) as caught:
        sft(validate(SftConfig, values))
    assert "already holds a run" in str(caught.value) and "--resume" not in str(caught.value)


def test_a_reward_that_never_says_what_is_right_is_told_so_once(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(tiny(tmp_path), reward=as_reward(lambda prompt, completion, answer: len(set(completion)) / 100))
    assert sum("never says which answers are right" in str(warning.message) for warning in caught) == 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(tiny(tmp_path, name="auto", train={"steps": 1}))
    assert not any("never says" in str(warning.message) for warning in caught)


def test_resuming_a_run_that_is_not_there_is_refused_with_the_names_of_those_that_are(tmp_path: Path) -> None:
    train(tiny(tmp_path, train={"steps": 1}), reward=digits_reward())
    with pytest.raises(
        RunFolderError, match=r"there is no run .*tinny .*Did you mean 'tiny'\? Start it without --resume"
    ):
        train(tiny(tmp_path, name="tinny"), reward=digits_reward(), resume=True)
    with pytest.raises(RunFolderError, match=r"there is no run .*Start it without --resume"):
        train(tiny(tmp_path / "elsewhere"), reward=digits_reward(), resume=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny"]
    (tmp_path / "tiny" / "config.toml").unlink()
    with pytest.raises(RunFolderError, match=r"the run .* has lost its config\.toml.*restore the file"):
        train(tiny(tmp_path), reward=digits_reward(), resume=True)
