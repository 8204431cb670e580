"""What looks like arithmetic and is none: dates, times of day and ranges, which are read before anything is computed."""

from __future__ import annotations

import re

_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" if len(name) > 3 else name for name in _MONTHS)
_DAY = r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?"
_DATES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?P<year>[0-9]{4})\s*(?P<mark>[-/.])\s*(?P<month>[0-9]{1,2})\s*(?P=mark)\s*(?P<day>[0-9]{1,2})",
        r"(?:(?P<year>[0-9]{4})\s*年\s*)?(?P<month>[0-9]{1,2})\s*月\s*(?P<day>[0-9]{1,2})\s*[日号]",
        rf"(?P<name>{_MONTH})\.?\s+{_DAY}(?:\s*,?\s+(?P<year>[0-9]{{4}}))?",
        rf"(?:the )?{_DAY}\s+(?:of\s+)?(?P<name>{_MONTH})\.?(?:\s*,?\s+(?P<year>[0-9]{{4}}))?",
    )
)
_UNSURE = re.compile(r"([0-9]{1,2})\s*([-/.])\s*([0-9]{1,2})\s*\2\s*([0-9]{4})")
_TIME = re.compile(
    r"(?P<hour>[0-9]{1,2})(?::|[时点](?=[^分]*分))(?P<minute>[0-5][0-9])分?(?::(?P<second>[0-5][0-9]))?\s*(?P<half>am|pm|a\.\s?m\.?|p\.\s?m\.?|noon|midnight)?",
    re.IGNORECASE,
)
_RANGE = re.compile(
    r"(?:from |从)?(?P<low>[0-9.]+)\s*(?:-{1,3}|(?P<to>to|至|到))\s*(?P<high>[0-9.]+(?:\s*-\s*[0-9.]+)*)"
)


def date(text: str) -> tuple[str, ...] | None:
    """Year ("" where none is named), month and day; of ``1/5/2024`` its numbers as they are."""
    for pattern in _DATES:
        if match := pattern.fullmatch(text):
            found = match.groupdict()
            name = found.get("name")
            month = [m[:3] for m in _MONTHS].index(name[:3].lower()) + 1 if name else int(found["month"])
            if 1 <= month <= 12 and 1 <= int(found["day"]) <= 31:
                return (found["year"] or "", str(month), str(int(found["day"])))
    unsure = _UNSURE.fullmatch(text)
    return (str(int(unsure[1])), str(int(unsure[3])), unsure[4], "") if unsure else None


def times(text: str) -> frozenset[int] | None:
    """The seconds since midnight that a time of day may mean: two where it may be before or after noon."""
    match = _TIME.fullmatch(text)
    if match is None or int(match["hour"]) > 23:
        return None
    hour, half = int(match["hour"]), (match["half"] or "").lower()
    second = 60 * int(match["minute"]) + int(match["second"] or 0)
    if half and hour <= 12:
        late = half.startswith("p") or half == "noon"
        return frozenset({3600 * (hour % 12 + 12 * late) + second})
    if half and not (half.startswith("p") or half == "noon"):
        return None
    if hour > 12 or match["hour"].startswith("0"):
        return frozenset({3600 * hour + second})
    return frozenset({3600 * (hour % 12) + second, 3600 * (hour % 12 + 12) + second})


def span(text: str) -> tuple[str, tuple[str, ...]] | None:
    """The ends of a range, the smaller one first, and whether it is written with "to" or with "-"."""
    match = _RANGE.fullmatch(text)
    if match is None:
        return None
    ends = (match["low"], *(end.strip() for end in match["high"].split("-")))
    if any(end.count(".") > 1 or not end.strip(".") for end in ends):
        return None
    if match["to"]:
        return ("to", ends)
    return ("range", ends) if float(ends[0]) < float(ends[1]) else None
