"""The parts of a sum of rewards: does any right answer earn each of them?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from surefoot.rewards.audit_findings import Finding
from surefoot.rewards.audit_grading import Grader
from surefoot.types import Score


def parts_earned(right: Sequence[Score], grader: Grader) -> Finding | None:
    """Which parts no right completion earned, in whatever form it was written.

    A part that anywhere gave less than zero, or has a negative weight, is a penalty: nothing to earn.

    Args:
        right: scores of right completions.
        grader: with everything that was graded.
    """
    names = list(dict.fromkeys(name for score in right for name in score.parts))
    if not names:
        return None
    shares = {}
    for name in names:
        everywhere = [score.parts[name] for _, score in grader.seen if name in score.parts]
        if any(part.value < 0 or part.weight <= 0 for part in everywhere):
            continue
        values = [score.parts[name].value for score in right if name in score.parts]
        graded = [value for value in values if not math.isnan(value)]
        if graded:
            shares[name] = sum(value > 0 for value in graded) / len(graded)
    if not shares:
        return None
    text = ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())
    text = f"share of right completions, over all forms, that earned a part: {text}"
    never = [name for name, share in shares.items() if share == 0]
    if not never:
        return Finding("parts", "ok", text, (), shares)
    text += (
        f"; nothing right ever earned {', '.join(never)}: look for a slip in its options (the spelling of tags), unless it wants "
        "a form that the audit does not write"
    )
    return Finding("parts", "warn", text, (), shares)
