"""Rollouts of a step: which prompts, their samples and scores, and further ones where the selection leaves too few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from surefoot.algorithms.algorithm import Algorithm
from surefoot.rollout.engine import Request
from surefoot.seeds import derive
from surefoot.training.assemble import Parts
from surefoot.training.batch import kept_groups
from surefoot.training.clock import Clock
from surefoot.training.config import RunConfig
from surefoot.training.grading import Grading, grading_threads
from surefoot.training.prompts import PromptSource
from surefoot.training.state import RunState
from surefoot.types import Group, Prompt, Sample, Score


@dataclass(frozen=True)
class Rollouts:
    """The groups of a step.

    Attributes:
        groups: those that the update gets.
        passed_over: those that a selection with refill turned away, or that were more than the step needs.
        rounds: rollout batches that were made.
    """

    groups: list[Group]
    passed_over: list[Group]
    rounds: int

    @property
    def everything(self) -> list[Group]:
        return [*self.groups, *self.passed_over]


def collect(
    config: RunConfig, parts: Parts, algorithm: Algorithm, source: PromptSource, state: RunState, clock: Clock
) -> Rollouts:
    """Sample and grade the groups of a step.

    With a selection that refills (DAPO's dynamic sampling, arXiv 2503.14476) rollout batches follow one another until
    as many groups as the step has prompts are kept, or its ``rounds`` are used up: the step then goes on with what
    there is. A step without any prompt left to sample gives no groups.
    """
    wanted = config.train.prompts_per_step
    refills = "refill" in algorithm.selection.kind.traits
    rounds = algorithm.selection.rounds if refills else 1
    seen: dict[str, int] = {}
    kept: list[Group] = []
    passed_over: list[Group] = []
    for done in range(1, rounds + 1):
        indices = source.take(wanted, state.step, done)
        groups = rollout(config, parts, algorithm, [parts.task.train[i] for i in indices], state.step, clock, seen)
        source.learn(indices, groups)
        verdicts = kept_groups(algorithm, groups, state.step, config.rollout.max_new_tokens) if refills else None
        for number, group in enumerate(groups):
            keep = verdicts is None or (verdicts[number] and len(kept) < wanted)
            (kept if keep else passed_over).append(group)
        if len(kept) >= wanted or not indices:
            break
    return Rollouts(kept, passed_over, done)


def rollout(
    config: RunConfig,
    parts: Parts,
    algorithm: Algorithm,
    prompts: Sequence[Prompt],
    step: int,
    clock: Clock,
    seen: dict[str, int],
) -> list[Group]:
    """Sample a group for each prompt and grade it; with a greedy baseline, one greedy completion more for each.

    Args:
        seen: samples that each prompt has had in this step, updated in place: a prompt that occurs again gets samples with
            numbers of their own.
    """
    size = config.train.group_size
    requests = []
    for prompt in prompts:
        first = seen.get(prompt.prompt_id, 0)
        seen[prompt.prompt_id] = first + size
        seeds = tuple(derive(config.seed, "sample", step, prompt.prompt_id, k) for k in range(first, first + size))
        requests.append(Request(parts.renderer.ids(prompt), prompt.prompt_id, seeds, parts.sampling, first))
    greedy = [_greedy(request) for request in requests] if "greedy" in algorithm.advantage.kind.traits else []
    made, scores = _graded(config, parts, [*requests, *greedy], [*prompts, *prompts[: len(greedy)]], step, clock)
    count = len(prompts)
    groups = [
        Group(prompt, samples, tuple(given))
        for prompt, samples, given in zip(prompts, made[:count], scores[:count], strict=True)
    ]
    if not greedy:
        return groups
    return [replace(group, greedy=given) for group, (given,) in zip(groups, scores[count:], strict=True)]


def _graded(
    config: RunConfig, parts: Parts, requests: Sequence[Request], prompts: Sequence[Prompt], step: int, clock: Clock
) -> tuple[list[tuple[Sample, ...]], list[list[Score]]]:
    """The samples of each request and their scores. The phase "score" is what the step has to wait for them."""

    def pairs(number: int, samples: Sequence[Sample]) -> list[tuple[Prompt, Sample]]:
        return [(prompts[number], sample) for sample in samples]

    tells = getattr(parts.engine, "reports_finished", False)
    threads = grading_threads(parts.reward, config.reward.overlap) if tells else 0
    grade = partial(parts.grade, step=step, steps=config.train.steps)
    with Grading(grade, threads) as grading:
        ahead = {"finished": lambda number, samples: grading.begin(number, pairs(number, samples))}
        with clock.phase("generate"):
            made = parts.engine.generate(requests, **(ahead if grading.ahead else {}))
        with clock.phase("score"):
            return made, grading.scores([pairs(number, samples) for number, samples in enumerate(made)])


def _greedy(request: Request) -> Request:
    """The greedy completion of the same prompt, which is graded and not trained on (ReMax, arXiv 2310.10505)."""
    sampling = replace(request.sampling, temperature=0.0, top_p=1.0, top_k=0, top_logprobs=0)
    return replace(request, seeds=(0,), sampling=sampling, first_sample_id=-1)
