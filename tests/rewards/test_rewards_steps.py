"""Steps of a text and the arithmetic in them, and that process rewards made of them reach the objective."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.algorithms.presets import PRESETS
from surefoot.rewards.base import Completion
from surefoot.rewards.grade import grade
from surefoot.rewards.steps import SPLITS, claims, compute, split_steps
from surefoot.rewards.verifiers import make_verifier
from surefoot.training.assemble import Parts, assemble
from surefoot.training.batch import make_batch
from surefoot.training.loop import train
from surefoot.types import Group, Prompt, Sample, Score, Status
from tests.training.tiny import tiny


def pieces(text: str, how: str = "auto") -> list[str]:
    return [text[start:end] for start, end in split_steps(text, how)]


@pytest.mark.parametrize(
    ("how", "text", "expected"),
    [
        ("lines", "one\n\n  two  \nthree", ["one", "two", "three"]),
        ("sentences", "Half of 3.5 is 1.75. So it is! Really?", ["Half of 3.5 is 1.75.", "So it is!", "Really?"]),
        ("sentences", "3 * 4 = 12. 12 + 5 = 17. Done", ["3 * 4 = 12.", "12 + 5 = 17.", "Done"]),
        ("sentences", "We use e.g. two. Mr. X agrees.", ["We use e.g. two.", "Mr. X agrees."]),
        ("sentences", "1. First we add.\n2. Then we stop.", ["1. First we add.", "2. Then we stop."]),
        ("sentences", "先算三乘四。然后加五。", ["先算三乘四。", "然后加五。"]),
        ("numbered", "Plan:\n1. add\nmore\n2) stop\nStep 3: end", ["Plan:", "1. add\nmore", "2) stop", "Step 3: end"]),
        ("numbered", "**Step 1** a\n**Step 2** b", ["**Step 1** a", "**Step 2** b"]),
        ("tags", "x <step> a </step><step>b</step> y", ["a", "b"]),
        ("auto", "<step>a\nb</step> c", ["a\nb"]),
        ("auto", "1. a\n2. b", ["1. a", "2. b"]),
        ("auto", "a\nb. c", ["a", "b. c"]),
        ("auto", "a b. C d.", ["a b.", "C d."]),
        ("auto", "", []),
        ("auto", "  \n ", []),
    ],
)
def test_splitting(how: str, text: str, expected: list[str]):
    assert pieces(text, how) == expected


@given(st.text(max_size=200), st.sampled_from(SPLITS))
def test_steps_lie_in_the_text_in_order(text: str, how: str):
    spans = split_steps(text, how)
    assert all(0 <= start < end <= len(text) and text[start:end] == text[start:end].strip() for start, end in spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3 * 4 = 12", [True]),
        ("3 × 4 = 13", [False]),
        ("12 + 5 = 17.", [True]),
        ("1/2 + 1/3 = 5/6", [True]),
        (r"\frac{1}{2} + \frac{1}{3} = \frac{5}{6}", [True]),
        ("2 + 3 = 5 = 10 / 2", [True, True]),
        ("2 + 3 = 6 = 12 / 2", [False, True]),
        ("$5 + $6 = $11 in total", [True]),
        ("1,000 * 2 = 2,000", [True]),
        ("10 / 3 = 3.33", [True]),
        ("10 / 3 = 3.3", [False]),
        ("10 / 3 = 3.34", [False]),
        ("(2 + 3) * 4 = 20", [True]),
        ("2 + 3 * 4 = 20", [False]),
        ("-3 + 5 = 2", [True]),
        ("2**3 = 8 and 2^3 = 8", [True, True]),
        ("so x = 2 * 3 = 6", [True]),
        ("1. 2 + 2 = 4", [True]),
        ("Step 2: 2 + 2 = 5", [False]),
        ("2 x 3 = 6", [True]),
        ("3 * 4 = 12 apples", [True]),
        ("7 - 10 = −3", [True]),
        ("0.1 + 0.2 = 0.3", [True]),
        # no claims: nothing was computed, or it is not arithmetic
        ("12 = 12", []),
        ("x = 3", []),
        ("x2 = 4", []),
        ("3 apples * 4 = 12", []),
        ("5% of 100 = 5", []),
        ("3! = 6", []),
        ("2 <= 3", []),
        ("1 == 1", []),
        ("9^9^9 = 3", []),
        ("1/0 = 5", []),
        ("3 + = 5", []),
        ("", []),
    ],
)
def test_claims(text: str, expected: list[bool]):
    assert [holds for _, holds in claims(text)] == expected


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(1, 50), st.sampled_from("+-*/"))
def test_values_against_fractions(a: int, b: int, c: int, operator: str):
    exact: dict[str, Any] = {"+": Fraction(a) + b, "-": Fraction(a) - b, "*": Fraction(a) * b, "/": Fraction(a) / c}
    right = c if operator == "/" else b
    assert compute(f"{a} {operator} ({right})") == exact[operator]
    assert compute(f"2*({a}{operator}({right}))-1") == 2 * exact[operator] - 1


@pytest.mark.parametrize(
    "text",
    ["(" * 5000, "9^9^9^9", "2^65", "9" * 1000, "1" + "+1" * 5000, "-" * 399, "1 2", "2(3)", "1..2", "__import__"],
)
def test_no_expression_is_too_much(text: str):
    assert compute(text) is None


@given(st.text(alphabet="0123456789+-*/^=(). ,x$\\{}frac", max_size=120))
def test_no_text_breaks_the_claims(text: str):
    assert all(isinstance(holds, bool) for _, holds in claims(text))


def judged(text: str, gold: str = "17", **options: Any) -> Score:
    return grade(make_verifier("steps", options), [Completion(Prompt("p", "?", gold), text)])[0]


def test_each_step_has_its_verdict_and_the_answer_its_own():
    text = "First we multiply: 3 * 4 = 12.\nWe note that.\nThen we add: 12 + 5 = 18.\nSo 18 - 1 = 17."
    score = judged(text)
    assert [(text[: step.end].split("\n")[-1], step.value) for step in score.steps] == [
        ("First we multiply: 3 * 4 = 12.", 1.0),
        ("Then we add: 12 + 5 = 18.", 0.0),
        ("So 18 - 1 = 17.", 1.0),
    ]
    assert score.correct and score.total == 1.0 and score.components == {"accuracy": 1.0, "steps": pytest.approx(2 / 3)}


def test_repeated_and_idle_equations_are_worth_nothing():
    text = "1 + 1 = 2\n" * 10 + "5 = 5\n7 = 7\n17"
    assert [step.value for step in judged(text).steps] == [1.0]


def test_without_a_final_answer_the_share_is_the_total():
    score = judged("1 + 1 = 2\n1 + 1 = 3", final="none")
    assert score.total == 0.5 and score.correct is None and score.status is Status.OK
    assert judged("no sums here", final="none").status is Status.NO_ANSWER
    assert judged("no numbers here").status is Status.NO_ANSWER
    assert len(judged("3 * 4 = 12. 12 + 5 = 17", split="lines").steps) == 1
    assert judged(r"2 + 2 = 4, \boxed{17}", final="math").correct


class TestProcess:
    """Preset grpo_process: the verdicts on steps become advantages of the tokens that wrote them."""

    def test_a_right_step_is_pushed_up_and_a_wrong_one_down(self, tmp_path: Path):
        parts = assemble(tiny(tmp_path, algorithm={"preset": "grpo_process"}), reward=make_verifier("steps"))
        prompt = Prompt("p", "1+2=", "3")
        texts = ["1+1=2\n2+1=3", "1+1=3\n2+1=3", "1+1=2\n2+1=4", "3"]
        samples = tuple(
            Sample.of(encode(parts, "1+2="), encode(parts, text), prompt_id="p", sample_id=k)
            for k, text in enumerate(texts)
        )
        scores = tuple(parts.grade([(prompt, sample) for sample in samples]))
        assert [[step.value for step in score.steps] for score in scores] == [[1, 1], [0, 1], [1, 0], []]
        assert all(step.token is not None for score in scores for step in score.steps)
        batch = make_batch(PRESETS["grpo_process"], [Group(prompt, samples, scores)], {})
        assert batch.token_advantage is not None
        first, second, third, none = batch.token_advantage
        up = first[-1]
        down = third[-1]
        assert up > 0 > down and set(none) == {0}
        # A token earns the steps that end at or after it: the line break belongs to the step after it.
        assert first == pytest.approx([2 * up] * 5 + [up] * 6)
        assert second == pytest.approx([up + down] * 5 + [up] * 6)
        assert third == pytest.approx([up + down] * 5 + [down] * 6)

    def test_a_run_consumes_them(self, tmp_path: Path):
        """The same run without the verdicts on steps goes nowhere; with them it takes a step."""

        def run(name: str, keep: bool) -> tuple[dict[str, Any], bytes]:
            config = tiny(
                tmp_path,
                name=name,
                algorithm={"preset": "grpo_process"},
                train={"steps": 2},
                rollout={"max_new_tokens": 12},
                evaluation={"every": 0, "problems": 1},
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = train(config, reward=Rewritten(keep))
            record = json.loads((result.folder / "metrics.jsonl").read_text().splitlines()[0])
            return record, (result.model / "model.safetensors").read_bytes()

        with_steps, moved = run("with", keep=True)
        without, rested = run("without", keep=False)
        assert with_steps["reward/steps"] > 0 and with_steps["advantage/abs_mean"] > 0
        assert without["reward/steps"] == 0 and without["advantage/abs_mean"] == 0
        assert moved != rested


class Rewritten:
    """Grades arithmetic in place of what an untrained model wrote: a sum that is right where its text has few digits."""

    name = "rewritten"

    def __init__(self, keep: bool):
        self.keep, self.verifier = keep, make_verifier("steps", {"final": "none"})

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        texts = [f"1+1={2 + sum(c.isdigit() for c in each.text) % 2}\n2+2=4" for each in completions]
        scores = self.verifier.score([replace(c, text=text) for c, text in zip(completions, texts, strict=True)])
        return scores if self.keep else [replace(score, steps=()) for score in scores]


def encode(parts: Parts, text: str) -> np.ndarray:
    return np.array(parts.renderer.tokenizer(text, add_special_tokens=False)["input_ids"])
