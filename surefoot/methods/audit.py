"""``surefoot audit``: what a task and its reward are worth, before a run finds out.

The checks of task and reward alone are in :mod:`surefoot.rewards.audit`; here they get another process to agree with, and
a model whose samples show whether there is anything to learn (:mod:`surefoot.methods.audit_samples`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from surefoot.methods.audit_samples import sampled
from surefoot.policy.loading import load_tokenizer
from surefoot.policy.reward_model import make_reward_model
from surefoot.rewards.audit import Check, audit_reward, judged_by_task, spread
from surefoot.rewards.audit_data import answers_in_prompts
from surefoot.rewards.audit_findings import AuditReport
from surefoot.rewards.audit_process import elsewhere
from surefoot.rewards.base import Reward
from surefoot.rewards.build import build_reward
from surefoot.tasks.base import Task
from surefoot.tasks.build import build_task
from surefoot.tasks.render import Renderer
from surefoot.training.assemble import Parts, assemble
from surefoot.training.audit_tokens import as_tokens
from surefoot.training.config import RunConfig
from surefoot.types import Prompt


def audit(
    config: RunConfig,
    *,
    task: Task | None = None,
    reward: Reward | None = None,
    model: bool = False,
    samples: int = 8,
    prompts: int = 64,
    quick: bool = False,
) -> AuditReport:
    """Audit the task and the reward of a configuration.

    Args:
        config: of a run; the sections task and reward, and with a model also model and rollout, are read.
        task, reward: used instead of those that the configuration names.
        model: whether the model of the configuration is sampled.
        samples: of each prompt, where the model is.
        prompts: how many are looked at.
        quick: only what a run looks at before its first step, in ``audit.seconds``.

    Raises:
        SurefootError: a mistake in the configuration, the data or the model.
    """
    parts = assemble(config, task=task, reward=reward) if model else None
    known = parts.task if parts else task or build_task(config.task)
    makers = {"model": partial(make_reward_model, device=torch.device("cpu"))}
    judge = parts.reward if parts else reward or build_reward(config.reward, known, makers)
    own = reward is None and judged_by_task(config.reward)
    seconds = config.audit.seconds if quick else None
    recipe = (config.reward, config.task) if reward is None and task is None else None
    also: list[Check] = [] if quick else [lambda grader: elsewhere(judge, grader.seen, recipe)]
    renderer = parts.renderer if parts else _renderer(config, known)
    if renderer is not None:
        also.append(lambda grader: as_tokens(grader, renderer))
    report = audit_reward(known, judge, own=own, prompts=prompts, seconds=seconds, also=also)
    if parts is None:
        return report
    chosen = spread([*known.train, *known.heldout], prompts)
    report = _as_read(report, parts, chosen)
    return replace(report, findings=(*report.findings, *sampled(parts, chosen, samples, config.seed)))


def _renderer(config: RunConfig, task: Task) -> Renderer | None:
    """What writes and reads the tokens of the model that the configuration names; None where it names none."""
    if "path" not in config.model.model_fields_set or config.model.path == "embedded":
        return None
    return Renderer(load_tokenizer(config.model), config.task, task.shots)


def _as_read(report: AuditReport, parts: Parts, chosen: Sequence[Prompt]) -> AuditReport:
    """The report with the search for gold answers in what the model reads: template, examples and all."""
    tokenizer = parts.policy.tokenizer
    found = answers_in_prompts(chosen, [tokenizer.decode(parts.renderer.ids(prompt).tolist()) for prompt in chosen])
    return replace(report, findings=tuple(found if one.check == found.check else one for one in report.findings))
