"""Whether a text is safe to give to a scorer that evaluates it.

Some scorers of reasoning-gym call ``eval`` or SymPy's ``parse_expr`` (which calls ``eval``) on the answer, which a
policy wrote, and reinforcement learning searches for whatever scores. Such an answer is read as a syntax tree first.
"""

from __future__ import annotations

import ast
import re

MAX_CHARACTERS = 20_000
MAX_EXPRESSION = 1000
MAX_POWER = 1000
MAX_DEPTH = 40

_CIRCULAR = {"sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "acot"}
_HYPERBOLIC = {"sinh", "cosh", "tanh", "asinh", "acosh", "atanh"}
FUNCTIONS = frozenset({"Abs", "exp", "ln", "log", "sqrt"} | _CIRCULAR | _HYPERBOLIC)
_LARGE_EXPONENT = re.compile(r"[0-9._]e[+-]?[0-9_]{3,}", re.IGNORECASE)
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)


def is_literal_or_nothing(text: str) -> bool:
    """Whether ``eval`` of the text gives a plain value (number, text, list of them, one name) or is a syntax error."""
    if len(text) > MAX_CHARACTERS:
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return True
    except (RecursionError, MemoryError):
        return False
    if isinstance(tree, ast.Name):  # a word: looking it up runs nothing
        return True
    try:
        ast.literal_eval(text.strip())
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return False
    return True


def is_plain_formula(text: str) -> bool:
    """Whether the text is arithmetic of numbers, names and well-known functions that takes little time and memory.

    Powers have small exponents, also where they are stacked, functions are not nested, and there is nothing that Python
    could run (no attribute, subscript, text, lambda or other call).
    """
    if len(text) > MAX_EXPRESSION or _LARGE_EXPONENT.search(text):
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return _is_plain(tree, power=1.0, depth=0)


def _is_plain(node: ast.expr, power: float, depth: int) -> bool:
    """``power`` is the product of the exponents that stand above the node."""
    if depth > MAX_DEPTH:
        return False
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    if isinstance(node, ast.Name):
        return not node.id.startswith("_")
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, (ast.UAdd, ast.USub)) and _is_plain(node.operand, power, depth + 1)
    if isinstance(node, ast.Call):
        return _is_function(node) and _is_plain(node.args[0], power, depth + 1)
    if not isinstance(node, ast.BinOp):
        return False
    if isinstance(node.op, ast.Pow):
        exponent = _size(node.right)
        if exponent is None or power * exponent > MAX_POWER:
            return False
        power *= max(exponent, 1.0)
    elif not isinstance(node.op, _ARITHMETIC):
        return False
    return _is_plain(node.left, power, depth + 1) and _is_plain(node.right, 1.0, depth + 1)


def _is_function(node: ast.Call) -> bool:
    """Whether a call is one of a known function of one argument that holds no further call."""
    if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS or len(node.args) != 1 or node.keywords:
        return False
    return not any(isinstance(inner, ast.Call) for inner in ast.walk(node.args[0]))


def _size(node: ast.expr) -> float | None:
    """The size of an exponent made of numbers up to 100 and names (which count as 1); None for anything else."""
    if isinstance(node, ast.UnaryOp):
        return _size(node.operand)
    if isinstance(node, ast.Name):
        return 1.0
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return abs(float(node.value)) if abs(node.value) <= 100 else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Mult)):
        left, right = _size(node.left), _size(node.right)
        if left is None or right is None:
            return None
        return left if isinstance(node.op, ast.Div) else left * right
    return None
