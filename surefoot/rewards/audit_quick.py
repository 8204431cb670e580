"""What a quick look before a run has time for, and what it says where it tried nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence

from surefoot.rewards.audit_findings import Finding
from surefoot.rewards.audit_grading import Case, Grader, duration
from surefoot.rewards.audit_texts import attacks, writings
from surefoot.rewards.base import Reward
from surefoot.tasks.base import Task
from surefoot.types import Prompt

TEXTS = 50
"""About as many completions are graded for each prompt."""
LEAST = 200
"""Gradings that there must be time for, or a reward is not tried at all."""
AFFORDED = 20
"""Gradings that there must be time for, or the average of several completions is not measured."""
_HOW = "run `surefoot audit` without --quick (in Python surefoot.audit without quick)"


def seconds_for_one(task: Task, grader: Grader, prompts: Sequence[Prompt], seconds: float) -> float:
    """Seconds of one grading, once the reward is warm: the first one may have to start processes, and is not counted.

    A reward that is slow for a right completion may be quick with those that hold nothing to grade (no program to run), so
    of one that is not too slow for that the average of what is tried on a prompt counts.
    """
    if not prompts:
        return 1e-6
    prompt = prompts[-1]
    made = writings(task, prompt)
    case = Case(prompt, made[0].text if made else _PROGRAM)
    grader.grade([case], keep=False)
    took = _timed(grader, [case])
    if seconds / LEAST < took < seconds / AFFORDED:
        texts = [text for one in attacks(prompt, None, (), None) for text in one.texts]
        took = _timed(grader, [case, *(Case(prompt, text) for text in texts)])
    return max(took, 1e-6)


_PROGRAM = "```python\npass\n```"
"""A text for which a reward that runs programs starts its workers."""


def _timed(grader: Grader, cases: Sequence[Case]) -> float:
    before = time.perf_counter()
    grader.grade(cases, keep=False)
    return (time.perf_counter() - before) / len(cases)


def too_slow(took: float, seconds: float) -> Finding:
    """One grading takes too long for a quick look."""
    why = f"one grading takes {duration(took)}, too long for a look of {seconds:g} s"
    text = f"nothing was tried: {why}; {_HOW}, or raise audit.seconds to {took * LEAST:.2g} or more"
    return Finding("time", "warn", text, (), {"median": took})


def asks(reward: Reward, prompts: int) -> Finding:
    """A grading costs something, so a quick look makes none."""
    text = (
        f"nothing was tried: the reward '{reward.name}' asks a model, and a quick look sends no requests; {_HOW}, which sends "
        f"about {TEXTS} for each prompt (--prompts, now {prompts})"
    )
    return Finding("time", "warn", text)
