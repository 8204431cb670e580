"""The program in a completion. Nothing here parses it: that is quadratic, or worse, in texts that can be written."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass

from surefoot.tasks.extraction import after_thought, fenced

_PYTHON = re.compile(r"\{?[ \t]*\.?(?:python|py|ipython|cpython|pypy)[\d.]*(?![\w-])", re.IGNORECASE)
_DEFINED = re.compile(
    r"^[ \t]*+(?:(?:async[ \t]++)?def|class)[ \t]++(\w++)|^(\w++)[ \t]*+(?::[^=\n]*+)?=(?!=)",
    re.MULTILINE,
)
_CODE = re.compile(
    r"^[ \t]*+(?:def|class|import|from|for|while|if|with|try|return|print)\b|^[ \t]*+\w++[ \t]*+[-+*/|&]?=", re.M
)
READER = """
import ast, json, sys, warnings
warnings.simplefilter("ignore")
sys.setrecursionlimit(10_000)
INERT = (ast.Constant, ast.Name, ast.UnaryOp, ast.BinOp, ast.Tuple)
def does(source):
    try:
        body = ast.parse(source.removeprefix("\\ufeff")).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(not (isinstance(node, ast.Expr) and isinstance(node.value, INERT)) for node in body)
print("program" if any(map(does, json.loads(sys.stdin.read()))) else "no program")
"""
"""A program for the sandbox: whether one of the texts is Python that does something (a word or a number does not)."""


@dataclass(frozen=True)
class Found:
    """A program.

    Attributes:
        source: its text.
        bare: no fence says that it is one: it is a program if :data:`READER` says so.
    """

    source: str
    bare: bool = False

    def to_read(self, header: str) -> str:
        """What the reader gets."""
        return json.dumps([self.source, header + self.source] if header else [self.source])


def program_in(text: str, wanted: Collection[str] = ()) -> Found | None:
    """The last closed block of Python after the thinking, else the last of no language, else the whole text.

    Of several blocks, one that defines more of the ``wanted`` names goes before a later one: an example of how to use a
    function often stands after it. A block without a language must look like code where another does.

    >>> program_in("First\\n```python\\nx = 1\\n```\\nthen\\n```{python}\\nx = 2\\n```").source
    'x = 2\\n'
    >>> program_in("I think it is 4.").bare
    True
    """
    answer = after_thought(text)
    blocks = fenced(answer)
    labelled = [body for language, body in blocks if _PYTHON.match(language)]
    plain = [body for language, body in blocks if not language]
    plain = [body for body in plain if _CODE.search(body)] or plain
    bodies = [body for body in labelled or plain if body.strip()] or labelled or plain
    if bodies:
        return Found(max(reversed(bodies), key=lambda body: len(defined_in(body) & set(wanted))))
    return Found(answer, bare=True) if answer.strip() else None


def defined_in(source: str) -> set[str]:
    """The names that a program seems to define: a quick look, which reads no Python.

    >>> sorted(defined_in("def f(x):\\n    y = 1\\nclass A:\\n    def g(self): pass\\nz: int = 3"))
    ['A', 'f', 'g', 'z']
    """
    return {name for groups in _DEFINED.findall(source) for name in groups if name}
