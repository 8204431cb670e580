"""Verifiers: surface forms that are right, near misses that are not, exploits, and completions without an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.errors import RewardError
from surefoot.rewards.verifiers import gold_text, is_number, make_verifier, same_number, same_text
from surefoot.tasks.gold import GoldError
from surefoot.types import Prompt, Score, Status

FINAL = ["boxed", "exact", "number", "tag"]
RIGHT, WRONG, NONE = "right", "wrong", "no answer"
PROMPT = "What is 347 + 589, a number between 0 and 1000?"


def verdict(name: str, text: str, gold: object) -> str:
    score = make_verifier(name)(Prompt("p", PROMPT, gold), text)
    assert score.valid and score.total == float(bool(score.correct)) == score.components["accuracy"]
    if score.status is Status.NO_ANSWER:
        assert score.total == 0.0 and score.text == ""
        return NONE
    assert score.status is Status.OK and score.text
    return RIGHT if score.correct else WRONG


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        *[
            (text, "936", RIGHT)
            for text in (
                "936",
                " 936\n",
                "The answer is 936.",
                "936!",
                "(936)",
                "347 + 589 = 936",
                "347+589=936",
                "**936**",
                "$936$",
                r"\boxed{936}",
                "<answer>936</answer>",
                "936 apples",
                "936.0",
                "936.",
                "+936",
                "0936",
                "9.36e2",
                "1872/2",
                "936/1",
                "First 12, then 936",
                "<think>12</think>936",
            )
        ],
        *[
            (text, "936", WRONG)
            for text in (
                "937",
                "-936",
                "936.5",
                "9360",
                "1936",
                "93",
                "9,36",
                "936e1",
                "936/2",
                "936/0",
                "936 or 937",
                "936, 937",
                "936 937 938",
                "936937",
                "0 1 2 3 936 4",
                " ".join(map(str, range(1000))),
                "936 (which is 1,000 less 64)",
                "1e999999",
                "-1e999999",
                "9" * 5000,
                PROMPT,
                PROMPT * 20,
                "<think>936</think>It is 937.",
                r"\frac{936}{5}",
                "936-0.5",
            )
        ],
        *[
            (text, "936", NONE)
            for text in (
                "",
                "   \n",
                "I do not know.",
                "nan",
                "infinity",
                "nine hundred thirty-six",
                "x936",
                "٩٣٦",
                "9.3.6",
                "<think>936</think>",
                "<think>It must be 936",
            )
        ],
        ("-5", "-5", RIGHT),
        ("−5", "-5", RIGHT),
        ("5", "-5", WRONG),
        ("3 - 5", "-5", WRONG),
        ("1,234,567", 1234567, RIGHT),
        ("$1,234.50", "1234.5", RIGHT),
        ("1234", "1,234", RIGHT),
        ("0.75", "3/4", RIGHT),
        ("3/4", "0.75", RIGHT),
        ("6/8", "3/4", RIGHT),
        (r"\frac{3}{4}", "3/4", RIGHT),
        (r"\dfrac{3}{4}", 0.75, RIGHT),
        ("-3/4", "3/4", WRONG),
        (r"\frac{3}{4}", "4", WRONG),
        ("0.333", "1/3", WRONG),
        ("1/3", "1/3", RIGHT),
        ("0.1", 0.1, RIGHT),
        ("0.30000000000000004", 0.3, WRONG),
        ("1e-7", 1e-07, RIGHT),
        ("0", "-0", RIGHT),
        ("0.0", 0, RIGHT),
        (".5", "1/2", RIGHT),
        ("1e400", "1e400", RIGHT),
    ],
)
def test_the_last_number(text: str, gold: object, expected: str):
    assert verdict("number", text, gold) == expected


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        ("the cat", "the cat", RIGHT),
        ("  the \n cat ", "the cat", RIGHT),
        ("<think>a dog?</think>the cat", "the cat", RIGHT),
        ("936", 936, RIGHT),
        ("true", True, RIGHT),
        ('["a", 1]', ["a", 1], WRONG),
        ("1", ["a", 1], RIGHT),
        ("The cat", "the cat", WRONG),
        ("thecat", "the cat", WRONG),
        ("the cat.", "the cat", WRONG),
        ("It is the cat", "the cat", WRONG),
        ("the cat the cat", "the cat", WRONG),
        ("936.0", "936", WRONG),
        ("True", True, RIGHT),
        ("TRUE", True, WRONG),
        (PROMPT, "936", WRONG),
        ("", "936", NONE),
        (" \n\t", "936", NONE),
        ("<think>the cat", "the cat", NONE),
        ("<think>the cat</think>", "the cat", NONE),
    ],
)
def test_the_exact_text(text: str, gold: object, expected: str):
    assert verdict("exact", text, gold) == expected


IN_PLACE = [
    ("936", "936", RIGHT),
    (" 936 ", "936", RIGHT),
    ("936.0", "936", RIGHT),
    ("1,936", 1936, RIGHT),
    ("3/4", "0.75", RIGHT),
    (r"\frac{3}{4}", "3/4", RIGHT),
    ("the  cat", "the cat", RIGHT),
    (r"x^{2}", "x^{2}", RIGHT),
    ("937", "936", WRONG),
    ("936 or 937", "936", WRONG),
    ("936, 937", "936", WRONG),
    ("936937", "936", WRONG),
    ("936 apples", "936", WRONG),
    ("1e999999", "936", WRONG),
    ("1e999999", "1e999999", RIGHT),  # as text
    ("nan", "936", WRONG),
    ("a number between 0 and 1000", "936", WRONG),
    ("", "936", NONE),
    ("  ", "936", NONE),
]


@pytest.mark.parametrize(("inside", "gold", "expected"), IN_PLACE)
def test_the_tag_and_the_box(inside: str, gold: object, expected: str):
    assert verdict("tag", f"I say <answer>{inside}</answer>.", gold) == expected
    assert verdict("boxed", rf"I say \boxed{{{inside}}}.", gold) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("tag", "936", NONE),
        ("tag", r"\boxed{936}", NONE),
        ("tag", "<answer>936", NONE),
        ("tag", "936</answer>", NONE),
        ("tag", "</answer>936<answer>", NONE),
        ("tag", "<answer>936</answer><answer>936</answer>", NONE),
        ("tag", "<answer>936</answer><answer>937</answer>", NONE),
        ("tag", "<answer><answer>936</answer></answer>", NONE),
        ("tag", "<answer>937<answer>936</answer>", NONE),
        ("tag", "<think><answer>936</answer></think>", NONE),
        ("tag", "<answer><think>937</think>936</answer>", NONE),  # the opening tag belongs to the thought
        ("tag", PROMPT, NONE),
        ("tag", "", NONE),
        ("boxed", "936", NONE),
        ("boxed", "<answer>936</answer>", NONE),
        ("boxed", r"\boxed{936", NONE),
        ("boxed", r"\boxed{936} \boxed{93", NONE),
        ("boxed", r"\boxed{937}\boxed{936}", RIGHT),
        ("boxed", r"\boxed{936}\boxed{937}", WRONG),
        ("boxed", r"\boxed{\boxed{936}}", RIGHT),
        ("boxed", r"\boxed{936}}", RIGHT),
        ("boxed", r"<think>\boxed{936}</think>", NONE),
        ("boxed", PROMPT, NONE),
        ("boxed", "", NONE),
    ],
)
def test_only_the_place_counts(name: str, text: str, expected: str):
    assert verdict(name, text, "936") == expected


@given(st.sampled_from(FINAL), st.text(max_size=60), st.sampled_from(["936", "3/4", "the cat", 5, 0.5]))
def test_no_completion_breaks_a_verifier(name: str, text: str, gold: object):
    assert isinstance(make_verifier(name)(Prompt("p", PROMPT, gold), text), Score)


@pytest.mark.parametrize("name", FINAL)
@given(number=st.integers(-(10**9), 10**9), other=st.integers(-(10**9), 10**9))
def test_a_gold_answer_matches_itself_and_no_other(name: str, number: int, other: int):
    wording = {"tag": "<answer>{}</answer>", "boxed": r"\boxed{{{}}}"}.get(name, "{}")
    assert verdict(name, wording.format(number), number) == RIGHT
    assert verdict(name, wording.format(other), number) == (RIGHT if number == other else WRONG)


@pytest.mark.parametrize(
    ("name", "gold", "words"),
    [
        ("number", None, "has no gold answer to compare with"),
        ("exact", None, "has no gold answer to compare with"),
        ("number", "the cat", "the gold answer 'the cat' of the problem second is not a number"),
        ("number", "12 apples", "is not a number"),
        ("number", "1e999999", "is not a number"),
        ("number", "3/0", "is not a number"),
        ("number", True, "is not a number"),
        ("exact", " ", "is not text or a number"),
        ("tag", "", "is not text or a number"),
    ],
)
def test_gold_answers_that_nothing_could_match_are_refused(name: str, gold: object, words: str):
    with pytest.raises(RewardError) as error:
        make_verifier(name).check([Prompt("first", PROMPT, 1), Prompt("second", PROMPT, gold)])
    assert words in str(error.value) and "second" in str(error.value) and "\n" not in str(error.value)


def test_texts_and_numbers_of_gold_answers():
    assert [gold_text(gold) for gold in ("a b", 3, 0.5, True, ["é", "e"])] == ["a b", "3", "0.5", "true", "é"]
    with pytest.raises(GoldError, match="is null"):
        gold_text(None)
    assert [is_number(gold) for gold in ("3", 3, 0.5, "1,234", [3, "4.5"])] == [True] * 5
    assert [is_number(gold) for gold in ("x", True, None, [3, "x"], [], {"a": 3})] == [False] * 6
    assert same_number("3", "3.0") and not same_number("three", "three")
    assert not same_number("1e999999", "1e888888") and not same_number("3/0", "4/0")
    assert same_text("a\tb", " a b") and not same_text("ab", "a b")
