"""Colours: one accent, its tints, and greys, each with its counterpart for dark screens."""

from __future__ import annotations

INK = "#1d1f23"
MUTED = "#656a72"
LINE = "#e2e4e8"
PAPER = "#ffffff"
ACCENT = "#0e6b5c"
ACCENT_MID = "#5fa396"
ACCENT_PALE = "#b1d4cd"
SLATE = "#3c4148"
SLATE_MID = "#8b9099"
SLATE_PALE = "#c4c8cd"
SLATE_FAINT = "#dfe2e5"
BAND = "rgba(14,107,92,0.14)"

DARK = {
    INK: "#e6e7ea",
    MUTED: "#9ba1aa",
    LINE: "#2c3036",
    PAPER: "#15171a",
    ACCENT: "#57c7ae",
    ACCENT_MID: "#3b8c7a",
    ACCENT_PALE: "#235449",
    SLATE: "#d0d3d8",
    SLATE_MID: "#878d96",
    SLATE_PALE: "#555b64",
    SLATE_FAINT: "#373c44",
    BAND: "rgba(87,199,174,0.18)",
}
"""The colour that takes each colour's place on a dark screen."""

ARMS = (
    ("#0e6b5c", "#57c7ae"), ("#b5651d", "#e0a060"), ("#3f6fc4", "#86abf2"), ("#8a4f93", "#c795d0"), ("#3c4148", "#d0d3d8"),
    ("#b0413e", "#e58a86"), ("#6b8422", "#b0c85f"), ("#2389a3", "#6cc7dd"), ("#b5892a", "#e0bd6a"), ("#8b9099", "#878d96"),
)  # fmt: skip
"""Colours of things that are compared, on light and on dark screens, in the order in which they are given out."""


def arm_colour(number: int) -> str:
    return ARMS[number % len(ARMS)][0]


BAND_ALPHA, BAND_ALPHA_MANY = 0.13, 0.05


def faint(colour: str, alpha: float) -> str:
    """A colour ``#rrggbb`` for areas.

    >>> faint("#0e6b5c", 0.13)
    'rgba(14,107,92,0.13)'
    """
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


DARK |= {light: dark for light, dark in ARMS if light not in DARK}
DARK |= {
    faint(light, alpha): faint(dark, 1.3 * alpha) for light, dark in ARMS for alpha in (BAND_ALPHA, BAND_ALPHA_MANY)
}

PHASE = {
    "generate": ACCENT,
    "score": ACCENT_PALE,
    "logprob": ACCENT_MID,
    "train": SLATE,
    "evaluate": SLATE_MID,
    "save": SLATE_PALE,
    "write": SLATE_FAINT,
    "other": SLATE_FAINT,
}
"""Colours of the phases of a step: what the policy writes and its grading in the accent, the rest in greys."""


def phase_colour(key: str) -> str:
    return PHASE.get(key, SLATE_PALE)
