"""Numbers as people read them, the same on the page, in plots and in the terminal (ASCII only)."""

from __future__ import annotations

import math

PHASES = {
    "generate": "generate",
    "score": "score",
    "logprob": "log-probability",
    "train": "train",
    "evaluate": "evaluate",
    "save": "save",
    "write": "write",
    "other": "other",
}
"""Phases of a step in the order in which they are shown, and their names."""


def percent(share: float, digits: int = 1) -> str:
    """
    >>> percent(0.3125)
    '31.2 %'
    """
    return f"{100 * share:.{digits}f} %"


def points(difference: float) -> str:
    """A difference of two shares, in percentage points.

    >>> points(0.25), points(-0.013)
    ('+25.0 points', '-1.3 points')
    """
    return f"{100 * difference:+.1f} points"


def interval(low: float | None, high: float | None) -> str:
    """
    >>> interval(0.25, 0.375)
    '25.0 to 37.5 %'
    """
    if low is None or high is None:
        return "no interval"
    return f"{100 * low:.1f} to {100 * high:.1f} %"


def duration(seconds: float) -> str:
    """
    >>> duration(0.042), duration(9.96), duration(187), duration(7300)
    ('0.04 s', '10 s', '3 min 07 s', '2 h 01 min')
    """
    if seconds < 0.995:
        return f"{max(seconds, 0.0):.2f} s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def countdown(seconds: float) -> str:
    """
    >>> countdown(7), countdown(187), countdown(7325)
    ('0:07', '3:07', '2:02:05')
    """
    whole = max(round(seconds), 0)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def count(number: float) -> str:
    """
    >>> count(1234567), count(12.34)
    ('1,234,567', '12.3')
    """
    return f"{number:.1f}" if number < 100 and number != int(number) else f"{number:,.0f}"


def short(value: float) -> str:
    """A number of unknown size in few characters.

    >>> short(0.31251), short(0.000012), short(12345.6), short(float("nan"))
    ('0.313', '1.20e-05', '12,346', 'nan')
    """
    if not math.isfinite(value):
        return str(value)
    if value == 0 or 1e-3 <= abs(value) < 1000:
        return f"{value:.3g}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.2e}"
