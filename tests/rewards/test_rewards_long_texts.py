"""Degenerate completions, one thing for ever, take time in proportion to their length wherever they are looked through."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from surefoot.rewards.base import Completion
from surefoot.rewards.code_extract import program_in
from surefoot.rewards.steps import split_steps
from surefoot.rewards.verifiers import make_verifier
from surefoot.tasks.extraction import PLACES, fenced, placed_answer
from surefoot.types import Prompt

LENGTH = 100_000
SECONDS = 20.0  # of computing: a hundredth of it is needed, and minutes where the square of the length is


def verdict(name: str) -> Callable[[str], object]:
    return lambda text: make_verifier(name).score([Completion(Prompt("p", "?", 1), text)])


@pytest.mark.parametrize(
    ("look", "text"),
    [
        (verdict("json"), "```json\n" * LENGTH),
        (verdict("json"), "```" + " " * LENGTH * 2),
        (program_in, "```python\n" * LENGTH),
        (program_in, "".join("`" * n + "x\n" for n in range(600, 3, -1)) + "```x\n" * LENGTH),
        (program_in, "import a" + ".b" * LENGTH),
        (program_in, "```python\n" + "(" * LENGTH + "\n```\n"),
        (program_in, "```python\nx = " + "9" * LENGTH + "\n```\n"),
        (program_in, "x = " + "f'{" * LENGTH),
        (program_in, "```\nfrom " + "import " * LENGTH + "\n```"),
        (program_in, "```\n" + "def def " * LENGTH + "x : " * LENGTH + "\n```"),
        (program_in, "> " * LENGTH + "```python\nx\n```"),
        (program_in, "- " * LENGTH + "\n" + "1. ```python\n" * LENGTH),
        (program_in, "".join(" " * (n % 24) + "`" * (3 + n % 40) + "a\n" for n in range(LENGTH)) + " " * 40 + "```\n"),
        (program_in, "```py\n" + "    ```\n" * LENGTH + "a```b```\n" * LENGTH),
        (program_in, "`" * LENGTH + "\n" + "`" * LENGTH * 2 + "x"),
        (program_in, "\t" * LENGTH + "```py\n" + "\t" * LENGTH + "```\n"),
        (program_in, "</think>" * LENGTH),
        (lambda text: placed_answer(text, PLACES), "answer" + " " * LENGTH * 4),
        (split_steps, "<step>a</step>" + "<step>" * LENGTH),
        (verdict("language"), r"\( " * LENGTH),
        (verdict("language"), r"\[ " * LENGTH),
    ],
    ids=[
        "json",
        "json, spaces",
        "code",
        "code, many fences",
        "attributes",
        "parentheses",
        "an integer",
        "nested texts",
        "imports",
        "definitions",
        "quotations",
        "lists",
        "fences of all sorts",
        "fences in a program",
        "backticks",
        "tabs",
        "thoughts",
        "answer",
        "steps",
        "inline formulas",
        "formulas",
    ],
)
def test_it_is_looked_through_once(look: Callable[[str], object], text: str) -> None:
    begun = time.process_time()
    look(text)
    assert time.process_time() - begun < SECONDS


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("```\na\n```", [("", "a\n")]),
        ("```json\n```", [("json", "")]),
        (" ```py x \r\na\r\n ```\r\n", [("py x", "a\r\n")]),
        ("````\n```\na\n```\n````", [("", "```\na\n```\n")]),
        ("````\n```\na\n```\nb", [("", "a\n")]),
        ("~~~\n```\n~~~\n```\nb\n```", [("", "```\n"), ("", "b\n")]),
        ("```a\nb```\n```c\nd\n```", [("a", "b\n"), ("c", "d\n")]),
        ("```a\n    ```\nb\n```", [("a", "    ```\nb\n")]),
        ("1. ```a\n   b\n     c\n   ```", [("a", "b\n  c\n")]),
        ("> ```a\n> b\n>   c\n> ```", [("a", "b\n  c\n")]),
        ("```\na\n`````\n```\nb\n```", [("", "a\n"), ("", "b\n")]),
        ("```\na", []),
        ("```", []),
        ("a ```\nb\n```\n", []),
        ("", []),
    ],
)
def test_closed_blocks(text: str, blocks: list[tuple[str, str]]) -> None:
    assert fenced(text) == blocks
