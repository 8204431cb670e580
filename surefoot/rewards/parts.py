"""What an answer is read as: a value, or parts of one kind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Value:
    r"""One value.

    Attributes:
        text: without label and unit.
        label: what it was assigned to (``x`` of ``x = 3``).
        unit: in the spelling of :mod:`surefoot.rewards.quantities`.
        whole: the value together with its unit, where that is a number.
        relation: the equation or inequality, where the text is one that has letters beside its label.
    """

    text: str
    label: str = ""
    unit: str = ""
    whole: str = ""
    relation: str = ""


@dataclass(frozen=True)
class Parts:
    """Several: ``kind`` is a name ("list", "union", "matrix", "date", ...) or the pair of brackets."""

    kind: str
    items: tuple[Value | Parts, ...]
    label: str = ""
    relation: str = ""
