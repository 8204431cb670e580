"""Does a reward say the same twice: of the same batch, in another order, and alone?

Another verdict on the same answer is a fault. Another number alone can be meant (a judge that is sampled, a comparison
within the batch), and is a warning.
"""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.rewards.audit_findings import Finding, Severity, counted, examples
from surefoot.rewards.audit_grading import Case, Grader
from surefoot.rewards.grade import is_right
from surefoot.types import Score

COMPARED = 96
ALONE = 24
Verdict = tuple[float | None, bool | None, str]


def repeatable(grader: Grader) -> Finding | None:
    """Grade some of what was graded again: as it was, in reverse, and one by one."""
    cases = _both(grader)
    if not cases or grader.late:
        return None
    first = grader.grade(cases, keep=False)
    again = grader.grade(cases, keep=False)
    if differ := different(cases, first, again):
        verdicts = any(a.correct != b.correct for _, a, b in differ)
        text = f"{counted(len(differ), cases, 'completions')} got another score when the same batch was graded again"
        return _found("warn" if not verdicts else "fail", text, differ)
    order = cases[::-1]
    moved = different(cases, first, grader.grade(order, keep=False)[::-1])
    alone = cases[:: max(1, len(cases) // ALONE)]
    moved += different(alone, first[:: max(1, len(cases) // ALONE)], [grader.grade([c], keep=False)[0] for c in alone])
    if moved:
        text = f"{len(moved)} scores depend on which completions are graded with them, or on their order"
        return _found("warn", text, moved)
    text = f"{len(cases)} completions got the same scores again, in another order and alone"
    return Finding("repeatable", "ok", text, (), {"compared": len(cases)})


def _both(grader: Grader) -> list[Case]:
    """Right completions and others, evenly spaced: right ones may be few, and at regular places among what was tried."""
    right = [case for case, score in grader.seen if is_right(score)]
    other = [case for case, score in grader.seen if not is_right(score)]
    return [case for cases in (right, other) for case in cases[:: max(1, 2 * len(cases) // COMPARED)]]


def verdict(score: Score) -> Verdict:
    """What of a score must be the same again."""
    return (score.total if score.valid else None, score.correct, str(score.status))


def different(cases: Sequence[Case], first: Sequence[Score], other: Sequence[Score]) -> list[tuple[Case, Score, Score]]:
    """The cases whose scores differ."""
    return [(c, a, b) for c, a, b in zip(cases, first, other, strict=True) if verdict(a) != verdict(b)]


def _found(severity: Severity, text: str, differ: Sequence[tuple[Case, Score, Score]]) -> Finding:
    shown = examples((case.prompt, case.text, score) for case, _, score in differ)
    return Finding("repeatable", severity, text, shown, {"different": len(differ)})
