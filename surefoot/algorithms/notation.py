"""How equations are written: numbers, comparison signs and line breaks, in text and in LaTeX."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

_POWER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]?)0*(\d+)")
_INFINITE = re.compile(r"(?<![\\\w])inf(?!\w)")
_WORDS = re.compile(r"\\(text\w*)\{")
_SIGNS = {"<": r"\lt", ">": r"\gt"}
_DEFINITION = re.compile(r"(?<=[,;])  ")
_WIDE = 70  # characters of a line of LaTeX that one sees


def plain(text: str) -> str:
    """Powers of ten without the zeros that ``:g`` puts into them.

    >>> plain("std + 1e-06")
    'std + 1e-6'
    """
    return _POWER.sub(lambda found: f"{found[1]}e{found[2].replace('+', '')}{found[3]}", text)


def latex(source: str) -> str:
    r"""LaTeX whose numbers are written out and which survives a page of HTML: ``\lt`` for ``<``.

    >>> print(latex(r"\sigma + 1e-06 < 5e+20"))
    \sigma + 10^{-6} \lt  5\cdot 10^{20}
    >>> print(latex(r"\text{never above }inf\texttt{</b>}"))
    \text{never above }\infty \lt{}\texttt{/b}\gt{}
    """
    pieces, at = [], 0
    for command, start, end in _words(source):
        opening = start - len(command) - 2
        pieces += [_in_math(source[at:opening]), _in_words(command, source[start:end])]
        at = end + 1
    return "".join([*pieces, _in_math(source[at:])])


def typed(text: str) -> str:
    """Text as it is written, in LaTeX: names and phrases that a user gave."""
    escapes = {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "\n": " "}
    escapes |= {sign: "\\" + sign for sign in "{}$&#_%"}
    return rf"\texttt{{{''.join(escapes.get(sign, sign) for sign in text)}}}"


def _in_math(source: str) -> str:
    def power(found: re.Match[str]) -> str:
        times = "" if found[1] == "1" else rf"{found[1]}\cdot "
        return rf"{times}10^{{{found[2].replace('+', '')}{found[3]}}}"

    source = _INFINITE.sub(lambda _: r"\infty ", _POWER.sub(power, source))
    return re.sub("[<>]", lambda found: f"{_SIGNS[found[0]]} ", source)


def _in_words(command: str, words: str) -> str:
    """Words with the signs between them set as mathematics, since not every typesetter has them in text."""
    parts = re.split("([<>])", words)
    return "".join(f"{_SIGNS[part]}{{}}" if part in _SIGNS else rf"\{command}{{{part}}}" for part in parts if part)


def _words(source: str) -> Iterator[tuple[str, int, int]]:
    r"""The arguments of ``\text`` and its like: (command, where the argument starts, where its brace closes)."""
    at = 0
    while (found := _WORDS.search(source, at)) is not None:
        start = end = found.end()
        depth = 1
        while depth and end < len(source):
            if source[end] == "\\":
                end += 1
            else:
                depth += {"{": 1, "}": -1}.get(source[end], 0)
            end += 1
        yield found[1], start, end - 1
        at = end


def lines(text: str, width: int) -> list[str]:
    """A line of text, broken where a definition begins (after two spaces), then between words; what follows is indented.

    A word is never broken: one that is wider, with its indentation, stands alone on a line that is too wide.

    >>> lines("w = exp(-4 k),  k = KL(p || q)", 20)
    ['w = exp(-4 k),', '    k = KL(p || q)']
    """
    if len(text) <= width:
        return [text]
    found: list[str] = []
    for part in _DEFINITION.split(text):
        found += textwrap.wrap(
            part,
            max(width, 1),
            initial_indent="    " if found else "",
            subsequent_indent="        " if found else "    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return found


def latex_lines(source: str) -> list[str]:
    r"""A line of LaTeX, broken where a definition begins (``,\;`` outside of all brackets) if it is a wide one."""
    if len(re.sub(r"\\[a-zA-Z]+|[{}\\ ]", "", source)) <= _WIDE:
        return [source]
    found, begin, depth, at = [], 0, 0, 0
    while at < len(source):
        if source.startswith((r"\begin", r"\end"), at):
            depth += 1 if source.startswith(r"\begin", at) else -1
        if not depth and source.startswith(r",\;", at):
            found.append(source[begin : at + 1])
            begin = at = at + len(r",\;")
            continue
        depth += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(source[at], 0)
        at += 1
    return [piece.strip() for piece in [*found, source[begin:]]]
