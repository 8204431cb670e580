r"""Steps of a written solution, and the arithmetic in them: process rewards without a model.

A step is a span of the text. A claim is an equality of numbers that a step states, such as ``3 * 4 = 12``,
``1/2 + 1/3 = 5/6`` or the chain ``2 + 3 = 5 = 10 / 2``; it is computed exactly. Claims that no work went into
(``12 = 12``), and those that were made before in the same text, count for nothing: they would be free reward.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

SPLITS = ("auto", "lines", "numbered", "sentences", "tags")
"""How a text is split: see :func:`split_steps`."""

LARGEST_POWER = 64
_LONGEST = 400
_DEEPEST = 20
_LARGEST = 10**60

_TAGGED = re.compile(r"<step>(.*?)</step>", re.DOTALL)
_NUMBERED = re.compile(r"^[ \t]*(?:\*\*)?(?:(?:[Ss]tep\s+)?[0-9]{1,3}[.):](?=\s)|[Ss]tep\s+[0-9]{1,3}\b)", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|[。！？]|\n+")
_MARKER = re.compile(r"(?:^|\n)\s*[0-9]{1,3}$")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|vs|approx|Eq|Fig|No|Mr|Mrs|Dr|etc)|\b[A-Z])$")
_PLAIN = (
    (re.compile(r"\\(?:times|cdot)(?![A-Za-z])|[×·⋅]|(?<=[0-9)])\s*[xX]\s*(?=[0-9(])"), "*"),
    (re.compile(r"\\div(?![A-Za-z])|÷"), "/"),
    (re.compile(r"[−–]"), "-"),
    (re.compile(r"\\(?:left|right)|\\[,;! ]|\\?\$"), " "),
    (re.compile(r"\*\*(?=[0-9(-])(?<=[0-9)]\*\*)"), "^"),
    (re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r"((\1)/(\2))"),
    (re.compile(r"\^\s*\{([^{}]*)\}"), r"^(\1)"),
    (re.compile(r"(?<=[0-9])(?:\{,\}|,)(?=[0-9]{3}(?![0-9]))"), ""),
)
_TERM = r"[0-9.()+\-*/^\s]"
_CHAIN = re.compile(
    rf"(?<![\w.^%])(?:[(\-+\s]*+[0-9.]{_TERM}{{0,400}}?)(?:\s*(?<![<>!=:])=(?!=)\s*[(\-+]*[0-9.](?:{_TERM}*[0-9)])?)+(?![\w%^*/!]|\.[0-9])"
)
_UNFINISHED = re.compile(r"[0-9.()+\-*/^]\s*$")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)")
_TOKEN = re.compile(r"\s*(?:([0-9]+(?:\.[0-9]+)?|\.[0-9]+)|([-+*/^()]))")


def split_steps(text: str, how: str = "auto") -> list[tuple[int, int]]:
    """Spans (start, end) of the steps, in characters; white space at their ends is left out, and empty ones are.

    ==============  =================================================================================================
    "tags"          what stands in ``<step>...</step>``
    "numbered"      from one "1.", "2)" or "Step 3:" at the beginning of a line to the next
    "lines"         lines
    "sentences"     sentences, and lines; a decimal point and an abbreviation end none
    "auto"          the first of tags, numbered (two or more), lines (two or more) that the text has, else sentences
    ==============  =================================================================================================
    """
    # Up to the last closing tag: behind it, every opening one would be looked for in vain to the end of the text.
    tagged = [match.span(1) for match in _TAGGED.finditer(text, 0, text.rfind("</step>") + len("</step>"))]
    numbered = [match.start() for match in _NUMBERED.finditer(text)]
    if how == "auto":
        lines = sum(bool(line.strip()) for line in text.split("\n"))
        how = "tags" if tagged else "numbered" if len(numbered) > 1 else "lines" if lines > 1 else "sentences"
    if how == "tags":
        spans = tagged
    elif how == "numbered":
        bounds = [0, *numbered, len(text)]
        spans = list(pairwise(bounds))
    elif how == "lines":
        spans = [(match.start(), match.end()) for match in re.finditer(r"[^\n]+", text)]
    else:
        spans = list(_sentences(text))
    return [trimmed for start, end in spans if (trimmed := _trim(text, start, end))]


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for match in _SENTENCE_END.finditer(text):
        before = text[start : match.start()]
        if match[0] == "." and (_ABBREVIATION.search(before[-8:]) or _MARKER.fullmatch(before)):
            continue
        yield start, match.end()
        start = match.end()
    yield start, len(text)


def _trim(text: str, start: int, end: int) -> tuple[int, int] | None:
    piece = text[start:end]
    bare = piece.strip()
    if not bare:
        return None
    start += len(piece) - len(piece.lstrip())
    return start, start + len(bare)


def claims(text: str) -> list[tuple[str, bool]]:
    """The equalities of numbers in a text, as (spelling, whether it holds), one for each = of a chain.

    A decimal on the right may be rounded, to two places or more: ``10 / 3 = 3.33`` holds.

    >>> claims("So 3 * 4 = 12, and 12 + 5 = 18.")
    [('3*4=12', True), ('12+5=18', False)]
    """
    text = _NUMBERED.sub("", text)
    for pattern, by in _PLAIN:
        text = pattern.sub(by, text)
    found = []
    for piece in re.split(r"[,;\n]|\.(?=\s|$)", text):
        for chain in _CHAIN.finditer(piece[: 10 * _LONGEST]) if "=" in piece else ():
            if chain[0].find("=") > _LONGEST // 2 and _UNFINISHED.search(piece[: chain.start()][-9:]):
                continue  # the end of a side that is too long to compute
            sides = [(compute(side), "".join(side.split())) for side in chain[0].split("=")]
            for (a, left), (b, right) in pairwise(sides):
                if a is not None and b is not None and not (_is_numeral(left) and _is_numeral(right)):
                    found.append((f"{left}={right}", a == b or _rounded(a, right)))
    return found


def compute(expression: str) -> Fraction | None:
    """The exact value of an expression of numbers; None for anything else, for a division by zero and for what is huge.

    >>> compute("2*(3+4)^2/7"), compute("-2^2"), compute("9^9^9"), compute("1/0")
    (Fraction(14, 1), Fraction(-4, 1), None, None)
    """
    if len(expression) > _LONGEST:
        return None
    tokens = []
    place = 0
    expression = expression.strip()
    while place < len(expression):
        match = _TOKEN.match(expression, place)
        if match is None:
            return None
        tokens.append(match[1] or match[2])
        place = match.end()
    reader = _Reader(tokens)
    try:
        value = reader.sum(0)
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    return value if reader.place == len(tokens) else None


class _Reader:
    """Recursive descent over tokens; raises ValueError for what is no expression, or too large."""

    def __init__(self, tokens: list[str]):
        self.tokens, self.place = tokens, 0

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def next(self) -> str:
        self.place += 1
        return self.tokens[self.place - 1] if self.place <= len(self.tokens) else ""

    def sum(self, depth: int) -> Fraction:
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        value = self.product(depth)
        while self.peek() in ("+", "-"):
            value = value + self.product(depth) if self.next() == "+" else value - self.product(depth)
        return _small(value)

    def product(self, depth: int) -> Fraction:
        value = self.signed(depth)
        while self.peek() in ("*", "/"):
            value = value * self.signed(depth) if self.next() == "*" else value / self.signed(depth)
            value = _small(value)
        return value

    def signed(self, depth: int) -> Fraction:
        sign = 1
        while self.peek() in ("+", "-"):
            sign = -sign if self.next() == "-" else sign
        return sign * self.power(depth)

    def power(self, depth: int) -> Fraction:
        base = self.atom(depth)
        if self.peek() != "^":
            return base
        self.next()
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        exponent = self.signed(depth + 1)
        if exponent.denominator != 1 or abs(exponent) > LARGEST_POWER:
            raise ValueError("an exponent that is no small whole number")
        return _small(base ** int(exponent))

    def atom(self, depth: int) -> Fraction:
        token = self.next()
        if token == "(":
            value = self.sum(depth + 1)
            if self.next() != ")":
                raise ValueError("a bracket that is not closed")
            return value
        if not token or not (token[0].isdigit() or token[0] == "."):
            raise ValueError("a number is missing")
        return Fraction(token)


def _small(value: Fraction) -> Fraction:
    if abs(value.numerator) > _LARGEST or value.denominator > _LARGEST:
        raise ValueError("too large")
    return value


def _is_numeral(side: str) -> bool:
    return _DECIMAL.fullmatch(side.strip("()")) is not None


def _rounded(value: Fraction, written: str) -> bool:
    """Whether a decimal of at least two places is the value rounded."""
    whole, dot, part = written.partition(".")
    if not dot or not part.isdigit() or len(part) < 2 or not whole.lstrip("-").isdigit():
        return False
    return abs(Fraction(written) - value) <= Fraction(1, 2 * 10 ** len(part))
