"""The verifier 'regex': a regular expression that must match the whole answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from surefoot.errors import RewardError
from surefoot.rewards.base import Completion
from surefoot.rewards.matching import compiled
from surefoot.rewards.verifiers.base import Verifier, gold_text, judged, no_answer, outside
from surefoot.rewards.workers import Outcome, shared_pool
from surefoot.tasks.extraction import after_thought, placed_answer
from surefoot.tasks.gold import accepted
from surefoot.types import Prompt, Score, Status

_WORK = "surefoot.rewards.matching"


@dataclass(frozen=True)
class Pattern(Verifier):
    """The whole completion, or the whole final answer, matches a regular expression (of Python).

    Matching is done in worker processes. One that takes longer than ``deadline`` is ``Status.TIMEOUT``, and costs no other
    sample: an expression can backtrack for ever on a text that a policy wrote for it.

    Attributes:
        pattern: the expression; "" takes each problem's gold answer as one.
        places: where the final answer is looked for; empty for the whole completion after its thoughts.
        case: whether upper and lower case differ.
        deadline: seconds for one match.
    """

    name: ClassVar[str] = "regex"
    about: ClassVar[str] = "the whole completion or answer matches a regular expression"

    pattern: str = ""
    places: tuple[Literal["tag", "boxed", "hashes", "says"], ...] = ()
    case: bool = True
    deadline: float = 1.0

    def __post_init__(self) -> None:
        if self.deadline <= 0:
            raise outside("regex", f"deadline = {self.deadline}", "seconds above 0")
        if self.pattern and (why := self._trouble(self.pattern)):
            raise RewardError(f"the option pattern = {self.pattern!r} of the verifier 'regex' {why}")

    def verdict(self, completion: Completion) -> Score:
        return self.score([completion])[0]

    def verdicts(self, completions: Sequence[Completion]) -> list[Score]:
        answers = [self._answer(completion.text) for completion in completions]
        found = [(c, answer) for c, answer in zip(completions, answers, strict=True) if answer]
        jobs = [(self.pattern or gold_text(c.prompt.answer), answer, self.case) for c, answer in found]
        pool = shared_pool((_WORK,))
        outcomes = iter(pool.run(f"{_WORK}:full_match", jobs, self.deadline))
        return [_score(next(outcomes), answer) if answer else no_answer() for answer in answers]

    def _answer(self, text: str) -> str | None:
        return placed_answer(text, self.places) if self.places else after_thought(text).strip()

    def golds(self, prompt: Prompt) -> tuple[Any, ...]:
        """Texts are expressions; a number or a date is what it says, character for character."""
        return accepted(prompt.answer, re.escape) if self.wants_gold() else (prompt.answer,)

    def wants_gold(self) -> bool:
        return not self.pattern

    def refuses(self, prompt: Prompt) -> str:
        return "" if self.pattern else self._trouble(gold_text(prompt.answer))

    def _trouble(self, pattern: str) -> str:
        try:
            compiled(pattern, self.case)
        except re.error as error:
            return f"is no regular expression ({error})"
        return ""


def _score(outcome: Outcome, answer: str) -> Score:
    if outcome.status == "ok":
        return judged(bool(outcome.value), answer)
    return Score.failed(Status.TIMEOUT if outcome.status == "timeout" else Status.ERROR, outcome.text)
