"""Reward functions written for TRL's GRPOTrainer: ``(prompts, completions, **columns) -> list[float | None]``, unchanged.

The function is called with keywords, for a batch of completions:

==================  ===============================================================================================
keyword             value, one per completion where it is a list
==================  ===============================================================================================
``prompts``         the prompt's text; its list of messages where the prompt is a chat
``completions``     the completion's text; ``[{"role": "assistant", "content": text}]`` where the prompt is a chat
``completion_ids``  list of the policy's token ids
``answer``          the gold answer
other columns       every key of the prompts' metadata; None for a prompt that lacks it
``trainer_state``   ``global_step`` and ``max_steps``, of rollout batches
``log_extra``       ``log_extra(column, values)``: values to read, which go into the samples' notes
``log_metric``      ``log_metric(name, value)``: a number for the metrics, averaged over the calls of a step
==================  ===============================================================================================

A function without ``**kwargs`` gets the keywords that it names. One that names ``solution``, ``ground_truth`` or ``target``,
the usual names of a gold answer, gets the gold answer where the data has no column of that name. None says that the
function does not apply to a completion: ``Status.NOT_APPLICABLE``, which adds nothing to a sum of rewards.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from surefoot.errors import RewardError
from surefoot.metrics import StepReport
from surefoot.rewards.asynchronous import DEFAULT, Limits, is_async
from surefoot.rewards.base import Completion, Reward
from surefoot.rewards.functions import AsyncBatchReward, BatchReward, as_list, as_score
from surefoot.rewards.notes import Notes
from surefoot.rewards.values import short, well_formed
from surefoot.types import Score, Status

GOLD = ("answer", "solution", "ground_truth", "target")
_RESERVED = frozenset({"prompt", "prompts", "completion", "completions", "completion_ids"})


@dataclass(frozen=True)
class TrainerState:
    """What such a function may ask of the run.

    Attributes:
        global_step: number of the rollout batch; 0 before the first.
        max_steps: rollout batches of the run.
    """

    global_step: int
    max_steps: int


@dataclass(frozen=True)
class TrlReward:
    """A function with TRL's signature as a Reward.

    Attributes:
        name: of the function.
        function: sync or async.
        limits: of an async one.
        chat: whether completions are lists of messages; None: as the prompt is.
    """

    name: str
    function: Callable[..., Any]
    limits: Limits = DEFAULT
    chat: bool | None = None
    inner: Reward = field(init=False, repr=False, compare=False)
    notes: Notes = field(init=False, repr=False, compare=False, default_factory=Notes)

    def __post_init__(self) -> None:
        if is_async(self.function):
            inner: Reward = AsyncBatchReward(self.name, self._later, self.limits)
        else:
            inner = BatchReward(self.name, self._now)
        object.__setattr__(self, "inner", inner)

    @property
    def threads(self) -> int:
        """An async function may be called while samples are still being made."""
        return int(getattr(self.inner, "threads", 0))

    def take_notes(self) -> StepReport:
        """What ``log_metric`` was told."""
        return self.notes.take()

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        return self.inner.score(completions)

    def _now(self, completions: Sequence[Completion]) -> list[Score]:
        extra = Extra(self.name, len(completions))
        return self._scores(self.function(**self._keywords(completions, extra)), extra)

    async def _later(self, completions: Sequence[Completion]) -> list[Score]:
        extra = Extra(self.name, len(completions))
        return self._scores(await self.function(**self._keywords(completions, extra)), extra)

    def _scores(self, results: Any, extra: Extra) -> list[Score]:
        scores = [
            Score.failed(Status.NOT_APPLICABLE, "the reward is None") if result is None else as_score(self.name, result)
            for result in as_list(self.name, results, extra.count)
        ]
        return [replace(score, text=extra.text(row) or score.text) for row, score in enumerate(scores)]

    def _keywords(self, completions: Sequence[Completion], extra: Extra) -> dict[str, Any]:
        given = columns(completions) | {
            "prompts": [self._prompt(completion) for completion in completions],
            "completions": [self._completion(completion) for completion in completions],
            "completion_ids": [list(completion.ids) for completion in completions],
            "trainer_state": TrainerState(completions[0].step, completions[0].steps),
            "log_extra": extra.add,
            "log_metric": lambda name, value: self.notes.add(str(name), float(value)),
        }
        parameters = inspect.signature(self.function).parameters
        for name, parameter in parameters.items():
            if name in given or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                continue
            if name in GOLD:
                given[name] = [completion.prompt.answer for completion in completions]
            elif parameter.default is parameter.empty:
                raise RewardError(
                    f"the reward '{self.name}' takes '{name}', and the problems have no such column: they have "
                    f"{', '.join(sorted(given.keys() - _RESERVED))}; add '{name}' to their metadata"
                )
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            return given
        return {name: value for name, value in given.items() if name in parameters}

    def _chat(self, completion: Completion) -> bool:
        return not isinstance(completion.prompt.content, str) if self.chat is None else self.chat

    def _prompt(self, completion: Completion) -> Any:
        content = completion.prompt.content
        if isinstance(content, str):
            return [{"role": "user", "content": content}] if self._chat(completion) else content
        return [dict(message) for message in content] if self._chat(completion) else completion.prompt.text

    def _completion(self, completion: Completion) -> Any:
        return [{"role": "assistant", "content": completion.text}] if self._chat(completion) else completion.text


class Extra:
    """Columns of values to read beside the rewards, one value per completion."""

    def __init__(self, name: str, count: int) -> None:
        self.name, self.count = name, count
        self.columns: dict[str, Sequence[Any]] = {}

    def add(self, column: str, values: Sequence[Any]) -> None:
        values = list(values)
        if len(values) != self.count:
            raise RewardError(
                f"the reward '{self.name}' logs {len(values)} values of '{column}' for {self.count} completions: "
                f"expected one each"
            )
        self.columns[str(column)] = values

    def text(self, row: int) -> str:
        told = [f"{column}: {_told(values[row])}" for column, values in self.columns.items()]
        return well_formed("; ".join(told))


def columns(completions: Sequence[Completion]) -> dict[str, list[Any]]:
    """The metadata of the prompts, a list for every key, and their gold answers as ``answer``."""
    tables: list[Mapping[str, Any]] = [completion.prompt.metadata for completion in completions]
    names = sorted({str(name) for table in tables for name in table} - _RESERVED)
    found = {name: [table.get(name) for table in tables] for name in names}
    return found | {"answer": [completion.prompt.answer for completion in completions]}


def _told(value: Any) -> str:
    return value if isinstance(value, str) else short(value)
