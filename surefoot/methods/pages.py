"""Tables that a command keeps in a Markdown page, between comments that mark their place; the rest is written by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from surefoot.errors import DataError, RunFolderError
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

    The content gets the line ends of the first comment; everything else stays as it is.

    Raises:
        DataError: the text has no such place, or more than one.
    """
    begins = list(re.finditer(rf"<!-- {re.escape(name)} -->(\r?\n)", text))
    end = f"<!-- /{name} -->"
    if len(begins) != 1 or text.count(end) != 1 or begins[0].start() > text.index(end):
        raise DataError(
            f"the page has no place for the {name}: expected one line '<!-- {name} -->' and after it one line '{end}'"
        )
    lines = f"\n{content.strip()}\n\n".replace("\n", begins[0][1])
    return text[: begins[0].end()] + lines + text[text.index(end) :]


def read_page(path: Path, names: Sequence[str]) -> str:
    """The text of a page that has all of these places, so that hours of work do not end at a missing comment.

    Raises:
        DataError: no such file, one that is not UTF-8, or one without the comments.
    """
    if not path.is_file():
        comments = ", ".join(f"'<!-- {name} -->', '<!-- /{name} -->'" for name in names)
        raise DataError(f"{path} is no page: give a file with the comments {comments}, each on a line of its own")
    try:
        text = path.read_bytes().decode("utf-8")  # its line ends stay
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 (at byte {error.start}): save it as UTF-8, or give another page"
        ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): give a page that can") from None
    for name in names:
        between(text, name, "")
    return text


def write_page(path: Path, contents: Mapping[str, str]) -> None:
    """Put each content between the comments of its name. The file that a link leads to is written, with its permissions.

    Raises:
        DataError: as :func:`read_page`.
    """
    text = read_page(path, list(contents))
    for name, content in contents.items():
        text = between(text, name, content)
    write_atomic(path.resolve(), text)


def made_by(file: Path) -> str:
    """:func:`made_with`, of the ``environment.json`` of a run.

    Raises:
        RunFolderError: it is damaged.
    """
    try:
        return made_with(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunFolderError(
            f"{file} is damaged ({type(error).__name__}: {error}): remove it, the run's numbers do not depend on it"
        ) from None


def made_with(environment: Mapping[str, Any]) -> str:
    """Versions and machine, in a sentence."""
    packages = ", ".join(f"{name} {environment['packages'][name]}" for name in ("torch", "transformers", "numpy"))
    return f"Python {environment['python']}, {packages}, {environment['machine']}."
