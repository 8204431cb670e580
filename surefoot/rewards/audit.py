"""The audit of a task and its reward, without a model: can the reward be fooled, and does it know what is right?

A reward is a black box here. The gold answer of each prompt is written in every form that rewards are known to want
(:mod:`surefoot.rewards.audit_texts`), and the form that the reward likes best is taken for right completions; then
completions that no honest reward calls right are graded beside them. A reward that says nothing about right and wrong
(a penalty on length) is only asked whether it grades everything, and the same way twice.

Nothing here draws a random number, so an audit leaves the run that it precedes as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import fmean

from surefoot.errors import RewardError
from surefoot.rewards.audit_attacks import Asked, fooled_by, paraphrases
from surefoot.rewards.audit_data import answers_in_prompts, copies
from surefoot.rewards.audit_findings import AuditReport, Finding
from surefoot.rewards.audit_gold import Known, gold_answers, without_tests
from surefoot.rewards.audit_grading import Grader, asks_model, timing
from surefoot.rewards.audit_parts import parts_earned
from surefoot.rewards.audit_quick import LEAST, TEXTS, asks, seconds_for_one, too_slow
from surefoot.rewards.audit_stability import repeatable
from surefoot.rewards.audit_tags import joined
from surefoot.rewards.base import Reward
from surefoot.rewards.config import RewardConfig
from surefoot.rewards.grade import is_right
from surefoot.tasks.base import Task
from surefoot.types import Prompt

Check = Callable[[Grader], Finding | None]

COPIES_LOOKED_AT = 2000


def audit_reward(
    task: Task,
    reward: Reward,
    *,
    own: bool = False,
    prompts: int = 64,
    seconds: float | None = None,
    also: Sequence[Check] = (),
) -> AuditReport:
    """Grade right completions, paraphrases and exploits of some prompts, and say what is wrong with the reward.

    Args:
        task: its prompts and gold answers, and its texts to audit with.
        reward: what is audited.
        own: whether the reward is the task's own verifier, which the task's ``paraphrases`` and ``wrong`` are about.
        prompts: how many are looked at, spread evenly over the task's training and held-out prompts.
        seconds: time for gradings. None: as long as it takes. With a limit, a slow reward is asked about fewer prompts,
            or is left out with a note, and at most 2000 prompts of a part are compared for copies.
        also: further checks of what was graded.
    """
    chosen = without_tests(reward, spread([*task.train, *task.heldout], prompts))
    about = [answers_in_prompts(chosen), copies(task, COPIES_LOOKED_AT if seconds else None)]
    grader = Grader(reward)
    try:
        if seconds is not None and asks_model(reward):
            return AuditReport(task.name, reward.name, 0, (asks(reward, len(chosen)), *about))
        if seconds is not None:
            took = seconds_for_one(task, grader, chosen, seconds)
            if took > seconds / LEAST:
                return AuditReport(task.name, reward.name, 0, (too_slow(took, seconds), *about))
            grader.deadline = time.perf_counter() + seconds
            chosen = spread(chosen, max(4, int(seconds / (took * TEXTS))))
        findings = _graded(task, grader, chosen, own, also)
    except RewardError as error:
        findings = [Finding("grading", "fail", f"the reward cannot grade: {error}")]
    return AuditReport(task.name, reward.name, len(grader.prompts), (*findings, *about))


def judged_by_task(config: RewardConfig) -> bool:
    """Whether the task's own verifier is in the reward, so that the task's texts to audit with are about it."""
    return "auto" in ([part.verifier for part in config.parts.values()] or [config.verifier])


def spread(prompts: Sequence[Prompt], most: int) -> list[Prompt]:
    """At most so many prompts, evenly spaced.

    >>> [p.prompt_id for p in spread([Prompt(str(i), "") for i in range(10)], 3)]
    ['0', '3', '6']
    """
    if len(prompts) <= most:
        return list(prompts)
    return [prompts[i * len(prompts) // most] for i in range(most)]


def _graded(task: Task, grader: Grader, prompts: Sequence[Prompt], own: bool, also: Sequence[Check]) -> list[Finding]:
    known = gold_answers(task, grader, prompts)
    right = [score for _, score in grader.seen if is_right(score)]
    asked = Asked(task, grader, prompts, known.right, own)
    findings: list[Finding | None] = [known.finding]
    if known.judges:
        findings += fooled_by(asked)
        if any(known.right):
            findings.append(paraphrases(asked))
            findings.append(_order(known, asked))
            findings.append(joined(grader, prompts))
    else:
        asked.try_all()
    findings += [
        parts_earned(right, grader),
        _says_anything(grader),
        grader.ungraded(),
        repeatable(grader),
        *(check(grader) for check in also),
        timing(grader),
    ]
    return [finding for finding in findings if finding is not None]


def _order(known: Known, asked: Asked) -> Finding | None:
    """Wrong answers must not earn what right ones do."""
    right = [total for total, written in zip(known.totals, known.right, strict=True) if written is not None]
    wrong = [score.total for _, score in asked.wrong if score.valid]
    if not right or not wrong:
        return None
    numbers = {"right": fmean(right), "wrong": fmean(wrong)}
    if numbers["right"] > numbers["wrong"]:
        return Finding(
            "order",
            "ok",
            "right answers earn {right:.3g} on average, wrong ones {wrong:.3g}".format(**numbers),
            (),
            numbers,
        )
    text = "wrong answers earn {wrong:.3g} on average, and right ones {right:.3g}: the reward teaches to be wrong, or nothing"
    return Finding("order", "warn", text.format(**numbers), (), numbers)


def _says_anything(grader: Grader) -> Finding | None:
    totals = {score.total for _, score in grader.seen if score.valid}
    if len(totals) != 1 or len({case.text for case, _ in grader.seen}) < 2:
        return None
    text = f"every completion earned {totals.pop():g}, right, wrong or empty: there is nothing to learn from"
    return Finding("constant", "warn", text)
