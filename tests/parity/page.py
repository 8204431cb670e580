"""The page docs/parity.md, from the declarations: ``python -m tests.parity.page > docs/parity.md``."""

from __future__ import annotations

from collections.abc import Iterable

from surefoot.algorithms.preference_presets import PREFERENCES
from surefoot.algorithms.presets import PRESETS
from tests.parity.absent import ABSENT, ELSEWHERE
from tests.parity.declarations import DECLARED
from tests.parity.peers import LIBRARIES, pinned
from tests.parity.registry import SEEDS, TOLERANCE, Comparison

INTRODUCTION = """# Parity with other libraries

Every line of this page is a test: `make parity` installs {releases} into a folder of their own and runs their functions
and Surefoot's on the same random batches (groups of unequal size, rows without a token, holes in the mask and noise
outside it, where the library takes them), {seeds} seeds for each preset. Values are compared, and for losses also the
gradient with respect to every log-probability: in float64, to {tolerance:g} of the largest entry, unless a line says
otherwise. That the named functions are the ones that run is tested too.

Where a line says how a library differs, the test asserts just that: the results differ, and they are equal once the
difference is made in Surefoot. TRL's trainers and verl's actor loss run as they are; the forward pass, generation and
the reward functions are stood in for, since log-probabilities and rewards are what is given.

In the tables, *equal* means that the two agree in everything that is compared and has no number; a number is that of a
difference in the list below the tables.
"""


def differences() -> list[Comparison]:
    return [entry for entry in DECLARED if entry.differs]


def page() -> str:
    """The whole page."""
    releases = pinned()
    names = " and ".join(f"{label} {releases[name]}" for name, label in LIBRARIES.items())
    text = [INTRODUCTION.format(releases=names, seeds=len(SEEDS), tolerance=TOLERANCE)]
    text += ["## Presets", "", *matrix(PRESETS), ""]
    text += ["## Preference losses", "", *matrix(PREFERENCES), ""]
    parts = sorted({name for entry in DECLARED for name in entry.presets if "." in name})
    text += ["## Single parts", "", *matrix(parts), ""]
    text += ["## Differences", ""]
    text += [
        f"{number}. {named(entry)}: {entry.what}. {entry.differs}." for number, entry in enumerate(differences(), 1)
    ]
    text += ["", "## What runs", "", *listing(), ""]
    text += ["## What they have and Surefoot has not", ""]
    text += [f"- {kind}: {', '.join(f'`{name}`' for name in sorted(found))}." for kind, found in ELSEWHERE.items()]
    return "\n".join(text) + "\n"


def named(entry: Comparison) -> str:
    return f"{LIBRARIES[entry.library]}, {', '.join(f'`{name}`' for name in entry.presets)}"


def matrix(names: Iterable[str]) -> list[str]:
    lines = [f"| | {' | '.join(LIBRARIES.values())} |", "|---|" + "---|" * len(LIBRARIES)]
    for name in names:
        lines.append(f"| `{name}` | {' | '.join(cell(library, name) for library in LIBRARIES)} |")
    return lines


def cell(library: str, name: str) -> str:
    """What a preset is to a library: equal, equal but for numbered differences, not there."""
    found = [entry for entry in DECLARED if entry.library == library and name in entry.presets]
    numbered = differences()
    numbers = [str(numbered.index(entry) + 1) for entry in found if entry.differs]
    said = []
    if any(not entry.differs for entry in found):
        said.append("equal")
    if numbers:
        said.append(f"differs as in {', '.join(numbers)}")
    if (library, name) in ABSENT:
        said.append(ABSENT[library, name] if said else f"not there: {ABSENT[library, name]}")
    return "; ".join(said) or "-"


def listing() -> list[str]:
    lines = ["| library | compared | presets | functions | result |", "|---|---|---|---|---|"]
    for entry in DECLARED:
        result = f"differs, {differences().index(entry) + 1}" if entry.differs else "equal"
        if entry.tolerance != TOLERANCE:
            result += f" (to {entry.tolerance:g})"
        presets, functions = (", ".join(f"`{name}`" for name in names) for names in (entry.presets, entry.functions))
        lines.append(f"| {LIBRARIES[entry.library]} | {entry.what} | {presets} | {functions} | {result} |")
    return lines


if __name__ == "__main__":
    print(page(), end="")
