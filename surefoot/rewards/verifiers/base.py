"""What every verifier is: a frozen dataclass whose fields are its options, and which grades texts of completions."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from surefoot.errors import RewardError, SurefootError
from surefoot.rewards.base import Completion
from surefoot.rewards.values import one_line
from surefoot.types import Prompt, Score, Status


@dataclass(frozen=True)
class Verifier(ABC):
    """A :class:`~surefoot.rewards.base.Reward` with options and a check of gold answers.

    A subclass is a frozen dataclass too: its fields are its options (bool, int, float, str, tuples of them, Literal,
    JSON mappings), its ``__post_init__`` refuses values out of range with :class:`~surefoot.errors.RewardError`.
    It implements :meth:`verdict`; one that grades in other processes overrides :meth:`score`.

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

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        """One score per completion, in order; one whose grading raises is ``Status.ERROR``, and no other."""
        return [self._guarded(completion) for completion in completions]

    def __call__(self, prompt: Prompt, text: str) -> Score:
        """The score of one text."""
        return self.score([Completion(prompt, text)])[0]

    def check(self, prompts: Iterable[Prompt]) -> None:
        """Refuse gold answers that no completion could match.

        Raises:
            RewardError: names the first such problem.
        """
        for prompt in prompts:
            if self.wants_gold() and prompt.answer is None:
                raise RewardError(
                    f"the problem {prompt.prompt_id} ({prompt.text[:60]!r}) has no gold answer to compare with "
                    f"(reward.verifier = '{self.name}'): add 'answer' to it, or give a reward function"
                )
            if why := self.refuses(prompt):
                raise RewardError(
                    f"the gold answer {shortened(prompt.answer)} of the problem {prompt.prompt_id} {why}: choose "
                    f"another reward.verifier than '{self.name}'"
                )

    def wants_gold(self) -> bool:
        """Whether it compares with a gold answer."""
        return True

    def refuses(self, prompt: Prompt) -> str:
        """Why no completion could match this problem's gold answer, as the end of a sentence; "" where one could."""
        return ""

    def _guarded(self, completion: Completion) -> Score:
        try:
            return self.verdict(completion)
        except SurefootError:
            raise
        except Exception as error:
            return Score.failed(Status.ERROR, one_line(error))


def gold_text(answer: Any) -> str:
    """A gold answer as text: texts as they are, everything else as JSON writes it."""
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)


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
