"""Options of verifiers, what their names say, and the verifiers that measure manner instead of answers."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.errors import RewardError
from surefoot.rewards.base import Completion
from surefoot.rewards.grade import grade
from surefoot.rewards.verifiers import VERIFIERS, make_verifier
from surefoot.rewards.verifiers.language import words_by_script
from surefoot.types import Prompt, Score, Status

IN_PROCESS = sorted(set(VERIFIERS) - {"regex", "math"})


def score(name: str, text: str, prompt: str = "What is it?", length: int = 0, **options: Any) -> Score:
    completion = Completion(Prompt("p", prompt, "936"), text, length=length)
    return grade(make_verifier(name, options), [completion])[0]


@pytest.mark.parametrize("name", sorted(VERIFIERS))
def test_each_is_a_frozen_value_that_says_what_it_is(name: str):
    made = make_verifier(name)
    assert made == make_verifier(name) and made.name == name and VERIFIERS[name] is type(made)
    assert made.about and "\n" not in made.about and is_dataclass(made)
    with pytest.raises(AttributeError):
        made.name = "other"  # type: ignore[misc]
    for option in fields(made):
        assert f"{option.name}:" in (type(made).__doc__ or ""), f"{name}.{option.name} is not described"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("numbr", {}, "unknown verifier 'numbr'. Did you mean 'number'?"),
        ("number", {"absolut": 1}, "the verifier 'number' has no option 'absolut'. Did you mean 'absolute'?"),
        ("boxed", {"x": 1}, "the verifier 'boxed' has no option 'x'. It has no options."),
        (
            "number",
            {"absolute": "x"},
            "the option absolute = 'x' of the verifier 'number': input should be a valid number",
        ),
        ("number", {"absolute": True}, "should be a valid number"),
        ("number", {"relative": -0.1}, "a tolerance is finite and not negative"),
        ("number", {"relative": float("inf")}, "relative"),
        ("exact", {"case": 1}, "should be a valid boolean"),
        ("length", {"budget": 1.5}, "should be a valid integer"),
        ("length", {"unit": "words"}, "should be 'tokens' or 'characters'"),
        ("length", {"span": 0}, "a span from 1"),
        ("math", {"places": ["box"]}, "input should be 'tag', 'boxed', 'hashes', 'says' or 'number'"),
        ("math", {"places": "boxed"}, "places"),
        ("format", {"tags": ["a", "a"]}, "different names"),
        ("format", {"tags": ["a b"]}, "different names"),
        ("regex", {"pattern": "("}, "is no regular expression"),
        ("regex", {"deadline": 0.0}, "seconds above 0"),
        ("json", {"schema": {"type": "objekt"}}, "is no JSON schema"),
        ("json", {"schema": object()}, "schema"),
        ("json", {"deadline": 0.0}, "seconds above 0"),
        ("repetition", {"allowed": 1.0}, "allowed in [0, 1)"),
        ("language", {"language": "englsh"}, "Did you mean 'english'?"),
        ("steps", {"final": "judge"}, "final"),
    ],
)
def test_what_is_wrong_is_named(name: str, options: dict[str, Any], words: str):
    with pytest.raises(RewardError) as error:
        make_verifier(name, options)
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "options", "prompt", "words"),
    [
        ("choice", {}, Prompt("q", "?", "Paris"), "is neither the letter nor the text of one of the options"),
        ("choice", {}, Prompt("q", "?", 2), "is neither the letter nor the text"),
        ("choice", {}, Prompt("q", "?", "D", {"options": ["a", "b"]}), "is not one of the options A, B"),
        ("choice", {}, Prompt("q", "?", "A", {"options": "ab"}), "expected a list of at most 10 texts"),
        ("regex", {}, Prompt("q", "?", "("), "is no regular expression"),
        (
            "json",
            {"equal": True, "schema": {"type": "array"}},
            Prompt("q", "?", {"a": 1}),
            "does not follow the schema",
        ),
        ("json", {}, Prompt("q", "?", 1, {"schema": {"type": "objekt"}}), "comes with a schema that is no JSON schema"),
        ("exact", {"punctuation": False}, Prompt("q", "?", "?!"), "is not text or a number"),
        ("steps", {}, Prompt("q", "?", "twelve"), "is not a number"),
    ],
)
def test_gold_answers_that_nothing_could_match_are_refused(
    name: str, options: dict[str, Any], prompt: Prompt, words: str
):
    with pytest.raises(RewardError) as error:
        make_verifier(name, options).check([prompt])
    assert words in str(error.value) and "q" in str(error.value)


def test_a_gold_answer_is_wanted_only_where_it_is_compared_with():
    nothing = [Prompt("p", "?", None)]
    for name, options in [
        ("format", {}),
        ("length", {}),
        ("repetition", {}),
        ("language", {}),
        ("json", {}),
        ("regex", {"pattern": "a"}),
        ("steps", {"final": "none"}),
    ]:
        make_verifier(name, options).check(nothing)
    for name, options in [("math", {}), ("choice", {}), ("regex", {}), ("json", {"equal": True}), ("steps", {})]:
        with pytest.raises(RewardError, match="has no gold answer"):
            make_verifier(name, options).check(nothing)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(IN_PROCESS), st.text(max_size=80))
def test_no_completion_breaks_a_verifier(name: str, text: str):
    found = score(name, text)
    assert found.status in (Status.OK, Status.NO_ANSWER) and -1 <= found.total <= 1


@settings(max_examples=20, deadline=None)
@given(st.text(alphabet=r"\{}[]()^_$,=<>|&!.%x1frac ", max_size=60))
def test_no_answer_breaks_the_verifier_of_mathematics(text: str):
    found = make_verifier("math")(Prompt("p", "?", "936"), rf"\boxed{{{text}}}")
    assert found.status in (Status.OK, Status.NO_ANSWER) and not found.correct


def test_a_verifier_that_raises_marks_that_sample():
    made = make_verifier("choice")
    odd = Prompt("p", "?", "A", {"options": 3})
    scores = made.score(
        [Completion(Prompt("p", "?", "A"), "A"), Completion(odd, "A"), Completion(Prompt("p", "?", "A"), "B")]
    )
    assert [s.status for s in scores] == [Status.OK, Status.ERROR, Status.OK] and "TypeError" in scores[1].text


def test_matching_that_backtracks_for_ever_ends_and_costs_no_other():
    made = make_verifier("regex", {"pattern": "(a|aa)+b", "deadline": 0.5})
    prompt = Prompt("p", "?")
    scores = made.score([Completion(prompt, text) for text in ("ab", "a" * 200, "b", "aab")])
    assert [s.status for s in scores] == [Status.OK, Status.TIMEOUT, Status.OK, Status.OK]
    assert [s.correct for s in scores] == [True, None, False, True]


def test_a_schema_that_takes_for_ever_costs_no_other():
    schema = {"anyOf": [{"type": "string", "pattern": "^(a|aa)+b$"}, {"type": "number", "multipleOf": 0.5}]}
    made = make_verifier("json", {"schema": schema, "deadline": 1.0})
    texts = ('"ab"', f'"{"a" * 200}"', "1.5", "1.2", "9" * 4000, "1e400")
    scores = made.score([Completion(Prompt("p", "?"), text) for text in texts])
    assert [s.status for s in scores] == [Status.OK, Status.TIMEOUT] + [Status.OK] * 3 + [Status.NO_ANSWER]
    assert [s.correct for s in scores] == [True, None, True, False, False, False]


def test_a_number_beyond_every_double_is_no_json():
    assert score("json", "[1e308]").correct and not score("json", "[1e400]").correct


class TestLength:
    @pytest.mark.parametrize(("length", "total"), [(0, 0.0), (100, 0.0), (150, -0.5), (200, -1.0), (10**6, -1.0)])
    def test_tokens_over_the_budget(self, length: int, total: float):
        found = score("length", "x" * 500, length=length, budget=100, span=100)
        assert found.total == total and found.components == {"length": total} and found.correct is None

    def test_characters(self):
        assert score("length", "x" * 150, length=5, budget=100, span=100, unit="characters").total == -0.5


class TestRepetition:
    def test_prose_is_free_and_loops_are_not(self):
        prose = "The quick brown fox jumps over the lazy dog while seven wizards quietly judge my vow."
        assert score("repetition", prose).total == 0.0
        assert score("repetition", prose, measure="compression").total == 0.0
        for measure in ("ngrams", "compression"):
            assert score("repetition", "wait a minute. " * 200, measure=measure).total < -0.9
            assert score("repetition", "", measure=measure).total == 0.0
        assert score("repetition", "等一下" * 100).total < -0.9

    def test_the_share_is_that_of_runs_which_occurred_before(self):
        assert score("repetition", "a b a b", size=2).total == pytest.approx(-1 / 3)
        assert score("repetition", "a b a b", size=3).total == 0.0
        assert score("repetition", "a b a b", size=2, allowed=0.2).total == pytest.approx(-(1 / 3 - 0.2) / 0.8)
        assert score("repetition", "a b a b", size=2, allowed=0.5).total == 0.0

    def test_what_counts_as_natural(self):
        text = "wait a minute. " * 20
        harsh, mild = (score("repetition", text, measure="compression", natural=n).total for n in (0.9, 0.1))
        assert harsh < mild <= 0


class TestLanguage:
    @pytest.mark.parametrize(
        ("text", "prompt", "share"),
        [
            ("The answer is four", "How many?", 1.0),
            ("The answer 是四", "How many?", 0.5),
            ("答案是四", "How many?", 0.0),
            ("答案是四", "有多少个？", 1.0),
            ("答案 is four", "有多少个？", 0.5),
            ("こたえは四です", "いくつですか", 1.0),
            ("Ответ", "Сколько?", 1.0),
            ("Die Lösung heißt vier", "How many?", 1.0),  # one script
            (r"答案是 $x = \frac{y}{zeta}$ \boxed{abc}", "有多少个？", 0.75),
            ("答案是 x = y", "有多少个？", 1.0),  # names of variables
            ("<think>答案</think>", "有多少个？", 1.0),
            ("any words", "1 + 1 =", 1.0),
            ("any 词", "1 + 1 =", 0.5),
        ],
    )
    def test_the_share_of_the_prompts_script(self, text: str, prompt: str, share: float):
        found = score("language", text, prompt)
        assert found.total == pytest.approx(share) and found.status is Status.OK and found.correct is None

    def test_a_given_language(self):
        assert score("language", "答案 yes", "How many?", language="chinese").total == pytest.approx(2 / 3)
        assert score("language", "four", "有多少个？", language="English").total == 1.0
        assert score("language", "четыре four", language="cyrillic").total == 0.5

    def test_nothing_written_is_no_answer(self):
        for text in ("", "42", "$x$", "x = 3"):
            found = score("language", text)
            assert found.status is Status.NO_ANSWER and found.total == 0.0

    def test_accents_do_not_split_words(self):
        assert dict(words_by_script("cafe\u0301 na\u00efve हिन्दी ภาษา")) == {"latin": 2, "devanagari": 1, "thai": 4}
