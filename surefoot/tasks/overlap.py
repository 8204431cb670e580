"""What makes two problems the same one: their normal form, for the split and its check, and n-grams of words against
whole evaluation sets.

The normal form leaves out what can differ between two copies of a problem and cannot change its answer: Unicode variants,
case, white space, quotation marks, question marks, punctuation at the end of words, dollar signs and spacing commands
of LaTeX, separators of thousands and zeros at the end of decimals. Operators, brackets and signs stay.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from surefoot.errors import DataError
from surefoot.tasks.base import content_id
from surefoot.types import Prompt

NGRAM = 13
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_ZEROS = re.compile(r"(?<![\w.])(\d+)\.(\d*?)0+(?![\d.])")
_SPACING = re.compile(r"\\[,;:! ]|\\(?:left|right|displaystyle|quad|qquad)(?![a-z])|\\[()\[\]]|\$|[\"“”„«»`?]")
_ENDS = re.compile(r"[.,;:]+(?=\s|$)")
_DASHES = str.maketrans({"\u2212": "-", "\u2013": "-", "\u2014": "-", "\u2019": "'"})


def normal_form(text: str) -> str:
    """The text without what copies of a problem differ in.

    >>> normal_form("What is  1,000 + 2.50?") == normal_form("what is $1000+2.5$")
    True
    >>> normal_form("1 + 2") == normal_form("1 - 2")
    False
    """
    text = unicodedata.normalize("NFKC", text).translate(_DASHES).casefold()
    text = _ENDS.sub("", _SPACING.sub(" ", text))
    text = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    text = _ZEROS.sub(lambda match: f"{match[1]}.{match[2]}".rstrip("."), text)
    # White space matters between two words only: "1 + 2" is "1+2", and "4 5" is not "45".
    return re.sub(r" ?([^\w\s]) ?", r"\1", " ".join(text.split()))


def problem_text(prompt: Prompt) -> str:
    """All that the problem says: its text, or its messages but those of the system."""
    if isinstance(prompt.content, str):
        return prompt.content
    return "\n".join(message["content"] for message in prompt.content if message["role"] != "system")


def problem_key(prompt: Prompt) -> str:
    """A hash of the normal form; copies of a problem share it. The split of data sets goes by it."""
    text = problem_text(prompt)
    # What is all punctuation has an empty normal form, and stands for itself.
    return content_id("problem", normal_form(text) or text)


def twins(train: Iterable[Prompt], heldout: Iterable[Prompt]) -> list[tuple[Prompt, Prompt]]:
    """Pairs (trained, held out) that are the same problem; each trained one once."""
    known: dict[str, Prompt] = {}
    for prompt in heldout:
        known.setdefault(problem_key(prompt), prompt)
    return [(prompt, known[key]) for prompt in train if (key := problem_key(prompt)) in known]


def separate(
    train: Sequence[Prompt],
    heldout: Sequence[Prompt],
    *,
    drop: bool,
    where: str,
    rows: tuple[Mapping[str, int], Mapping[str, int]] = ({}, {}),
) -> tuple[list[Prompt], list[str]]:
    """The training problems that are not held out, and a note about those that were left out.

    Args:
        train, heldout: the two parts.
        drop: whether copies are left out of training instead of refused.
        where: what the parts are, for messages.
        rows: for each part prompt_id -> number of its row, where it has one.

    Raises:
        DataError: a problem is in both parts, and ``drop`` is not set.
    """
    shared = twins(train, heldout)
    if not shared:
        return list(train), []
    if not drop:
        first, twin = (
            f"row {numbers[prompt.prompt_id]}" if prompt.prompt_id in numbers else repr(prompt.text[:60])
            for numbers, prompt in zip(rows, shared[0], strict=True)
        )
        raise DataError(
            f"{len(shared)} problems stand in both {where} (first: {first} and {twin}): held-out "
            "problems must never be trained on; remove them, or set task.overlap = 'drop' to leave the training copies out"
        )
    gone = {id(prompt) for prompt, _ in shared}
    note = f"{len(shared)} training problems are also held out ({where}) and were left out of training"
    return [prompt for prompt in train if id(prompt) not in gone], [note]


class Decontaminator:
    """Knows the problems of evaluation sets, and finds training problems that overlap with one of them.

    A problem overlaps where it shares a run of ``n`` words with one of them (GPT-3, arXiv 2005.14165, appendix C, takes
    n = 13), or where their normal forms are equal, which is the test for problems shorter than n words.

    Args:
        problems: of the evaluation sets.
        n: words of a run.
    """

    def __init__(self, problems: Iterable[Prompt], n: int = NGRAM) -> None:
        self.n = n
        self.keys: set[str] = set()
        self.grams: set[int] = set()
        for prompt in problems:
            self.keys.add(problem_key(prompt))
            self.grams.update(self._grams(prompt))

    def overlaps(self, prompt: Prompt) -> bool:
        return problem_key(prompt) in self.keys or not self.grams.isdisjoint(self._grams(prompt))

    def _grams(self, prompt: Prompt) -> set[int]:
        words = re.findall(r"\w+", unicodedata.normalize("NFKC", problem_text(prompt)).casefold())
        # Hashes of tuples of texts differ between processes, and never leave this one.
        return {hash(tuple(words[i : i + self.n])) for i in range(len(words) - self.n + 1)}
