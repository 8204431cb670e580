"""What can be known of an experiment's runs before the first of them: its tasks, rewards, models and demonstrations.

Every task is built once, every reward once for a task. Of a model only its files are looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from surefoot.config import validate
from surefoot.errors import ConfigError, DataError, ModelError, RewardError, SurefootError
from surefoot.methods.compare.experiment import Experiment, Job
from surefoot.policy import smollm2
from surefoot.policy.loading import check_folder, looks_local, one_line
from surefoot.policy.quiet import quiet
from surefoot.policy.reward_model import RewardModelConfig
from surefoot.rewards.base import Reward
from surefoot.rewards.build import build_reward
from surefoot.rewards.config import RewardConfig
from surefoot.rewards.functions import EachReward
from surefoot.tasks.base import Task
from surefoot.tasks.build import build_task
from surefoot.tasks.check import check_trainable
from surefoot.training.config import RunConfig, SftConfig
from surefoot.training.trackers import require_trackers


def check(experiment: Experiment) -> None:
    """Build what all runs are made of, but the models.

    Raises:
        ConfigError: a task, a reward or a model that cannot be had, with the table of the experiment that it is in.
    """
    seed = experiment.seeds[0]
    checked: set[tuple[str, str]] = set()
    for name in experiment.tasks:
        table = f"tasks.{name}" if name in experiment.config.tasks else "base.task"
        runs = {arm: experiment.run(Job(name, arm, seed)) for arm in experiment.arms}
        with within(table):
            task = build_task(next(iter(runs.values())).task)
            check_trainable(task)
            if not task.heldout:
                raise DataError(
                    "the task has no held-out problems, and arms are compared by them: set heldout_size above 0"
                )
        if (warm_up := experiment.warm_up(name, seed)) is not None:
            with within(f"warm_up, task '{name}'"):
                _check_warm_up(warm_up, task, runs)
        for arm, config in runs.items():
            with within(f"arm '{arm}', task '{name}'"):
                key = (name, config.reward.model_dump_json())
                if key not in checked:
                    _check_rewards(config, task)
                checked.add(key)
                require_trackers(config.track)
                if warm_up is None:
                    check_model(config.model.path)


@contextmanager
def within(table: str) -> Iterator[None]:
    """A context whose errors say which table of the experiment they are about."""
    try:
        yield
    except SurefootError as error:
        raise ConfigError(f"{table}: {error}") from error


def _check_warm_up(config: SftConfig, task: Task, runs: Mapping[str, RunConfig]) -> None:
    check_model(config.model.path)
    if config.task != next(iter(runs.values())).task:
        task = build_task(config.task)
        check_trainable(task)
    if task.demonstrate is None:
        raise DataError(
            f"the task '{task.name}' has no demonstrations to learn from: give a file with a 'completion' in each row, or "
            "leave [warm_up] out"
        )
    _check_rewards(config, task)


def _check_rewards(config: RunConfig | SftConfig, task: Task) -> None:
    makers = {"model": _unloaded}
    build_reward(config.reward, task, makers)
    if config.evaluation.verifier != "same":
        build_reward(RewardConfig(verifier=config.evaluation.verifier), task, makers)


def _unloaded(options: Mapping[str, Any]) -> Reward:
    """In the place of a reward model, which is large: its options and its folder are looked at."""
    try:
        config = validate(RewardModelConfig, options)
    except ConfigError as error:
        raise RewardError(f"the options of the reward model: {error}") from error
    folder = Path(config.path).expanduser()
    if (folder.exists() or looks_local(config.path)) and not (folder / "config.json").is_file():
        raise ModelError(
            f"the reward model '{config.path}' has no config.json: give a folder in Hugging Face layout, or a hub name"
        )
    return EachReward("model", lambda completion: 0.0)


def check_model(path: str) -> None:
    """Look for the files of a model, in its folder or on the hub, of which only the configuration is read.

    Raises:
        ModelError: they are not there.
    """
    if path in ("embedded", smollm2.NAME):
        return
    folder = Path(path).expanduser()
    if folder.exists() or looks_local(path):
        check_folder(path, folder)
        return
    try:
        with quiet():
            AutoConfig.from_pretrained(path, trust_remote_code=False)
    except Exception as error:  # of the hub, of its files
        raise ModelError(
            f"model.path = '{path}' is neither a folder nor a model of the Hugging Face hub that can be reached from here "
            f"({one_line(error)})"
        ) from error
