r"""Answers as they are written, brought to one spelling: ``\dfrac12``, ``½`` and ``$\frac{1}{2}$`` become ``\frac{1}{2}``.

Only spelling is changed here, never a value. What is left is LaTeX that :mod:`surefoot.rewards.structure` can take
apart. Plain text of mathematics (``sqrt(2)/2``, ``2*x**2``) is spelled as LaTeX too.
"""

from __future__ import annotations

import re
import unicodedata

from surefoot.rewards.words import numbered

LONGEST = 1000
"""Answers of more characters are compared as text alone."""

_DEEPEST = 20
_MOST_DIGITS = 400

_CHARACTERS = {
    "−": "-",
    "–": "-",
    "×": r"\times ",
    "·": r"\cdot ",
    "⋅": r"\cdot ",
    "÷": "/",
    "π": r"\pi ",
    "∞": r"\infty ",
    "≤": r"\le ",
    "≥": r"\ge ",
    "≦": r"\le ",
    "≧": r"\ge ",
    "⩽": r"\le ",
    "⩾": r"\ge ",
    "≠": r"\ne ",
    "≡": r"\equiv ",
    "≈": "=",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∅": r"\emptyset ",
    "∈": r"\in ",
    "∖": r"\setminus ",
    "⟨": "(",
    "⟩": ")",
    "、": ",",
    "∶": ":",
    "℃": "°C",
    "℉": "°F",
    "¢": " cents",
    "±": r"\pm ",
    "ℝ": r"\mathbb{R}",
    "′": "'",
    "\u00a0": " ",
}
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")

_REWRITES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r"\\(?:displaystyle|textstyle|limits|nolimits|noindent)(?![A-Za-z])", " "),
        (r"(?<=[0-9])\s*~\s*(?=[0-9])", "-"),
        (r"\\(?:left|right|[bB]igg?[lrm]?)(?![A-Za-z])\.?", ""),
        (r"(?<!\\)\\!", ""),
        (r"(?<!\\)\\[,;:> ]|\\q?quad(?![A-Za-z])|~|\\hspace\{[^{}]*\}", " "),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
        (r"\\(?:hat|vec|mathbf|boldsymbol|bm|overrightarrow)\s*\{\s*\\?([ij])(?:math)?\s*\}", r" \1 "),
        (r"\\([ij])math(?![A-Za-z])", r" \1 "),
        (r"\\langle(?![A-Za-z])", "("),
        (r"\\rangle(?![A-Za-z])", ")"),
        (r"\\lg(?![A-Za-z])", r"\\log_{10}"),
        (r"\\log_\{?\s*(?:\\mathrm\s*\{)?e\}?(?![A-Za-z])\}?", r"\\ln "),
        (r"(?<=[0-9})])\s*(?:degrees?(?![A-Za-z])|(?<![温角])度)", "°"),
        (r"\\backslash(?![A-Za-z])", r"\\setminus "),
        (r"\\(?:l?vert|mid|rvert)(?![A-Za-z])", "|"),
        (r"\\colon(?![A-Za-z])|\{:\}", ":"),
        (r"\\(?:leq|leqslant)(?![A-Za-z])", r"\\le "),
        (r"\\(?:geq|geqslant)(?![A-Za-z])", r"\\ge "),
        (r"<=", r"\\le "),
        (r">=", r"\\ge "),
        (r"\\(?:approx|simeq|doteq)(?![A-Za-z])", "="),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\neq(?![A-Za-z])|!=", r"\\ne "),
        (r"\\(?:varnothing|O)(?![A-Za-z])", r"\\emptyset "),
        (r"\\(?:lbrace|\{)", r"\\{"),
        (r"\\(?:rbrace|\})", r"\\}"),
        (r"\\(?:ldots|dots|cdots)(?![A-Za-z])|…", "..."),
        (r"\\(?:R|reals|Reals)(?![A-Za-z])", r"\\mathbb{R}"),
        (r"\^\s*\{\s*\\circ\s*\}|\^\s*\\circ(?![A-Za-z])|\\degree(?![A-Za-z])", "°"),
        (r"\{,\}(?=[0-9]{3}(?![0-9]))", ","),
        (r"(?<=[0-9])\{,\}(?=[0-9])", "."),
        (r"\\dot\s*\{?([0-9])\}?([0-9]*)\\dot\s*\{?([0-9])\}?", r"\\overline{\1\2\3}"),
        (r"(?<=[0-9.])\\(?:dot|bar)\s*\{?([0-9]+)\}?", r"\\overline{\1}"),
        (r"\*\*", "^"),
        (r"\\sqrt\s*(\[[^\[\]]*\])?\s*([0-9A-Za-z])", r"\\sqrt\1{\2}"),
        (r"\\frac\s*(\\[A-Za-z]+)\s*(?=[0-9{\\])", r"\\frac{\1}"),
        (r"\\frac\s*([0-9A-Za-z])\s*([0-9A-Za-z])", r"\\frac{\1}{\2}"),
        (r"\\frac\s*([0-9A-Za-z])\s*(?=\{)", r"\\frac{\1}"),
        (r"(\\frac\s*\{[^{}]*\})\s*([0-9A-Za-z])", r"\1{\2}"),
        (r"([\^_])\s*\{\s*([0-9A-Za-z])\s*\}", r"\1\2"),
    )
)
_WORDED = re.compile(
    r"\\(?:text|textrm|textbf|textit|mathrm|mathbf|mathit|mathsf|rm|bf|mbox|operatorname)\s*\{((?:[^{}]|\{[^{}]*\})*)\}"
)
_FUNCTIONS = (
    r"sqrt|(?:arc)?(?:sin|cos|tan)|cot|sec|csc|sinh|cosh|tanh|log|ln|exp|pi|infty|[Ii]nfinity|inf|alpha|beta|theta"
)
_PLAIN = re.compile(rf"(?<![A-Za-z\\])(?:{_FUNCTIONS})(?![A-Za-z])")
_CHOSEN = re.compile(
    r"(?<![A-Za-z\\])C_\{?([0-9a-z]+)\}?\s*\^\{?([0-9a-z]+)\}?|(?<![A-Za-z\\])C\(([0-9]+)\s*,\s*([0-9]+)\)"
)
_INNER_BLANKS = re.compile(r"(?<=[{^_]) | (?=[}^_])")
_EMPHASIS = re.compile(r"^(\*\*|__|`|\"|')(.*)\1$", re.DOTALL)
_DELIMITERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))

