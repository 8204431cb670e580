r"""Where a text says what its answer is, in the words of several languages: one table, read by everything that looks for it.

Each mark ends where the answer begins. What follows it, to the end of the sentence and at most to the next mark, is a
statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_GAP = r"[ \t*_]{0,4}"
_ENGLISH = (
    # The answer is, my final answer would be, the correct option: , **Final Answer:**, ANSWER -
    r"(?<!wrong )(?<!incorrect )(?<!false )\b(?:answer|result|solution)(?:,? (?:then|therefore|thus|hence),?)?"
    r"(?:[ \t]++(?:choice|option|letter))?[ \t]++(?:is|was|should be|must be|would be|will be|equals|=)(?![A-Za-z])",
    r"\b(?:correct|right|best|final|appropriate)[ \t]++(?:option|choice|statement|letter)"
    r"[ \t]++(?:is|should be|must be|would be)\b",
    r"\b(?:answer|final result)[ \t]*\**(?:[:：=→]|[ \t][-–—](?=[ \t]))",
    r"\b(?:correct|right|final)[ \t]++(?:option|choice)[ \t]*\**[:：]",
    r"^[ \t]*#{1,6}[ \t]*(?:final[ \t]++)?answer[ \t]*\**[ \t]*$|^[ \t]*\*\*(?:final[ \t]++)?answer\*\*[ \t]*$",
)
_CHINESE = (
    r"答案(?:选项|选择)?(?:应该|应当|应|就|便|即|则|显然|当然|只能|只有)?(?:是|为|為|选择|選擇|选|選|等于|等於|即|乃)",
    r"答案(?:】|\]|\*\*)?[ \t]*\**[:：=]|【答案】|答案(?=[ \t]*[(（]?[A-JＡ-Ｊ][)）]?(?![A-Za-z]))",
    r"(?:正确|正確|最佳|合适|符合题意)(?:的)?(?:答案|选项|選項|选择)?(?:应该|应)?(?:是|为|為|[:：])",
    r"(?<![问問题題解回应應])[答][ \t]*[:：]|回答[ \t]*[:：]",
    r"(?:最终|最終|最后|最後|计算|計算)?(?:结果|結果)(?:是|为|為|等于|等於|[:：])",
    # 故选B, 因此选B: with a letter behind it, and no word of denial in front
    r"(?:故|所以|因此|因而|从而|從而|于是|综上(?:所述)?|(?<!不)(?<!别)应该?|(?<!不)應該?|(?<!不)该|则|就|我|本题|此题|本題|答|可以?确定|据此|题意|^|(?<=[。，,；;\s]))"
    r"[，, ]?(?:本题|此题|我们?|应该?|應該?|可)?(?:选择|選擇|选项|選項|选|選)(?:是|为|為)?[ \t]*[:：]?"
    r"(?=[ \t]*[(（【“\"*$]{0,3}[A-JＡ-Ｊ](?![A-Za-z]))",
)
_OTHERS = (
    r"\b(?:la )?respuesta(?: correcta| final)?(?: es\b|[ \t]*\**:)",
    r"\br[ée]ponse(?: correcte| finale| exacte)?(?: est\b|[ \t]*\**:)",
    r"\bantwort(?: ist| lautet)\b|\bantwort[ \t]*\**:",
    r"\b(?:resposta|risposta)(?: correta| corretta| final| finale)?(?: [ée]\b|[ \t]*\**:)|\brisposta(?: corretta| finale)? è",
    r"\bjawaban(?:nya)?(?: adalah\b|[ \t]*\**:)",
    r"(?:答え|正解|解答|答)(?:は|[:：])",
    r"(?:정답|답변|답)(?:은|는|[ \t]*[:：])",
    r"\bответ[ \t]*(?:[:：]|[—–-])|\bответ(?:ом)? (?:является|будет)",
)
_BEGINS = (
    r"(?=[a-zа-я#* \t\u3010\u3040-\u9fff\uac00-\ud7af])"  # the first signs of a mark: the others are passed quickly
)
MARK = re.compile(_BEGINS + "(?:" + "|".join((*_ENGLISH, *_CHINESE, *_OTHERS)) + ")", re.IGNORECASE | re.MULTILINE)

_END = re.compile(
    r"(?<!\.)[.!?](?=\s|$|\*|[\u4e00-\u9fff])|[。！？；]|\n"
    r"|,?\s(?:because|since|which|where|so|as|weil|porque|car)\s|,\s(?:but|not)\s"
    r"|[，,]\s?(?=(?:因为|由于|所以|因此|故|其中|而|但|这|即|也就|理由|单位|所求|验证|检验|因為|由於))"
)
_LEAD = re.compile(r"[ \t*_:：\n]+")


def statements(text: str) -> Iterator[str]:
    """What the text says its answer is, the last statement first; empty ones are left out."""
    marks = list(MARK.finditer(text))
    end = len(text)
    for mark in reversed(marks):
        lead = _LEAD.match(text, mark.end(), end)
        start = lead.end() if lead else mark.end()
        stop = _END.search(text, start, end)
        found = text[start : stop.start() if stop else end].strip().strip("*").strip()
        end = mark.start()
        if found:
            yield found
