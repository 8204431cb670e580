"""The audit of a task and its reward, without a model: can the reward be fooled, and does it know what is right?

A reward is a black box here. The gold answer of each prompt is written in every form that rewards are known to want
(:mod:`surefoot.rewards.audit_texts`), and the form that the reward likes best is taken for right completions; then
completions that no honest reward calls right are graded beside them. A reward that says nothing about right and wrong
(a penalty on length) is only asked whether it grades everything, and the same way twice.

Nothing here draws a random number, so an audit leaves the run that it precedes as it is.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from surefoot.errors import RewardError
from surefoot.rewards.audit_attacks import Asked, fooled_by, paraphrases
from surefoot.rewards.audit_data import answers_in_prompts, copies
from surefoot.rewards.audit_findings import AuditReport, Finding, Severity, counted, examples, gold_of
from surefoot.rewards.audit_grading import Case, Grader, asks_model, duration, timing
from surefoot.rewards.audit_stability import repeatable
from surefoot.rewards.audit_texts import Written, writings
from surefoot.rewards.base import Reward
from surefoot.rewards.config import RewardConfig
from surefoot.rewards.grade import is_right
from surefoot.tasks.base import Task
from surefoot.types import Prompt, Score

Check = Callable[[Grader], Finding | None]

OFFENDERS = 0.05
"""Share of gold answers that may fail to score full marks: a data set has a few that nobody can read."""
COPIES_LOOKED_AT = 2000
TEXTS = 50
"""About as many completions are graded for each prompt."""
LEAST = 200
"""Gradings that there must be time for, or a reward is not tried at all."""
_ASKS = "the reward asks a model, so it was not tried before the run: `surefoot audit` does that"
QUICK = 1e-3  # seconds of a grading that surely started no process


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
    started = time.perf_counter()
    chosen = spread([*task.train, *task.heldout], prompts)
    about = [answers_in_prompts(chosen), copies(task, COPIES_LOOKED_AT if seconds else None)]
    grader = Grader(reward, None if seconds is None else started + seconds)
    try:
        if seconds is not None and asks_model(reward):
            return AuditReport(task.name, reward.name, 0, (Finding("time", "info", _ASKS), *about))
        if seconds is not None:
            took = _seconds_for_one(task, grader, chosen)
            if took > seconds / LEAST:
                return AuditReport(task.name, reward.name, 0, (_too_slow(took, seconds), *about))
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


def _seconds_for_one(task: Task, grader: Grader, prompts: Sequence[Prompt]) -> float:
    """Seconds of one grading. The first one is not counted where it is slow, since it may have to start processes."""
    took = 0.0
    for prompt in prompts[:2]:
        text = next((written.text for written in writings(task, prompt)), "0")
        before = time.perf_counter()
        grader.grade([Case(prompt, text)], keep=False)
        took = time.perf_counter() - before
        if took < QUICK:
            break
    return max(took, 1e-6)


def _too_slow(took: float, seconds: float) -> Finding:
    why = f"one grading takes {duration(took)}, too long for a look of {seconds:g} s before a run"
    return Finding(
        "time", "info", f"{why}: the reward was not tried, `surefoot audit` takes its time", (), {"median": took}
    )


@dataclass(frozen=True)
class _Known:
    """What the gold answers came to.

    Attributes:
        finding: about them.
        right: for each prompt a completion that the reward calls right, where there is one.
        judges: whether the reward says what is right and what is wrong.
    """

    finding: Finding
    right: list[Written | None]
    totals: list[float]
    judges: bool


def _graded(task: Task, grader: Grader, prompts: Sequence[Prompt], own: bool, also: Sequence[Check]) -> list[Finding]:
    known = _gold(task, grader, prompts)
    asked = Asked(task, grader, prompts, known.right, own)
    findings: list[Finding | None] = [known.finding]
    if known.judges:
        findings += fooled_by(asked)
        if any(known.right):
            findings.append(paraphrases(asked))
            findings.append(_order(known, asked))
    else:
        asked.try_all()
    findings += [
        _says_anything(grader),
        grader.ungraded(),
        repeatable(grader),
        *(check(grader) for check in also),
        timing(grader),
    ]
    return [finding for finding in findings if finding is not None]


def _gold(task: Task, grader: Grader, prompts: Sequence[Prompt]) -> _Known:
    """Do gold answers score full marks, written in the form that the reward likes best?"""
    forms = [writings(task, prompt) for prompt in prompts]
    cases = [Case(prompt, written.text) for prompt, found in zip(prompts, forms, strict=True) for written in found]
    blank = [] if cases else [Case(prompt, "") for prompt in prompts]
    scores = iter(grader.grade([*cases, *blank]))
    graded = [[(written, next(scores)) for written in found] for found in forms]
    liked = Counter(written.form for found in graded for written, score in found if is_right(score))
    right: list[Written | None] = []
    totals, offenders = [], []
    for prompt, found in zip(prompts, graded, strict=True):
        if not found:
            right.append(None)
            totals.append(float("nan"))
            continue
        written, score = max(found, key=lambda one: (is_right(one[1]), liked[one[0].form]))
        right.append(written if is_right(score) else None)
        totals.append(score.total)
        if not is_right(score):
            offenders.append((prompt, written.text, score))
    says = any(score.correct is not None for _, score in grader.seen)
    tried = sum(map(bool, graded))
    if not tried:
        text = "no prompt has a gold answer, so it is not known what is right"
        return _Known(Finding("gold", "info", text), right, totals, says)
    if not says and not _looks_at_gold(grader, prompts, graded):
        return _Known(_blind(grader), [None] * len(right), totals, False)
    if not says and len(offenders) == tried:
        text = "the reward never says what is right, and no gold answer earned 1 in any form: return Score(total, correct=...)"
        return _Known(Finding("gold", "info", text, examples(offenders)), right, totals, False)
    return _Known(_verdict(offenders, tried, liked), right, totals, True)


def _verdict(offenders: list[tuple[Prompt, str, Score]], tried: int, liked: Counter[str]) -> Finding:
    numbers = {"graded": tried, "refused": len(offenders), "forms": dict(liked.most_common())}
    if not offenders:
        form = liked.most_common(1)[0][0]
        return Finding(
            "gold", "ok", f"gold answers of all {tried} prompts score full marks, written as: {form}", (), numbers
        )
    severity: Severity = "fail" if len(offenders) > OFFENDERS * tried else "warn"
    text = (
        f"{counted(len(offenders), tried)} have a gold answer that scores no full marks in any form: the verifier does not fit "
        "these answers, or they are wrong or cannot be read"
    )
    return Finding("gold", severity, text, examples(offenders), numbers)


def _blind(grader: Grader) -> Finding:
    text = "the reward does not say what is right and does not look at gold answers, so it cannot be checked with them"
    return Finding("gold", "info", text, (), {"graded": len(grader.seen)})


def _looks_at_gold(grader: Grader, prompts: Sequence[Prompt], graded: list[list[tuple[Written, Score]]]) -> bool:
    """Whether any reward changes where the prompt keeps its text and gets the gold answer of another one."""
    cases, before = [], []
    for index, (prompt, found) in enumerate(zip(prompts, graded, strict=True)):
        other = next((p for p in [*prompts[index + 1 :], *prompts] if gold_of(p) != gold_of(prompt)), None)
        if other is None:
            continue
        exchanged = replace(prompt, answer=other.answer)
        cases += [Case(exchanged, written.text) for written, _ in found]
        before += [score for _, score in found]
    scores = grader.grade(cases, keep=False)
    return any(
        score.valid and old.valid and score.total != old.total for score, old in zip(scores, before, strict=True)
    )


def _order(known: _Known, asked: Asked) -> Finding | None:
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
