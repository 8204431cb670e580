r"""The verifier 'math': whether the final answer is mathematically the same as the gold one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from surefoot.errors import RewardError
from surefoot.extras import locate
from surefoot.rewards.base import Completion
from surefoot.rewards.equivalence import decide
from surefoot.rewards.latex import LONGEST
from surefoot.rewards.verifiers.base import Verifier, gold_text, judged, no_answer
from surefoot.rewards.workers import Outcome, shared_pool
from surefoot.tasks.extraction import placed_answer
from surefoot.types import Prompt, Score, Status

_WORK = "surefoot.rewards.equivalence"


@dataclass(frozen=True)
class Mathematics(Verifier):
    r"""The final answer, found in one place, equals the gold one: as text, as a number, or by computer algebra.

    Most answers are settled by their text or as exact numbers. The others go to worker processes with a deadline each;
    one that passes it is ``Status.TIMEOUT``, one that makes the library raise is ``Status.ERROR``, and no other sample is
    touched. Towers of powers, deep nesting and answers of more than 1000 characters are wrong unless they are the gold
    text, without being computed. What is the same beyond equal values: ``docs/verdicts.md``.

    Attributes:
        places: where the final answer is looked for, in this order; the first place that is there counts.
        digits: a decimal with at least so many significant digits may be a rounded value; 0 for never.
        deadline: seconds of wall time for one comparison.
        workers: processes for computer algebra; 0 for one per CPU, at most 8.
        memory: MiB of address space of each.
        positive: letters are positive numbers, so that ``\sqrt{x^2}`` is ``x``.
    """

    name: ClassVar[str] = "math"
    about: ClassVar[str] = "the final answer (tag, box, ####, 'answer is') equals the gold one as mathematics"

    places: tuple[Literal["tag", "boxed", "hashes", "says", "number"], ...] = ("tag", "boxed", "hashes", "says")
    digits: int = 6
    deadline: float = 5.0
    workers: int = 0
    memory: int = 1024
    positive: bool = False

    def __post_init__(self) -> None:
        locate("math_verify", "math", "the verifier 'math'")
        if not self.places:
            raise RewardError("the option places = [] of the verifier 'math': name at least one place")
        if self.digits < 0 or self.deadline <= 0 or self.workers < 0 or self.memory < 0:
            raise RewardError(
                f"the verifier 'math' with digits = {self.digits}, deadline = {self.deadline}, workers = {self.workers}, "
                f"memory = {self.memory}: the deadline must be above 0, the others must not be negative"
            )

    def verdict(self, completion: Completion) -> Score:
        return self.score([completion])[0]

    def verdicts(self, completions: Sequence[Completion]) -> list[Score]:
        answers = [placed_answer(completion.text, self.places) for completion in completions]
        pairs = [
            (_gold(c.prompt), answer) for c, answer in zip(completions, answers, strict=True) if answer is not None
        ]
        settled: dict[tuple[str, str], bool | Outcome | None] = {}
        for gold, answer in pairs:
            if (gold, answer) not in settled:
                settled[gold, answer] = decide(gold, answer, self.digits, self.positive)
        open_pairs = [pair for pair, verdict in settled.items() if verdict is None]
        jobs = [(gold, answer, self.digits, self.positive) for gold, answer in open_pairs]
        pool = shared_pool((_WORK, "math_verify"), self.workers, self.memory)
        settled.update(zip(open_pairs, pool.run(f"{_WORK}:equal", jobs, self.deadline), strict=True))
        verdicts = iter(settled[pair] for pair in pairs)
        return [no_answer() if a is None else _score(next(verdicts), a[:LONGEST]) for a in answers]

    def refuses(self, prompt: Prompt) -> str:
        return "" if _gold(prompt).strip() else "holds no answer"


def _score(verdict: bool | Outcome | None, answer: str) -> Score:
    if not isinstance(verdict, Outcome):
        return judged(bool(verdict), answer)
    if verdict.status == "ok":
        return judged(bool(verdict.value), answer)
    status = Status.TIMEOUT if verdict.status == "timeout" else Status.ERROR
    return Score.failed(status, f"{answer[:200]} ({verdict.text})")


def _gold(prompt: Prompt) -> str:
    """The gold answer; of a whole solution, what it has in its last box or after ``####``."""
    text = gold_text(prompt.answer)
    return placed_answer(text, ("boxed", "hashes")) or text
