"""The pieces of work that are measured, by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

NOUNS = ("apples", "books", "coins", "cups", "eggs", "keys", "maps", "nuts", "pens", "stamps", "stones", "tickets")
NAMES = ("Anna", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Henry", "Ida", "Jonas", "Karin", "Leo")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Work:
    """A piece of work.

    Attributes:
        name: what it is called on the command line.
        kind: ``step`` (whole steps of the training loop), ``decode``, ``train``, ``memory`` or ``threads``.
        model: name of a model of :mod:`benchmarks.speed.models`.
        prompts, samples: prompts of a step, and samples of each.
        new: largest number of tokens of an answer.
        wording: which prompts, see :func:`prompts`.
        reward: ``dense`` (a number from the text, so that every group has a signal), ``answer`` (right or wrong, so that
            some groups have none) or ``demo`` (the verifier of the demonstration, which judges steps as well).
        rounds: turns that are counted.
        warm: whether a turn that does not count comes first; steps of minutes do without.
        micro_batch_tokens: ``train.micro_batch_tokens`` of our side.
        peer_rows: rows of the peer's forward pass in training; chosen by measurement, see docs/performance.md.
        length: tokens of a sequence of the kinds ``train`` and ``memory``.
        target: what is aimed for, in words.
    """

    name: str
    kind: str
    model: str
    prompts: int = 1
    samples: int = 1
    new: int = 1
    wording: str = ""
    reward: str = "dense"
    rounds: int = 3
    warm: bool = True
    micro_batch_tokens: int = 16384
    peer_rows: int = 64
    length: int = 0
    target: str = ""

    @property
    def rows(self) -> int:
        return self.prompts * self.samples

    def but(self, **changes: Any) -> Work:
        return replace(self, **changes)


WORKS = {
    work.name: work
    for work in (
        Work(
            "tiny",
            "step",
            "tiny",
            prompts=64,
            samples=8,
            new=40,
            wording="addition",
            rounds=8,
            micro_batch_tokens=4096,
            peer_rows=64,
            target="at least 2 times faster",
        ),
        Work(
            "tiny-verified",
            "step",
            "tiny",
            prompts=64,
            samples=8,
            new=40,
            wording="addition",
            reward="answer",
            rounds=8,
            micro_batch_tokens=4096,
            peer_rows=64,
            target="at least 2 times faster",
        ),
        Work(
            "tiny-demo",
            "step",
            "tiny",
            prompts=64,
            samples=8,
            new=40,
            wording="addition",
            reward="demo",
            rounds=8,
            micro_batch_tokens=4096,
            peer_rows=64,
            target="at least 2 times faster",
        ),
        Work(
            "small",
            "step",
            "small",
            prompts=32,
            samples=8,
            new=48,
            wording="letters",
            rounds=6,
            micro_batch_tokens=2048,
            peer_rows=32,
            target="at least 2 times faster",
        ),
        Work(
            "smollm2",
            "step",
            "smollm2",
            prompts=8,
            samples=8,
            new=64,
            wording="questions",
            rounds=3,
            warm=False,
            micro_batch_tokens=1024,
            peer_rows=8,
            target="at least 3 times faster, at most half the memory",
        ),
        Work(
            "few-shot",
            "step",
            "smollm2",
            prompts=2,
            samples=8,
            new=16,
            wording="few-shot",
            rounds=2,
            warm=False,
            micro_batch_tokens=2048,
            peer_rows=8,
            target="at least 6 times faster",
        ),
        Work("train", "train", "smollm2", prompts=16, length=128, target="at least 65 % of the matrix-product rate"),
        Work(
            "decode",
            "decode",
            "smollm2",
            prompts=64,
            samples=1,
            new=64,
            wording="questions",
            target="at least 55 % of the matrix-product rate, as fast as vLLM",
        ),
        Work(
            "decode-shared",
            "decode",
            "smollm2",
            prompts=8,
            samples=8,
            new=64,
            wording="questions",
            target="at least as fast as vLLM",
        ),
        Work("memory", "memory", "wide", length=256, target="grows by hidden states only"),
        Work("threads", "threads", "tiny", prompts=64, samples=8, new=40, wording="addition", rounds=4),
        Work(
            "scaling",
            "step",
            "small",
            prompts=32,
            samples=8,
            new=48,
            wording="letters",
            rounds=4,
            micro_batch_tokens=2048,
            target="time grows no faster than linearly",
        ),
    )
}
SCALES = (4, 8, 16, 32)  # prompts of "scaling": 8 samples of about 32 tokens make 1k to 8k tokens
MEMORY_TOKENS = (1024, 2048, 4096, 8192, 16384)


def prompts(work: Work, number: int) -> list[tuple[str, str]]:
    """So many (prompt as the model reads it, answer); the same for every side."""
    source = {"addition": _addition, "letters": _letters, "questions": _questions, "few-shot": _few_shot}[work.wording]
    made = source(np.random.default_rng(0))
    return [next(made) for _ in range(number)]


def _addition(rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    """The problems of the demonstration."""
    from surefoot.tasks.build import build_task
    from surefoot.tasks.config import TaskConfig

    task = build_task(TaskConfig(name="addition", options={"digits": 3}, train_size=8192, heldout_size=0))
    while True:
        for prompt in task.train:
            yield prompt.text, str(prompt.answer)


def _letters(rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    while True:
        yield "".join(rng.choice(list(LETTERS), 24)), "a"


def _chat(text: str) -> str:
    """The chat template of SmolLM2, written out, so that every side starts from the same text."""
    system = "You are a helpful AI assistant."
    return f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def _problem(rng: np.random.Generator) -> tuple[str, int]:
    name, noun = rng.choice(NAMES), rng.choice(NOUNS)
    a, b = (int(number) for number in rng.integers(2, 60, 2))
    return f"{name} has {a} {noun} and gets {b} more. How many {noun} does {name} have now?", a + b


def _questions(rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    while True:
        text, answer = _problem(rng)
        yield _chat(f"{text} Answer in one short sentence."), str(answer)


def _few_shot(rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    while True:
        shown = [_problem(rng) for _ in range(12)]
        text, answer = _problem(rng)
        examples = "\n".join(f"Question: {question}\nAnswer: {number}" for question, number in shown)
        yield f"{examples}\nQuestion: {text}\nAnswer:", str(answer)
