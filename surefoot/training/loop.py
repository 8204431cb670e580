"""The synchronous loop: rollouts, scores, groups, an update, the new weights to the engine. The page to read first.

    prompts -> rollouts -> scores -> groups -> shape, select, advantages -> pack, totals -> loss -> optimiser -> version + 1

Every step depends only on the run's seed, its number and the weights, so a run that is killed and resumed computes
what the uninterrupted run computes, bit for bit.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.algorithms.algorithm import Algorithm
from surefoot.files import write_atomic
from surefoot.policy.allocator import keep_freed_memory, objects_at_rest
from surefoot.policy.critic import make_critic, save_critic
from surefoot.policy.loading import Policy
from surefoot.rewards.base import Reward, notes_of
from surefoot.rewards.compose import Composed
from surefoot.tasks.base import Task
from surefoot.tasks.check import check_trainable
from surefoot.training.assemble import Parts, assemble
from surefoot.training.audit import audit_before
from surefoot.training.budget import measure_cost, parameters
from surefoot.training.clock import Clock
from surefoot.training.collect import collect
from surefoot.training.config import RunConfig
from surefoot.training.critic import CriticLearner
from surefoot.training.folder import RunFolder, environment, run_path
from surefoot.training.journal import Journal
from surefoot.training.learner import Learner
from surefoot.training.measure import measure_batch
from surefoot.training.optimiser import make_optimiser
from surefoot.training.parts import with_parts
from surefoot.training.progress import Progress
from surefoot.training.prompts import PromptSource
from surefoot.training.resets import reset_if_due
from surefoot.training.resume import ended_before, restore, store
from surefoot.training.state import RunState
from surefoot.training.threads import recorded, set_threads
from surefoot.training.trackers import require_trackers


@dataclass(frozen=True)
class RunResult:
    """What a run came to.

    Attributes:
        folder: the run folder; the trained model is in ``folder / "model"``.
        summary: the content of ``result.json``: evaluations before and after, steps, what ended the run, seconds by
            phase, tokens.
    """

    folder: Path
    summary: dict[str, Any]

    @property
    def model(self) -> Path:
        return self.folder / "model"


def train(
    config: RunConfig,
    *,
    reward: Reward | None = None,
    task: Task | None = None,
    resume: bool = False,
    watch: Callable[[Progress], None] | None = None,
) -> RunResult:
    """Train a policy by reinforcement learning.

    Args:
        config: everything that the run depends on.
        reward: used instead of the one that the configuration names.
        task: used instead of the one that the configuration names.
        resume: go on with the run that the folder holds.
        watch: called after every step and evaluation.

    Raises:
        SurefootError: any mistake in the configuration, the data, the model or the reward, before the first step;
            NonFiniteError when the weights have gone bad.
    """
    keep_freed_memory()
    if isinstance(reward, Composed):
        config = config.model_copy(update={"algorithm": with_parts(config.algorithm, reward.parts)})
    set_threads(config.train.threads, before=recorded(run_path(config)) if resume else None)
    config.evaluation.check()
    parts = assemble(config, task=task, reward=reward)
    check_trainable(parts.task)
    algorithm = config.algorithm.build()
    require_trackers(config.track)
    with RunFolder(run_path(config), config.resolved(), resume=resume) as folder:
        write_atomic(folder.path / "card.md", algorithm.explain())
        write_atomic(folder.path / "environment.json", json.dumps(environment(), indent=1) + "\n")
        learner = make_learner(config, parts.policy, algorithm)
        state = restore(folder, learner, parts.task, parts.reward, config.train.steps)
        if state.step == 0:
            audit_before(config, parts, folder, own=reward is None)
        parts.engine.load(state.step)
        return _run(config, parts, learner, state, folder, watch)


def make_learner(config: RunConfig, policy: Policy, algorithm: Algorithm) -> Learner:
    """The policy with its optimiser, and the reference and the critic where the algorithm needs them."""
    critic = make_critic(policy, config.critic) if algorithm.needs_critic else None
    return Learner(
        policy=policy,
        reference=policy.copy() if algorithm.needs_reference else None,
        optimiser=make_optimiser(policy.model, config.optimiser),
        algorithm=algorithm,
        config=config,
        critic=None if critic is None else CriticLearner(critic, policy, config.critic, config.optimiser),
    )


def _run(
    config: RunConfig,
    parts: Parts,
    learner: Learner,
    state: RunState,
    folder: RunFolder,
    watch: Callable[[Progress], None] | None,
) -> RunResult:
    clock = Clock()
    task = parts.task
    source = PromptSource(learner.algorithm.prompts, task.train, config.seed, state, task.weights)
    with Journal(config, folder, parts, state, clock, watch) as journal, objects_at_rest():
        size = parameters(parts.policy.model)
        ended = journal.ended()
        last = ended is not None
        if ended is not None and state.step and (text := ended_before(folder, state, ended)):
            warnings.warn(text, stacklevel=3)
        # Also what is resumed into an end, for instance into a smaller budget, ends with an evaluation.
        if not journal.evaluations or (last and journal.evaluations[-1]["step"] < state.step):
            journal.evaluate()
        while not last:
            state.step += 1
            rollouts = collect(config, parts, learner.algorithm, source, state, clock)
            batch, report = learner.update(rollouts.groups, state, clock)
            parts.engine.load(state.step)
            report.merge(measure_batch(rollouts, batch))
            report.merge(source.measure())
            report.merge(notes_of(parts.reward))
            measure_cost(state.spent, rollouts.everything, report, size)
            state.exhausted = not source.left(state.step)
            journal.step(rollouts, batch, report, learner.details)
            last = journal.ended() is not None
            if last or (config.evaluation.every and state.step % config.evaluation.every == 0):
                journal.evaluate()
            if reset_if_due(learner, state, journal.evaluations):
                journal.note_reset()
            if last or (config.checkpoint.every and state.step % config.checkpoint.every == 0):
                with clock.phase("save"):
                    store(folder, learner, state, config.checkpoint)
            journal.end_step()
        with clock.phase("save"):
            parts.save(folder.path / "model")
            if learner.critic is not None:
                save_critic(learner.critic.critic, folder.path / "critic")
        return RunResult(folder.path, journal.finish())
