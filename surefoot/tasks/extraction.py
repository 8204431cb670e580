r"""Finding the final answer in a completion. ``None`` always means that there is none, and never the whole text.

What a model thinks is not its answer: everything up to the last ``</think>`` is left out, and a thought that was never
closed leaves nothing.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from surefoot.tasks.numerals import first_numeral, last_numeral, numerals_in, read_numeral
from surefoot.tasks.statements import MARK, statements

_OPEN, _CLOSE = "<answer>", "</answer>"
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_MARK_NUMBER = re.compile(rf"{MARK.pattern}|(?<![=<>!])=(?!=)", MARK.flags)
_HASHES = re.compile(r"^[ \t]*#### ?(.*)$", re.MULTILINE)
_CHINESE = re.compile("[\u4e00-\u9fff]{2}")
_LONGEST = 1000
_FENCE = re.compile(
    r"(?P<before>[ \t]*+(?:(?:>|[-*+][ \t]|\d{1,9}[.)][ \t])[ \t]*+)*+)"
    r"(?P<mark>`{3,}+|~{3,}+)[ \t]*+(?P<info>[^\n`]*+)\n"
)
_QUOTED = re.compile(r"^(?:[ \t]*+>[ ]?)++")
_DEEPEST = 24  # columns before a fence
_END = re.compile(r"(`{3,}+|~{3,}+)[`~]*")
_INLINE = re.compile(r"\$\$?(.+?)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)

PLACES = ("tag", "boxed", "hashes", "says", "number")
"""Where :func:`placed_answer` can look for a final answer."""


class Shape(enum.Enum):
    """How the gold answer looks, which is how the final answer is looked for in free text."""

    NUMBER = "number"
    WORD = "word"
    LINE = "line"
    BLOCK = "block"  # several lines


def shape_of(gold: Any) -> Shape:
    """The shape of a gold answer; a task that has none (its scorer accepts several) is taken to want a line."""
    if gold is None:
        return Shape.LINE
    text = str(gold).strip()
    if read_numeral(text) is not None:
        return Shape.NUMBER
    if "\n" in text:
        return Shape.BLOCK
    return Shape.LINE if len(text.split()) > 1 else Shape.WORD


def after_thought(text: str) -> str:
    """The part of a completion that is meant to be read."""
    text = text.rpartition("</think>")[2]
    return "" if "<think>" in text else text


def fenced(text: str) -> list[tuple[str, str]]:
    """The closed blocks between fences of three or more ` or ~, as (what stands behind the opening fence, the lines).

    A fence may be indented, or stand behind the mark of a list or of a quotation; its lines then lose that indentation.
    A fence that is indented by four more than the opening one ends no block: it is in the text of a program (CommonMark
    0.31, 4.5). One may stand at the end of the last line. It takes time in proportion to the text, however many fences
    are left open.

    >>> fenced("so\\n```json\\n[1]\\n```\\n~~~\\nopen")
    [('json', '[1]\\n')]
    >>> fenced("- ```py\\n  if x:\\n    y()\\n  ```"), fenced("```py\\nx = 1```\\nso")
    ([('py', 'if x:\\n  y()\\n')], [('py', 'x = 1\\n')])
    """
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    ends = [_end(line) for line in lines]
    longest: dict[tuple[str, int], list[int]] = {}  # the longest end from a line on: without one nothing is looked for
    blocks, at = [], 0
    while at < len(lines):
        opening = _FENCE.fullmatch(lines[at])
        at += 1
        if opening is None:
            continue
        mark, length, width = opening["mark"][0], len(opening["mark"]), len(opening["before"].expandtabs(4))
        if width > _DEEPEST:
            continue
        if (mark, width) not in longest:
            fitting = (end[1] if end[0] == mark and end[2] <= width + 3 else 0 for end in reversed(ends))
            longest[mark, width] = [*accumulate(fitting, max, initial=0)][::-1]
        if longest[mark, width][at] < length:
            continue
        end = next(k for k in range(at, len(lines)) if _closes(ends[k], mark, length, width))
        body = [_within(line, opening["before"], width) for line in lines[at:end]]
        if ends[end][3]:
            body.append(_within(ends[end][3] + "\n", opening["before"], width))
        blocks.append((opening["info"].strip(), "".join(body)))
        at = end + 1
    return blocks


def _closes(end: tuple[str, int, int, str], mark: str, length: int, width: int) -> bool:
    return end[0] == mark and end[1] >= length and end[2] <= width + 3


def _end(line: str) -> tuple[str, int, int, str]:
    """The fence that a line may end a block with: its character, length and indentation, and what stands before it."""
    line = _QUOTED.sub("", line.rstrip(), count=1)
    bare = line.lstrip()
    if match := _END.fullmatch(bare):
        return match[1][0], len(match[1]), len(line[: -len(bare)].expandtabs(4)), ""
    mark = line[-1:]
    before = line.rstrip(mark) if mark and mark in "`~" else line
    if len(line) - len(before) < 3 or mark in before:
        return "", 0, 0, ""
    return mark, len(line) - len(before), 0, before


