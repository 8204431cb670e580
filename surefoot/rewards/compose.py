"""Several rewards of one completion, added with weights; one may count only where another is met.

    total = sum_k w_k r_k [r_c(k) >= t_k]

r_k is what part k gave, c(k) the part that its condition names, t_k the threshold. A part without a condition always
counts. Conditions ask the values of other parts, not whether those count themselves.

What becomes of a completion that a part says nothing about:

==================  ===============================================================================================
status of a part    what follows
==================  ===============================================================================================
no_answer           its value counts like any other, and the completion is ``no_answer``
not_applicable      adds nothing; where no part applies, neither does the sum
invalid, timeout,   the sum has no value: the completion gets that status, leaves the statistics of its group and is
error               counted. It is no zero, and the values of the other parts stay readable. Of a part that does not count
                    here and that no condition asks, nothing follows
==================  ===============================================================================================
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from surefoot.config import nearest
from surefoot.errors import RewardError
from surefoot.metrics import StepReport
from surefoot.rewards.asynchronous import DEFAULT, Limits
from surefoot.rewards.base import BrokenRewardError, Completion, Reward, notes_of, threads_of
from surefoot.rewards.functions import as_reward
from surefoot.rewards.grade import grade
from surefoot.types import FAILED, PartScore, Score, Status


@dataclass(frozen=True)
class Part:
    """One reward of several.

    Attributes:
        name: of its value among the components, which advantages such as GDPO's read.
        reward: anything that :func:`~surefoot.rewards.functions.as_reward` takes.
        weight: its factor in the total.
        when: name of the part that must reach ``at_least`` for this one to count; None: it always counts.
        at_least: the threshold of the condition.
    """

    name: str
    reward: Any
    weight: float = 1.0
    when: str | None = None
    at_least: float = 1.0

    @property
    def term(self) -> str:
        """How it stands in the sum, for instance ``0.1 short [accuracy >= 1]``."""
        factor = "" if self.weight == 1 else f"{self.weight:g} "
        return factor + self.name + ("" if self.when is None else f" [{self.when} >= {self.at_least:g}]")


@dataclass(frozen=True)
class Composed:
    """The weighted sum of several rewards, see the head of this module. Each part grades a completion once.

    Attributes:
        parts: in order; of the first that says whether the answer is right the total takes the word.
        limits: of parts that are async functions.

    Raises:
        RewardError: no part, two of one name, a condition that names no other part, a weight that is not finite.
    """

    parts: tuple[Part, ...]
    limits: Limits = DEFAULT
    rewards: Mapping[str, Reward] = field(init=False, repr=False, compare=False)
    places: Mapping[str, AbstractContextManager[Any]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_parts(self.parts)
        rewards = {part.name: as_reward(part.reward, self.limits) for part in self.parts}
        object.__setattr__(self, "rewards", rewards)
        most = max(map(threads_of, rewards.values()))
        shared: dict[int, AbstractContextManager[Any]] = {}  # one reward may be two parts
        places = {
            name: shared.setdefault(
                id(reward),
                nullcontext() if threads_of(reward) == most else threading.Semaphore(threads_of(reward) or 1),
            )
            for name, reward in rewards.items()
        }
        object.__setattr__(self, "places", places)

    @property
    def name(self) -> str:
        """The sum as text."""
        return " + ".join(part.term for part in self.parts)

    @property
    def threads(self) -> int:
        """As many as the part that takes most; a part that takes none keeps all of them in the thread that trains."""
        threads = [threads_of(reward) for reward in self.rewards.values()]
        return max(threads) if all(threads) else 0

    def take_notes(self) -> StepReport:
        """What the parts counted."""
        return notes_of(*{id(reward): reward for reward in self.rewards.values()}.values())

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        graded: dict[str, list[Score]] = {}
        made: dict[int, list[Score]] = {}
        broken: BrokenRewardError | None = None
        for name, reward in self.rewards.items():
            if id(reward) not in made:
                try:
                    with self.places[name]:
                        made[id(reward)] = grade(reward, completions)
                except BrokenRewardError as error:
                    broken = broken or error
                    made[id(reward)] = error.scores
            graded[name] = made[id(reward)]
        scores = [self._total({name: given[row] for name, given in graded.items()}) for row in range(len(completions))]
        if broken is not None:
            raise BrokenRewardError(str(broken), scores) from broken
        return scores

    def _total(self, given: Mapping[str, Score]) -> Score:
        """The score of one completion from those of the parts."""
        values = {name: score.total if score.valid else math.nan for name, score in given.items()}
        parts = {
            part.name: PartScore(
                value=values[part.name],
                weight=part.weight,
                counts=part.when is None or values[part.when] >= part.at_least,
                status=given[part.name].status,
                components=_behind(part.name, given[part.name]),
            )
            for part in self.parts
        }
        status, text = self._status(given, parts)
        valid = status in (Status.OK, Status.NO_ANSWER)
        counted = [part.weight * part.value for part in parts.values() if part.counts and not math.isnan(part.value)]
        return Score(
            total=math.fsum(counted) if valid else math.nan,
            components=values,
            correct=next((score.correct for score in given.values() if score.correct is not None), None)
            if valid
            else None,
            status=status,
            steps=next((score.steps for score in given.values() if score.steps), ()),
            text=text,
            parts=parts,
        )

    def _status(self, given: Mapping[str, Score], parts: Mapping[str, PartScore]) -> tuple[Status, str]:
        asked = {part.when for part in self.parts}
        for name, score in given.items():
            if score.status in FAILED and (parts[name].counts or name in asked):
                return score.status, f"{name}: {score.text}"
        texts = [f"{name}: {score.text}" for name, score in given.items() if score.text]
        text = texts[0].partition(": ")[2] if len(texts) == 1 else "; ".join(texts)
        statuses = {score.status for score in given.values()}
        if statuses == {Status.NOT_APPLICABLE}:
            return Status.NOT_APPLICABLE, text
        return (Status.NO_ANSWER if Status.NO_ANSWER in statuses else Status.OK), text


def compose(graders: Sequence[Any], limits: Limits = DEFAULT) -> Composed:
    """The sum of rewards: each a :class:`Part`, a grader of any form, or a pair (grader, weight).

    A grader is called by its own name; of several with one name the later ones are numbered.
    """
    parts: list[Part] = []
    for grader in graders:
        if isinstance(grader, Part):
            parts.append(grader)
            continue
        pair = isinstance(grader, tuple) and len(grader) == 2 and isinstance(grader[1], (int, float))
        reward, weight = grader if pair else (grader, 1.0)
        reward = as_reward(reward, limits)
        same = sum(part.name.split("#")[0] == reward.name for part in parts)
        parts.append(Part(reward.name if not same else f"{reward.name}#{same + 1}", reward, float(weight)))
    return Composed(tuple(parts), limits)


def check_parts(parts: Sequence[Part]) -> None:
    """Refuse parts that make no sum; raises RewardError."""
    if not parts:
        raise RewardError("a sum of rewards has no part: give at least one")
    names = [part.name for part in parts]
    for part in parts:
        if not part.name or names.count(part.name) > 1:
            raise RewardError(
                f"{names.count(part.name)} parts of the reward are called '{part.name}': give each a name of its own"
            )
        if not math.isfinite(part.weight) or not math.isfinite(part.at_least):
            raise RewardError(
                f"the part '{part.name}' of the reward has weight = {part.weight:g} and at_least = {part.at_least:g}: "
                f"expected finite numbers"
            )
        if part.when is not None and (part.when == part.name or part.when not in names):
            others = [name for name in names if name != part.name]
            raise RewardError(
                f"the part '{part.name}' of the reward counts when '{part.when}' is met, which is no other part."
                + nearest(part.when, others)
            )


def _behind(name: str, score: Score) -> dict[str, float]:
    """The named numbers behind a value, unless the only one is the value itself."""
    alone = len(score.components) == 1 and next(iter(score.components.values())) == score.total
    return {} if alone else dict(score.components)
