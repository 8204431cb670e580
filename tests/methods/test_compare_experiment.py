"""What an experiment is: which runs, what they share, and what is refused before anything runs."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from surefoot.errors import ConfigError
from surefoot.methods.compare.experiment import Experiment, Job, make_experiment
from surefoot.training.folder import run_path

BASE: dict[str, Any] = {
    "name": "e",
    "runs": "runs",
    "seeds": 2,
    "base": {
        "task": {"name": "addition", "options": {"digits": 1}, "train_size": 16, "heldout_size": 4},
        "rollout": {"max_new_tokens": 4},
        "train": {"steps": 2, "prompts_per_step": 2, "group_size": 2},
    },
    "arms": {"grpo": {"algorithm": {"preset": "grpo"}}, "dapo": {"algorithm": {"preset": "dapo"}}},
}


def made(**changes: Any) -> Experiment:
    return make_experiment({**copy.deepcopy(BASE), **changes})


def test_jobs_are_arms_times_tasks_times_seeds_a_seed_at_a_time() -> None:
    experiment = made(tasks={"one": {"options": {"digits": 1}}, "two": {"options": {"digits": 2}}})
    jobs = list(experiment.jobs())
    assert len(jobs) == len(set(jobs)) == 8
    assert [job.seed for job in jobs] == [0] * 4 + [1] * 4
    assert experiment.run(Job("two", "dapo", 1)).task.options == {"digits": 2}
    assert experiment.baseline == "grpo" and made(baseline="dapo").baseline == "dapo"


def test_arms_of_a_seed_share_all_but_what_they_say() -> None:
    experiment = made()
    one, other = (experiment.run(Job("addition", arm, 1)) for arm in experiment.arms)
    assert one.algorithm.preset == "grpo" and other.algorithm.preset == "dapo"
    assert one.runs != other.runs
    for name in type(one).model_fields:
        if name not in ("algorithm", "runs"):
            assert getattr(one, name) == getattr(other, name)
    assert one.seed == one.model.seed == 1 and one.train.threads == 1
    assert experiment.run(Job("addition", "grpo", 0)).seed == 0


def test_a_warm_up_is_shared_by_the_arms_of_a_seed() -> None:
    experiment = made(warm_up={"steps": 3, "batch": 4})
    paths = {experiment.run(Job("addition", arm, seed)).model.path for arm in experiment.arms for seed in (0, 1)}
    assert len(paths) == 2
    supervised = experiment.warm_up("addition", 1)
    assert (
        supervised is not None
        and supervised.seed == supervised.model.seed == 1
        and supervised.task == experiment.run(Job("addition", "grpo", 1)).task
    )


def test_what_an_arm_may_have_of_its_own() -> None:
    """Models of their own without a warm-up, and what says the same as the experiment."""
    arms = {"a": {"model": {"path": "p"}}, "b": {"train": {"threads": 1}}}
    assert made(arms=arms).run(Job("addition", "a", 1)).model.path == "p"
    same = {"model": {"path": "p"}}
    assert made(base=BASE["base"] | same, warm_up={**same, "steps": 3}).warm_up("addition", 0).model.path == "p"


@pytest.mark.parametrize("name", ["hub:openai/gsm8k", "gym:basic_arithmetic", "/data/rows", "../up", "..", "x" * 200])
def test_a_task_has_one_folder_within_the_experiment(name: str) -> None:
    experiment = made(base={"task": {"name": name}})
    (task,) = experiment.tasks
    path = run_path(experiment.run(Job(task, "dapo", 1)))
    assert path.relative_to(experiment.folder.absolute() / "arms").parts == (task, "dapo", "seed-1")
    assert task == Path(task).name != ".." and len(task) <= 120
    assert experiment.run(Job(task, "dapo", 1)).task.name == name


def test_seeds_are_a_number_or_a_list() -> None:
    assert made(seeds=3).seeds == (0, 1, 2) and made(seeds=[7, 3]).seeds == (7, 3)


def test_a_digest_changes_with_what_is_run_and_with_nothing_else() -> None:
    job = Job("addition", "dapo", 0)
    digest = made().digest(job)
    assert made(name="other", runs="elsewhere", jobs=2, level=0.1, seeds=5).digest(job) == digest
    base = copy.deepcopy(BASE["base"])
    base["train"]["steps"] = 3
    assert made(base=base).digest(job) != digest
    assert made(warm_up={"steps": 3}).digest(job) != digest
    arms = BASE["arms"] | {"dapo": {"algorithm": {"preset": "dapo", "trust": {"high": 0.3}}}}
    assert made(arms=arms).digest(job) != digest
    assert made(arms=BASE["arms"] | {"dapo": {**BASE["arms"]["dapo"], "control": "coin"}}).digest(job) != digest
    assert made().digest(Job("addition", "grpo", 0)) != digest != made().digest(Job("addition", "dapo", 1))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arms": {"grpo": {}}}, "nothing to compare"),
        ({"baseline": "dapoo"}, "none of the arms. Did you mean 'dapo'"),
        ({"seeds": 0}, "number of seeds"),
        ({"seeds": [1, 1]}, "different seeds"),
        ({"seeds": 10**9}, "number of seeds from 1 to 1000"),
        ({"seeds": [-1, 0]}, "seeds from 0 to 4294967295"),
        ({"seeds": [0, 2**70]}, "seeds from 0 to 4294967295"),
        ({"arms": {"a": {}, "b": {"model": {"seed": 3}}}}, "the arm 'b' sets 'model.seed'"),
        ({"arms": {"a": {}, "b": {"train": {"threads": 2}}}}, "the arm 'b' sets 'train.threads'"),
        ({"arms": {"a": {}, "b": {"model": {"path": "p"}}}, "warm_up": {}}, "the arm 'b' sets 'model.path'"),
        ({"base": {"seed": 1}}, "base.seed is one of 'seeds'"),
        ({"base": {"model": {"seed": 1}}}, "base.model.seed is one of 'seeds'"),
        ({"base": {"model": {"path": "p"}}, "warm_up": {}}, "set warm_up.model.path"),
        ({"base": {"train": {"threads": 2}}}, "base.train.threads is 1"),
        ({"base": {"task": "addition"}}, "expected a table [base.task]"),
        ({"warm_up": {"seed": 3}}, "warm_up.seed is one of 'seeds'"),
        ({"warm_up": {"name": "w"}}, "warm_up.name is set by the experiment"),
        ({"warm_up": {"runs": "w"}}, "warm_up.runs is set by the experiment"),
        ({"arms": {"a": {}, "b": {"task": {"name": "chain_mod"}}}}, "the same for all arms"),
        ({"arms": {"a": {}, "b": {"seed": 3}}}, "the same for all arms"),
        ({"arms": {"a": {}, "b": {"evaluation": {"problems": 3}}}}, "the same for all arms"),
        ({"arms": {"a": {}, "b": {"control": "dice"}}}, "one of coin, shuffled"),
        ({"arms": {"a": {}, "../b": {}}}, "name"),
        ({"arms": {"a": {}, "b": {"algorithm": {"preset": "grpoo"}}}}, "arm 'b', task 'addition'"),
        ({"arms": {"a": {}, "b": {"train": {"stepz": 3}}}}, "unknown key 'train.stepz'"),
        ({"base": {"name": "x"}}, "base.name is set by the experiment"),
        ({"warm_up": {"stepz": 3}}, "warm_up, task"),
        ({"armz": {}}, "unknown key 'armz'"),
    ],
)
def test_mistakes_are_named_before_anything_runs(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        made(**changes)