def _within(line: str, before: str, width: int) -> str:
    """A line of a block without the indentation of its fence."""
    if ">" in before:
        return _QUOTED.sub("", line, count=1)
    lead = line[: len(line) - len(line.lstrip(" \t"))]
    if not width or not lead:
        return line
    return lead.expandtabs(4)[width:] + line[len(lead) :]


def tagged(text: str) -> str | None:
    """What stands in ``<answer>...</answer>``; None unless there is exactly one such pair, with something in it."""
    text = after_thought(text)
    if text.count(_OPEN) != 1 or text.count(_CLOSE) != 1:
        return None
    inside, closed, _ = text.partition(_OPEN)[2].partition(_CLOSE)
    return (inside.strip() or None) if closed else None


def boxed(text: str) -> str | None:
    r"""What stands in the last ``\boxed{...}``; None where it is empty or cut off (its braces are not balanced)."""
    text = after_thought(text)
    starts = [match.end() for match in _BOXED.finditer(text)]
    if not starts:
        return None
    depth, index = 1, starts[-1]
    while index < len(text):
        if text[index] == "\\":
            index += 1
        elif text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return text[starts[-1] : index].strip() or None
        index += 1
    return None


def placed_answer(text: str, places: Sequence[str]) -> str | None:
    r"""The final answer in the first of these places that the completion has; a later one is then not tried.

    ==========  ===================================================================================================
    "tag"       ``<answer>...</answer>``, exactly one
    "boxed"     the last ``\boxed{...}`` or ``\fbox{...}``
    "hashes"    the last line that begins with ``####``
    "says"      what follows the last "answer is", "answer:", 答案是 and so on (:mod:`surefoot.tasks.statements`), to the end
                of the sentence
    "number"    the last number
    ==========  ===================================================================================================

    A place that is there and holds nothing (an empty or a cut box, two tags) is no answer: what stands earlier is not
    taken instead. A box inside of a tag or of a line with hashes is opened.
    """
    text = after_thought(text)
    for place in places:
        if place == "tag" and (_OPEN in text or _CLOSE in text):
            return _unboxed(tagged(text))
        if place == "boxed" and _BOXED.search(text):
            return boxed(text)
        if place == "hashes" and (lines := _HASHES.findall(text)):
            return _unboxed(lines[-1].strip() or None)
        if place == "says" and (stated := _stated(text)):
            return stated
        if place == "number" and (numeral := last_numeral(text)):
            return numeral.text
    return None


def _unboxed(found: str | None) -> str | None:
    return boxed(found) if found and _BOXED.search(found) else found


def has_place(text: str, places: Sequence[str]) -> bool:
    """Whether a completion has one of the places "tag", "boxed" and "hashes", even if it is empty or cut off."""
    text = after_thought(text)
    signs = {"tag": _OPEN in text or _CLOSE in text, "boxed": _BOXED.search(text), "hashes": _HASHES.search(text)}
    return any(signs[place] for place in places)


