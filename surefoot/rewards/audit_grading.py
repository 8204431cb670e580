"""Grading for an audit: within a time limit, with what was graded kept, and how long one grading takes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.rewards.audit_findings import Example, Finding, Severity, counted, examples
from surefoot.rewards.base import BrokenRewardError, Completion, Reward
from surefoot.rewards.grade import grade
from surefoot.types import Finish, Prompt, Score

CHARACTERS_PER_TOKEN = 4
TIMED = 32
SLOW = 5.0  # seconds


@dataclass(frozen=True)
class Case:
    """A completion to grade."""

    prompt: Prompt
    text: str
    finish: Finish = Finish.STOP

    @property
    def completion(self) -> Completion:
        return Completion(self.prompt, self.text, self.finish, len(self.text) // CHARACTERS_PER_TOKEN + 1)


class Grader:
    """Grades with one reward and remembers.

    Args:
        reward: what grades.
        deadline: time of :func:`time.perf_counter` from which :attr:`late` is true; None for never.

    Attributes:
        prompts: names of the prompts that were graded.
        seen: all cases with their scores.
    """

    def __init__(self, reward: Reward, deadline: float | None = None) -> None:
        self.reward, self.deadline = reward, deadline
        self.prompts: set[str] = set()
        self.seen: list[tuple[Case, Score]] = []

    @property
    def late(self) -> bool:
        return self.deadline is not None and time.perf_counter() > self.deadline

    def grade(self, cases: Sequence[Case], keep: bool = True) -> list[Score]:
        """One score for each case.

        A batch of which every grading raises is a broken reward to a run; here each is marked by itself.

        Raises:
            RewardError: the reward does not keep its contract.
        """
        try:
            scores = grade(self.reward, [case.completion for case in cases])
        except BrokenRewardError as error:
            scores = error.scores
        if keep:
            self.prompts.update(case.prompt.prompt_id for case in cases)
            self.seen += zip(cases, scores, strict=True)
        return scores

    def ungraded(self) -> Finding:
        """Completions that could not be graded at all."""
        failed = [(case, score) for case, score in self.seen if not score.valid]
        if not failed:
            return Finding("grading", "ok", f"all {len(self.seen)} completions were graded")
        counts = Counter(str(score.status) for _, score in failed)
        which = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
        text = f"{counted(len(failed), self.seen, 'completions')} could not be graded ({which}): a run leaves such samples out"
        severity: Severity = "fail" if len(failed) == len(self.seen) else "warn"
        if said := Counter(score.text for _, score in failed if score.text):
            text += f"; most often: {said.most_common(1)[0][0]}"
        shown = examples((case.prompt, case.text, score) for case, score in failed)
        return Finding("grading", severity, text, shown, dict(counts))


def asks_model(reward: Any) -> bool:
    """Whether a reward, or one inside of it, says that its gradings cost something (``asks_model = True``)."""
    return inside(reward, "asks_model")


def inside(reward: Any, flag: str) -> bool:
    """Whether a reward, or one inside of it, has a flag that is set."""
    if getattr(reward, flag, False):
        return True
    parts = getattr(reward, "parts", ())
    inner = [getattr(reward, "verifier", None), getattr(reward, "reward", None)]
    inner += list(parts.values() if isinstance(parts, Mapping) else parts if isinstance(parts, (list, tuple)) else ())
    return any(inside(one, flag) for one in inner if one is not None)


def timing(grader: Grader) -> Finding | None:
    """How long one grading takes, each completion by itself."""
    took: list[tuple[float, Case, Score]] = []
    for case, _ in grader.seen[:: max(1, len(grader.seen) // TIMED)]:
        if took and grader.late:
            break
        before = time.perf_counter()
        (score,) = grader.grade([case], keep=False)
        took.append((time.perf_counter() - before, case, score))
    if not took:
        return None
    seconds = np.array([one for one, *_ in took])
    median, p99 = float(np.median(seconds)), float(np.quantile(seconds, 0.99))
    slowest, case, score = max(took, key=lambda one: one[0])
    numbers = {"median": median, "p99": p99, "slowest": slowest, "gradings": len(took)}
    text = f"one grading takes {duration(median)} (median), {duration(p99)} (99th percentile of {len(took)})"
    severity: Severity = "warn" if p99 > SLOW else "info"
    return Finding("time", severity, text, (Example.of(case.prompt, case.text, score),), numbers)


def duration(seconds: float) -> str:
    """
    >>> duration(0.0000123), duration(0.0456), duration(3.21)
    ('12 µs', '46 ms', '3.2 s')
    """
    if seconds < 1e-3:
        return f"{1e6 * seconds:.0f} µs"
    return f"{1e3 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
