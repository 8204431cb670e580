"""Tables that a command keeps in a Markdown page, between comments that mark their place; the rest is written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from surefoot.errors import DataError
from surefoot.files import write_atomic


def markdown(table: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table; the first is its head.

    >>> print(markdown([["a", "b"], ["1", "2|3"]]))
    | a | b |
    | --- | --- |
    | 1 | 2\\|3 |
    """
    head, *rest = ([cell.replace("|", r"\|") for cell in row] for row in table)
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rest))


def between(text: str, name: str, content: str) -> str:
    """The text with what stands between ``<!-- name -->`` and ``<!-- /name -->`` replaced.

    Raises:
        DataError: the text has no such place, or more than one.
    """
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise DataError(
            f"the page has no place for the {name}: expected one line '{begin.strip()}' and after it one line '{end}'"
        )
    return text[: text.index(begin) + len(begin)] + f"\n{content.strip()}\n\n" + text[text.index(end) :]


def read_page(path: Path, names: Sequence[str]) -> str:
    """The text of a page that has all of these places, so that hours of work do not end at a missing comment.

    Raises:
        DataError: no such file, or one without the comments.
    """
    if not path.is_file():
        comments = ", ".join(f"'<!-- {name} -->', '<!-- /{name} -->'" for name in names)
        raise DataError(f"{path} is no page: give a file with the comments {comments}, each on a line of its own")
    text = path.read_text(encoding="utf-8")
    for name in names:
        between(text, name, "")
    return text


def write_page(path: Path, contents: Mapping[str, str]) -> None:
    """Put each content between the comments of its name.

    Raises:
        DataError: as :func:`read_page`.
    """
    text = read_page(path, list(contents))
    for name, content in contents.items():
        text = between(text, name, content)
    write_atomic(path, text)


def made_with(environment: Mapping[str, Any]) -> str:
    """Versions and machine, in a sentence."""
    packages = ", ".join(f"{name} {environment['packages'][name]}" for name in ("torch", "transformers", "numpy"))
    return f"Python {environment['python']}, {packages}, {environment['machine']}."
