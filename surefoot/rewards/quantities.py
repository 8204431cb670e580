r"""Numbers with something behind or before them that is no part of their value: a unit, money, a base, a modulus.

A unit is brought to one spelling, ``km/h`` and ``kilometers per hour`` and ``千米/时`` to ``h^-1 km^1``; it is never converted.
Per cent and degrees are also numbers: those have a second reading (``\frac{50}{100}`` of ``50\%``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from surefoot.rewards.words import VALUES

_NAMES = {
    "meter metre 米": "m", "gram 克": "g", "second sec 秒": "s", "minute 分钟 分": "min", "hour hr 小时 时": "h",
    "day 天 日": "day", "week 周 星期": "week", "month 月": "month", "year yr 年": "year",
    "liter litre 升": "L", "tonne ton 吨": "t",
    "foot feet": "ft", "inch inche": "in", "yard": "yd", "mile": "mi", "pound lb": "lb", "ounce": "oz", "gallon": "gal",
    "joule 焦耳": "J", "newton 牛顿 牛": "N", "watt 瓦": "W", "volt 伏": "V", "ampere amp 安": "A", "ohm \\Omega Ω 欧姆": "ohm",
    "pascal": "Pa", "hertz": "Hz", "mole": "mol", "kelvin": "K", "coulomb": "C", "radian rad 弧度": "rad", "unit": "unit",
    "degree ° 度": "°", "厘米 公分 centimeter centimetre": "cm", "毫米 millimeter millimetre": "mm", "分米 decimeter": "dm",
    "千米 公里 kilometer kilometre": "km", "千克 公斤 kilogram": "kg", "毫克 milligram": "mg", "毫升 milliliter millilitre": "mL",
    "公顷 hectare": "ha", "dollar usd us$ $ 美元 美金": "$", "euro eur € 欧元": "€", "£ gbp 英镑": "£",
    "¥ yuan rmb cny 元 块 人民币": "¥",
    "people person 人": "people", "yen jpy 日元 円": "yen", "cent": "cent", "pence": "pence", "角": "角", 
    "celsiu °c °celsius 摄氏度 摄氏°": "°C", "fahrenheit °f °fahrenheit 华氏度 华氏°": "°F",
}  # fmt: skip
_KNOWN = {word: unit for words, unit in _NAMES.items() for word in words.split()}
_SYMBOL = re.compile(
    r"(?:[µμnmcdkMGT]|\\mu ?)?(?:m|g|s|A|V|W|J|N|Pa|Hz|L|l|mol|K|C|F|T|Hz|eV|cal|bit|B)|min|h|ft|in|yd|mi|lb|oz|gal|t|ha|"
    r"kWh|°[CF]?|atm|bar|rpm|dB|amu|u"
)
_COMPOUND = {"mph": "mi/h", "kph": "km/h", "kmh": "km/h", "kmph": "km/h"}
_ALIKE = ({"lb", "£"}, {"¥", "yen"})
_SIGNS = r"\\?\$|€|£|¥|USD|US\s?\\?\$|EUR|GBP"
_MONEY = re.compile(rf"(?P<sign>[+-]?)\s*(?P<unit>{_SIGNS})\s*(?P<number>[-0-9.(\\].*)")
_MONEY_BEHIND = re.compile(r"(?P<number>.*[0-9}).])\s*(?P<unit>\\\$|\$|€|£|¥)")
_PERCENT = re.compile(r"(.*?)\s*(?:\\?%|\\percent|\bpercent(?:age)?)")
_BASE = re.compile(
    r"\(?(?P<number>[0-9][0-9A-Fa-f]*)\)?\s*(?:_\s*\{?\s*(?P<base>[0-9]{1,2}|[a-z]+)\s*\}?|"
    r"\(?\s*(?:in )?base[ -](?P<named>[0-9]{1,2}|[a-z]+)\s*\)?)"
)
_MODULUS = re.compile(
    r"(?P<number>.+?)\s*(?:\\pmod|\\bmod|\\mod|\(\s*\\?mod|(?<![A-Za-z\\])mod)\s*\{?\s*(?P<modulus>[0-9]+)\s*\}?\s*\)?"
)
_NUMBER = r"(?:.*[0-9}.)\]|]|.*\\pi)"
_SPLIT = re.compile(
    rf"(?P<number>{_NUMBER})(?P<blank>\s*)(?P<unit>(?:\\(?:Omega|mu|cdot)|[A-Za-zµμΩ°/]|[^\W\d_a-zA-Z]).*)"
)
_TOKEN = re.compile(
    r"\s*(\\cdot|\\Omega|\\mu ?[A-Za-z]+|°\s*(?:Celsius|Fahrenheit|[CF])?|[A-Za-zµμΩ]+|"
    r"[^\x00-\x7f°µμΩ/]+|[$/])\s*(?:\^\{?(-?[1-4])\}?)?\.?"
)
# fmt: off
_NO_UNIT = frozenset([
    "or", "and", "not", "more", "less", "than", "squared", "cubed", "factorial", "dozen", "vs", "versus", "perhaps",
    "maybe", "mod", "modulo", "at", "least", "most", "over", "times", "plus", "minus", "power", "if", "when", "where",
    "but", "is", "choose", "noon", "midnight", "am", "pm", "oder", "und", "base", "with", "from", "until", "between",
])
# fmt: on
_NO_CHINESE_UNIT = re.compile("[或和且非不约大小多少至到以余除加减乘倍半百千万亿]")
_LETTER = re.compile(
    r"\\(?!sqrt|frac|pi|cdot|times|left|right|ln|log|sin|cos|tan|overline|circ)[A-Za-z]+|(?<![\\A-Za-z])[A-Za-z]+"
)
_TRIG = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])|(?<![A-Za-z])cis")
_MINUTES = re.compile(r"([0-9]+)\s*°\s*([0-9]{1,2})\s*'(?:\s*([0-9]{1,2})\s*(?:''|\"))?")
_TURNED = re.compile(r"([0-9]+(?:\.[0-9]+)?|\\frac\{[^{}]*\}\{[^{}]*\})\s*°")


@dataclass(frozen=True)
class Quantity:
    """A number without its unit, the unit, and what the two are together where that is a number ("" where not)."""

    text: str
    unit: str = ""
    whole: str = ""


def quantity(text: str) -> Quantity:
    """Take the unit from a text in the spelling of :func:`surefoot.rewards.latex.spelled`."""
    if "°" in text and (turned := _turned(text)):
        return turned
    if percent := _PERCENT.fullmatch(text):
        return Quantity(percent[1], "%", rf"\frac{{{percent[1]}}}{{100}}")
    if based := _BASE.fullmatch(text):
        name = based["base"] or based["named"]
        base = int(name) if name.isdigit() else VALUES.get(name, 0)
        if 2 <= base <= 16 and all(int(digit, 16) < base for digit in based["number"]):
            return Quantity(based["number"].upper(), f"base {base}")
    if modular := _MODULUS.fullmatch(text):
        return Quantity(modular["number"], f"mod {int(modular['modulus'])}")
    if money := _MONEY.fullmatch(text):
        inner = quantity(money["number"])
        sign = "$" if "$" in money["unit"] else _KNOWN[money["unit"].lower().strip()]
        rest = inner.unit if inner.unit and inner.unit != sign else ""
        return Quantity(money["sign"] + inner.text, " ".join(filter(None, (sign, rest))))
    if money := _MONEY_BEHIND.fullmatch(text):
        return Quantity(money["number"], _KNOWN[money["unit"].lstrip("\\")])
    if (parts := _SPLIT.fullmatch(text)) and (unit := _unit(parts["number"], parts["blank"], parts["unit"])):
        return Quantity(parts["number"], unit)
    return Quantity(text)


def alike(one: str, other: str) -> bool:
    """Whether two units are the same, or may be (``pounds``)."""
    return one == other or {one, other} in _ALIKE


def _turned(text: str) -> Quantity | None:
    """An angle in degrees: inside a function a number; else a number of degrees, with a second reading in radians."""
    text = _MINUTES.sub(
        lambda match: rf"\frac{{{int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3] or 0)}}}{{3600}}°", text
    )
    if re.search(r"°\s*[CF]|°\s*(?:Celsius|Fahrenheit)", text):
        return None
    radians = _TURNED.sub(lambda match: rf"\left(\frac{{\pi}}{{180}}\cdot {match[1]}\right)", text)
    radians = radians.replace("°", r"\cdot\frac{\pi}{180}").replace(r"\left", "").replace(r"\right", "")
    if _TRIG.search(text):
        return Quantity(radians)
    return Quantity(" ".join(text.replace("°", " ").split()), "°", radians)


def _unit(number: str, blank: str, text: str) -> str:
    """A unit in one spelling; "" where the text is none."""
    free = _LETTER.sub(lambda match: "" if match[0] in ("e", "i") else match[0], number) != _LETTER.sub("", number)
    if free or (not blank and re.fullmatch("[A-Za-z]", text)):  # "3m" is a product, "3 m" is a length
        return ""
    found = _known(_COMPOUND.get(text.lower(), text))
    if found is not None:
        return found
    words = re.sub(r"[^\w\s]", " ", text).split()
    if (
        "\\" in text
        or not words
        or len(words) > 6
        or not re.fullmatch(r"[-+]?[0-9.,\s]+|.*\\frac\{[0-9]+\}\{[0-9]+\}", number)
    ):
        return ""
    if (
        any(word.lower() in _NO_UNIT for word in words)
        or _NO_CHINESE_UNIT.search(text)
        or re.search("[0-9=<>^_]", text)
    ):
        return ""
    if any(len(word) < 3 and word.isascii() and word.lower() not in ("of", "to", "in") for word in words):
        return ""
    return " ".join(word.lower().removesuffix("s") for word in words)


def _known(text: str) -> str | None:
    """A product of powers of known units."""
    powers: dict[str, int] = {}
    place, sign, next_power, last = 0, 1, 1, ""
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            return None
        place = token.end()
        word, power = "".join(token[1].split()), int(token[2] or 1)
        lower = word.lower()
        if lower in ("\\cdot", "of"):
            continue
        if lower in ("/", "per", "每"):
            sign = -1
        elif lower in ("square", "sq", "平方", "cubic", "cu", "立方"):
            next_power = 2 if lower in ("square", "sq", "平方") else 3
        elif lower in ("squared", "cubed") and last:
            powers[last] *= 2 if lower == "squared" else 3
        else:
            for prefix, raised in (("平方", 2), ("立方", 3)):
                if word.startswith(prefix):
                    word, next_power = word.removeprefix(prefix), raised
            head, _, tail = word.partition("每")
            names = [head, tail] if tail else [word]
            for turn, name in enumerate(names):
                found = (
                    name
                    if _SYMBOL.fullmatch(name)
                    else _KNOWN.get(name) or _KNOWN.get(name.lower(), _KNOWN.get(name.lower().removesuffix("s")))
                )
                if found is None:
                    return None
                last = {"l": "L", "ml": "mL"}.get(found, found)
                powers[last] = powers.get(last, 0) + (-1 if turn else sign) * power * next_power
            next_power = 1
    kept = {"unit": 1} if set(powers) == {"unit"} and powers["unit"] == 1 else powers
    return " ".join(f"{name}^{power}" if power != 1 else name for name, power in sorted(kept.items())) or None
