"""What every verifier is: a frozen dataclass whose fields are its options, and which grades texts of completions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from surefoot.errors import RewardError, SurefootError
from surefoot.rewards.base import Completion
from surefoot.rewards.values import one_line
from surefoot.tasks.gold import GoldError, accepted
from surefoot.types import Prompt, Score, Status


@dataclass(frozen=True)
class Verifier(ABC):
    """A :class:`~surefoot.rewards.base.Reward` with options and a check of gold answers.

    A subclass is a frozen dataclass too: its fields are its options (bool, int, float, str, tuples of them, Literal,
    JSON mappings), its ``__post_init__`` refuses values out of range with :class:`~surefoot.errors.RewardError`.
    It implements :meth:`verdict`; one that grades in other processes overrides :meth:`verdicts`. Both see one accepted
    answer at a time, as text; :meth:`score` takes the best verdict over all that a gold answer accepts
    (:mod:`surefoot.tasks.gold`).

    Attributes:
        name: as in the configuration.
        about: what it compares, in one line.
        threads: threads that may grade with it at once, see :class:`~surefoot.rewards.base.Reward`.
        manner: whether it looks at how a text is written, and so reads what the policy wrote and no more: a tag that the
            prompt opened stays in :attr:`~surefoot.rewards.base.Completion.opens`.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    threads: ClassVar[int] = 1
    manner: ClassVar[bool] = False

    @abstractmethod
    def verdict(self, completion: Completion) -> Score:
        """The score of one completion."""

    def verdicts(self, completions: Sequence[Completion]) -> list[Score]:
        """One score per completion, in order; one whose grading raises is ``Status.ERROR``, and no other."""
        return [self._guarded(completion) for completion in completions]

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        """One score per completion, in order: right where any accepted answer is; else not graded where one could not be."""
        jobs: list[Completion] = []
        found: list[Score | slice] = []
        for completion in completions:
            try:
                jobs += (one := [replace(completion, prompt=prompt) for prompt in self._one_by_one(completion.prompt)])
                found.append(slice(len(jobs) - len(one), len(jobs)))
            except GoldError as error:
                found.append(Score.failed(Status.ERROR, f"the gold answer {error}"))
        made = self.verdicts(jobs)
        return [one if isinstance(one, Score) else max(made[one], key=_counts) for one in found]

    def __call__(self, prompt: Prompt, text: str) -> Score:
        """The score of one text."""
        return self.score([Completion(prompt, text)])[0]

    def check(self, prompts: Iterable[Prompt]) -> None:
        """Refuse gold answers that no completion could match.

        Raises:
            RewardError: names the first such problem.
        """
        for prompt in prompts:
            place = f"{prompt.source}: " if prompt.source else ""
            if self.wants_gold() and prompt.answer is None:
                raise RewardError(
                    f"{place}the problem {prompt.prompt_id} ({prompt.text[:60]!r}) has no gold answer to compare with "
                    f"(reward.verifier = '{self.name}'): add 'answer' to it, or give a reward function"
                )
            whole = f"the gold answer {shortened(prompt.answer)} of the problem {prompt.prompt_id}"
            try:
                one_by_one = self._one_by_one(prompt)
            except GoldError as error:
                raise RewardError(f"{place}{whole} {error}") from None
            for one in one_by_one:
                if why := self.refuses(one):
                    listed = f", of which {shortened(one.answer)}" if len(one_by_one) > 1 else ""
                    raise RewardError(
                        f"{place}{whole}{listed} {why}: choose another reward.verifier than '{self.name}'"
                    )

    def golds(self, prompt: Prompt) -> tuple[Any, ...]:
        """The accepted answers of a problem, each of which :meth:`verdict` sees alone.

        Raises:
            GoldError: a value that cannot be a gold answer.
        """
        return accepted(prompt.answer) if self.wants_gold() else (prompt.answer,)

    def wants_gold(self) -> bool:
        """Whether it compares with a gold answer."""
        return True

    def refuses(self, prompt: Prompt) -> str:
        """Why no completion could match this one accepted answer, as the end of a sentence; "" where one could."""
        return ""

    def _one_by_one(self, prompt: Prompt) -> list[Prompt]:
        """The problem with each of its accepted answers alone."""
        return [prompt if gold is prompt.answer else replace(prompt, answer=gold) for gold in self.golds(prompt)]

    def _guarded(self, completion: Completion) -> Score:
        try:
            return self.verdict(completion)
        except SurefootError:
            raise
        except Exception as error:
            return Score.failed(Status.ERROR, one_line(error))


def gold_text(answer: Any) -> str:
    """The text of one accepted answer; of several that of the first.

    Raises:
        GoldError: a value that cannot be a gold answer.
    """
    return answer if isinstance(answer, str) else accepted(answer)[0]


def _counts(score: Score) -> tuple[bool, bool, float]:
    """What makes the verdict about one accepted answer count more than about another: that nothing is known is not "wrong"."""
    return score.correct is True, not score.valid, score.total if score.valid else 0.0


def judged(right: bool, answer: str) -> Score:
    """The score of an answer that was found: total 1 or 0, component "accuracy", the answer as text."""
    return Score(float(right), {"accuracy": float(right)}, right, Status.OK, (), answer)


def measured(name: str, value: float, text: str = "") -> Score:
    """The score of a verifier that says nothing about the answer: the value is the total and the one component."""
    return Score(value, {name: value}, None, Status.OK, (), text)


def no_answer() -> Score:
    """The score of a completion that holds nothing that could be an answer."""
    return Score(0.0, {"accuracy": 0.0}, False, Status.NO_ANSWER)


def outside(name: str, options: str, expected: str) -> RewardError:
    """An option out of its range."""
    return RewardError(f"the verifier '{name}' with {options}: expected {expected}")


def shortened(answer: Any) -> str:
    text = repr(answer)
    return text if len(text) <= 200 else f"{text[:197]}..."
