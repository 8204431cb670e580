r"""Whether two mathematical answers are the same: by text and by number here, by computer algebra in a worker process.

:func:`decide` looks at structure, texts and numbers, which settles most answers; where that is not enough, it says None
and :func:`equal`, which needs math-verify and SymPy and may take long, is to be called in a worker (see :mod:`.workers`).
"""

from __future__ import annotations

import re

from surefoot.rewards.exact import near, number
from surefoot.rewards.latex import LONGEST, is_safe, spelled
from surefoot.rewards.sameness import same
from surefoot.rewards.structure import read

_WORD = re.compile(
    r"(?<![\\A-Za-z])[^\W\d_]{4,}|(?<![\\A-Za-z])(?i:yes|no|odd|not|non|dne)(?![A-Za-z])|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)
_RELATED = re.compile(
    r"\\(?:sim|cong|equiv|to|(?:long|Long)?(?:left)?(?:right|Right)arrow|ne|mid|propto|implies|iff|pmod|bmod|mod|in)(?![A-Za-z])"
)


class Undecided(Exception):
    """Texts and numbers are not enough."""


def decide(gold: str, given: str, digits: int, positive: bool = False) -> bool | None:
    """Whether the answers are the same, or None where it takes computer algebra to say so."""
    if _squeezed(gold) == _squeezed(given):
        return True
    if max(len(gold), len(given)) > LONGEST:
        return False
    first, second = spelled(gold), spelled(given)
    if _squeezed(first) == _squeezed(second) != "":
        return True
    if not is_safe(given):
        return False
    a, b = number(first), number(second)
    if a is not None and b is not None:
        return near(first, a, second, b, digits)
    try:
        return same(read(first), read(second), lambda x, y: _cheap(x, y, digits))
    except Undecided:
        return None


def equal(gold: str, given: str, digits: int, positive: bool = False) -> bool:
    """The same with computer algebra: slow, and to be called in a worker."""
    from surefoot.rewards.algebra import same_by_algebra

    def leaf(a: str, b: str) -> bool:
        try:
            return _cheap(a, b, digits)
        except Undecided:
            return same_by_algebra(a, b, digits, positive)

    return same(read(spelled(gold)), read(spelled(given)), leaf)


def _cheap(gold: str, given: str, digits: int) -> bool:
    if _squeezed(gold) == _squeezed(given):
        return bool(given)
    a, b = number(gold), number(given)
    if a is not None and b is not None:
        return near(gold, a, given, b, digits)
    if len(gold) == len(given) == 1:  # the names of two things
        return False
    if _is_word(gold) or _is_word(given):
        return _letters(gold) == _letters(given)
    if any("..." in text or ":" in text or _RELATED.search(text) for text in (gold, given)):
        return False
    if not gold or not given or not is_safe(gold) or not is_safe(given) or "$" in gold + given:
        return False
    raise Undecided


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _is_word(text: str) -> bool:
    return r"\begin" not in text and bool(_WORD.search(text))


def _letters(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s]", " ", text).casefold().split())
