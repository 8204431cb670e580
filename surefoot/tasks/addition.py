"""Multi-digit addition with a worked scratchpad: digit by digit from the right, with carries, then the answer.

    prompt      347+589=
    completion  7+9+0=16,4+8+1=13,3+5+1=09>936

A step is ``digit+digit+carry=sum`` with a sum of two digits, of which the first is the carry of the next step. Thirty
characters for three digits, all of them printable ASCII.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from surefoot.config import Section
from surefoot.seeds import generator
from surefoot.tasks.base import Task, content_id
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.generate import Candidate, generate_unique, read_options
from surefoot.types import Prompt, Score, Status, StepScore

MARKER = ">"
SEPARATOR = ","
_STEP = re.compile(r"([0-9])\+([0-9])\+([01])=([0-9]{2})")
_NUMBER = re.compile(r"0|[1-9][0-9]*")


class AdditionOptions(Section):
    """Options of the task 'addition'."""

    digits: int = Field(3, gt=0, description="digits of both numbers")


def build(config: TaskConfig) -> Task:
    """Training and held-out additions of two numbers with ``digits`` digits each (one digit: 0 to 9).

    ``a+b`` and ``b+a`` are two problems that lie in the same part.

    Raises:
        DataError: an unknown option, or sizes beyond the number of problems.
    """
    digits = read_options(AdditionOptions, config).digits

    def candidate(counter: int) -> Candidate:
        rng = generator("addition", config.seed, digits, counter)
        a, b = _draw(rng, digits), _draw(rng, digits)
        content = f"{a}+{b}="
        metadata = {"digits": digits, "difficulty": carries(a, b)}
        prompt = Prompt(content_id("addition", content), content, str(a + b), metadata)
        return Candidate(prompt, key=sorted((a, b)))

    train, heldout = generate_unique(config, candidate)
    return Task(
        config.name,
        train,
        heldout,
        verify=verify,
        demonstrate=demonstrate,
        gold=lambda prompt: demonstrate(prompt, 0, 0.0),
        paraphrases=lambda prompt: [f"{MARKER}{prompt.answer}", f"{MARKER}{prompt.answer}\n"],
        wrong=lambda prompt: [
            prompt.answer,
            f"{MARKER}0{prompt.answer}",
            f"{MARKER}{prompt.answer}{MARKER}{prompt.answer}",
        ],
    )


def carries(a: int, b: int) -> int:
    """How often something is carried when the two are added on paper: the label that a curriculum goes by."""
    return (digit_sum(a) + digit_sum(b) - digit_sum(a + b)) // 9


def digit_sum(number: int) -> int:
    return sum(int(digit) for digit in str(number))


def verify(prompt: Prompt, text: str) -> Score:
    """Grade one completion.

    There is an answer only where the text holds exactly one marker ``>`` and everything after it (white space at the
    end aside) is one number without sign and leading zeros. Anything else, such as ``>0936`` or a list of candidates
    ``>936>937``, is ``Status.NO_ANSWER`` with total 0. The scratchpad does not enter the total.

    ``steps`` has one verdict per step of the scratchpad, 1 where the step adds the true digits of its place and the
    carry that *the step before it* wrote, and its own sum is right. So a step that goes on correctly from a wrong carry
    is right, and the mistake is charged where it was made. After a malformed step the true carry is expected.
    """
    scratchpad = text.split(MARKER, 1)[0]
    steps = _grade_steps(prompt, scratchpad)
    answer = _answer(text)
    if answer is None:
        return Score(0.0, {"accuracy": 0.0}, False, Status.NO_ANSWER, steps)
    right = float(answer == prompt.answer)
    return Score(right, {"accuracy": right}, bool(right), Status.OK, steps, answer)


def demonstrate(prompt: Prompt, seed: int, error_rate: float) -> str:
    """A worked solution; with probability ``error_rate`` it holds one mistake, carried through to a wrong answer.

    The mistake is a sum that is off by one or by ten (half of the time, or always where nothing is carried) or a carry
    that is dropped. The result depends on nothing but the prompt, the seed and the rate.
    """
    rng = generator("addition", "demonstrate", prompt.prompt_id, seed)
    places = _places(prompt)
    mistake = _draw_mistake(rng, places) if rng.random() < error_rate else None
    steps, value, carry = [], 0, 0
    for place, (x, y) in enumerate(places):
        total = x + y + carry
        if mistake and mistake.place == place:
            total += mistake.shift
        steps.append(f"{x}+{y}+{carry}={total:02d}")
        value += total % 10 * 10**place
        carry = total // 10
        if mistake and mistake.place == place and mistake.drops_carry:
            carry = 0
    value += carry * 10 ** len(places)
    return SEPARATOR.join(steps) + MARKER + str(value)


@dataclass(frozen=True)
class _Mistake:
    place: int
    shift: int = 0
    drops_carry: bool = False


def _draw_mistake(rng: np.random.Generator, places: list[tuple[int, int]]) -> _Mistake:
    """One mistake that surely changes the answer: by ``shift`` or by the dropped carry, at its decimal place."""
    carries, carry = [], 0
    for x, y in places:
        carry = (x + y + carry) // 10
        carries.append(carry)
    carried = [place for place, carry in enumerate(carries) if carry]
    if carried and rng.random() < 0.5:
        return _Mistake(int(rng.choice(carried)), drops_carry=True)
    place = int(rng.integers(len(places)))
    x, y = places[place]
    total = x + y + (carries[place - 1] if place else 0)
    shifts = [shift for shift in (-10, -1, 1, 10) if 0 <= total + shift <= 19]
    return _Mistake(place, shift=int(rng.choice(shifts)))


def _draw(rng: np.random.Generator, digits: int) -> int:
    first = int(rng.integers(1 if digits > 1 else 0, 10))
    return int("".join(map(str, [first, *rng.integers(0, 10, size=digits - 1)])))


def _places(prompt: Prompt) -> list[tuple[int, int]]:
    """The pairs of digits of a prompt, units first."""
    a, b = prompt.text.rstrip("=").split("+")
    width = max(len(a), len(b))
    return [(int(x), int(y)) for x, y in zip(reversed(a.zfill(width)), reversed(b.zfill(width)), strict=True)]


def _answer(text: str) -> str | None:
    if text.count(MARKER) != 1:
        return None
    answer = text.rstrip().split(MARKER)[1]
    return answer if _NUMBER.fullmatch(answer) else None


def _grade_steps(prompt: Prompt, scratchpad: str) -> tuple[StepScore, ...]:
    if not scratchpad.strip():
        return ()
    places = _places(prompt)
    scores, end, true_carry, carry = [], 0, 0, 0
    for index, step in enumerate(scratchpad.split(SEPARATOR)):
        end += len(step)
        x, y = places[index] if index < len(places) else (-1, -1)
        true_carry = (x + y + true_carry) // 10
        match = _STEP.fullmatch(step.strip())
        if match is None:
            scores.append(StepScore(end, 0.0))
            carry = true_carry
        else:
            given = tuple(int(number) for number in match.groups())
            scores.append(StepScore(end, float(given == (x, y, carry, x + y + carry))))
            carry = given[3] // 10
        end += len(SEPARATOR)
    return tuple(scores)
