"""Anything that can grade, as a Reward: a Reward, a task's verifier, a plain function, a function of a whole batch."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.errors import RewardError, SurefootError
from surefoot.rewards.base import Completion, Reward
from surefoot.rewards.values import one_line, scalar, short
from surefoot.types import Score, Status

_FORMS = (
    "(prompt, completion, answer) -> float | bool | None | Score, (prompts, completions, answers) -> list, "
    "(prompt: Prompt, text) -> Score, or an object with 'name' and 'score(completions)'"
)
_PLAIN = ("prompt", "completion", "answer")
_BATCH = ("prompts", "completions", "answers")


def as_reward(grader: Any) -> Reward:
    """Make a Reward of any of the accepted forms.

    =====================================================  ========================================================
    ``(prompt, completion, answer) -> number``             plain function: the prompt's text, the completion, the gold
                                                           answer
    ``(prompts, completions, answers) -> list``            the same for a whole batch, told apart by these names
    ``(prompt, text) -> Score``                            a task's verifier: the whole :class:`Prompt`
    an object with ``name`` and ``score``                  a :class:`Reward`, returned as it is
    =====================================================  ========================================================

    Parameters called ``prompt``, ``completion`` and ``answer`` (or ``prompts``, ``completions`` and ``answers``) are
    filled by name, in whatever order they stand. Three parameters of which any is called otherwise are filled by
    position, in the order above.

    A number is the total and says nothing about correctness; a bool says both. None, NaN, infinities and magnitudes
    above 1e15 make :func:`~surefoot.rewards.grade.grade` mark the sample ``Status.INVALID``. An exception marks its
    sample ``Status.ERROR``; where every sample of a batch raises, the reward is broken and RewardError is raised.

    Raises:
        RewardError: an object of another form.
    """
    if inspect.isclass(grader):
        raise RewardError(f"the reward {grader.__name__} is a class: give an object of it, {grader.__name__}(...)")
    if callable(getattr(grader, "score", None)) and isinstance(getattr(grader, "name", None), str):
        return grader
    name = _name(grader)
    if not callable(grader):
        raise RewardError(f"the reward {grader!r} is not a function; expected {_FORMS}")
    if inspect.iscoroutinefunction(grader):
        raise RewardError(f"the reward '{name}' is an async function; expected {_FORMS}")
    parameters = _parameters(grader, name)
    if sorted(parameters) == sorted(_BATCH):
        return BatchReward(name, _in_order(grader, parameters, _BATCH))
    if parameters == ("prompt", "text"):
        return EachReward(name, lambda completion: grader(completion.prompt, completion.text))
    if len(parameters) == 3:
        plain = _in_order(grader, parameters, _PLAIN) if sorted(parameters) == sorted(_PLAIN) else grader
        return EachReward(
            name, lambda completion: plain(completion.prompt.text, completion.text, completion.prompt.answer)
        )
    raise RewardError(f"the reward '{name}' takes ({', '.join(parameters)}); expected {_FORMS}")


@dataclass(frozen=True)
class EachReward:
    """A reward that grades each completion by itself."""

    name: str
    function: Callable[[Completion], Any]

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        scores: list[Score] = []
        failures: list[Exception] = []
        for completion in completions:
            try:
                result = self.function(completion)
            except SurefootError:
                raise
            except Exception as error:
                failures.append(error)
                scores.append(Score.failed(Status.ERROR, one_line(error)))
            else:
                scores.append(as_score(self.name, result))
        if completions and len(failures) == len(completions):
            raise RewardError(
                f"the reward '{self.name}' failed on all {len(failures)} completions: {one_line(failures[0])}"
            ) from failures[0]
        return scores


@dataclass(frozen=True)
class BatchReward:
    """A reward that grades a whole batch in one call, for instance with a model."""

    name: str
    function: Callable[[list[str], list[str], list[Any]], Any]

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        prompts = [completion.prompt.text for completion in completions]
        texts = [completion.text for completion in completions]
        answers = [completion.prompt.answer for completion in completions]
        try:
            results = self.function(prompts, texts, answers)
        except SurefootError:
            raise
        except Exception as error:
            raise RewardError(
                f"the reward '{self.name}' failed on a batch of {len(completions)} completions: {one_line(error)}"
            ) from error
        if hasattr(results, "tolist"):
            results = results.tolist()
        if not isinstance(results, (list, tuple)):
            raise RewardError(
                f"the reward '{self.name}' gave {short(results)}; expected a list with one number per completion"
            )
        if len(results) != len(completions):
            raise RewardError(
                f"the reward '{self.name}' gave {len(results)} scores for {len(completions)} completions; expected one "
                f"each, in the same order"
            )
        return [as_score(self.name, result) for result in results]


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


def _in_order(grader: Callable[..., Any], parameters: Sequence[str], names: Sequence[str]) -> Callable[..., Any]:
    """The grader as a function of ``names`` in that order, where its own ``parameters`` may stand in another."""
    places = [names.index(parameter) for parameter in parameters]
    return lambda *values: grader(*(values[place] for place in places))


def _name(grader: Any) -> str:
    if isinstance(getattr(grader, "name", None), str):
        return str(grader.name)
    inner = grader
    while hasattr(inner, "func"):
        inner = inner.func
    return str(getattr(inner, "__name__", type(inner).__name__))


def _parameters(grader: Callable[..., Any], name: str) -> tuple[str, ...]:
    """Names of the parameters that are filled by position and have no default."""
    try:
        parameters = inspect.signature(grader).parameters.values()
    except (TypeError, ValueError):
        raise RewardError(f"the reward '{name}' does not tell its parameters; expected {_FORMS}") from None
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if any(p.kind is p.KEYWORD_ONLY for p in needed):
        raise RewardError(f"the reward '{name}' has parameters that can only be given by name; expected {_FORMS}")
    return tuple(p.name for p in needed)
