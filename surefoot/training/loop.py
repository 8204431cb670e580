"""The synchronous loop: rollouts, scores, groups, an update, the new weights to the engine. The page to read first.

    prompts -> rollouts -> scores -> groups -> select, advantages -> pack, totals -> loss -> optimiser -> weights (version + 1)

Every step depends only on the run's seed, its number and the weights, so a run that is killed and resumed computes
what the uninterrupted run computes, bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.files import write_atomic
from surefoot.policy.loading import save_policy
from surefoot.rewards.base import Reward
from surefoot.rollout.engine import Request
from surefoot.seeds import derive
from surefoot.tasks.base import Task
from surefoot.tasks.cursor import PromptCursor
from surefoot.training.assemble import Parts, assemble, set_threads
from surefoot.training.clock import Clock
from surefoot.training.config import RunConfig
from surefoot.training.folder import RunFolder, environment, run_path
from surefoot.training.journal import Journal
from surefoot.training.learner import Learner
from surefoot.training.measure import measure_batch
from surefoot.training.optimiser import make_optimiser
from surefoot.training.progress import Progress
from surefoot.training.resume import restore, store
from surefoot.training.state import RunState
from surefoot.training.trackers import require_trackers
from surefoot.types import Group, Prompt


@dataclass(frozen=True)
class RunResult:
    """What a run came to.

    Attributes:
        folder: the run folder; the trained model is in ``folder / "model"``.
        summary: the content of ``result.json``: evaluations before and after, steps, seconds by phase, tokens.
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
    set_threads(config.train.threads)
    config.evaluation.check()
    parts = assemble(config, task=task, reward=reward)
    algorithm = config.algorithm.build()
    require_trackers(config.track)
    with RunFolder(run_path(config), config.resolved(), resume=resume) as folder:
        write_atomic(folder.path / "card.md", algorithm.explain())
        write_atomic(folder.path / "environment.json", json.dumps(environment(), indent=1) + "\n")
        learner = Learner(
            policy=parts.policy,
            reference=parts.policy.copy() if algorithm.needs_reference else None,
            optimiser=make_optimiser(parts.policy.model, config.optimiser),
            algorithm=algorithm,
            config=config,
        )
        state = restore(folder, learner, parts.task, parts.reward, config.train.steps)
        parts.engine.load(state.step)
        return _run(config, parts, learner, state, folder, watch)


def _run(
    config: RunConfig,
    parts: Parts,
    learner: Learner,
    state: RunState,
    folder: RunFolder,
    watch: Callable[[Progress], None] | None,
) -> RunResult:
    clock = Clock()
    cursor = PromptCursor(len(parts.task.train), config.seed, state.cursor)
    with Journal(config, folder, parts, state, clock, watch) as journal:
        if not journal.evaluations:
            journal.evaluate()
        while state.step < config.train.steps:
            state.step += 1
            prompts = [parts.task.train[i] for i in cursor.take(config.train.prompts_per_step)]
            state.cursor = cursor.position
            groups = rollout(config, parts, prompts, state.step, clock)
            batch, report = learner.update(groups, state, clock)
            parts.engine.load(state.step)
            report.merge(measure_batch(groups, batch))
            journal.step(groups, batch, report)
            last = state.step == config.train.steps
            if last or (config.evaluation.every and state.step % config.evaluation.every == 0):
                journal.evaluate()
            if last or (config.checkpoint.every and state.step % config.checkpoint.every == 0):
                with clock.phase("save"):
                    store(folder, learner, state, config.checkpoint)
            journal.end_step()
        with clock.phase("save"):
            save_policy(parts.policy, folder.path / "model")
        return RunResult(folder.path, journal.finish())


def rollout(config: RunConfig, parts: Parts, prompts: list[Prompt], step: int, clock: Clock) -> list[Group]:
    """Sample a group for each prompt and grade it.

    A prompt that occurs twice in a batch (where two epochs meet) gets samples with numbers of their own.
    """
    size = config.train.group_size
    seen: dict[str, int] = {}
    requests = []
    for prompt in prompts:
        first = seen.get(prompt.prompt_id, 0)
        seen[prompt.prompt_id] = first + size
        seeds = tuple(derive(config.seed, "sample", step, prompt.prompt_id, k) for k in range(first, first + size))
        requests.append(Request(parts.renderer.ids(prompt), prompt.prompt_id, seeds, parts.sampling, first))
    with clock.phase("generate"):
        rollouts = parts.engine.generate(requests)
    with clock.phase("score"):
        pairs = [(prompt, sample) for prompt, samples in zip(prompts, rollouts, strict=True) for sample in samples]
        scores = iter(parts.grade(pairs))
        return [
            Group(prompt, samples, tuple(next(scores) for _ in samples))
            for prompt, samples in zip(prompts, rollouts, strict=True)
        ]
