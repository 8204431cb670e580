"""Rollouts of a step: which prompts, their samples and scores, and further ones where the selection leaves too few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from surefoot.algorithms.algorithm import Algorithm
from surefoot.rollout.engine import Request
from surefoot.seeds import derive
from surefoot.training.assemble import Parts
from surefoot.training.batch import kept_groups
from surefoot.training.clock import Clock
from surefoot.training.config import RunConfig
from surefoot.training.prompts import PromptSource
from surefoot.training.state import RunState
from surefoot.types import Group, Prompt


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
    with clock.phase("generate"):
        made = parts.engine.generate([*requests, *greedy])
    rollouts, baselines = made[: len(requests)], made[len(requests) :]
    with clock.phase("score"):
        pairs = [(prompt, sample) for prompt, samples in zip(prompts, rollouts, strict=True) for sample in samples]
        pairs += [(prompt, samples[0]) for prompt, samples in zip(prompts, baselines, strict=bool(baselines))]
        scores = iter(parts.grade(pairs))
        groups = [
            Group(prompt, samples, tuple(next(scores) for _ in samples))
            for prompt, samples in zip(prompts, rollouts, strict=True)
        ]
        return [replace(group, greedy=next(scores)) for group in groups] if baselines else groups


def _greedy(request: Request) -> Request:
    """The greedy completion of the same prompt, which is graded and not trained on (ReMax, arXiv 2310.10505)."""
    sampling = replace(request.sampling, temperature=0.0, top_p=1.0, top_k=0, top_logprobs=0)
    return replace(request, seeds=(0,), sampling=sampling, first_sample_id=-1)
