"""From a configuration to the things that a run is made of."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from surefoot.evaluation.evaluate import Evaluation, evaluate
from surefoot.policy.loading import Policy, load_policy
from surefoot.rewards.base import Completion, Reward
from surefoot.rewards.build import build_reward
from surefoot.rewards.grade import grade
from surefoot.rollout.engine import Engine, Sampling
from surefoot.rollout.local import LocalEngine
from surefoot.tasks.base import Task
from surefoot.tasks.build import build_task, fingerprint
from surefoot.tasks.render import Renderer
from surefoot.training.config import RunConfig, SftConfig
from surefoot.types import Prompt, Sample, Score


@dataclass(frozen=True)
class Parts:
    """What rollouts and evaluations need: the policy and its engine, the task, its wording and its reward."""

    policy: Policy
    engine: Engine
    task: Task
    renderer: Renderer
    reward: Reward
    sampling: Sampling
    heldout: tuple[tuple[Prompt, np.ndarray], ...]

    def grade(self, items: Sequence[tuple[Prompt, Sample]]) -> list[Score]:
        """Score samples by the text of the tokens that the policy wrote."""
        completions = [
            Completion(prompt, self.renderer.decode(sample), sample.finish, sample.length) for prompt, sample in items
        ]
        return grade(self.reward, completions)

    def evaluate(self, config: RunConfig | SftConfig) -> Evaluation:
        """Sample and grade the held-out problems."""
        return evaluate(
            self.engine,
            self.heldout,
            self.grade,
            config.evaluation,
            max_new_tokens=self.sampling.max_new_tokens,
            stop_ids=self.sampling.stop_ids,
        )


def assemble(config: RunConfig | SftConfig, *, task: Task | None = None, reward: Reward | None = None) -> Parts:
    """Load the policy, build the task and the reward, render the held-out prompts, and check that prompts fit."""
    task = task or build_task(config.task)
    if not task.fingerprint:  # a task made by hand
        task = replace(task, fingerprint=fingerprint(task.train, task.heldout))
    for note in task.notes:
        warnings.warn(note, stacklevel=2)
    policy = load_policy(config.model)
    renderer = Renderer(policy.tokenizer, config.task)
    rollout = config.rollout
    renderer.check_length([*task.train, *task.heldout], policy.context, rollout.max_new_tokens)
    stop = {renderer.single_token(text) for text in rollout.stop}
    sampling = Sampling(
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        top_k=rollout.top_k,
        max_new_tokens=rollout.max_new_tokens,
        stop_ids=tuple(sorted({*policy.stop_ids, *stop})),
    )
    problems = task.heldout[: config.evaluation.problems]
    return Parts(
        policy=policy,
        engine=LocalEngine(policy.model, max_batch_tokens=rollout.max_batch_tokens),
        task=task,
        renderer=renderer,
        reward=reward or build_reward(config.reward, task),
        sampling=sampling,
        heldout=tuple((prompt, renderer.ids(prompt)) for prompt in problems),
    )


def set_threads(threads: int) -> None:
    if threads:
        torch.set_num_threads(threads)
