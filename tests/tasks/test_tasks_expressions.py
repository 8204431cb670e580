"""What may be given to a scorer that evaluates text."""

from __future__ import annotations

import time

import pytest

from surefoot.tasks.expressions import is_literal_or_nothing, is_plain_formula

HARMFUL = [
    "__import__('os').system('true')",
    "().__class__.__bases__",
    "open('/etc/passwd')",
    "exit()",
    "(lambda: 1)()",
    "[x for x in range(10**9)]",
    "f'{1}'",
    "a.b",
    "a[0]",
    "a if b else c",
    "(a := 3)",
    "'a' * 10**9",
    "[0] * 10**9",
    "9**9**9",
    "(9**99)**99",
    "2**(9**9)",
    "2**10000000",
    "1+" * 20_000 + "1",
    "-" * 15_000 + "1",
]


@pytest.mark.parametrize("text", HARMFUL, ids=lambda text: text[:20])
def test_nothing_harmful_passes(text: str):
    begin = time.perf_counter()
    assert not is_plain_formula(text)
    assert not is_literal_or_nothing(text)
    assert time.perf_counter() - begin < 1.0


@pytest.mark.parametrize(
    "text",
    [
        "40*(94 - 90) + 83 - 74",
        "-x**9 + 7*x**7 + 9*x**4/2 + C",
        "x*asin(3*x) + sqrt(1 - 9*x**2)/3 + C",
        "-exp(x)*sin(x) + exp(x)*cos(x) + C",
        "568*y**5 + 10863*y**3 - 152*y**2",
        "x**(1/2)",
        "((9**9)**9)**9",
        "1.5",
        " 7 ",
    ],
)
def test_formulas_pass(text: str):
    assert is_plain_formula(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x =",
        "9999999!",  # SymPy reads a factorial
        "1e9999",
        "1e-9999",
        "exp(exp(9))",
        "Integral(x**2, x)",  # whose derivative is the problem itself
        "sin(x, y)",
        "sin(x=1)",
        "unknown(1)",
        "x^2",
        "x == y",
        "x | y",
        "not x",
        "'text'",
        "[1, 2]",
        "__name__",
        "1j",
        "True",
        "(" * 300 + "1" + ")" * 300,
        "x" * 1001,
    ],
)
def test_other_texts_are_no_formulas(text: str):
    assert not is_plain_formula(text)


@pytest.mark.parametrize(
    "text",
    [
        "['-92.5', '-81.9']",
        "[[1, 0], [0, 1]]",
        "-129",
        "0x1f",
        "BDAAEAC",  # one name runs nothing
        "_ _ _ Q\n_ Q _ _",  # a syntax error, which eval refuses by itself
        "1 0 1\n0 1 1",
        "the answer",
        "(((",
        "",
    ],
)
def test_values_and_what_is_no_expression_pass(text: str):
    assert is_literal_or_nothing(text)
