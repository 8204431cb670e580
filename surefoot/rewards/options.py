"""Which options of a question a text names, and which it denies."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from surefoot.rewards.latex import spelled

LONGEST = 1000
"""Of a longer text that many characters are looked at."""

_DRESS = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathbb|mathsf|bf|rm|boxed|fbox|left|right|displaystyle|q?quad)(?![A-Za-z])"
    r"|\\[,;:! ()\[\]]|[*_`$\"“”「」『』{}~>#]|(?<![A-Za-z])'|'(?![A-Za-z])"
)
_ALONE = re.compile(r"-?\s*[(\[]?\s*([A-Ja-j])\s*[)\]]?\s*[.:,!。;]?")
_NAMED_ALONE = re.compile(
    r"(?:option|choice|answer|letter)\s+[(\[]?([a-j])[)\]]?[.:!]?|(?:选项|選項|选|選)\s*\(?([a-j])\)?。?", re.I
)
_TOGETHER = re.compile(r"[A-J]{2,10}[.。]?")
_LEADING = re.compile(r"[(\[]?([a-j])[)\]]\s")
_MENTION = re.compile(
    r"(?<![A-Za-z0-9'°])(?P<open>[(\[]\s?)?(?P<letter>[A-J])(?P<close>\s?[)\]])?(?![A-Za-z0-9']|-[a-z])"
)
_HAN = "\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af"
_BEHIND_A = re.compile(
    rf"\s*(?:$|[.,;:/&+!?)\]。、；：=<>|–-]|[{_HAN}]|(?:is|was|are|and|or|nor|because|since|rather|instead|not|seems?|fails?|does|doesn't|isn't|"
    r"can|can't|cannot|over|must|would|has)\b)"
)
_BEHIND_I = re.compile(rf"\s*(?:$|[.;:/)\]。、；：]|[{_HAN}]|,?\s*(?:and|or|is)\b)")
_NO_OPTION = re.compile(
    r"(?:mr\.?|mrs\.?|dr\.?|vitamin|hepatitis|plan|group|type|team|points?|person|class|grade|figure|table|section|part|step|degrees|[0-9°])\s*$",
    re.I,
)
_JOIN = re.compile(r"\s*(?:,|、|;|/|&|\+|和|与|與|及|或|,?\s*(?:and|or|nor)\b)*\s*(?:(?:option|choice)s?\s*)?", re.I)
_AND = re.compile(r"and|or|nor|和|与|與|及|或|、|[&/]", re.I)
_DENIED_BEFORE = re.compile(
    r"(?:\b(?:not|never|neither|nor|except|excluding|without|non|nicht|pas|none of|other than|rather than|instead of|better than"
    r"|over|(?:any|every)thing but|all but|(?:rul(?:e|es|ed|ing) out|exclud(?:e|es|ed)|eliminat(?:e|es|ed|ing)"
    r"|reject(?:s|ed|ing)?|discard(?:s|ed|ing)?|dismiss(?:es|ed|ing)?)(?: is| are)?"
    r"|no es|no way|(?:doubt|den(?:y|ies))(?: that| if| whether)?)"
    r"|n't|cannot|¬|≠|!=|\\neg?|\\neq)"
    r"\s*(?:be|choose|pick|select|possibly|go with|it's|it is|it to be)?\s*(?:both|either)?\s*(?:the\s+)?"
    r"(?:option|choice|answer|letter)?s?\s*[:(]?\s*$"
    r"|(?:不|别|別|未|非|没|勿|排除|除了|除去|除|淘汰|剔除|否定)"
    r"(?:能|会|會|可能|应当|应该|应|應該|應|该|要|是|为|為|选择|選擇|选项|選項|选|選|可以|可|掉)*\s*\(?\s*$",
    re.I,
)
_WRONG = (
    r"not|wrong|incorrect|false|out\b|ruled|eliminated|excluded|rejected|discarded|dismissed|impossible|inconsistent|irrelevant"
    r"|too\b|untrue|invalid|no\b|absurd|unlikely|nonsense|misleading|unrelated|(?:the|an?)\s+(?:wrong|incorrect|false|worst|distractor)"
)
_DENIED_AFTER = re.compile(
    r"\s*(?:option|choice)?\s*(?:out\b(?! of)"
    r"|(?:is|are|was|were|seems?|looks?|must be|has been|have been|can be|could be|being)\s+"
    rf"(?:(?:all|both|clearly|obviously|also|therefore|thus|definitely|simply|just|then|easily|completely)\s+)*(?:{_WRONG})"
    r"|(?:is|are|was|does|do|ca|could|wo|would|did)n't\b|(?:can|could|do|does|will|would|may|must)\s*not\b"
    r"|(?:fail|contradict|conflict|violate|ignore|miss|lack)(?:e?s|e?d)?\b|ha(?:s|ve) (?:nothing|no)\b|makes? no\b)"
    r"|\s*(?:选项|選項|项|項|答案)?\s*(?:的)?(?:说法|表述|描述|叙述|陈述)?"
    r"(?:都|均|也|皆|全|显然|明显|则|就|是|可以|可|应该|应|会|被|与题意|和题意|与题干|与原文)*\s*"
    r"(?:错|錯|不(?![选選])|排除|有误|非|淘汰|矛盾|无关|相悖)",
    re.I,
)
THEREFORE = re.compile(r"\b(?:so|therefore|thus|hence|leaving|leaves)\b|所以|因此|故", re.I)
_BECAUSE = re.compile(r"\b(?:because|since|as)\b|因为|因為|由于", re.I)


@dataclass(frozen=True)
class Named:
    """The letters of a text, each once, in order.

    Attributes:
        named: those that it names.
        denied: those that it says are not the answer.
    """

    named: tuple[str, ...] = ()
    denied: frozenset[str] = frozenset()


def plain(text: str) -> str:
    """A text as options are compared: one spelling, without case and double spaces."""
    return " ".join(spelled(text[: 4 * LONGEST]).casefold().split())


def named_in(text: str, options: Mapping[str, str]) -> Named:
    """The options that a text names or denies, by their letters or their texts; at most :data:`LONGEST` characters of it.

    A letter counts where it stands by itself. "A" and "I" are words too, and count where no sentence goes on behind them.
    Where a conclusion ("so B", 故选B) names an option, what stands before it does not count, nor does a reason behind it.
    """
    text = text[:LONGEST]
    whole = plain(text)
    for letter, option in options.items():
        if whole and whole == plain(option):
            return Named((letter,))
    text = _undressed(text)
    if alone := _ALONE.fullmatch(text) or _NAMED_ALONE.fullmatch(text):
        return Named((next(filter(None, alone.groups())).upper(),))
    if _TOGETHER.fullmatch(text):
        return Named(tuple(dict.fromkeys(text.rstrip(".。"))))
    if leading := _LEADING.match(text):
        text = text[: leading.start(1)] + leading[1].upper() + text[leading.end(1) :]
    for piece in _pieces(text):
        found = _mentions(piece, options)
        if found.named:
            return found
    return _mentions(text, options)


def letter_of(answer: str, options: Mapping[str, str]) -> str | None:
    """The letter of a gold answer, which is one or the text of an option."""
    alone = _ALONE.fullmatch(answer.strip())
    if alone:
        return alone[1].upper()
    return next((letter for letter, option in options.items() if plain(option) == plain(answer)), None)


def begun_with(line: str, options: Mapping[str, str]) -> tuple[str, ...]:
    """The letter that a line is, alone or with its option's text behind it ("B", "(B)", "Option B", "B. Rome"), or its text."""
    if not line.strip() or len(line) > LONGEST:
        return ()
    text = _undressed(line)
    if (alone := _ALONE.fullmatch(text) or _NAMED_ALONE.fullmatch(text)) or plain(line) in map(plain, options.values()):
        return named_in(line, options).named if alone or options else ()
    found = _MENTION.match(text)
    if found and plain(text[found.end() :].lstrip(" .:)-、")) == plain(options.get(found["letter"], "")) != "":
        return (found["letter"],)
    return ()


