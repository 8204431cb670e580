"""A run that is killed and resumed ends with the weights and the metrics of the run that was not, bit for bit."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from surefoot.errors import RunFolderError
from surefoot.files import read_lines
from surefoot.training import state as states
from surefoot.training.config import RunConfig
from surefoot.training.loop import train
from tests.training.tiny import digits_reward, tiny

KILLS = 10


def config(runs: Path) -> RunConfig:
    return tiny(
        runs,
        algorithm={"preset": "grpo", "advantage": "moving_average"},
        train={"steps": 12, "updates_per_step": 2, "epochs": 2},
        optimiser={"lr": 1e-3, "schedule": "linear", "warmup_steps": 3},
        evaluation={"every": 3},
        checkpoint={"every": 1},
        rollout={"top_p": 0.95},
    )


def contents(runs: Path) -> dict[str, bytes]:
    """Everything that must be the same: weights, logs without times, samples."""
    run = runs / "tiny"
    files = [run / "model" / "model.safetensors", run / "metrics.jsonl", run / "evaluations.jsonl"]
    return {str(file.relative_to(run)): file.read_bytes() for file in [*files, *sorted((run / "samples").iterdir())]}


def begun(runs: Path) -> bool:
    """Whether there is a run to go on with; one that was killed before that is started."""
    return (runs / "tiny" / "config.toml").exists()


def in_child(work: Callable[[], Any], kill_after: float | None = None) -> int:
    """Run in a forked process, killed with SIGKILL after some seconds; returns its exit code."""

    def body() -> None:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        work()

    process = multiprocessing.get_context("fork").Process(target=body)
    process.start()
    if kill_after is not None:
        process.join(kill_after)
        if process.is_alive() and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode is not None
    return process.exitcode


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], float]:
    runs = tmp_path_factory.mktemp("uninterrupted")
    begin = time.perf_counter()
    assert in_child(lambda: train(config(runs), reward=digits_reward())) == 0
    return contents(runs), time.perf_counter() - begin


def test_killed_at_ten_random_moments(uninterrupted: tuple[dict[str, bytes], float], tmp_path: Path) -> None:
    expected, seconds = uninterrupted
    rng = random.Random(0)
    killed = 0
    while killed < KILLS:
        code = in_child(
            lambda: train(config(tmp_path), reward=digits_reward(), resume=begun(tmp_path)),
            kill_after=rng.uniform(0.05, 0.6 * seconds),
        )
        if code == 0:  # it finished before it could be killed: begin again, so that all kills hit a run at work
            assert contents(tmp_path) == expected
            (tmp_path / "tiny").rename(tmp_path / f"finished-{killed}-{rng.random()}")
            continue
        assert code == -signal.SIGKILL
        killed += 1
    assert in_child(lambda: train(config(tmp_path), reward=digits_reward(), resume=begun(tmp_path))) == 0
    assert contents(tmp_path) == expected
    assert not list((tmp_path / "tiny" / "state").glob(".*"))


def with_a_critic(runs: Path) -> RunConfig:
    """A critic, an adaptive coefficient in the memory, a reference and two optimisers that are reset."""
    return tiny(
        runs,
        algorithm={"preset": "ppo", "kl": {"target": 0.01, "horizon": 20}, "reset": {"kind": "every", "steps": 3}},
        critic={"lr": 1e-3},
        train={"steps": 10, "updates_per_step": 2},
        evaluation={"every": 3},
        checkpoint={"every": 1},
    )


def test_killed_with_a_critic(tmp_path: Path) -> None:
    begin = time.perf_counter()
    assert in_child(lambda: train(with_a_critic(tmp_path / "whole"), reward=digits_reward())) == 0
    seconds = time.perf_counter() - begin
    rng, killed, runs = random.Random(1), 0, tmp_path / "killed"
    for _ in range(4):
        resume = lambda: train(with_a_critic(runs), reward=digits_reward(), resume=begun(runs))  # noqa: E731
        killed += in_child(resume, kill_after=rng.uniform(0.3, 0.7) * seconds) == -signal.SIGKILL
    assert killed > 0
    assert in_child(resume) == 0
    assert contents(runs) == contents(tmp_path / "whole")
    for file in ("model.safetensors", "value_head.safetensors"):
        one, other = (folder / "tiny" / "critic" / file for folder in (runs, tmp_path / "whole"))
        assert one.read_bytes() == other.read_bytes(), file


@pytest.mark.parametrize("victim", ["weights", "moments", "rename"])
def test_killed_in_the_middle_of_writing_a_checkpoint(
    victim: str, uninterrupted: tuple[dict[str, bytes], float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = uninterrupted
    save_file, replace, calls = states.save_file, os.replace, [0]
    torn = {"weights": states.WEIGHTS, "moments": states.MOMENTS}.get(victim)

    def kill_in_third_save() -> None:
        calls[0] += 1
        if calls[0] == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    def torn_save_file(tensors: Any, path: Path) -> None:
        if path.name == torn:
            path.write_bytes(b"half a file")
            kill_in_third_save()
        save_file(tensors, path)

    def killed_before_rename(source: Path, target: Path) -> None:
        if Path(target).name.startswith("step-"):
            kill_in_third_save()
        replace(source, target)

    def work() -> None:
        if torn is not None:
            monkeypatch.setattr(states, "save_file", torn_save_file)
        else:
            monkeypatch.setattr(os, "replace", killed_before_rename)
        train(config(tmp_path), reward=digits_reward())

    assert in_child(work) == -signal.SIGKILL
    assert in_child(lambda: train(config(tmp_path), reward=digits_reward(), resume=True)) == 0
    assert contents(tmp_path) == expected


def flip_a_bit(state: Path) -> None:
    content = bytearray((state / states.WEIGHTS).read_bytes())
    content[-5] ^= 1
    (state / states.WEIGHTS).write_bytes(content)


def change_a_counter(state: Path) -> None:
    values = json.loads((state / "state.json").read_text())
    (state / "state.json").write_text(json.dumps(values | {"cursor": values["cursor"] + 1}))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit of the weights": flip_a_bit,
    "a counter": change_a_counter,
    "no weights": lambda state: (state / states.WEIGHTS).unlink(),
    "no moments": lambda state: (state / states.MOMENTS).unlink(),
    "torn": lambda state: (state / "state.json").write_text('{"format": 1, "fi'),
    "a list": lambda state: (state / "state.json").write_text("[]"),
    "null": lambda state: (state / "state.json").write_text("null"),
    "no files": lambda state: (state / "state.json").write_text('{"format": 1, "files": {}}'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_removed_and_the_one_before_it_is_used(
    damage: str, uninterrupted: tuple[dict[str, bytes], float], tmp_path: Path
) -> None:
    expected, _ = uninterrupted
    assert in_child(lambda: train(config(tmp_path), reward=digits_reward())) == 0
    states_kept = sorted((tmp_path / "tiny" / "state").iterdir())
    assert [path.name for path in states_kept] == ["step-000011", "step-000012"]
    DAMAGES[damage](states_kept[-1])
    (tmp_path / "tiny" / "model" / "model.safetensors").unlink()
    with pytest.warns(UserWarning) as caught:
        train(config(tmp_path), reward=digits_reward(), resume=True)
    said = [str(warning.message) for warning in caught]
    assert any("is damaged" in text and "the one before it is used, step-000011" in text for text in said)
    assert any("stopped after step 12 and goes on from step-000011: 1 step is done again" in text for text in said)
    assert contents(tmp_path) == expected


def test_every_prompt_of_an_epoch_is_used_once_across_a_resume(tmp_path: Path) -> None:
    steps = 8  # 8 steps x 3 prompts = one epoch of 24
    full = tiny(
        tmp_path,
        train={"steps": steps},
        track={"samples_per_step": 12},
        checkpoint={"every": 3},
        evaluation={"every": 0},
    )
    assert in_child(lambda: train(full, reward=digits_reward()), kill_after=None) == 0
    again = full.model_copy(update={"name": "again"})
    assert (
        in_child(
            lambda: train(
                again.model_copy(update={"train": again.train.model_copy(update={"steps": 5})}), reward=digits_reward()
            )
        )
        == 0
    )
    assert in_child(lambda: train(again, reward=digits_reward(), resume=True)) == 0
    for name in ("tiny", "again"):
        prompts: dict[str, set[int]] = {}
        for file in sorted((tmp_path / name / "samples").glob("step-*.jsonl")):
            for line in file.read_text().splitlines():
                record = json.loads(line)
                prompts.setdefault(record["prompt_id"], set()).add(record["step"])
        assert len(prompts) == 24
        assert all(len(at) == 1 for at in prompts.values())


def test_resume_refuses_another_configuration_other_data_and_a_second_writer(tmp_path: Path) -> None:
    base = tiny(tmp_path, train={"steps": 2})
    train(base, reward=digits_reward())
    with pytest.raises(RunFolderError, match="already holds a run"):
        train(base, reward=digits_reward())
    with pytest.raises(RunFolderError, match=r"optimiser\.lr = 0\.001, and now it is 0\.002"):
        train(tiny(tmp_path, train={"steps": 2}, optimiser={"lr": 2e-3}), reward=digits_reward(), resume=True)
    longer = train(tiny(tmp_path, train={"steps": 3}), reward=digits_reward(), resume=True)
    assert longer.summary["steps"] == 3
    import fcntl

    with open(tmp_path / "tiny" / ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RunFolderError, match="another process"):
            train(tiny(tmp_path, train={"steps": 3}), reward=digits_reward(), resume=True)


def test_resume_refuses_other_prompts_another_model_another_reward_and_fewer_steps(tmp_path: Path) -> None:
    from surefoot.rewards.functions import as_reward
    from surefoot.tasks.base import Task
    from surefoot.types import Prompt

    def task(sign: str) -> Task:
        prompts = [Prompt(f"{sign}{i}", f"{i}{sign}{i}=", "0") for i in range(8)]
        return Task("mine", tuple(prompts[:6]), tuple(prompts[6:]))

    def other(prompt: str, completion: str, answer: object) -> float:
        return float(len(completion))

    base = tiny(tmp_path, train={"steps": 2}, algorithm={"preset": "grpo"})
    train(base, reward=digits_reward(), task=task("+"))
    longer = tiny(tmp_path, train={"steps": 3}, algorithm={"preset": "grpo"})
    with pytest.raises(RunFolderError, match="prompts"):
        train(longer, reward=digits_reward(), task=task("-"), resume=True)
    with pytest.raises(RunFolderError, match="the reward"):
        train(longer, reward=as_reward(other), task=task("+"), resume=True)
    with pytest.raises(RunFolderError, match=r"train\.steps to as many"):
        shorter = tiny(tmp_path, train={"steps": 1}, algorithm={"preset": "grpo"})
        train(shorter, reward=digits_reward(), task=task("+"), resume=True)
    from surefoot.training import resume as resume_module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resume_module, "fingerprint", lambda policy: "another model")
        with pytest.raises(RunFolderError, match="the model"):
            train(longer, reward=digits_reward(), task=task("+"), resume=True)
    assert train(longer, reward=digits_reward(), task=task("+"), resume=True).summary["steps"] == 3


@pytest.mark.parametrize("log", ["metrics", "evaluations"])
@pytest.mark.parametrize("damage", ["gone", "empty", "first line lost", "not a record", "a folder"])
def test_resume_refuses_logs_that_lack_what_the_state_has(log: str, damage: str, tmp_path: Path) -> None:
    base = tiny(tmp_path, train={"steps": 2})
    train(base, reward=digits_reward())
    file = tmp_path / "tiny" / f"{log}.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.unlink()
    if damage == "a folder":
        file.mkdir()
    elif damage != "gone":
        file.write_text(
            {"empty": "", "first line lost": "".join(lines[1:]), "not a record": '{"step": "x"}\n' + "".join(lines)}[
                damage
            ]
        )
    with pytest.raises(RunFolderError) as caught:
        train(tiny(tmp_path, train={"steps": 3}), reward=digits_reward(), resume=True)
    assert "\n" not in str(caught.value)


def test_a_torn_last_line_that_ends_inside_a_character_is_no_damage(tmp_path: Path) -> None:
    train(tiny(tmp_path, train={"steps": 2}), reward=digits_reward())
    with open(tmp_path / "tiny" / "metrics.jsonl", "ab") as file:
        file.write('{"step": 3, "reward/größe'.encode()[:-2])
    assert train(tiny(tmp_path, train={"steps": 3}), reward=digits_reward(), resume=True).summary["steps"] == 3


def test_a_step_whose_writer_was_killed_before_its_timings_has_its_tokens_again(tmp_path: Path) -> None:
    first = train(tiny(tmp_path, train={"steps": 2}), reward=digits_reward())
    file = first.folder / "timings.jsonl"
    before = read_lines(file)
    file.write_text(json.dumps(before[0]) + "\n")
    resumed = train(tiny(tmp_path, train={"steps": 3}), reward=digits_reward(), resume=True)
    after = read_lines(file)
    assert [record["step"] for record in after] == [1, 2, 3] and after[0] == before[0]
    assert after[1] == {name: before[1][name] for name in ("step", "tokens_generated", "tokens_trained")}
    assert resumed.summary["tokens_generated"] == sum(record["tokens_generated"] for record in after)


# What was lost, and what is not this run's


def everything(folder: Path) -> dict[str, bytes]:
    """The content of a run folder but for what every resume writes anew."""
    again = ("config.toml", "card.md", "environment.json", ".lock")
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in again
    }


def remove_the_states(run: Path) -> None:
    shutil.rmtree(run / "state")


def empty_the_states(run: Path) -> None:
    for state in (run / "state").iterdir():
        shutil.rmtree(state)


def damage_all_states(run: Path) -> None:
    for state in (run / "state").iterdir():
        flip_a_bit(state)


def remove_the_states_and_their_log(run: Path) -> None:
    remove_the_states(run)
    (run / "states.jsonl").unlink()


LOSSES = [remove_the_states, empty_the_states, damage_all_states, remove_the_states_and_their_log]


@pytest.mark.parametrize("lose", LOSSES)
def test_a_run_whose_states_are_lost_is_refused_and_keeps_its_logs(
    lose: Callable[[Path], None], tmp_path: Path
) -> None:
    run = train(tiny(tmp_path), reward=digits_reward()).folder
    lose(run)
    before = everything(run)
    with pytest.raises(RunFolderError) as caught:
        train(tiny(tmp_path, train={"steps": 6}), reward=digits_reward(), resume=True)
    message = str(caught.value)
    assert "has done 4 steps" in message and "none of its states can be read" in message
    assert "from a copy" in message and "another 'name'" in message and f"rm -r {run}" in message
    assert everything(run) == before


def test_a_run_that_was_stopped_before_its_first_state_begins_again_and_says_so(tmp_path: Path) -> None:
    def work() -> None:
        def kill(progress: Any) -> None:
            if progress.step == 3:
                os.kill(os.getpid(), signal.SIGKILL)

        train(tiny(tmp_path, checkpoint={"every": 0}), reward=digits_reward(), watch=kill)

    assert in_child(work) == -signal.SIGKILL
    with pytest.warns(UserWarning, match="stopped after step 3 before it had saved a state, and begins again: 3 steps"):
        resumed = train(tiny(tmp_path, checkpoint={"every": 0}), reward=digits_reward(), resume=True)
    assert [record["step"] for record in read_lines(resumed.folder / "metrics.jsonl")] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"seed": 1}, "seed = there 1 and here 0"),
        ({"optimiser": {"lr": 2e-3}}, "optimiser.lr = there 0.002 and here 0.001"),
        ({"seed": 3, "rollout": {"top_p": 0.9}}, "rollout.top_p = there 0.9 and here 1.0; seed = there 3 and here 0"),
    ],
)
def test_a_state_of_another_run_is_refused(other: dict[str, Any], says: str, tmp_path: Path) -> None:
    run = train(tiny(tmp_path / "one"), reward=digits_reward()).folder
    stranger = train(tiny(tmp_path / "two", **other), reward=digits_reward()).folder
    shutil.rmtree(run / "state")
    shutil.copytree(stranger / "state", run / "state")
    before = everything(run)
    with pytest.raises(RunFolderError, match="is of another run") as caught:
        train(tiny(tmp_path / "one", train={"steps": 6}), reward=digits_reward(), resume=True)
    assert says in str(caught.value)
    assert everything(run) == before


def test_every_changed_key_is_told(tmp_path: Path) -> None:
    train(tiny(tmp_path, train={"steps": 1}), reward=digits_reward())
    changed = tiny(tmp_path, train={"steps": 1, "group_size": 8}, optimiser={"lr": 2e-3}, seed=5)
    with pytest.raises(RunFolderError) as caught:
        train(changed, reward=digits_reward(), resume=True)
    for words in (
        "optimiser.lr = 0.001, and now it is 0.002",
        "seed = 0, and now it is 5",
        "train.group_size = 4, and",
    ):
        assert words in str(caught.value)


def test_a_finished_run_says_that_it_was_finished_and_how_to_go_on(tmp_path: Path) -> None:
    run = train(tiny(tmp_path), reward=digits_reward()).folder
    before = contents(tmp_path)
    with pytest.warns(UserWarning, match=r"finished before, at step 4 \(train\.steps = 4 are done\).*to more than 4"):
        again = train(tiny(tmp_path), reward=digits_reward(), resume=True)
    assert again.summary["ended"] == "steps" and contents(tmp_path) == before
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(tiny(tmp_path, train={"steps": 5}), reward=digits_reward(), resume=True)
    assert not any("was finished" in str(warning.message) for warning in caught)
    assert len(read_lines(run / "metrics.jsonl")) == 5


def test_a_run_that_used_up_its_budget_says_which_to_raise(tmp_path: Path) -> None:
    budget = {"samples": 20}  # 12 a step
    train(tiny(tmp_path, budget=budget), reward=digits_reward())
    with pytest.warns(UserWarning, match=r"at step 2 \(budget\.samples is used up\).*to go on, raise budget\.samples"):
        train(tiny(tmp_path, budget=budget), reward=digits_reward(), resume=True)
    assert train(tiny(tmp_path, budget={"samples": 36}), reward=digits_reward(), resume=True).summary["steps"] == 3


@pytest.mark.parametrize("changed", ["tests", "options", "state"])
def test_a_resume_with_other_metadata_is_refused(changed: str, tmp_path: Path) -> None:
    from surefoot.tasks.base import Task
    from surefoot.types import Prompt

    def task(**over: Any) -> Task:
        about = {"tests": ["assert f(1) == 2"], "options": ["a", "b"], "state": {"board": [0, 1], 2: "x"}} | over
        prompts = [Prompt(f"p{i}", f"{i}+{i}=", "0", about) for i in range(8)]
        return Task("mine", tuple(prompts[:6]), tuple(prompts[6:]))

    train(tiny(tmp_path, train={"steps": 2}), reward=digits_reward(), task=task())
    longer = tiny(tmp_path, train={"steps": 3})
    with pytest.raises(RunFolderError, match="the prompts of the run"):
        train(longer, reward=digits_reward(), task=task(**{changed: ["another"]}), resume=True)
    assert train(longer, reward=digits_reward(), task=task(), resume=True).summary["steps"] == 3
