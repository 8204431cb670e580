"""Whatever reads completions in the trainer takes time in proportion to their length, on texts that a policy could end in.

The time of this process is compared between a text and one of four times its length: a square would be sixteen. What goes
to worker processes has a deadline there and is not counted here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from surefoot.rewards.base import Completion
from surefoot.rewards.code_extract import program_in
from surefoot.rewards.verifiers import VERIFIERS, make_verifier
from surefoot.tasks import addition, chain_mod
from surefoot.tasks.extraction import PLACES, free_answer, placed_answer
from surefoot.types import Prompt

LENGTH = 60_000
SMALL = 0.2  # seconds: below it nothing is compared, since it measures the machine
TIMES = 9.0
TRIES = 4

PIECES = [
    "*", "1,", "(", "\\boxed{", "<answer>", " ", "\n", "-", "=", "A ", "1/", "第", "B, ", "not ", "答案", "答案是", "选",
    "answer is ", "answer ", "<think>", "</think>", "`", "```\n", "$", "$$", "\\(", "{", "1 ", "½", "一", "1.",
    "**A** ", "so ", "because ", "#", "1 1 1 1 1 = x\n", "#### ", "<step>", "1=1 ", "1+", "\\frac{", "'", "\u00a0",
    "．", "\\", "1. a ", "[", ".", "~~~\n", "I ", "（",
]  # fmt: skip
OPTIONS = {"options": ["Paris", "a black cat", "Rome", "Madrid"]}
SIMPLE = (
    "exact",
    "number",
    "boxed",
    "tag",
    "choice",
    "steps",
    "format",
    "length",
    "repetition",
    "language",
    "json",
    "regex",
)
PROMPTS = {"choice": Prompt("p", "?", "B", OPTIONS), "language": Prompt("p", "how many", "1")}


def graded(name: str, **options: object) -> Callable[[str], object]:
    verifier = make_verifier(name, options)
    prompt = PROMPTS.get(name, Prompt("p", "?", "12"))
    return lambda text: verifier.score([Completion(prompt, text)])


READERS: dict[str, Callable[[str], object]] = {
    **{name: graded(name) for name in SIMPLE},
    "repetition, compression": graded("repetition", measure="compression"),
    "regex, places": graded("regex", places=("tag", "boxed", "hashes", "says")),
    "math": lambda text: placed_answer(text, PLACES),
    "code": program_in,
    "addition": lambda text: addition.verify(Prompt("p", "347+589=", "936"), text),
    "chain_mod": lambda text: chain_mod.verify(Prompt("p", "3+4*2-7=", "7", {"modulus": 10}), text),
    "gym, number": lambda text: free_answer(text, "7"),
    "gym, word": lambda text: free_answer(text, "word"),
    "gym, lines": lambda text: free_answer(text, "a\nb"),
}


def texts(length: int) -> dict[str, str]:
    """The hostile texts of a length: each piece again and again, and a mixture of all of them."""
    mixed = random.Random(7)
    found = {repr(piece): piece * (length // len(piece)) for piece in PIECES}
    return found | {"mixed": "".join(mixed.choices(PIECES, k=length // 3))}


def seconds(read: Callable[[str], object], text: str) -> float:
    begun = time.process_time()
    read(text)
    return time.process_time() - begun


def grows_faster(read: Callable[[str], object], short: str, long: str) -> bool:
    if seconds(read, long) < SMALL:
        return False
    return all(seconds(read, long) > TIMES * max(seconds(read, short), SMALL / TIMES) for _ in range(TRIES))


@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_time_in_proportion_to_the_text(name: str) -> None:
    short, long = texts(LENGTH // 4), texts(LENGTH)
    assert [piece for piece in long if grows_faster(READERS[name], short[piece], long[piece])] == []


def test_every_verifier_is_among_the_readers() -> None:
    assert set(VERIFIERS) - {"math"} <= set(SIMPLE), "add the new verifier to the readers"