_BOMBS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:\^|\*\*)\s*[{(]*\s*[-+]?\s*[0-9.,]{5,}",  # an exponent of five digits or more
        r"[0-9)}]\s*(?:\^|\*\*)\s*[{(]*\s*[0-9]+\s*[)}]*\s*(?:\^|\*\*)",  # a tower of powers of numbers
        r"(?:\^|\*\*)[^,=]*!",  # a factorial in an exponent
        r"[0-9]{4,}\s*[)}]*\s*!",  # the factorial of a large number
        r"!(?:[\s(){}!]*!)|(?:\*|\\cdot|\\times|\^)[^()]*\)\s*!",  # factorials of factorials, products and powers
        r"[eE][+-]?[0-9]{4,}",
        r"\\(?:int|sum|prod|lim|iint|oint)(?![A-Za-z])",
        r"\\binom\s*\{?[^{}]*[0-9]{5,}",
    )
)


def is_safe(text: str) -> bool:
    """Whether comparing this answer by computer algebra is sure to be small work: no towers of powers, no nesting.

    >>> is_safe(r"\\frac{1}{2^{99}}"), is_safe("9**9**9"), is_safe("{" * 50), is_safe("9" * 10_000)
    (True, False, False, False)
    """
    if len(text) > LONGEST or sum(c.isdigit() for c in text) > _MOST_DIGITS:
        return False
    depth = 0
    for c in text:
        depth += (c in "{([") - (c in "})]")
        if depth > _DEEPEST:
            return False
    return text.count("^") + text.count("**") <= 30 and not any(bomb.search(text) for bomb in _BOMBS)


def spelled(text: str) -> str:
    r"""The answer in one spelling.

    >>> spelled(r"$\dfrac12$."), spelled("½"), spelled(r"\text{ Yes }"), spelled("2*x**2")
    ('\\frac{1}{2}', '\\frac{1}{2}', 'Yes', '2\\cdot x^2')
    """
    text = bare(text[:LONGEST])  # before anything that takes more than linear time
    text = _RAISED.sub(lambda match: f"^{{{match[0].translate(_SUPERSCRIPTS)}}}", text)
    text = "".join(_character(c) for c in text)
    for pattern, by in _REWRITES:
        text = pattern.sub(by, text)
    while (plain := _WORDED.sub(r" \1 ", text)) != text:
        text = plain
    text = _PLAIN.sub(
        lambda match: "\\" + match[0].replace("infinity", "infty").replace("Infinity", "infty"), text
    ).replace(r"\inf ", r"\infty ")
    text = _roots(text)
    text = re.sub(r"\s*\*\s*", r"\\cdot ", text)
    text = _INNER_BLANKS.sub("", " ".join(text.split()))
    text = _CHOSEN.sub(
        lambda match: r"\binom{%s}{%s}" % ((match[1], match[2]) if match[1] else (match[3], match[4])), text
    )
    return numbered(bare(text.lstrip("= ")))


def bare(text: str) -> str:
    """Without delimiters of mathematics, emphasis, quotes and a full stop around it."""
    before = None
    while before != text:
        before, text = text, text.strip()
        if (
            text.endswith((".", ";", ",", "!", "。"))
            and not text.endswith(("...", r"\!", r"\,", r"\;"))
            and text[-2:-1] != "!"
        ):
            # "5!" is a factorial; "Yes!" is not
            text = text if text.endswith("!") and not text[-2:-1].isalpha() else text[:-1].rstrip()
        for left, right in _DELIMITERS:
            inside = text[len(left) : -len(right)]
            if len(text) > len(left + right) and text.startswith(left) and text.endswith(right) and left not in inside:
                text = inside
        text = _EMPHASIS.sub(r"\2", text)
    return text


def _character(c: str) -> str:
    if c in _CHARACTERS:
        return _CHARACTERS[c]
    if c.isascii():
        return c
    if c == "√":
        return r"\sqrt "
    plain = unicodedata.normalize("NFKC", c)
    above, slash, below = plain.partition("\u2044")  # vulgar fractions
    if slash and above.isdigit() and below.isdigit():
        return rf"\frac{{{above}}}{{{below}}}"
    return plain if len(plain) == 1 else c


def _roots(text: str) -> str:
    r"""``\sqrt(2)`` as ``\sqrt{2}``."""
    start = text.find(r"\sqrt(")
    while start >= 0:
        depth, end = 0, -1
        for place in range(start + 5, len(text)):
            depth += (text[place] == "(") - (text[place] == ")")
            if depth == 0:
                end = place
                break
        if end < 0:
            return text
        text = f"{text[: start + 5]}{{{text[start + 6 : end]}}}{text[end + 1 :]}"
        start = text.find(r"\sqrt(")
    return text
