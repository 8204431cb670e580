"""From a configuration to the things that a run is made of."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from surefoot.algorithms.algorithm import Algorithm
from surefoot.errors import AlgorithmError
from surefoot.evaluation.evaluate import Evaluation, evaluate
from surefoot.policy.loading import Policy, load_policy, save_policy
from surefoot.policy.reward_model import make_reward_model
from surefoot.rewards.base import Completion, Reward
from surefoot.rewards.build import build_reward
from surefoot.rewards.config import RewardConfig
from surefoot.rewards.grade import grade
from surefoot.rollout.engine import Engine, Interruption, Sampling, check_sampling
from surefoot.rollout.local import LocalEngine
from surefoot.tasks.base import Task
from surefoot.tasks.build import build_task
from surefoot.tasks.fingerprint import task_fingerprint
from surefoot.tasks.render import OPEN, Renderer
from surefoot.training.config import RunConfig, SftConfig
from surefoot.types import Prompt, Sample, Score


@dataclass(frozen=True)
class Parts:
    """What rollouts and evaluations need: the policy and its engine, the task, its wording, its reward, and what judges
    held-out samples (the same reward, unless ``evaluation.verifier`` names another).

    ``places_steps`` says whether the algorithm reads at which tokens scored steps end.
    """

    policy: Policy
    engine: Engine
    task: Task
    renderer: Renderer
    reward: Reward
    judge: Reward
    sampling: Sampling
    heldout: tuple[tuple[Prompt, np.ndarray], ...]
    places_steps: bool = False

    def grade(
        self, items: Sequence[tuple[Prompt, Sample]], *, step: int = 0, steps: int = 0, by: Reward | None = None
    ) -> list[Score]:
        """Score samples by the text of their completions; ``step`` of ``steps`` is the rollout batch they are for.

        ``by`` grades them instead of the reward.
        """
        opens = OPEN if self.renderer.opens_thought else ""
        completions = [
            Completion(
                prompt,
                self.renderer.decode(sample),
                sample.finish,
                sample.length,
                tuple(sample.ids[sample.mask].tolist()),
                step,
                steps,
                opens,
            )
            for prompt, sample in items
        ]
        scores = grade(by or self.reward, completions)
        if not self.places_steps or by is not None:
            return scores
        return [self._placed(sample, score) for (_, sample), score in zip(items, scores, strict=True)]

    def _placed(self, sample: Sample, score: Score) -> Score:
        """The score with the token at which each of its steps ends."""
        if not score.steps:
            return score
        tokens = self.renderer.tokens_at(sample, [step.end for step in score.steps])
        steps = [replace(step, token=token) for step, token in zip(score.steps, tokens, strict=True)]
        return replace(score, steps=tuple(steps))

    def evaluate(self, config: RunConfig | SftConfig, step: int = 0) -> Evaluation:
        """Sample and grade the held-out problems, after ``step`` rollout batches."""
        steps = config.train.steps if isinstance(config, RunConfig) else 0
        return evaluate(
            self.engine,
            self.heldout,
            partial(self.grade, step=step, steps=steps, by=self.judge),
            config.evaluation,
            max_new_tokens=self.sampling.max_new_tokens,
            stop_ids=self.sampling.stop_ids,
            interrupt=self.sampling.interrupt,
        )

    def save(self, folder: Path) -> None:
        """Write the policy as it is now, with all that ends its completions, see :func:`save_policy`."""
        save_policy(self.policy, folder, self.sampling.stop_ids)


def assemble(config: RunConfig | SftConfig, *, task: Task | None = None, reward: Reward | None = None) -> Parts:
    """Load the policy, build the task and the reward, render the held-out prompts, and check that prompts fit."""
    task = task or build_task(config.task)
    if not task.fingerprint:  # a task made by hand
        task = replace(task, fingerprint=task_fingerprint(task))
    algorithm = config.algorithm.build() if isinstance(config, RunConfig) else None
    exact = algorithm is not None and algorithm.head()
    policy = load_policy(config.model.model_copy(update={"head_float32": True}) if exact else config.model)
    rollout = config.rollout
    renderer = Renderer(policy.tokenizer, config.task, task.shots, stop_ids=policy.stop_ids, stop=rollout.stop)
    fitting = renderer.fit(task)
    if (fitting.train, fitting.heldout) != (task.train, task.heldout):
        fitting = replace(fitting, fingerprint=task_fingerprint(fitting))
    task = fitting
    for note in task.notes:
        warnings.warn(note, stacklevel=2)
    renderer.check_length([*task.train, *task.heldout], policy.context, rollout.max_new_tokens)
    sampling = Sampling(
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        top_k=rollout.top_k,
        max_new_tokens=rollout.max_new_tokens,
        stop_ids=renderer.stop_ids,
        top_logprobs=0 if algorithm is None else algorithm.top_logprobs,
        interrupt=None if algorithm is None else interruption(algorithm, renderer, rollout.max_new_tokens),
    )
    head = policy.head if policy.config.head_float32 else None
    engine = LocalEngine(
        policy.model,
        max_batch_tokens=rollout.max_batch_tokens,
        head=head,
        quantise=rollout.quantise == "int8",
        repack=rollout.repack,
        autocast=policy.config.autocast,
    )
    check_sampling(engine, sampling)
    problems = task.heldout[: config.evaluation.problems]
    makers = {"model": partial(make_reward_model, device=policy.device)}
    reward = reward or build_reward(config.reward, task, makers)
    verifier = config.evaluation.verifier
    return Parts(
        policy=policy,
        engine=engine,
        task=task,
        renderer=renderer,
        reward=reward,
        judge=reward if verifier == "same" else build_reward(RewardConfig(verifier=verifier), task, makers),
        sampling=sampling,
        heldout=tuple((prompt, renderer.ids(prompt)) for prompt in problems),
        places_steps=algorithm is not None and algorithm.reads_steps,
    )


def interruption(algorithm: Algorithm, renderer: Renderer, budget: int) -> Interruption | None:
    """The algorithm's interruption in tokens.

    Raises:
        AlgorithmError: the budget has no room for the thinking, the phrase and an answer.
    """
    after = algorithm.interruption(budget)
    if after is None:
        return None
    phrase = renderer.tokens(algorithm.interruption.phrase)
    if after + len(phrase) >= budget:
        fits = next(n for n in range(budget, 10**9) if algorithm.interruption(n) + len(phrase) < n)
        raise AlgorithmError(
            f"the interruption comes after {after} tokens and its phrase takes {len(phrase)}, which leaves none of "
            f"rollout.max_new_tokens = {budget} for an answer: raise that to {fits} or more, give a shorter "
            "algorithm.interruption.phrase (with a tokenizer of characters even a short one is long), or set "
            "algorithm.interruption = 'none'"
        )
    return Interruption(after, phrase, renderer.tokens(algorithm.interruption.close))
