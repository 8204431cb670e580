"""The program in a completion."""

from __future__ import annotations

import ast
import warnings

from surefoot.tasks.extraction import after_thought, fenced

_PYTHON = ("python", "py", "python3")


def program_in(text: str, header: str = "") -> str | None:
    """The last closed block of Python after the thinking, else the last of no language, else the whole if it parses.

    Args:
        text: the completion.
        header: code that a bare completion continues, as in HumanEval.

    >>> program_in("First\\n```python\\nx = 1\\n```\\nthen\\n```python\\nx = 2\\n```")
    'x = 2\\n'
    >>> program_in("I think it is 4.") is None
    True
    """
    answer = after_thought(text)
    blocks = [(language.lower(), body) for language, body in fenced(answer)]
    for wanted in (_PYTHON, ("",)):
        bodies = [body for language, body in blocks if language.split(" ")[0] in wanted]
        if bodies:
            return bodies[-1]
    if answer.strip() and _parses(answer):
        return answer
    return answer if header and answer.strip() and _parses(header + answer) else None


def _parses(source: str) -> bool:
    """Whether it is Python and does anything: a single word or number is an answer, not a program."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    inert = (ast.Constant, ast.Name, ast.UnaryOp, ast.BinOp, ast.Tuple)
    return any(not (isinstance(node, ast.Expr) and isinstance(node.value, inert)) for node in body)
