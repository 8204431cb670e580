"""Chained modular arithmetic: K operations from left to right, the running value after each, the last one the answer.

    prompt      3+4*2-7=        (modulus 10, read left to right, no precedence)
    completion  7,4,7

Every step has an exact truth *given the value before it as it was written*, so a process reward can be compared with
the truth. With modulus 10 a wrong step still reaches the right answer by luck about once in ten times; a modulus of 97
or more makes that rare.
"""

from __future__ import annotations

import re

from pydantic import Field

from surefoot.config import Section
from surefoot.seeds import generator
from surefoot.tasks.base import Task, content_id
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.generate import Candidate, generate_unique, read_options
from surefoot.types import Prompt, Score, Status, StepScore

SEPARATOR = ","
OPERATORS = "+-*"
_OPERATION = re.compile(r"([+*-])([0-9]+)")
_VALUE = re.compile(r"0|[1-9][0-9]*")


class ChainModOptions(Section):
    """Options of the task 'chain_mod'."""

    steps: int = Field(4, gt=0, description="operations, and running values of a solution")
    modulus: int = Field(10, gt=1, description="values are reduced modulo this number")


def build(config: TaskConfig) -> Task:
    """Training and held-out chains. Operands are 1 to 9: a factor of 0 would make all steps before it idle.

    Raises:
        DataError: an unknown option, or sizes beyond the number of problems.
    """
    options = read_options(ChainModOptions, config)

    def candidate(counter: int) -> Candidate:
        rng = generator("chain_mod", config.seed, options.steps, counter)
        operands = rng.integers(1, 10, size=options.steps + 1)
        operators = rng.choice(list(OPERATORS), size=options.steps)
        content = f"{operands[0]}" + "".join(f"{o}{x}" for o, x in zip(operators, operands[1:], strict=True)) + "="
        answer = str(_solve(content, options.modulus)[-1])
        prompt_id = content_id("chain_mod", [content, options.modulus])
        return Candidate(Prompt(prompt_id, content, answer, {"modulus": options.modulus}), key=content)

    train, heldout = generate_unique(config, candidate)
    return Task(
        config.name,
        train,
        heldout,
        verify=verify,
        demonstrate=demonstrate,
        gold=lambda prompt: demonstrate(prompt, 0, 0.0),
        paraphrases=lambda prompt: [f"{demonstrate(prompt, 0, 0.0)}\n"],
        wrong=lambda prompt: [
            f"{demonstrate(prompt, 0, 0.0)}{SEPARATOR}{prompt.answer}",
            f"{SEPARATOR}{prompt.answer}",
        ],
    )


def verify(prompt: Prompt, text: str) -> Score:
    """Grade one completion.

    There is an answer only where the text (white space around it aside) is exactly K values separated by commas, each
    written without sign or leading zeros and below the modulus; otherwise ``Status.NO_ANSWER`` with total 0. The total
    looks at the last value alone.

    ``steps`` has one verdict per value that was written: 1 where it follows from the value before it as written (the
    first one from the first operand). A step after a value that cannot be read is wrong, as is one beyond the K-th.
    """
    modulus = prompt.metadata["modulus"]
    first, operations = _parse(prompt.text)
    words = text.rstrip().split(SEPARATOR) if text.strip() else []
    values = [_value(word, modulus) for word in words]
    before: list[int | None] = [first % modulus, *values]
    scores, end = [], 0
    for index, (word, value) in enumerate(zip(words, values, strict=True)):
        end += len(word)
        last = before[index]
        follows = index < len(operations) and last is not None and value == _apply(last, operations[index], modulus)
        scores.append(StepScore(end, float(follows)))
        end += len(SEPARATOR)
    steps = tuple(scores)
    if len(values) != len(operations) or None in values:
        return Score(0.0, {"accuracy": 0.0}, False, Status.NO_ANSWER, steps)
    answer = str(values[-1])
    right = float(answer == prompt.answer)
    return Score(right, {"accuracy": right}, bool(right), Status.OK, steps, answer)


def demonstrate(prompt: Prompt, seed: int, error_rate: float) -> str:
    """The running values; with probability ``error_rate`` one of them is wrong, and the later ones follow from it.

    The last value can still be the right one by luck: an even factor modulo 10 forgets a difference of 5.
    """
    rng = generator("chain_mod", "demonstrate", prompt.prompt_id, seed)
    modulus = prompt.metadata["modulus"]
    value, operations = _parse(prompt.text)
    wrong = int(rng.integers(len(operations))) if rng.random() < error_rate else -1
    values = []
    for index, operation in enumerate(operations):
        value = _apply(value, operation, modulus)
        if index == wrong:
            value = (value + int(rng.integers(1, modulus))) % modulus
        values.append(str(value))
    return SEPARATOR.join(values)


def _parse(content: str) -> tuple[int, list[tuple[str, int]]]:
    """The first operand and the operations."""
    first = re.match(r"[0-9]+", content)
    if first is None:
        raise ValueError(f"not a chain of operations: {content!r}")
    return int(first[0]), [(operator, int(x)) for operator, x in _OPERATION.findall(content[first.end() :])]


def _apply(value: int, operation: tuple[str, int], modulus: int) -> int:
    operator, x = operation
    return {"+": value + x, "-": value - x, "*": value * x}[operator] % modulus


def _solve(content: str, modulus: int) -> list[int]:
    """[K] running values."""
    value, operations = _parse(content)
    values = []
    for operation in operations:
        value = _apply(value, operation, modulus)
        values.append(value)
    return values


def _value(word: str, modulus: int) -> int | None:
    """A running value as written; None where it is not strictly one."""
    if not _VALUE.fullmatch(word) or len(word) > len(str(modulus)):
        return None
    value = int(word)
    return value if value < modulus else None
