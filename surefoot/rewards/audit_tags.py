"""Does the reward keep apart what stands on either side of a tag?

A reward that takes tags out of a text before it looks for the answer reads ``<think>It is near 3</think><answer>5</answer>``
as ``It is near 35``.
"""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.rewards.audit_answers import gold_of
from surefoot.rewards.audit_findings import Finding, counted, examples
from surefoot.rewards.audit_grading import Case, Grader
from surefoot.rewards.grade import is_right
from surefoot.types import Prompt

SLIPS = 0.05
_BEFORE = ("It is near 3 ", "It is near 3")
"""Thoughts that differ in the blank at their end alone, inside the tag, where no rule about the form of tags looks."""


def joined(grader: Grader, prompts: Sequence[Prompt]) -> Finding | None:
    """Right answers behind a thought must be right whether or not the thought ends in a blank."""
    asked = [prompt for prompt in prompts if gold_of(prompt)]
    if not asked or grader.late:
        return None
    apart, tight = (
        [Case(prompt, f"<think>{thought}</think><answer>{gold_of(prompt)}</answer>") for prompt in asked]
        for thought in _BEFORE
    )
    scores = grader.grade([*apart, *tight])
    lost = [
        (case.prompt, case.text, score)
        for case, before, score in zip(tight, scores[: len(apart)], scores[len(apart) :], strict=True)
        if is_right(before) and not is_right(score)
    ]
    if not lost:
        return Finding("joined", "ok", "a thought and the answer behind it are kept apart", (), {"prompts": len(asked)})
    text = (
        f"right answers directly behind a thought are wrong for {counted(len(lost), asked)}, and right behind a blank: the "
        "reward takes tags out before it reads, and joins what stood around them"
    )
    severity = "fail" if len(lost) > SLIPS * len(asked) else "warn"
    return Finding("joined", severity, text, examples(lost), {"prompts": len(asked), "lost": len(lost)})  # type: ignore[arg-type]
