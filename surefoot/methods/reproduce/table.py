"""Claims and findings as rows: for the terminal, and as Markdown for docs/reproduce.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from surefoot.errors import DataError
from surefoot.methods.pages import made_with, markdown, read_page, write_page
from surefoot.methods.reproduce.claim import CONFIDENCE, Claim

COLUMNS = ("claim", "quantity", "interval", "threshold", "control", "verdict", "seeds", "seconds")
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
                    f"{interval(control['interval'])} {'held' if control['held'] else 'MOVED'}: {wanted(control)}"
                    if first
                    else "",
                    record["verdict"] if first else "",
                    looked(record) if first else "",
                    f"{record['seconds']:.0f}" if first else "",
                ]
            )
            first = False
    return found


def looked(record: Mapping[str, Any]) -> str:
    """How many seeds, which where they are not the claim's own, and at which look.

    >>> looked({"seeds": [0, 1, 2], "confidence": 0.95}), looked({"seeds": [0] * 9, "confidence": 0.975})
    ('3', '9, second look')
    """
    which = f" ({span(record['seeds'])})" if record.get("other_seeds") else ""
    return f"{len(record['seeds'])}{which}" + ("" if record["confidence"] == CONFIDENCE else ", second look")


def span(seeds: Sequence[int]) -> str:
    """Which seeds.

    >>> span([1000, 1001, 1002]), span([7]), span([3, 1, 2, 9])
    ('1000 to 1002', '7', '3, 1, 2, 9')
    """
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def wanted(control: Mapping[str, Any]) -> str:
    """Where a control had to lie.

    >>> wanted({"low": 0.9, "high": 1.1}), wanted({"low": 1.0, "high": 1.0}), wanted({"low": None, "high": 0.02})
    ('within 0.9 to 1.1', 'exactly 1', 'at most 0.02')
    >>> wanted({"low": 0.9999, "high": 1.0001})
    'within 0.9999 to 1.0001'
    """
    low, high = control["low"], control["high"]
    if low is None or high is None:
        return f"at most {number(high)}" if low is None else f"at least {number(low)}"
    if low == high:
        return f"exactly {number(low)}"
    short = (number(low), number(high))
    return "within {} to {}".format(*(short if short[0] != short[1] else (f"{low:.9g}", f"{high:.9g}")))


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


def page_rows(records: Sequence[Mapping[str, Any]]) -> str:
    """The table of docs/reproduce.md, and what it was made with."""
    made = sorted({made_with(record["environment"]) for record in records})
    return "\n\n".join([markdown(rows(records)), *made])


def check_page(path: Path, names: Iterable[str]) -> None:
    """Refuse a page that would lose findings, before the hours of new ones.

    Args:
        path: of the page.
        names: claims that will have a finding.

    Raises:
        DataError: the page is not there, lacks the comments, or has findings of other claims.
    """
    text = read_page(path, (LIST, RESULTS))
    table = text[text.index(f"<!-- {RESULTS} -->") : text.index(f"<!-- /{RESULTS} -->")]
    first = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")][2:]
    lost = [name for name in first if name and name not in set(names)]
    if lost:
        raise DataError(
            f"{path} has findings that would be lost ({', '.join(lost)}): give the --out where they were measured, measure them "
            "too (--all), or empty the table"
        )


def keep(path: Path, claims: Iterable[Claim], records: Sequence[Mapping[str, Any]]) -> None:
    """Put the list of claims and the findings into a page, see :func:`surefoot.methods.pages.write_page`."""
    write_page(
        path,
        {LIST: markdown(listing(claims)), RESULTS: page_rows(records) if records else "Nothing has been run yet."},
    )
