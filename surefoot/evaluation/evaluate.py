"""Held-out accuracy of a policy: sample, grade, and say how sure the number is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.errors import DataError, RewardError
from surefoot.evaluation.config import EvaluationConfig
from surefoot.evaluation.intervals import Interval, mean_interval
from surefoot.evaluation.passk import ladder, pass_at_k
from surefoot.rewards.grade import is_right
from surefoot.rollout.engine import Engine, Interruption, Request, Sampling
from surefoot.seeds import derive
from surefoot.tasks.build import fingerprint
from surefoot.types import Finish, Prompt, Sample, Score, Status

Problem = tuple[Prompt, np.ndarray]
Grader = Callable[[Sequence[tuple[Prompt, Sample]]], list[Score]]


@dataclass(frozen=True)
class Evaluation:
    """What was measured on P held-out problems with n samples each.

    Attributes:
        correct: [P] int64, right samples of each problem.
        samples_per_problem: n.
        accuracy: avg@n, the mean over problems of the share of right samples.
        low, high: confidence interval of the accuracy, over problems.
        pass_at: unbiased pass@k with its interval, for k = 1, 2, 4 ... up to n.
        length: mean number of tokens that the policy wrote.
        truncated: share of samples that used up their budget without a stop token.
        no_answer: share of samples in which the verifier found nothing that could be an answer.
        ungraded: samples that could not be graded (invalid reward, timeout, error); they count as wrong.
        prompts: the P problems.
        samples, scores: per problem, its n samples and their scores.
        confidence: level of the intervals.
    """

    correct: np.ndarray
    samples_per_problem: int
    accuracy: float
    low: float
    high: float
    pass_at: Mapping[int, Interval]
    length: float
    truncated: float
    no_answer: float
    ungraded: int
    prompts: tuple[Prompt, ...]
    samples: tuple[tuple[Sample, ...], ...]
    scores: tuple[tuple[Score, ...], ...]
    confidence: float = 0.95

    @property
    def accuracy_p(self) -> np.ndarray:
        """[P] float64, share of right samples of each problem; what a paired comparison of two evaluations takes."""
        return self.correct / self.samples_per_problem

    def record(self, step: int) -> dict[str, Any]:
        """The line of ``evaluations.jsonl`` for this step."""
        return {
            "step": step,
            "problems": len(self.correct),
            "set": fingerprint(self.prompts),
            "samples": self.samples_per_problem,
            "accuracy": self.accuracy,
            "low": self.low,
            "high": self.high,
            "pass": {str(k): interval.value for k, interval in self.pass_at.items()},
            "length": self.length,
            "truncated": self.truncated,
            "no_answer": self.no_answer,
            "ungraded": self.ungraded,
            "right": self.correct.tolist(),
            **({"tasks": tasks} if (tasks := self.by_task()) else {}),
        }

    def by_task(self) -> dict[str, dict[str, Any]]:
        """Accuracy, and the number of problems, of each part of a mixture (``metadata["task"]``), with its interval."""
        labels = [prompt.metadata.get("task") for prompt in self.prompts]
        found: dict[str, dict[str, Any]] = {}
        for label in dict.fromkeys(label for label in labels if isinstance(label, str)):
            chosen = np.array([other == label for other in labels])
            interval = mean_interval(self.accuracy_p[chosen], confidence=self.confidence)
            found[label] = {
                "problems": int(chosen.sum()),
                "accuracy": interval.value,
                "low": interval.low,
                "high": interval.high,
            }
        return found


def evaluate(
    engine: Engine,
    problems: Sequence[Problem],
    grade: Grader,
    config: EvaluationConfig,
    *,
    max_new_tokens: int,
    stop_ids: tuple[int, ...],
    interrupt: Interruption | None = None,
) -> Evaluation:
    """Sample every problem ``config.samples`` times and grade the samples.

    The seeds depend on the problem and ``config.seed`` alone, so two evaluations differ only by their weights and can
    be compared problem by problem (:func:`surefoot.evaluation.intervals.paired_interval`).

    Args:
        engine: makes the samples.
        problems: prompts with their token ids [L]; the first ``config.problems`` of them are used.
        grade: scores for (prompt, sample) pairs, in order.
        config: how many problems and samples, temperature, seed, level of the intervals.
        max_new_tokens: budget of a completion.
        stop_ids: tokens that end a completion.
        interrupt: how a completion that thinks for too long is brought to its answer, as in the rollouts.

    Raises:
        ConfigError: several samples per problem at temperature 0, which would all be the same.
        DataError: there is no problem.
        RewardError: ``grade`` returned another number of scores.
    """
    config.check()
    problems = problems[: config.problems]
    if not problems:
        raise DataError("there is no held-out problem to evaluate on: give the task some, or a larger held-out share")
    sampling = Sampling(
        temperature=config.temperature,
        top_p=config.top_p,
        max_new_tokens=max_new_tokens,
        stop_ids=stop_ids,
        interrupt=interrupt,
    )
    requests = [
        Request(
            prompt_ids=ids,
            prompt_id=prompt.prompt_id,
            seeds=tuple(derive(config.seed, "evaluation", prompt.prompt_id, i) for i in range(config.samples)),
            sampling=sampling,
        )
        for prompt, ids in problems
    ]
    prompts = tuple(prompt for prompt, _ in problems)
    samples = tuple(engine.generate(requests))
    pairs = [(prompt, sample) for prompt, group in zip(prompts, samples, strict=True) for sample in group]
    scores = grade(pairs)
    if len(scores) != len(pairs):
        raise RewardError(f"the reward gave {len(scores)} scores for {len(pairs)} completions: expected one for each")
    groups = tuple(tuple(scores[i : i + config.samples]) for i in range(0, len(scores), config.samples))
    return summarise(prompts, samples, groups, confidence=config.confidence)


def summarise(
    prompts: Sequence[Prompt],
    samples: Sequence[tuple[Sample, ...]],
    scores: Sequence[tuple[Score, ...]],
    *,
    confidence: float = 0.95,
) -> Evaluation:
    """The numbers of graded samples, the same number for every problem.

    Args:
        prompts: the P problems.
        samples, scores: per problem, its samples and their scores.
        confidence: level of the intervals.
    """
    number = len(scores[0])
    correct = np.array([sum(is_right(score) for score in group) for group in scores], dtype=np.int64)
    every_sample = [sample for group in samples for sample in group]
    every_score = [score for group in scores for score in group]
    accuracy = mean_interval(correct / number, confidence=confidence)
    return Evaluation(
        correct=correct,
        samples_per_problem=number,
        accuracy=accuracy.value,
        low=accuracy.low,
        high=accuracy.high,
        pass_at={k: mean_interval(pass_at_k(correct, number, k), confidence=confidence) for k in ladder(number)},
        length=float(np.mean([sample.length for sample in every_sample])),
        truncated=float(np.mean([sample.finish == Finish.LENGTH for sample in every_sample])),
        no_answer=float(np.mean([score.status == Status.NO_ANSWER for score in every_score])),
        ungraded=sum(not score.valid for score in every_score),
        prompts=tuple(prompts),
        samples=tuple(samples),
        scores=tuple(scores),
        confidence=confidence,
    )
