"""The final answer of a completion: where it is looked for, and that nothing else counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.tasks.extraction import Shape, boxed, free_answer, placed_answer, shape_of, tagged
from surefoot.tasks.statements import statements


@pytest.mark.parametrize(
    ("gold", "shape"),
    [
        ("936", Shape.NUMBER),
        (936, Shape.NUMBER),
        ("-3/4", Shape.NUMBER),
        ("1,234.5", Shape.NUMBER),
        ("Wednesday", Shape.WORD),
        ("True", Shape.WORD),
        (True, Shape.WORD),
        ("0x1f", Shape.WORD),
        ("10:30", Shape.WORD),
        ("0 1 1", Shape.LINE),
        ("the cat", Shape.LINE),
        (None, Shape.LINE),
        ("1 2\n3 4", Shape.BLOCK),
    ],
)
def test_shapes_of_gold_answers(gold: object, shape: Shape):
    assert shape_of(gold) is shape


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<answer>5</answer>", "5"),
        ("so <answer>\n 5 \n</answer> it is", "5"),
        ("<answer>a <b> c</answer>", "a <b> c"),
        ("<answer></answer>", None),
        ("<answer>  </answer>", None),
        ("<answer>5", None),
        ("5</answer>", None),
        ("</answer>5<answer>", None),
        ("<answer>5</answer><answer>6</answer>", None),
        ("<answer><answer>5</answer></answer>", None),
        ("<answer>5</answer></answer>", None),
        ("<answer>5<answer>6</answer>", None),
        ("<ANSWER>5</ANSWER>", None),
        ("<think><answer>5</answer></think>", None),
        ("<think>maybe <answer>5</answer></think><answer>6</answer>", "6"),
        ("<think><answer>5</answer>", None),
        ("thinking without an opening tag <answer>5</answer></think>6", None),
        ("", None),
    ],
)
def test_a_tagged_answer(text: str, found: str | None):
    assert tagged(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"\boxed{5}", "5"),
        (r"so \boxed {5}.", "5"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{a\}b}", r"a\}b"),
        (r"\boxed{4} no, \boxed{5}", "5"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{}", None),
        (r"\boxed{ }", None),
        (r"\boxed{5", None),
        (r"\boxed{4} and \boxed{5", None),  # cut off: the first one is not the last
        (r"\boxed{{5}", None),
        (r"\boxed{5\}", None),
        (r"\boxed5", None),
        (r"<think>\boxed{5}</think>", None),
        (r"<think>\boxed{5}", None),
        ("boxed{5}", None),
        ("", None),
    ],
)
def test_a_boxed_answer(text: str, found: str | None):
    assert boxed(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # one tag pair, before everything else
        (r"The answer is 4. <answer>5</answer> \boxed{6} = 7", "5"),
        ("<answer>1,234</answer>", "1234"),
        ("<answer>it is 5</answer>", "it is 5"),  # strict: this is no number
        ("<answer></answer> 5", None),
        # several pairs do not count as tags
        ("<answer>4</answer><answer>5</answer>", "5"),
        # the last box
        (r"= 4, so \boxed{5}", "5"),
        (r"the answer is 4, so \boxed{", None),
        # after the last mark
        ("The answer is 5.", "5"),
        ("The answer is: 5 apples, not 6", "5"),
        ("THE ANSWER IS 5", "5"),
        ("**Answer:** 5", "5"),
        ("Answer: 4\nAnswer: 5", "5"),
        ("answer:\n\n5", "5"),
        ("3 + 4 = 7", "7"),
        ("347 + 589 = 936.", "936"),
        ("The answer is 3 + 4 = 7", "7"),
        ("= $1,234", "1234"),
        ("= −5", "-5"),
        ("State the final answer to the following arithmetic problem: 3 + 4 =", None),
        ("The answer is unknown", None),
        # else the last number
        ("3 and then 5", "5"),
        ("x >= 5 or 6 == 7", "7"),
        ("I do not know", None),
        ("", None),
        ("   \n", None),
        # not what it thinks
        ("<think>the answer is 4</think>5", "5"),
        ("<think>the answer is 4</think>", None),
        ("<think>the answer is 4", None),
    ],
)
def test_free_text_with_a_number_as_gold(text: str, found: str | None):
    assert free_answer(text, "7") == found
    assert free_answer(text, 7) == found


@pytest.mark.parametrize(
    ("text", "gold", "found"),
    [
        ("I think it is Wednesday.", "Monday", "Wednesday"),
        ("The answer is **Wednesday**.", "Monday", "Wednesday"),
        ("The answer is Wednesday, I think", "Monday", "Wednesday, I think"),
        ("`True`", "False", "True"),
        ('answer: "Bob"', "Al", "Bob"),
        ("a = b", "c", "b"),
        ("x\n0 1 1", "0 0 1", "0 1 1"),
        ("Answer: 0 1 1\nThat was it.", "0 0 1", "0 1 1"),
        ("E=1,F=2", "E=2,F=1", "E=1,F=2"),  # the sign is no mark where the gold answer is no number
        ("the final sentence.", "A cat sat.", "the final sentence."),
        ("the final sentence.", "a cat sat", "the final sentence"),
        ("Here:\n\n1 2\n3 4\n", "1 1\n2 2", "1 2\n3 4"),
        ("The answer is\n1 2\n3 4", "1 1\n2 2", "1 2\n3 4"),
        ("text\n1 2\n\n3 4", "1 1\n\n2 2", "1 2\n\n3 4"),
        ('{"a": 1}', None, '{"a": 1}'),
        ("", None, None),
        ("", "word", None),
        ("", "two words", None),
        ("", "two\nlines", None),
        ("...", "word", None),
    ],
)
def test_free_text_with_other_golds(text: str, gold: str | None, found: str | None):
    assert free_answer(text, gold) == found


@given(
    st.text(alphabet="ab5 =.:\n\\{}<>answerboxdthink/", max_size=80), st.sampled_from(["7", "w", "a b", "a\nb", None])
)
def test_no_text_breaks_it_and_no_answer_is_empty(text: str, gold: str | None):
    found = free_answer(text, gold)
    assert found is None or found.strip()


def test_long_texts_are_quick():
    for piece in (r"\boxed{", "<answer>", "answer is ", "=", "**", "\n \n", "<think>"):
        for gold in ("7", "w", "a\nb"):
            free_answer(piece * 20_000, gold)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("答案为：12", "12"),
        ("答案是：12", "12"),
        ("答案是12元。", "12元"),
        ("答：12", "12"),
        ("答：一共有12个苹果。", "12"),
        ("答案：$x^2$。", "x^2"),
        ("故答案为：3。", "3"),
        ("所以，最终答案是 12。因为还剩3个。", "12"),
        ("正确答案是12，因为3+9=12", "12"),
        ("答案应为12", "12"),
        ("結果為12。", "12"),
        ("问：有几个？答：12", "12"),
        ("Final answer: 12", "12"),
        ("**Final Answer:** 12", "12"),
        ("The answer, therefore, is 12.", "12"),
        ("La respuesta es 12.", "12"),
        ("La réponse est 12.", "12"),
        ("Die Antwort lautet 12.", "12"),
        ("答えは12", "12"),
        ("정답: 12", "12"),
        ("Ответ: 12", "12"),
        ("答案不是12", None),
        ("回答问题", None),
        ("The answering machine is broken", None),
    ],
)
def test_what_a_text_says_its_answer_is(text: str, found: str | None):
    assert placed_answer(text, ["says"]) == found


def test_statements_come_last_first_and_end_where_the_next_begins():
    assert list(statements("The answer is 1, no: the answer is 2. 答案是3")) == ["3", "2", "1, no: the"]
