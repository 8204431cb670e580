"""Numbers in text."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.tasks.numerals import first_numeral, last_numeral, read_numeral


@pytest.mark.parametrize(
    ("text", "shown", "value"),
    [
        ("3", "3", 3),
        ("-3", "-3", -3),
        ("+3", "3", 3),
        ("−3", "-3", -3),  # the minus sign of typography
        ("007", "007", 7),
        ("x=-3", "-3", -3),
        ("5-3", "3", 3),
        ("(2)-3", "3", 3),
        ("5 - 3", "3", 3),
        ("5 -3", "-3", -3),
        ("0.5", "0.5", Fraction(1, 2)),
        (".5", ".5", Fraction(1, 2)),
        ("-.5", "-.5", Fraction(-1, 2)),
        ("42.", "42", 42),
        ("42, and", "42", 42),
        ("**42**", "42", 42),
        ("42km", "42", 42),
        ("12.5%", "12.5", Fraction(25, 2)),
        ("1,234", "1234", 1234),
        ("$1,234,567.50", "1234567.50", Fraction(2469135, 2)),
        ("12,13", "13", 13),
        ("1,234,56", "56", 56),
        ("3, 4 or 5", "5", 5),
        ("3/4", "3/4", Fraction(3, 4)),
        ("-3/4", "-3/4", Fraction(-3, 4)),
        (r"\frac{3}{4}", r"\frac{3}{4}", Fraction(3, 4)),
        (r"-\dfrac{3}{4}", r"-\dfrac{3}{4}", Fraction(-3, 4)),
        ("1e3", "1e3", 1000),
        ("1.5E-2", "1.5E-2", Fraction(3, 200)),
        ("2e", "2", 2),
        ("3/0", "3/0", None),
        ("1e999999", "1e999999", None),
        ("1e-999999", "1e-999999", None),
        ("1e99999999999999999999", "1e99999999999999999999", None),
        ("9" * 5000, "9" * 5000, None),
    ],
)
def test_the_last_number_of_a_text(text: str, shown: str, value: Fraction | None):
    numeral = last_numeral(f"First 1 and then {text}")
    assert numeral is not None
    assert (numeral.text, numeral.value) == (shown, value)


@pytest.mark.parametrize(
    "text",
    ["", "none", "1.2.3", "2024/01/02", "10:30", "x2", "H2O", "v1.2", "1_000", "1,234/5", "1.5/2", "...", "-", "٣"],
)
def test_what_only_looks_like_a_number(text: str):
    assert last_numeral(text) is None
    assert first_numeral(text) is None
    assert read_numeral(text) is None


def test_the_first_number():
    numeral = first_numeral("x2 is -7, or 8")
    assert numeral is not None and numeral.text == "-7"


@pytest.mark.parametrize("text", ["12 apples", "3 4", "5-3", "x=3", "12,13", "1.", "= 3"])
def test_a_text_with_more_than_a_number_is_none(text: str):
    assert read_numeral(text) is None


def test_white_space_and_dollars_around_a_number_do_not_matter():
    numeral = read_numeral(" $1,000$ \n")
    assert numeral is not None and numeral.value == 1000


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "is {}.", "({})", "x = {:+d}", "a {} b"]))
def test_integers_are_read_back(number: int, wording: str):
    numeral = last_numeral(wording.format(number))
    assert numeral is not None and numeral.value == number


@given(st.decimals(-(10**6), 10**6, places=4))
def test_decimals_are_read_exactly(number):
    numeral = read_numeral(str(number))
    assert numeral is not None and numeral.value == Fraction(number)


@given(st.integers(-1000, 1000), st.integers(1, 1000))
def test_fractions_are_read_exactly(above: int, below: int):
    numeral = read_numeral(f"{above}/{below}")
    assert numeral is not None and numeral.value == Fraction(above, below)


@given(st.text(alphabet="0123456789.,/:eE+-−_ x\\frac{}$\n", max_size=60))
def test_no_text_breaks_it(text: str):
    last_numeral(text), first_numeral(text), read_numeral(text)


@pytest.mark.parametrize(
    "piece", ["9", "1,", "1.", "1/", "-", "1e", "1,234,", "\\frac{", "\\frac{1}{", " ", "1e9e", "(", "=", "0_"]
)
def test_long_texts_take_no_longer_than_their_length(piece: str):
    """A square of the length would be an hour; the bound is for machines that are ten times slower and busy."""
    begin = time.process_time()
    last_numeral(piece * 30_000)
    assert time.process_time() - begin < 20


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("It takes 1 1/4 hours.", Fraction(5, 4)),
        ("2 1/2", Fraction(5, 2)),
        ("2½", Fraction(5, 2)),
        ("1\u00a01/4", Fraction(5, 4)),
        ("１２", 12),
        ("１，２３４．５", Fraction(2469, 2)),
        ("－３／４", Fraction(-3, 4)),
        (r"1{,}000", 1000),
        ("1.5×10³", 1500),
        ("1.2万", 12000),
        ("百分之二十", 20),
        ("三分之一", Fraction(1, 3)),
        ("一百二十三", 123),
    ],
)
def test_numbers_are_read_whole(text: str, value: Fraction):
    numeral = last_numeral(text)
    assert numeral is not None and numeral.value == value


@pytest.mark.parametrize("text", ["2-1/2", "1 and 1/2", "10k", "±5", "2.5(3)", r"\sqrt{2}", "2π"])
def test_what_is_a_number_in_a_sentence_alone_is_none_as_a_formula(text: str):
    assert read_numeral(text) is None


def test_a_number_is_found_far_from_the_end_and_not_cut():
    text = "x " * 3000 + "1234567" + " and words" * 12_000
    assert last_numeral(text).value == 1234567  # type: ignore[union-attr]
