"""What other libraries call the keys of the configuration: for messages, and for the page ``docs/coming_from.md``.

The names lie in ``terms.toml``: those of TRL 1.16 (``GRPOConfig``, ``SFTConfig``), of Transformers' ``TrainingArguments``, from
which TRL's settings inherit, of verl 0.9 (``ppo_trainer.yaml``), of OpenRLHF (``train_ppo_ray``: the dotted names, and the
flat ones before them), and names that people try although no library has them (``guess``).
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

LIBRARIES = {"trl": "TRL", "hf": "Transformers", "verl": "verl", "openrlhf": "OpenRLHF"}
SIMILAR = 0.85


@dataclass(frozen=True)
class Term:
    """One setting, as each library calls it.

    Attributes:
        about: what it belongs to.
        keys: what it is here: keys of a run or of supervised training, or an option (``--resume``); empty where nothing is.
        note: what differs, or why nothing is there.
        trl, hf, verl, openrlhf: names in that library.
        guess: names that no library has and that people try.
    """

    about: str
    keys: tuple[str, ...]
    note: str = ""
    trl: tuple[str, ...] = ()
    hf: tuple[str, ...] = ()
    verl: tuple[str, ...] = ()
    openrlhf: tuple[str, ...] = ()
    guess: tuple[str, ...] = ()

    def names(self) -> Iterator[tuple[str, str]]:
        """(library, name) of each name; the library is "" for a guess."""
        for library in (*LIBRARIES, "guess"):
            for name in getattr(self, library):
                yield LIBRARIES.get(library, ""), name


@cache
def terms() -> tuple[Term, ...]:
    """Every setting that has another name elsewhere."""
    return tuple(_term(table) for table in _read()["term"])


def _term(table: Mapping[str, Any]) -> Term:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return Term(**values)


def presets() -> dict[str, str]:
    """Objectives by the names that other libraries and people have for them."""
    return dict(_read()["presets"])


def meaning(word: str, known: Callable[[str], bool], whole: bool = False) -> str:
    """What a key of another library is here, as a sentence behind a blank; "" where none of them has it.

    A dotted name is looked for whole, and then by its last part (``train.num_generations``).

    Args:
        word: as it was given; a dash counts as an underscore.
        known: whether a key of ours can be given where the word stood. Others are not named.
        whole: look for the whole of a dotted name alone.

    >>> meaning("num-generations", lambda key: True)
    " What TRL calls 'num_generations' is 'train.group_size' here: samples of each prompt."
    """
    word = word.replace("-", "_")
    if whole and "." not in word:
        return ""
    for name in (word,) if whole else dict.fromkeys((word, _last(word))):
        sentences = [said for term in terms() if (said := _sentence(term, name, known))]
        if sentences:
            return "".join(sentences[:2])
    return ""


def nearly(word: str) -> tuple[str, float]:
    """The name of another library that a word is nearly spelt like, and how nearly (0 to 1); ("", 0) where there is none."""
    word = _last(word.replace("-", "_"))
    names = sorted({_last(name) for term in terms() for _, name in term.names()})
    close = difflib.get_close_matches(word, names, n=1, cutoff=SIMILAR)
    return (close[0], difflib.SequenceMatcher(None, word, close[0]).ratio()) if close else ("", 0.0)


def _sentence(term: Term, word: str, known: Callable[[str], bool]) -> str:
    """What the term says of a word that is one of its names, or the last part of one."""
    library = next((library for library, name in term.names() if word in (name, _last(name))), None)
    keys = [key for key in term.keys if known(key)]
    if library is None or (term.keys and not keys):
        return ""
    here = f"is {' and '.join(repr(key) for key in keys)} here" if keys else "has no counterpart here"
    note = f": {term.note}" if term.note else ""
    return f" What {library} calls '{word}' {here}{note}." if library else f" '{word}' {here}{note}."


def _last(name: str) -> str:
    return name.rsplit(".", 1)[-1]


@cache
def _read() -> Any:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
