"""The verifier 'language': how much of a completion is written in the script of one language."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from surefoot.config import nearest
from surefoot.errors import RewardError
from surefoot.rewards.base import Completion
from surefoot.rewards.verifiers.base import Verifier, measured
from surefoot.types import Score, Status

SCRIPTS = {
    "latin", "han", "kana", "hangul", "cyrillic", "greek", "arabic", "hebrew", "devanagari", "bengali", "tamil", "telugu",
    "thai", "georgian", "armenian", "ethiopic", "khmer", "lao", "myanmar",
}  # fmt: skip
LANGUAGES = {
    "english": {"latin"}, "french": {"latin"}, "german": {"latin"}, "spanish": {"latin"}, "portuguese": {"latin"},
    "italian": {"latin"}, "turkish": {"latin"}, "vietnamese": {"latin"}, "chinese": {"han"}, "japanese": {"han", "kana"},
    "korean": {"hangul"}, "russian": {"cyrillic"}, "ukrainian": {"cyrillic"}, "hindi": {"devanagari"}, "persian": {"arabic"},
}  # fmt: skip
_NAMED = {
    "CJK": "han",
    "HIRAGANA": "kana",
    "KATAKANA": "kana",
    "KATAKANA-HIRAGANA": "kana",
    "HALFWIDTH": "kana",
    "FULLWIDTH": "latin",
}
_BY_CHARACTER = {"han", "kana", "thai", "lao", "khmer", "myanmar"}
_MATHEMATICS = re.compile(
    r"\$\$.*?\$\$|\$[^$\n]*\$|\\\[(?:(?!\\\[).)*?\\\]|\\\((?:(?!\\\().)*?\\\)|\\[A-Za-z]+|</?[A-Za-z_]+>|```.*?```|`[^`\n]*`",
    re.DOTALL,
)


@dataclass(frozen=True)
class Language(Verifier):
    """The share of words that are in the script of the prompt, or of a given language, as in DeepSeek-R1.

    That paper (arXiv 2501.12948) rewards the proportion of words of the target language in the chain of thought. Here a
    language is known by its script alone: English and Chinese are told apart, English and French are not. Characters of
    scripts without spaces are words; formulas, commands of LaTeX, code, tags and single Latin letters do not count. A
    completion without any word is ``Status.NO_ANSWER`` with total 0.

    Attributes:
        language: a language or a script; "" for the most frequent script of the prompt.
    """

    name: ClassVar[str] = "language"
    about: ClassVar[str] = "the share of words in the script of the prompt or of a given language"
    manner: ClassVar[bool] = True

    language: str = ""

    def __post_init__(self) -> None:
        if self.language and self.language.lower() not in SCRIPTS | LANGUAGES.keys():
            hint = nearest(self.language.lower(), [*LANGUAGES, *SCRIPTS])
            raise RewardError(
                f"the option language = '{self.language}' of the verifier 'language' is not known." + hint
            )

    def wants_gold(self) -> bool:
        return False

    def verdict(self, completion: Completion) -> Score:
        found = words_by_script(completion.text)
        if not found.total():
            return Score(0.0, {"language": 0.0}, None, Status.NO_ANSWER)
        wanted = self._wanted(completion.prompt.text)
        if not wanted:  # the prompt has no words: any one language will do
            wanted = {found.most_common(1)[0][0]}
        share = sum(found[script] for script in wanted) / found.total()
        return measured("language", share, ", ".join(f"{script} {n}" for script, n in sorted(found.items())))

    def _wanted(self, prompt: str) -> set[str]:
        if self.language:
            return LANGUAGES.get(self.language.lower(), {self.language.lower()})
        found = words_by_script(prompt)
        if found["kana"]:
            return LANGUAGES["japanese"]
        return {max(sorted(found), key=lambda script: found[script])} if found.total() else set()


def words_by_script(text: str) -> Counter[str]:
    """How many words of each script a text has.

    >>> sorted(words_by_script("The answer 是四, $x = y$").items())
    [('han', 2), ('latin', 2)]
    """
    found: Counter[str] = Counter()
    run, length = "", 0
    for c in _MATHEMATICS.sub(" ", text) + " ":
        script = _script(c)
        if script == "mark" and run:  # an accent of its own
            continue
        if script != run:
            if run and not (run == "latin" and length == 1):
                found[run] += 1
            run, length = ("", 0) if script in _BY_CHARACTER or script == "mark" else (script, 0)
            if script in _BY_CHARACTER:
                found[script] += 1
        length += 1
    return found


@functools.lru_cache(maxsize=4096)
def _script(c: str) -> str:
    """The script of a letter, "mark" for one that combines with the letter before it, "" for anything else."""
    category = unicodedata.category(c)
    if category in ("Mn", "Mc"):
        return "mark"
    if not category.startswith("L"):
        return ""
    word = unicodedata.name(c, "").split(" ")[0]
    return _NAMED.get(word, word.lower())
