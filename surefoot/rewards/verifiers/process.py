"""The verifier 'steps': a verdict on every step whose arithmetic can be checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from surefoot.rewards.base import Completion
from surefoot.rewards.steps import claims, split_steps
from surefoot.rewards.verifiers.base import Verifier
from surefoot.rewards.verifiers.final import Boxed, Exact, Number, Tag
from surefoot.rewards.verifiers.mathematics import Mathematics
from surefoot.types import Prompt, Score, Status, StepScore

_FINALS: dict[str, type[Verifier]] = {v.name: v for v in (Number, Boxed, Tag, Exact, Mathematics)}


@dataclass(frozen=True)
class Steps(Verifier):
    """Arithmetic in the steps of the text, for process rewards (preset ``grpo_process``), beside the final answer.

    A step that states equalities of numbers is 1 where all of them hold and 0 where one does not; a step without any has
    no verdict. An equality that was stated before, or that only repeats a number, counts for nothing. The total is
    that of the final answer; with ``final = "none"`` it is the share of right steps, and a text without a step that can be
    checked is ``Status.NO_ANSWER``. The component "steps" is that share.

    The tasks 'addition' and 'chain_mod' judge their own steps, with the verifier 'auto'.

    Attributes:
        split: how the text is split into steps (see :func:`surefoot.rewards.steps.split_steps`).
        final: the verifier of the final answer, with its default options.
    """

    name: ClassVar[str] = "steps"
    about: ClassVar[str] = "arithmetic of every step in the text (process rewards), and the final answer"

    split: Literal["auto", "lines", "numbered", "sentences", "tags"] = "auto"
    final: Literal["none", "number", "boxed", "tag", "exact", "math"] = "number"

    def __post_init__(self) -> None:
        if self.final != "none":
            _FINALS[self.final]()  # it may lack a package

    def verdict(self, completion: Completion) -> Score:
        return self.score([completion])[0]

    def verdicts(self, completions: Sequence[Completion]) -> list[Score]:
        judged = [self._steps(completion.text) for completion in completions]
        if self.final == "none":
            return [_share(steps) for steps in judged]
        finals = _FINALS[self.final]().score(completions)
        return [_beside(score, steps) for score, steps in zip(finals, judged, strict=True)]

    def wants_gold(self) -> bool:
        return self.final != "none"

    def refuses(self, prompt: Prompt) -> str:
        return "" if self.final == "none" else _FINALS[self.final]().refuses(prompt)

    def _steps(self, text: str) -> tuple[StepScore, ...]:
        made: set[str] = set()
        scores = []
        for start, end in split_steps(text, self.split):
            fresh = [(claim, holds) for claim, holds in claims(text[start:end]) if claim not in made]
            made.update(claim for claim, _ in fresh)
            if fresh:
                scores.append(StepScore(end, float(all(holds for _, holds in fresh))))
        return tuple(scores)


def _share(steps: tuple[StepScore, ...]) -> Score:
    if not steps:
        return Score(0.0, {}, None, Status.NO_ANSWER)
    share = sum(step.value for step in steps) / len(steps)
    return Score(share, {"steps": share}, None, Status.OK, steps)


def _beside(score: Score, steps: tuple[StepScore, ...]) -> Score:
    components = {**score.components, **_share(steps).components}
    return replace(score, components=components, steps=steps) if score.valid else score
