"""Anything that can grade, as a Reward: functions of a sample or a batch, sync or async, objects, several of them."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from surefoot.errors import RewardError, SurefootError
from surefoot.rewards.asynchronous import DEFAULT, Caller, LateError, Limits, is_async
from surefoot.rewards.base import BrokenRewardError, Completion, Reward
from surefoot.rewards.values import one_line, scalar, short
from surefoot.types import Score, Status

FORMS = (
    "(prompt, completion, answer) -> float | bool | None | Score, (prompts, completions, answers) -> list, "
    "(prompts, completions, **columns) -> list, (prompt: Prompt, text) -> Score, or an object with 'score(completions)'"
)
TRL = frozenset({"prompts", "completions", "completion_ids"})
_DEEPEST = 100
_NO_ATTRIBUTE = "no_reward_has_this_attribute"
_PLAIN = ("prompt", "completion", "answer")
_BATCH = ("prompts", "completions", "answers")


def as_reward(grader: Any, limits: Limits = DEFAULT) -> Reward:
    """Make a Reward of any of the accepted forms.

    =====================================================  ========================================================
    ``(prompt, completion, answer) -> number``             plain function: the prompt's text, the completion, the gold
                                                           answer
    ``(prompts, completions, answers) -> list``            the same for a whole batch, told apart by these names
    ``(prompts, completions, **columns) -> list``          as for TRL, see :mod:`surefoot.rewards.trl`: any other function
                                                           with a parameter ``prompts``, ``completions`` or
                                                           ``completion_ids``
    ``(prompt, text) -> Score``                            a task's verifier: the whole :class:`Prompt`
    an object with ``score(completions)``                  a :class:`Reward`; it is called by the name of its class where
                                                           it has no ``name``
    a list of these                                        their sum, see :func:`surefoot.rewards.compose.compose`
    =====================================================  ========================================================

    Functions and ``__call__`` may be ``async``: then many samples are graded at once, within ``limits``. Parameters called
    ``prompt``, ``completion`` and ``answer`` (or ``prompts``, ``completions`` and ``answers``) are filled by name, in
    whatever order they stand. Three parameters of which any is called otherwise are filled by position, in the order
    above.

    A number is the total and says nothing about correctness; a bool says both. None, NaN, infinities and magnitudes
    above 1e15 make :func:`~surefoot.rewards.grade.grade` mark the sample ``Status.INVALID``. An exception marks its
    sample ``Status.ERROR``, a coroutine that is late its own ``Status.TIMEOUT``; where that happens to every sample of a
    batch, the reward is broken and RewardError is raised.

    Raises:
        RewardError: an object of another form.
    """
    if isinstance(grader, (list, tuple)):
        from surefoot.rewards.compose import compose

        return compose(grader, limits)
    if inspect.isclass(grader):
        raise RewardError(f"the reward {grader.__name__} is a class: give an object of it, {grader.__name__}(...)")
    if _scores(grader):
        return grader if isinstance(getattr(grader, "name", None), str) else _Named(name_of(grader), grader)
    name = name_of(grader)
    if not callable(grader):
        raise RewardError(f"the reward {grader!r} is not a function; expected {FORMS}")
    every = _signature(grader, name)
    parameters = _needed(every, name)
    if sorted(parameters) == sorted(_BATCH):
        batch = _in_order(grader, parameters, _BATCH)
        return _of_batch(name, lambda completions: batch(*_columns(completions)), is_async(grader), limits)
    if TRL.intersection(every):
        from surefoot.rewards.trl import TrlReward

        return TrlReward(name, grader, limits)
    each = _of_each(grader, parameters)
    if each is None:
        raise RewardError(f"the reward '{name}' takes ({', '.join(parameters)}); expected {FORMS}")
    return AsyncReward(name, each, limits) if is_async(grader) else EachReward(name, each)


@dataclass(frozen=True)
class EachReward:
    """A reward that grades each completion by itself."""

    name: str
    function: Callable[[Completion], Any]
    threads: int = 0

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        outcomes: list[Any] = []
        for completion in completions:
            try:
                outcomes.append(self.function(completion))
            except Exception as error:
                outcomes.append(error)
        return scores_of(self.name, outcomes)


@dataclass(frozen=True)
class AsyncReward:
    """A reward whose function of one completion is a coroutine function."""

    name: str
    function: Callable[[Completion], Any]
    limits: Limits
    threads: int = 32  # they wait; how much is done at once is up to the limits
    caller: Caller = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "caller", Caller(self.limits))

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        outcomes = self.caller.all([lambda c=completion: self.function(c) for completion in completions])  # type: ignore[misc]
        return scores_of(self.name, outcomes)


@dataclass(frozen=True)
class BatchReward:
    """A reward that grades a whole batch in one call, for instance with a model."""

    name: str
    function: Callable[[Sequence[Completion]], Any]
    threads: int = 0

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        try:
            results = self.function(completions)
        except SurefootError:
            raise
        except Exception as error:
            raise _failed(self.name, completions, error) from error
        return [as_score(self.name, result) for result in as_list(self.name, results, len(completions))]


@dataclass(frozen=True)
class AsyncBatchReward:
    """A reward that grades a whole batch in one coroutine; one that is late marks the batch ``Status.TIMEOUT``."""

    name: str
    function: Callable[[Sequence[Completion]], Any]
    limits: Limits
    threads: int = 32
    caller: Caller = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "caller", Caller(self.limits))

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        (results,) = self.caller.all([lambda: self.function(completions)])
        if isinstance(results, LateError):
            return scores_of(self.name, [results] * len(completions))
        if isinstance(results, SurefootError):
            raise results
        if isinstance(results, Exception):
            raise _failed(self.name, completions, results) from results
        return [as_score(self.name, result) for result in as_list(self.name, results, len(completions))]


def scores_of(name: str, outcomes: Sequence[Any]) -> list[Score]:
    """What a function returned or raised for each completion, as scores.

    Raises:
        BrokenRewardError: it failed on every completion.
        SurefootError: one that was raised, since a person can mend it; or a result of a wrong type.
    """
    scores: list[Score] = []
    failures: list[Exception] = []
    for outcome in outcomes:
        if isinstance(outcome, SurefootError):
            raise outcome
        if isinstance(outcome, LateError):
            scores.append(Score.failed(Status.TIMEOUT, str(outcome)))
        elif isinstance(outcome, Exception):
            scores.append(Score.failed(Status.ERROR, one_line(outcome)))
        else:
            scores.append(as_score(name, outcome))
            continue
        failures.append(outcome)
    if outcomes and len(failures) == len(outcomes):
        raise BrokenRewardError(
            f"the reward '{name}' failed on all {len(failures)} completions: {one_line(failures[0])}", scores
        ) from failures[0]
    return scores


def as_list(name: str, results: Any, count: int) -> Sequence[Any]:
    """What a function of a batch returned, one result for each of ``count`` completions.

    Raises:
        RewardError: something that is no list, or one of another length.
    """
    if hasattr(results, "tolist"):
        results = results.tolist()
    if not isinstance(results, (list, tuple)):
        raise RewardError(f"the reward '{name}' gave {short(results)}; expected a list with one number per completion")
    if len(results) != count:
        raise RewardError(
            f"the reward '{name}' gave {len(results)} scores for {count} completions; expected one each, in the same order"
        )
    return results


def as_score(name: str, result: Any) -> Score:
    """What a function returned, as a Score.

    Raises:
        RewardError: something that is neither a number, a bool, None nor a Score.
    """
    if isinstance(result, Score):
        return result
    if result is None:
        return Score.failed(Status.INVALID, "the reward is None")
    number = scalar(result)
    if number is None:
        raise RewardError(
            f"the reward '{name}' gave {short(result)} ({type(result).__name__}); expected a number, bool or Score"
        )
    if not isinstance(number, bool) and not math.isfinite(number):
        return Score.failed(Status.INVALID, f"the reward is {number}")
    return Score(
        total=float(number), components={name: float(number)}, correct=number if isinstance(number, bool) else None
    )


def name_of(grader: Any) -> str:
    """What to call a grader: its ``name``, the name of the function, or that of its class."""
    if isinstance(getattr(grader, "name", None), str):
        return str(grader.name)
    inner = grader
    for _ in range(_DEEPEST):
        if not isinstance(inner, functools.partial):
            break
        inner = inner.func
    name = getattr(inner, "__name__", None)
    return name if isinstance(name, str) else type(inner).__name__


def _scores(grader: Any) -> bool:
    """Whether an object has a method ``score`` of its own, and is not one that has every attribute it is asked for."""
    return callable(getattr(grader, "score", None)) and not hasattr(grader, _NO_ATTRIBUTE)


@dataclass(frozen=True)
class _Named:
    """An object that grades as a Reward does and has no name of its own."""

    name: str
    grader: Any

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        scores: list[Score] = self.grader.score(completions)
        return scores

    def __getattr__(self, name: str) -> Any:
        if name in ("threads", "take_notes"):
            return getattr(self.grader, name)
        raise AttributeError(name)


def _of_batch(name: str, function: Callable[[Sequence[Completion]], Any], later: bool, limits: Limits) -> Reward:
    return AsyncBatchReward(name, function, limits) if later else BatchReward(name, function)


def _of_each(grader: Any, parameters: Sequence[str]) -> Callable[[Completion], Any] | None:
    """The grader as a function of one completion; None where it is of no known form."""
    if tuple(parameters) == ("prompt", "text"):
        return lambda completion: grader(completion.prompt, completion.text)
    if len(parameters) != 3:
        return None
    plain = _in_order(grader, parameters, _PLAIN) if sorted(parameters) == sorted(_PLAIN) else grader
    return lambda completion: plain(completion.prompt.text, completion.text, completion.prompt.answer)


def _columns(completions: Sequence[Completion]) -> tuple[list[str], list[str], list[Any]]:
    prompts = [completion.prompt.text for completion in completions]
    texts = [completion.text for completion in completions]
    return prompts, texts, [completion.prompt.answer for completion in completions]


def _failed(name: str, completions: Sequence[Completion], error: Exception) -> RewardError:
    return RewardError(f"the reward '{name}' failed on a batch of {len(completions)} completions: {one_line(error)}")


def _in_order(grader: Callable[..., Any], parameters: Sequence[str], names: Sequence[str]) -> Callable[..., Any]:
    """The grader as a function of ``names`` in that order, where its own ``parameters`` may stand in another."""
    places = [names.index(parameter) for parameter in parameters]
    return lambda *values: grader(*(values[place] for place in places))


def _signature(grader: Callable[..., Any], name: str) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(grader).parameters)
    except (TypeError, ValueError):
        raise RewardError(f"the reward '{name}' does not tell its parameters; expected {FORMS}") from None


def _needed(parameters: dict[str, inspect.Parameter], name: str) -> tuple[str, ...]:
    """Names of the parameters that are filled by position and have no default."""
    needed = [
        p for p in parameters.values() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if not TRL.intersection(parameters) and any(p.kind is p.KEYWORD_ONLY for p in needed):
        raise RewardError(f"the reward '{name}' has parameters that can only be given by name; expected {FORMS}")
    return tuple(p.name for p in needed)