def _stated(text: str) -> str | None:
    """What the last statement of the answer says: its first formula where it begins with one, else all of it.

    A sentence of Chinese, such as 答：共有12个苹果, with one formula or one number in it says that.
    """
    stated = next(statements(text), None)
    if stated is None:
        return None
    formula = _INLINE.match(stated)
    if formula:
        unit = re.match(r"\s*(?:\\?%|percent\b)", stated[formula.end() :])
        return next(part for part in formula.groups() if part) + (unit[0] if unit else "")
    if _CHINESE.match(stated):
        formulas = [next(filter(None, found)) for found in _INLINE.findall(stated[:_LONGEST])]
        numerals = numerals_in(stated[:_LONGEST])
        if len(formulas) == 1 or (not formulas and len(numerals) == 1):
            return formulas[0] if formulas else numerals[0].text
    return stated


def free_answer(text: str, gold: Any) -> str | None:
    r"""The final answer of free text, looked for in this order; where one place exists, the later ones are not tried.

    1. ``<answer>...</answer>``, if there is exactly one;
    2. the last ``\boxed{...}``;
    3. what follows the last "answer is" or "answer:" (or the last ``=``, where the gold answer is a number): the first
       number, or else the rest of that line;
    4. the last number where the gold answer is one, the last word where it is a word, and else the last line (the last
       lines without a gap, where it has several).

    Numbers come without groups of thousands, so that ``1,234`` can be compared with ``1234`` as text.

    Args:
        text: the completion.
        gold: the gold answer; only its shape is used.
    """
    text = after_thought(text)
    shape = shape_of(gold)
    if text.count(_OPEN) == 1 and text.count(_CLOSE) == 1:
        found = tagged(text)
    elif _BOXED.search(text):
        found = boxed(text)
    else:
        return _after_mark(text, shape, str(gold)) if _marks(text, shape) else _last(text, shape, str(gold))
    numeral = read_numeral(found) if found and shape is Shape.NUMBER else None
    return numeral.text if numeral else found


def _marks(text: str, shape: Shape) -> list[re.Match[str]]:
    return list((_MARK_NUMBER if shape is Shape.NUMBER else MARK).finditer(text))


def _after_mark(text: str, shape: Shape, gold: str) -> str | None:
    rest = text[_marks(text, shape)[-1].end() :]
    if shape is Shape.NUMBER:
        numeral = first_numeral(rest)
        return numeral.text if numeral else None
    rest = _tidy(rest.lstrip(" \t:："), gold)
    if shape is Shape.BLOCK:
        return rest or None
    return _tidy(rest.split("\n")[0], gold) or None


def _last(text: str, shape: Shape, gold: str) -> str | None:
    if shape is Shape.NUMBER:
        numeral = last_numeral(text)
        return numeral.text if numeral else None
    if shape is Shape.BLOCK:
        return _last_lines(text, gold)
    line = _tidy(_tidy(text, gold).split("\n")[-1], gold)
    if shape is Shape.WORD and line:
        return _tidy(line.split()[-1], gold) or None
    return line or None


def _last_lines(text: str, gold: str) -> str | None:
    """The last lines without a gap; where the gold answer has gaps, as many lines as it has."""
    if re.search(r"\n\s*\n", gold.strip()):
        found = "\n".join(text.rstrip().split("\n")[-len(gold.strip("\n").split("\n")) :])
    else:
        found = re.split(r"\n\s*\n", _tidy(text, gold))[-1]
    return found.strip("\n") or None


def _tidy(text: str, gold: str) -> str:
    """Without white space, emphasis, quotes and a full stop around it, unless the gold answer has them too."""
    for mark in ("**", "`", '"', "."):
        text = text.strip()
        if not gold.startswith(mark) and mark != ".":
            text = text.removeprefix(mark)
        if not gold.endswith(mark):
            text = text.removesuffix(mark)
    return text.strip()
