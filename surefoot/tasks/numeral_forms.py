"""Other ways to write the signs of a number, brought to one, and numbers in Chinese characters."""

from __future__ import annotations

import re

_WIDE = str.maketrans("０１２３４５６７８９．％＋－／：＝（）＄＊＾", "0123456789.%+-/:=()$*^")
_SIGNS = _WIDE | str.maketrans(
    {
        "−": "-",
        "–": "-",
        "﹣": "-",
        "‐": "-",
        "‑": "-",
        "⁄": "/",
        "∕": "/",
        "·": "×",
        "⋅": "×",
        "∙": "×",
        "✕": "×",
        "✖": "×",
    }
    | {"’": "'", "\u00a0": " ", "\u2007": " ", "\u2009": " ", "\u202f": " ", "\u2002": " ", "\u2003": " ", "\u2061": ""}
    | {
        "￥": "¥",
        "﹩": "$",
        "萬": "万",
        "億": "亿",
        "兩": "两",
        "〇": "零",
        "點": "点",
        "負": "负",
        "個": "个",
        "∓": "±",
    }
)
_VULGAR = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5", "⅘": "4/5", "⅙": "1/6",
    "⅚": "5/6", "⅐": "1/7", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8", "⅑": "1/9", "⅒": "1/10",
}  # fmt: skip
_RAISED = re.compile("[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_LOW = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789")
_REWRITES = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r"(?<=[０-９])，(?=[０-９])", ","),
        (r"(?<=[0-9]),?(?:\\[,;:! ]|\{,\}|\{\\,\}|~)(?=[0-9]{3}(?![0-9]))", ","),
        (r"\\(?:left|right|[bB]igg?[lr]?)(?![A-Za-z])|\\!", ""),
        (r"\\[,;: ]|\\q?quad(?![A-Za-z])|~", " "),
        (r"\\(?:times|cdot|ast)(?![A-Za-z])", "×"),
        (r"\\(?:pm|mp)(?![A-Za-z])|\+/-", "±"),
        (r"\\pi(?![A-Za-z])", "π"),
        (r"\\sqrt(?![A-Za-z])", "√"),
        (r"\\neq?(?![A-Za-z])|!=", "≠"),
        (r"\\approx(?![A-Za-z])", "≈"),
        (r"\\([%$])", r"\1"),
        (r"(?<![A-Za-z])(?:RMB|CNY|USD|EUR|GBP|JPY|INR|Rs\.?)(?=[0-9])", "$"),
    )
)
_VULGARS = re.compile(f"([0-9] ?)?([{''.join(_VULGAR)}])")

HAN = "零一二两三四五六七八九十百千万亿"
_DIGITS = {c: k for k, c in enumerate("零一二三四五六七八九")} | {"两": 2}
_UNITS = {"十": 10, "百": 100, "千": 1000}
_LONGEST = 20


def plain(text: str) -> str:
    r"""Digits, signs and spaces as ASCII has them, ``½`` as ``1/2``, ``10³`` as ``10^{3}``, commands of LaTeX as one sign.

    >>> plain("１，２３４"), plain(r"2½"), plain(r"1{,}000 \times 10⁻³"), plain("−5")
    ('1,234', '2 1/2', '1,000 × 10^{-3}', '-5')
    """
    text = _REWRITES[0][0].sub(_REWRITES[0][1], text)
    if not text.isascii():
        text = _VULGARS.sub(lambda m: f"{(m[1] or '').rstrip()}{' ' if m[1] else ''}{_VULGAR[m[2]]}", text)
        text = _RAISED.sub(lambda m: f"^{{{m[0].translate(_LOW)}}}", text)
        text = text.translate(_SIGNS)
    for pattern, by in _REWRITES[1:]:
        text = pattern.sub(by, text)
    return text


def chinese(text: str) -> int | None:
    """The value of a numeral in Chinese characters (as :func:`plain` has them); None where it is none.

    >>> chinese("一百二十三"), chinese("两万"), chinese("一千零一"), chinese("十五"), chinese("万一"), chinese("三五")
    (123, 20000, 1001, 15, None, None)
    """
    if not text or len(text) > _LONGEST:
        return None
    for sign, size in (("亿", 10**8), ("万", 10**4)):
        above, found, below = text.rpartition(sign)
        if found:
            high, low = chinese(above), chinese(below) if below else 0
            return high * size + low if high and low is not None and low < size else None
    total, digit, least = 0, None, 10**4
    for c in text:
        if c in _DIGITS:
            if digit:  # 三五: about three to five, or a list
                return None
            digit = _DIGITS[c]
        elif _UNITS[c] >= least or not (digit or (c == "十" and not total)):
            return None
        else:
            total, digit, least = total + (digit or 1) * _UNITS[c], None, _UNITS[c]
    return total + (digit or 0)