def _undressed(text: str) -> str:
    """Without emphasis, quotes and LaTeX around words, and with the signs of ASCII for full-width ones."""
    text = text.replace("’", "'").replace("【", "[").replace("】", "]")
    text = "".join(n if len(n := unicodedata.normalize("NFKC", c)) == 1 else c for c in text)
    return " ".join(_DRESS.sub(" ", text).split())


def _pieces(text: str) -> list[str]:
    """What is tried before the whole text: the last conclusion, and what stands before the first reason."""
    ends = [match.end() for match in THEREFORE.finditer(text)]
    last = text[ends[-1] :] if ends else text
    reason = _BECAUSE.search(last)
    return [last[: reason.start()] if reason else last, last]


def _mentions(text: str, options: Mapping[str, str]) -> Named:
    groups: list[list[re.Match[str]]] = []
    for match in filter(lambda match: _is_option(text, match, options), _MENTION.finditer(text)):
        if groups and _JOIN.fullmatch(text, groups[-1][-1].end(), match.start()):
            groups[-1].append(match)
        else:
            groups.append([match])
    named: list[str] = []
    denied: set[str] = set()
    for group in groups:
        letters = [match["letter"] for match in group]
        behind = _DENIED_AFTER.match(text, group[-1].end())
        if _DENIED_BEFORE.search(text[max(0, group[0].start() - 60) : group[0].start()]) or (
            behind and (len(group) == 1 or _AND.search(text, group[0].end(), group[-1].start()) or "are" in behind[0])
        ):
            denied.update(letters)
        else:
            named += letters[: len(letters) - bool(behind)]
            denied.update(letters[len(letters) - bool(behind) :])
    texts, no_texts = _texts(plain(text), options, joined=bool(named))
    return Named(tuple(dict.fromkeys([*named, *texts])), frozenset(denied | no_texts))


def _is_option(text: str, match: re.Match[str], options: Mapping[str, str]) -> bool:
    letter, end = match["letter"], match.end()
    if _NO_OPTION.search(text[max(0, match.start() - 12) : match.start()]):
        return False
    if match["open"] and match["close"]:
        return True
    if letter == "A" and not match.start() and options and text[end : end + 2] == ": ":  # "A:" opens an answer
        return plain(text[end + 2 :]) == plain(options.get("A", ""))
    if match["close"]:
        return True
    return {"A": _BEHIND_A, "I": _BEHIND_I}[letter].match(text, end) is not None if letter in "AI" else True


def _texts(text: str, options: Mapping[str, str], joined: bool) -> tuple[list[str], set[str]]:
    """Options whose texts a text names (behind a letter only where "or", "and" or a comma joins them), and denies."""
    named, denied = [], set()
    for letter, option in options.items():
        wanted = plain(option)
        before = r"(?:\bor|\band|[,/&，、]|[或和])\s*" if joined else r"(?<![0-9A-Za-z.])"
        match = re.search(rf"{before}({re.escape(wanted)})(?![0-9A-Za-z]|\.[0-9])", text) if wanted else None
        if match is None:
            continue
        if _DENIED_BEFORE.search(text[: match.start(1)]) or _DENIED_AFTER.match(text, match.end()):
            denied.add(letter)
        else:
            named.append(letter)
    return named, denied
