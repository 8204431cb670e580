"""Cards on the command line: the families of objectives as trees, one card, two side by side, and docs/cards.md."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown
from rich.measure import Measurement
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from surefoot.algorithms import card, symbols
from surefoot.algorithms.card import Objective
from surefoot.algorithms.part import Part
from surefoot.algorithms.preference_presets import PREFERENCES
from surefoot.algorithms.presets import PRESETS
from surefoot.config import nearest
from surefoot.errors import AlgorithmError, ConfigError

FAMILIES: dict[str, Mapping[str, Objective]] = {"policy optimisation": PRESETS, "preference pairs": PREFERENCES}

HEAD = """# Cards

Every objective of the library, made from the code by `make docs`: what it changes in its ancestor, the equation that runs
with its numbers, and when it fails. How objectives are made of parts, and how to vary them, is in
[objectives.md](objectives.md). The same in a terminal:

```bash
surefoot cards
surefoot cards dapo
surefoot cards dapo --algorithm.trust.high 0.3
surefoot cards grpo dapo --diff
```

`surefoot cards run.toml` prints the card of a configuration, which a run keeps in its `card.md`.
"""


def known(name: str) -> bool:
    """Whether this is the name of an objective."""
    return any(name in family for family in FAMILIES.values())


def find(name: str, vary: Callable[[str], Objective] | None = None) -> Objective:
    """The objective of that name.

    Args:
        name: of any family.
        vary: makes the objective of that name under a configuration, where there is one.

    Raises:
        AlgorithmError: no objective has that name; the message has the nearest, or how to list them.
        ConfigError: a configuration for an objective that no run trains.
    """
    if not name.strip():
        raise AlgorithmError(
            f"the name of an objective is expected, got '{name}': give one, for instance surefoot cards grpo; "
            "without any word, surefoot cards lists them"
        )
    if not known(name):
        near = nearest(name.lower(), [*PRESETS, *PREFERENCES])
        raise AlgorithmError(f"there is no objective '{name}'.{near or ' List them: surefoot cards'}")
    if vary is None:
        return PRESETS[name] if name in PRESETS else PREFERENCES[name]
    if name in PREFERENCES:
        raise ConfigError(
            f"'{name}' is a loss of preference pairs, and the section [algorithm] configures policy optimisation: "
            f"print it as it is (surefoot cards {name}), or vary it in Python (PREFERENCES['{name}'].but(loss=...))"
        )
    return vary(name)


def check_pair(objectives: Sequence[Objective]) -> tuple[Objective, Objective]:
    """Two objectives that can be compared.

    Raises:
        ConfigError: more or fewer than two, or one of each family.
    """
    if len(objectives) != 2:
        given = ", ".join(objective.name for objective in objectives) or "none"
        raise ConfigError(
            f"--diff compares two objectives, got {len(objectives)} ({given}): surefoot cards grpo dapo --diff"
        )
    one, other = objectives
    if one.parts.keys() != other.parts.keys():
        raise ConfigError(
            f"'{one.name}' and '{other.name}' have no part in common: one is for {_family(one)}, the other for {_family(other)}"
        )
    return one, other


def _family(objective: Objective) -> str:
    return "policy optimisation" if "trust" in objective.parts else "preference pairs"


def arxiv(objective: Objective) -> list[str]:
    """The arXiv ids of its papers."""
    return re.findall(r"\barXiv (\d{4}\.\d{4,5})\b", objective.paper)


def entry(objective: Objective) -> dict[str, Any]:
    """An objective as a line of the list, for JSON."""
    return {
        "name": objective.name,
        "family": _family(objective),
        "ancestor": objective.ancestor,
        "changes": objective.changes,
        "paper": objective.paper,
        "arxiv": arxiv(objective),
    }


def record(objective: Objective) -> dict[str, Any]:
    """The card of an objective, for JSON."""
    before, words = card.origin(objective)
    return {
        **entry(objective),
        "name": card.title(objective),
        "ancestor": before.name if before else "",
        "changes": words,
        "lineage": [one.name for one in card.lineage(objective)[:-1]],
        "equation": card.equation(objective),
        "latex": "\n".join(card.equation(objective, latex=True)),
        "parts": {slot: _part(part) for slot, part in objective.parts.items()},
        "differences": differences(before, objective) if before else [],
        "note": card.note(objective),
    }


def differences(one: Objective, other: Objective) -> list[dict[str, Any]]:
    """The slots in which two objectives differ, for JSON."""
    slots = [slot for slot, _, _ in card.compare(one, other)]
    return [{"slot": slot, "from": _part(one.parts[slot]), "to": _part(other.parts[slot])} for slot in slots]


def _part(part: Part) -> dict[str, Any]:
    def finite(value: Any) -> Any:  # JSON has no infinity
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    return {"kind": part.name, **{name: finite(value) for name, value in part.numbers.items()}}


def show_families(console: Console) -> None:
    """Every family as a tree: name, arXiv id, what it changes in its ancestor."""
    for heading, family in FAMILIES.items():
        root = Tree(Text(heading, style="bold"), guide_style="dim")
        branch = [root]
        for depth, objective in card.tree(family.values()):
            del branch[depth + 1 :]
            branch.append(branch[-1].add(_label(objective)))
        _print(console, root, "")
    _print(console, "One card: surefoot cards dapo. Two side by side: surefoot cards grpo dapo --diff")


def _label(objective: Objective) -> Text:
    label = Text(objective.name, style="bold cyan")
    ids = arxiv(objective)
    if ids:
        label.append(f"  arXiv {', '.join(ids)}", style="not bold dim")
    return label.append(f"\n{objective.changes or objective.paper}", style="not bold default")


def show_card(console: Console, objective: Objective) -> None:
    """A card for a terminal; what is piped is better off with the Markdown of :func:`surefoot.algorithms.card.card`."""
    chain = card.lineage(objective)
    equation = card.equation(objective)
    said: list[Any] = [Text(card.title(objective), style="bold cyan")]
    if objective.paper:
        said.append(Text(objective.paper, style="dim"))
    if len(chain) > 1:
        said.append(" -> ".join([*(one.name for one in chain[:-1]), card.title(objective)]))
    said.append(Panel(_equation(objective, console.width - 4), title="what runs", title_align="left"))
    if "trust" in objective.parts:
        said.append(Markdown(symbols.legend(equation), style="dim"))
    if len(chain) > 1:
        words = card.origin(objective)[1]
        said += ["", Markdown(f"From **{chain[-2].name}**{f': {words}' if words else ''}")]
        said.append(_difference_table(chain[-2], objective, [chain[-2].name, card.title(objective)]))
    table = _table("part", "choice", "what it does")
    for slot, part in objective.parts.items():
        if not card.idle(part):
            table.add_row(slot, _Call(part), Markdown(card.summary(part)))
    said += ["", table]
    if objective.note:
        said += ["", Markdown(f"**Assumptions and limits.** {card.note(objective)}")]
    _print(console, *said, "", Text("LaTeX", style="bold"))
    for line in card.equation(objective, latex=True):
        console.print(Text(line, style="dim"), soft_wrap=True)


def show_difference(console: Console, one: Objective, other: Objective, names: Sequence[str]) -> None:
    """The parts in which two objectives differ, and both equations; in colour, the lines of one alone stand out.

    Args:
        console: where to print.
        one, other: objectives of a family.
        names: what to call them.
    """
    if one.parts == other.parts:
        _print(console, f"{' and '.join(names)} have the same parts.")
    else:
        _print(console, _difference_table(one, other, names))
    for name, mine, theirs in zip(names, (one, other), (other, one), strict=True):
        _print(console, "", Text(name, style="bold cyan"), _equation(mine, console.width, theirs))


def _difference_table(one: Objective, other: Objective, names: Sequence[str]) -> Table:
    table = _table("part", *names)
    for slot, part in one.parts.items():
        if part != other.parts[slot]:
            table.add_row(slot, _Call(part), _Call(other.parts[slot]))
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True, style="cyan")
    for name in others:
        table.add_column(name, overflow="fold", ratio=1)
    return table


class _Call:
    """A part with its numbers in a cell of a table; one that is too wide is broken at the bracket first."""

    def __init__(self, part: Part) -> None:
        self.text = repr(part)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Text(self.text).__rich_measure__(console, options)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        name, numbers = self.text.split("(", 1)
        broken = f"{name}(\n{numbers}" if len(name) < options.max_width else f"{name}\n({numbers}"
        fits = max(len(word) for word in self.text.split(" ")) <= options.max_width
        yield Text(self.text if fits else broken, overflow="fold")


def _equation(objective: Objective, width: int, other: Objective | None = None) -> Text:
    """The text of an equation, at most as wide; what an ``other`` does not say alike stands out."""
    width = min(width, card.WIDTH)
    theirs = {statement for statement, _ in card.statements(other)} if other else set()
    found = Text()
    for statement, lines in card.statements(objective, width):
        style = "bold" if other and statement not in theirs else ""
        found.append("".join(f"{line}\n" for line in lines), style=style)
    found.rstrip()
    return found


def _print(console: Console, *found: Any) -> None:
    """Without the spaces at the ends of lines, which belong into no file."""
    if console.is_terminal:
        console.print(*found, sep="\n", highlight=False)
        return
    with console.capture() as capture:
        console.print(*found, sep="\n", highlight=False)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()))


def page() -> str:
    """docs/cards.md: the families as trees of links, then every card."""
    text = [HEAD]
    for heading, family in FAMILIES.items():
        text += [f"## {heading.capitalize()}", ""]
        for depth, objective in card.tree(family.values()):
            ids = ", ".join(f"[arXiv {one}](https://arxiv.org/abs/{one})" for one in arxiv(objective))
            link = f"[{objective.name}](#{objective.name})" + (f" ({ids})" if ids else "")
            text.append(f"{'  ' * depth}- {link}: {objective.changes or objective.paper}")
        text.append("")
        text += [f"##{card.card(objective)}" for _, objective in card.tree(family.values())]
    return "\n".join(text)


if __name__ == "__main__":
    print(page(), end="")
