"""Honest programs in the shapes in which people and models write them are graded as their author would expect.

``data/programs.jsonl`` has for each the verdict that a person gave before it was run: "right", "wrong", "no answer", or
"refused" for what docs/sandbox.md says is graded 0 though its author may hope for more.
"""

from __future__ import annotations

from surefoot.rewards.base import Completion
from surefoot.rewards.code import CodeTests
from surefoot.rewards.grade import grade
from surefoot.rewards.sandbox import Sandbox
from surefoot.types import Prompt, Status
from tests.rewards.case_tables import load
from tests.rewards.sandboxes import at_each_level

ROWS = load("programs")


@at_each_level
def test_honest_programs_are_graded_as_their_author_expects(sandbox: Sandbox) -> None:
    completions = [
        Completion(Prompt(str(n), "Write a program.", row["gold"]), row["completion"]) for n, row in enumerate(ROWS)
    ]
    other = []
    for row, score in zip(ROWS, grade(CodeTests(pool=sandbox), completions), strict=True):
        found = "no answer" if score.status is Status.NO_ANSWER else "right" if score.total == 1.0 else "wrong"
        if score.status is Status.ERROR or found not in (
            ("wrong", "no answer") if row["verdict"] == "refused" else (row["verdict"],)
        ):
            other.append((row["shape"], row["verdict"], found, score.text))
    assert not other


def test_there_are_enough_of_them() -> None:
    assert len(ROWS) >= 150 and len({row["shape"] for row in ROWS}) == len(ROWS)
