"""Prompts: which problems a step samples. A part returns a weight per training prompt, [N]; 0 leaves it out.

A part with the trait "draw" has its weights drawn from (:func:`choose`); without it the prompts whose weight is not 0 are
taken in the order of the epoch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from surefoot import seeds
from surefoot.algorithms.part import part
from surefoot.errors import AlgorithmError

Share = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True)
class PromptTable:
    """What is known of the N training prompts.

    Attributes:
        graded: [N] int64, samples of the prompt that were graded since the start of the run.
        right: [N] int64, those whose answer was right.
        difficulty: [N] float64, the prompt's label, NaN where it has none; larger is harder.
        step: the number of the step, from 1.
        level: how many levels of difficulty the run has passed, see :func:`levels`.
    """

    graded: np.ndarray
    right: np.ndarray
    difficulty: np.ndarray
    step: int = 1
    level: int = 0

    @property
    def success_rate(self) -> np.ndarray:
        """[N] float64, the share of right answers so far; NaN for a prompt that was never graded."""
        return np.where(self.graded > 0, self.right / np.maximum(self.graded, 1), np.nan)


@part("prompts", "", "", "idle")
def in_order(table: PromptTable) -> np.ndarray:
    """Every prompt once per epoch, in a new random order."""
    return np.ones(len(table.graded))


@part(
    "prompts",
    "prompts with a pass rate p below {rate:g} so far, and new ones",
    r"\text{{prompts with a pass rate }}p<{rate:g}\text{{ so far, and new ones}}",
    "history",
)
def no_positive_resampling(table: PromptTable, *, rate: Share = 0.9) -> np.ndarray:
    """Prompts leave once their pass rate over the run has reached ``rate`` (No-Positive-Resampling, ScaleRL, arXiv 2510.13786).

    A prompt that is not sampled any more keeps its rate, so it has left for the rest of the run; one that was never graded
    stays. The effective training set shrinks as the policy learns.
    """
    return np.where(table.success_rate >= rate, 0.0, 1.0)


@part(
    "prompts",
    "prompt drawn with probability proportional to max(1 - p, {floor:g}),  p = its success rate so far, {unseen:g} for a new one",
    r"P(\text{{prompt}})\propto\max(1-p,{floor:g}),\;p = \text{{success rate so far}},\;{unseen:g}\text{{ for a new one}}",
    "history",
    "draw",
)
def prioritised(
    table: PromptTable,
    *,
    unseen: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0,
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0,
) -> np.ndarray:
    """Prompts are drawn in proportion to 1 - success rate (prioritised sampling, Kimi k1.5, arXiv 2501.12599).

    ``unseen`` is the weight of a prompt that was never graded (1: that of one that always failed). With ``floor`` 0 a
    prompt whose every answer was right never returns; above 0 it keeps that weight, so that forgetting is noticed.
    """
    rate = table.success_rate
    return np.where(np.isnan(rate), unseen, np.maximum(1 - rate, floor))


@part(
    "prompts",
    "the easiest {start:.0%} of the prompts, and linearly more until all after {steps} steps",
    r"\text{{the easiest }}{start:g}\text{{ of the prompts, and linearly more until all after {steps} steps}}",
    "labels",
)
def curriculum(table: PromptTable, *, start: Share = 0.2, steps: Annotated[int, Field(ge=1)] = 100) -> np.ndarray:
    """From easy to hard by the labels of the prompts (curriculum sampling, Kimi k1.5, arXiv 2501.12599).

    The share of the easiest prompts that may be sampled is ``start`` in the first step and grows linearly to all of them
    over ``steps`` steps. Prompts with the same label enter together, those without one with the hardest.

    Raises:
        AlgorithmError: no prompt has a label.
    """
    return _open(table, start, steps).astype(np.float64)


@part(
    "prompts",
    "the easiest {start:.0%} of the prompts, and linearly more until all after {steps} steps; "
    "drawn with probability proportional to max(1 - p, {floor:g}),  p = its success rate so far, {unseen:g} for a new one",
    r"\text{{the easiest }}{start:g}\text{{ of the prompts, and linearly more until all after {steps} steps; }}"
    r"P(\text{{prompt}})\propto\max(1-p,{floor:g}),\;{unseen:g}\text{{ for a new one}}",
    "labels",
    "history",
    "draw",
)
def prioritised_curriculum(
    table: PromptTable,
    *,
    start: Share = 0.2,
    steps: Annotated[int, Field(ge=1)] = 100,
    unseen: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0,
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0,
) -> np.ndarray:
    """``curriculum`` for which prompts may be sampled, and ``prioritised`` for how often: Kimi k1.5's two together.

    Raises:
        AlgorithmError: no prompt has a label.
    """
    return _open(table, start, steps) * prioritised.fn(table, unseen=unseen, floor=floor)


@part(
    "prompts",
    "prompts of one level of difficulty, {review:.0%} of them from the levels before it; "
    "the next level once {rate:.0%} of the last {samples} answers at the level were right",
    r"\text{{prompts of one level of difficulty, a share }}{review:g}\text{{ from the levels before it; the next level once }}"
    r"{rate:g}\text{{ of the last {samples} answers at the level were right}}",
    "labels",
    "levels",
    "draw",
)
def levels(
    table: PromptTable,
    *,
    rate: Share = 0.7,
    samples: Annotated[int, Field(ge=1)] = 64,
    review: Annotated[float, Field(ge=0, lt=1)] = 0.2,
) -> np.ndarray:
    """From level to level as each is mastered, as automatic curricula for reinforcement learning do it (survey of Portelas
    et al., "Automatic Curriculum Learning For Deep RL", arXiv 2003.04664).

    A level is all prompts with one label; those without a label are the last one. The level rises, and never falls, by
    :func:`rise`. It fails where labels are many and fine: a level then has too few prompts to draw from.
    """
    labels = np.where(np.isnan(table.difficulty), np.inf, table.difficulty)
    known = np.unique(labels)
    now = known[min(table.level, len(known) - 1)]
    here, before = labels == now, labels < now
    share = review if before.any() else 0.0
    return here * (1 - share) / here.sum() + before * share / max(1, before.sum())


@dataclass(frozen=True)
class Level:
    """Where a run stands in :func:`levels`.

    Attributes:
        number: levels passed.
        graded: answers graded at this level.
        rate: share of right ones among about the last ``samples`` of them.
    """

    number: int = 0
    graded: int = 0
    rate: float = 0.0


def rise(level: Level, graded: int, right: int, *, rate: float, samples: int, last: int) -> Level:
    """The level after a batch of answers at it: the next one once its success rate is at least ``rate``.

    The rate is the mean over all answers as long as there are fewer than ``samples``, which do not raise the level, and
    an exponential average of that many answers afterwards.

    Args:
        graded, right: answers of the batch at this level.
        rate, samples: of :func:`levels`.
        last: the number of the last level, which stays.

    >>> rise(Level(), 8, 8, rate=0.7, samples=8, last=3)
    Level(number=1, graded=0, rate=0.0)
    """
    if not graded:
        return level
    seen = level.graded + graded
    mean = level.rate + min(1.0, graded / min(seen, samples)) * (right / graded - level.rate)
    if level.number < last and seen >= samples and mean >= rate:
        return Level(level.number + 1)
    return Level(level.number, seen, mean)


def _open(table: PromptTable, start: float, steps: int) -> np.ndarray:
    """[N] bool, prompts whose label is among the easiest that the step may sample."""
    labels = np.where(np.isnan(table.difficulty), np.inf, table.difficulty)
    if not np.isfinite(labels).any():
        raise AlgorithmError(
            "algorithm.prompts goes from easy to hard, and no prompt has a label: give the tasks a number 'difficulty', or "
            "set algorithm.prompts = 'prioritised'"
        )
    share = start + (1 - start) * min(1.0, (table.step - 1) / steps)
    count = max(1, math.ceil(share * len(labels) - 1e-9))
    return labels <= np.sort(labels)[count - 1]


def choose(weights: np.ndarray, count: int, *names: int | str) -> list[int]:
    """Draw prompts without replacement, each next one with probability proportional to its weight among those left.

    The exponential form of the keys of Efraimidis and Spirakis ("Weighted random sampling with a reservoir", 2006): prompt
    i has the key -log(u_i) / w_i, and the smallest keys win. u_i is a pure function of ``names`` and i, so the draw depends
    on nothing that was drawn before, and the weight of one prompt does not move the keys of the others.

    Args:
        weights: [N], not negative; prompts of weight 0 are never drawn.
        count: how many; fewer are returned where fewer have a weight.
        names: what the draw is for, for instance ``"prompts", seed, step``.

    Returns:
        Indices, in the order in which they were drawn.

    Raises:
        AlgorithmError: a weight that is negative or not finite.
    """
    weights = np.asarray(weights, dtype=np.float64)
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise AlgorithmError(
            f"the weight of prompt {at} is {weights[at]}: the weights of prompts are finite and not negative"
        )
    possible = np.flatnonzero(weights > 0)
    seed = np.full(len(possible), seeds.derive(*names), dtype=np.uint64)
    with np.errstate(over="ignore"):  # a weight of 1e-308 may have an infinite key: the last of all
        keys = -np.log1p(-seeds.uniforms(seed, possible)) / weights[possible]
    return possible[np.argsort(keys, kind="stable")[: max(0, count)]].tolist()
