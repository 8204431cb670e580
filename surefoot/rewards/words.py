"""Numbers in words, English and Chinese, as digits: ``twelve``, ``3 million``, ``十二``, ``100万``."""

from __future__ import annotations

import re

# fmt: off
_ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
# fmt: on
VALUES = {word: value for value, word in enumerate(_ONES)} | {
    word: 10 * value for value, word in enumerate(_TENS, start=2)
}
_ENGLISH = re.compile(
    rf"(?:({'|'.join(_TENS)})(?:[- ]({'|'.join(_ONES[1:10])}))?|({'|'.join(_ONES)}))(?![A-Za-z-])", re.IGNORECASE
)
_CHINESE_ONES = "零一二三四五六七八九"
_CHINESE = re.compile(rf"([一二三四五六七八九])?(十)?([{_CHINESE_ONES}])?")
_TIMES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12, "百": 2, "千": 3, "万": 4, "亿": 8}
_LARGE = re.compile(
    r"([0-9][0-9,]*(?:\.[0-9]+)?)\s*(?:(hundred|thousand|million|billion|trillion)(?![A-Za-z])|([百万亿]|千(?![米克瓦])))"
)


_NEGATIVE = re.compile(
    rf"(?:negative|minus)\s+(?=(?:{'|'.join(VALUES)}|[0-9])(?![A-Za-z]))|负(?=[0-9一二三四五六七八九十])", re.IGNORECASE
)


def numbered(text: str) -> str:
    r"""The text with the number at its beginning in digits.

    >>> numbered("twelve"), numbered("Forty-two cats"), numbered("十二"), numbered("百分之五"), numbered("3 million")
    ('12', '42 cats', '12', '5\\%', '3000000')
    """
    if negative := _NEGATIVE.match(text):
        return "-" + numbered(text[negative.end() :])
    percent = text.startswith("百分之")
    rest = text.removeprefix("百分之")
    english, chinese = _ENGLISH.match(rest), _CHINESE.fullmatch(rest)
    if english:
        tens, ones, alone = english.groups()
        value = VALUES[(tens or alone).lower()] + (VALUES[ones.lower()] if ones else 0)
        rest = f"{value}{rest[english.end() :]}"
    elif chinese and rest and (chinese[2] or not (chinese[1] and chinese[3])):
        tens, ten, ones = chinese.groups()
        value = (10 * _CHINESE_ONES.index(tens or "一") if ten else _CHINESE_ONES.index(tens or "零")) + (
            _CHINESE_ONES.index(ones) if ones else 0
        )
        rest = str(value)
    if large := _LARGE.match(rest):
        rest = f"{_shifted(large[1].replace(',', ''), _TIMES[large[2] or large[3]])}{rest[large.end() :]}"
    return rest + r"\%" if percent else rest


def _shifted(number: str, places: int) -> str:
    """A decimal with its point moved to the right."""
    whole, _, part = number.partition(".")
    moved = (whole + part[:places].ljust(places, "0")).lstrip("0") or "0"
    return moved + (f".{part[places:]}" if part[places:] else "")
