"""Do gold answers and worked solutions score full marks? The form that the reward likes best is taken for right completions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from surefoot.rewards.audit_answers import gold_of
from surefoot.rewards.audit_findings import Finding, Severity, counted, examples
from surefoot.rewards.audit_grading import Case, Grader, asks_model, inside
from surefoot.rewards.audit_texts import Written, solution_of, writings
from surefoot.rewards.base import Completion, Reward
from surefoot.rewards.code_suites import with_tests_aside
from surefoot.rewards.grade import grade, is_right
from surefoot.tasks.base import Task
from surefoot.types import Prompt, Score

OFFENDERS = 0.05
"""Share of gold answers that may fail to score full marks: a data set has a few that nobody can read."""


@dataclass(frozen=True)
class Known:
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


def gold_answers(task: Task, grader: Grader, prompts: Sequence[Prompt]) -> Known:
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
        if refused := refused_answer(found):
            written, score = max(refused, key=lambda one: liked[one[0].form])
            offenders.append((prompt, written.text, score))
    says = any(score.correct is not None for _, score in grader.seen)
    tried = sum(map(bool, graded))
    if not tried:
        text = "no prompt has a gold answer, so it is not known what is right"
        if inside(grader.reward, "gold_is_tests"):
            text = "no prompt has a worked solution (`completion`) beside its tests, so no right program is known"
        return Known(Finding("gold", "info", text), right, totals, says)
    if not says and not _looks_at_gold(grader, prompts, graded):
        return Known(_blind(grader), [None] * len(right), totals, False)
    if not says and len(offenders) == tried:
        text = f"the reward never says what is right, and no gold answer earned 1 in any form: {_remedy(grader)}"
        return Known(Finding("gold", "info", text, examples(offenders)), right, totals, False)
    return Known(_verdict(offenders, tried, liked, _solutions(task, grader, prompts)), right, totals, True)


Graded = list[tuple[Prompt, str, Score]]


def refused_answer(graded: Sequence[tuple[Written, Score]]) -> list[tuple[Written, Score]]:
    """An accepted answer that is right in no form, in all its forms; empty where each one is right in some.

    A reward that takes none of them, and another right completion (the task's own form, a worked solution, data as JSON),
    wants its answers in that form.
    """
    by_answer: dict[int | None, list[tuple[Written, Score]]] = {}
    for written, score in graded:
        by_answer.setdefault(written.which, []).append((written, score))
    right = {which for which, found in by_answer.items() if any(is_right(score) for _, score in found)}
    if right == {None}:
        return []
    return next((found for which, found in by_answer.items() if which not in right and which is not None), []) or (
        [] if right else list(graded)
    )


def _remedy(grader: Grader) -> str:
    if asks_model(grader.reward):
        return "set the judge's option right_at_least, the score from which an answer counts as right"
    return "return Score(total, correct=...)"


def _solutions(task: Task, grader: Grader, prompts: Sequence[Prompt]) -> Graded:
    """The worked solutions that come with the prompts, graded."""
    found = [(prompt, text) for prompt in prompts if (text := solution_of(task, prompt))]
    scores = grader.grade([Case(prompt, text) for prompt, text in found])
    return [(prompt, text, score) for (prompt, text), score in zip(found, scores, strict=True)]


def _worthless(score: Score) -> bool:
    return not score.valid or (score.total <= 0 if score.correct is None else not score.correct)


def _verdict(offenders: Graded, tried: int, liked: Counter[str], solutions: Graded) -> Finding:
    unsolved = [one for one in solutions if _worthless(one[2])]
    numbers = {"graded": tried, "refused": len(offenders), "forms": dict(liked.most_common())}
    if solutions:
        numbers |= {"solutions": len(solutions), "solutions_refused": len(unsolved)}
    if unsolved:
        text = (
            f"{counted(len(unsolved), solutions, 'worked solutions')} score nothing: the solutions or the gold answers are "
            "wrong, or the verifier does not read the solutions' form"
        )
        if offenders:
            text += f"; {counted(len(offenders), tried)} have a gold answer that scores no full marks in any form"
        many = len(unsolved) > OFFENDERS * len(solutions) or len(offenders) > OFFENDERS * tried
        return Finding("gold", "fail" if many else "warn", text, examples([*unsolved, *offenders]), numbers)
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
    if asks_model(grader.reward):
        text += f": {_remedy(grader)}"
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


def without_tests(reward: Reward, prompts: Sequence[Prompt]) -> list[Prompt]:
    """The prompts of a reward that runs programs, with gold answers that are tests among the metadata.

    Tests are no answer that a completion could give.
    """
    if not inside(reward, "gold_is_tests"):
        return list(prompts)
    return [with_tests_aside(prompt) for prompt in prompts]


def best_score(task: Task, reward: Reward, prompts: Sequence[Prompt]) -> list[tuple[str, Score] | None]:
    """For each prompt the right completion that the reward likes best, with its score; None where none is known.

    Where an accepted answer is right in no form it is that one's.
    """
    forms = [writings(task, prompt) for prompt in without_tests(reward, prompts)]
    texts = [Completion(prompt, one.text) for prompt, found in zip(prompts, forms, strict=True) for one in found]
    scores = iter(grade(reward, texts))
    graded = [[(written, next(scores)) for written in found] for found in forms]
    best = [max(refused_answer(found) or found, key=_worth, default=None) for found in graded]
    return [None if one is None else (one[0].text, one[1]) for one in best]


def _worth(one: tuple[Written, Score]) -> tuple[bool, float]:
    _, score = one
    return is_right(score), score.total if score.valid else -float("inf")
