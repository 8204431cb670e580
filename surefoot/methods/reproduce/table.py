"""Claims and findings as rows: for the terminal, and as Markdown for docs/reproduce.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from surefoot.errors import DataError
from surefoot.files import write_atomic
from surefoot.methods.reproduce.claim import Claim

COLUMNS = ("claim", "quantity", "interval", "threshold", "control", "verdict", "seconds")
RESULTS, LIST = "results", "claims"
SIGNS = {"above": "> ", "below": "< "}


def listing(claims: Iterable[Claim]) -> list[list[str]]:
    """The head and a row for each claim: name, title, seeds, seconds expected."""
    rows = [["claim", "what it says", "seeds", "seconds"]]
    for claim in claims:
        rows.append([claim.name, claim.title, str(len(claim.seeds)), f"{claim.seconds:.0f}"])
    return rows


def rows(records: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """The head and a row for each criterion; control, verdict and seconds stand beside the first of a claim."""
    found = [list(COLUMNS)]
    for record in records:
        control, first = record["control"], True
        for criterion in record["criteria"]:
            verdict = "" if len(record["criteria"]) == 1 else criterion["verdict"]
            found.append(
                [
                    record["claim"] if first else "",
                    criterion["quantity"] + (f": {verdict}" if verdict else ""),
                    interval(criterion["interval"]),
                    f"{SIGNS[criterion['side']]}{number(criterion['threshold'])}",
                    f"{interval(control['interval'])} {'held' if control['held'] else 'MOVED'}" if first else "",
                    record["verdict"] if first else "",
                    f"{record['seconds']:.0f}" if first else "",
                ]
            )
            first = False
    return found


def interval(values: Sequence[float | None]) -> str:
    """An estimate and its interval.

    >>> interval([0.5, 0.25, 0.75]), interval([None, None, None]), interval([1.5, 1.5, 1.5])
    ('0.5 [0.25, 0.75]', 'not measured', '1.5 [1.5, 1.5]')
    """
    if any(value is None for value in values):
        return "not measured"
    value, low, high = (number(float(value)) for value in values if value is not None)
    return f"{value} [{low}, {high}]"


def number(value: float) -> str:
    """Three digits; what lies below 1e-6 by its power alone.

    >>> number(0.12345), number(231.4), number(2.1e-16), number(-0.0)
    ('0.123', '231', '2e-16', '0')
    """
    if value == 0:
        return "0"
    if abs(value) < 1e-6:
        return f"{value:.0e}"
    return f"{value:.3g}"


def markdown(table: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table; the first is its head."""
    head, *rest = ([cell.replace("|", r"\|") for cell in row] for row in table)
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rest)]
    return "\n".join(lines)


def page_rows(records: Sequence[Mapping[str, Any]]) -> str:
    """The table of docs/reproduce.md, and what it was made with."""
    made = sorted({environment(record) for record in records})
    return "\n\n".join([markdown(rows(records)), *made])


def environment(record: Mapping[str, Any]) -> str:
    """Versions and machine, in a sentence."""
    made = record["environment"]
    packages = ", ".join(f"{name} {made['packages'][name]}" for name in ("torch", "transformers", "numpy"))
    return f"Python {made['python']}, {packages}, {made['machine']}."


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


def write_page(path: Path, claims: Iterable[Claim], records: Sequence[Mapping[str, Any]]) -> None:
    """Put the list of claims and the findings between the comments that mark their places.

    Raises:
        DataError: a page that is not there or lacks the comments.
    """
    if not path.is_file():
        raise DataError(
            f"{path} is no page: give one with the comments '<!-- {LIST} -->', '<!-- /{LIST} -->', '<!-- {RESULTS} -->' and "
            f"'<!-- /{RESULTS} -->'"
        )
    text = between(path.read_text(encoding="utf-8"), LIST, markdown(listing(claims)))
    write_atomic(path, between(text, RESULTS, page_rows(records) if records else "Nothing has been run yet."))
