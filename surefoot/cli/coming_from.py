"""The tables of ``docs/coming_from.md``, made from the terms of other libraries: ``make docs`` keeps them in the page."""

from __future__ import annotations

import sys
from pathlib import Path

from surefoot.methods.pages import markdown, write_page
from surefoot.terms import LIBRARIES, Term, presets, terms

PLACE = "terms"


def tables() -> str:
    """A table for each subject, and one of the objectives, in Markdown."""
    lines: list[str] = []
    for about in dict.fromkeys(term.about for term in terms()):
        rows = [_row(term) for term in terms() if term.about == about]
        lines += [f"### {about}", "", markdown([["here", *LIBRARIES.values(), ""], *rows]), ""]
    rows = [[f"`{ours}`", f"`{theirs}`"] for theirs, ours in presets().items()]
    lines += ["### Objectives", "", markdown([["`algorithm.preset`", "other names"], *rows])]
    return "\n".join(lines)


def _row(term: Term) -> list[str]:
    names = [_code(getattr(term, library)) for library in LIBRARIES]
    return [_code(term.keys) or "-", *names, term.note.replace("<", "&lt;")]


def _code(words: tuple[str, ...]) -> str:
    """Names as code; a word behind a shared beginning (``actor_rollout_ref.actor.``) is written out all the same."""
    return ", ".join(f"`{word}`" for word in words)


if __name__ == "__main__":
    write_page(Path(sys.argv[1]), {PLACE: tables()})
