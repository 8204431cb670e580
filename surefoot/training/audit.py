"""The quick half of the audit, before the first step of a run."""

from __future__ import annotations

import json
import warnings

from surefoot.errors import RewardError
from surefoot.files import write_atomic
from surefoot.rewards.audit import audit_reward, judged_by_task
from surefoot.rewards.base import notes_of
from surefoot.training.assemble import Parts
from surefoot.training.audit_tokens import as_tokens
from surefoot.training.config import RunConfig
from surefoot.training.folder import RunFolder


def audit_before(config: RunConfig, parts: Parts, folder: RunFolder, *, own: bool) -> None:
    """Look for faults of the reward; the report is kept as ``audit.json`` in the run folder.

    Args:
        config: of the run; its section ``audit`` says what a fault does.
        parts: task and reward.
        folder: of the run.
        own: whether the reward is the one that the configuration names, and not one given in Python.

    Raises:
        RewardError: a fault was found, and ``audit.before`` is "stop".
    """
    if config.audit.before == "off":
        return
    report = audit_reward(
        parts.task,
        parts.reward,
        own=own and judged_by_task(config.reward),
        prompts=config.audit.prompts,
        seconds=config.audit.seconds,
        also=[lambda grader: as_tokens(grader, parts.renderer)],
    )
    notes_of(parts.reward)  # what it counted here is not the first step's
    write_atomic(folder.path / "audit.json", json.dumps(report.record(), indent=1, ensure_ascii=True) + "\n")
    failures = [f"{finding.check}: {finding.text}" for finding in report.of("fail")]
    if failures and config.audit.before == "stop":
        look = "`surefoot audit`" if own else "`surefoot.audit(task, reward=...)`"
        raise RewardError(
            f"the reward '{report.reward}' failed its audit on the task '{report.task}': {'; '.join(failures)}. See "
            f"{look} for examples, and mend the reward or the data; or set audit.before = 'warn' to train all the same"
        )
    for finding in [*report.of("fail"), *report.of("warn")]:
        warnings.warn(f"audit of the reward '{report.reward}', {finding.check}: {finding.text}", stacklevel=2)
