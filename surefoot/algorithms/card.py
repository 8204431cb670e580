"""Cards: the equation that an algorithm runs, made from its parts, so that it cannot drift from the code.

Policy-gradient objectives and the losses of preference pairs are described alike: an :class:`Objective` has parts by slot,
and words about where it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar, runtime_checkable

from surefoot.algorithms import notation
from surefoot.algorithms.part import Part
from surefoot.algorithms.symbols import legend

WIDTH = 110  # of a line of an equation, in text


class Objective(Protocol):
    """What a card describes."""

    @property
    def name(self) -> str: ...
    @property
    def paper(self) -> str: ...
    @property
    def ancestor(self) -> str: ...
    @property
    def changes(self) -> str: ...
    @property
    def note(self) -> str: ...
    @property
    def parts(self) -> dict[str, Part]: ...


@runtime_checkable
class Composed(Protocol):
    """An objective that composes the lines of its equation itself."""

    def equation(self, latex: bool = False) -> list[str]: ...


O = TypeVar("O", bound=Objective)  # noqa: E741

# The lines of an equation by headings, from the loss backwards to the prompts. "kl" is where its kind puts it.
LINES = {
    "": ("trust", "ratio", "weights", "correction", "value", "advantage"),
    "batch": ("truncated", "selection"),
    "rewards": ("shaping",),
    "sampling": ("interruption", "head", "prompts"),
    "between steps": ("reset",),
}


def card(objective: Objective) -> str:
    """The card of an objective, in Markdown.

    Its paper, its descent, its equation in text and in LaTeX with all numbers, what it changes in its ancestor (in words,
    and part by part), what each part does, and what it assumes.
    """
    chain = lineage(objective)
    text = [f"# {title(objective)}", ""]
    if objective.paper:
        text += [objective.paper, ""]
    if len(chain) > 1:
        text += [" -> ".join([*(one.name for one in chain[:-1]), f"**{title(objective)}**"]), ""]
    said = equation(objective)
    text += ["```text", *said, "```", ""]
    if not isinstance(objective, Composed):
        text += [legend(said), ""]
    text += ["$$", *equation(objective, latex=True), "$$", ""]
    if len(chain) > 1:
        text += _descent(objective, chain[-2])
    text += ["| part | choice | what it does |", "|---|---|---|"]
    for slot, part in objective.parts.items():
        if not idle(part):
            text.append(f"| {slot} | {code(repr(part))} | {cell(summary(part))} |")
    if objective.note:
        text += ["", f"**Assumptions and limits.** {note(objective)}"]
    return "\n".join(text) + "\n"


def _descent(objective: Objective, ancestor: Objective) -> list[str]:
    words = origin(objective)[1]
    text = [f"From **{ancestor.name}**: {words}" if words else f"From **{ancestor.name}**:", ""]
    rows = compare(ancestor, objective)
    if rows:
        text += [f"| part | {ancestor.name} | {title(objective)} |", "|---|---|---|"]
        text += [f"| {slot} | {code(theirs)} | {code(mine)} |" for slot, theirs, mine in rows] + [""]
    return text


def note(objective: Objective) -> str:
    """What it assumes and when it fails; where the words are those of the preset that it varies, it says so."""
    preset, before = presets(objective).get(objective.name), origin(objective)[0]
    own = preset is not None and preset.parts == objective.parts
    return (
        f"Of {before.name}: {objective.note}"
        if before and before.note == objective.note and not own
        else objective.note
    )


def title(objective: Objective) -> str:
    """Its name; a variant that still has the name of its preset is told apart from it."""
    preset = presets(objective).get(objective.name)
    return f"{objective.name} (varied)" if preset is not None and preset.parts != objective.parts else objective.name


def idle(part: Part) -> bool:
    """Whether the part does nothing."""
    return "idle" in part.kind.traits


def summary(part: Part) -> str:
    """The first paragraph of what the part's function says about itself, in Markdown."""
    first = " ".join(part.kind.doc.split("\n\n")[0].split())
    return re.sub(r"``(.+?)``", r"`\1`", re.sub(r":\w+:`~?([^`]+)`", r"``\1``", first))


def cell(text: str) -> str:
    """Markdown that can stand in a cell of a table; signs that HTML would take are set apart outside of code."""
    pieces = re.split(r"(`[^`]*`)", text.replace("|", r"\|"))
    return "".join(piece if piece.startswith("`") else piece.replace("<", "&lt;") for piece in pieces)


def code(text: str) -> str:
    """Text as code in a cell of a table, whatever it holds."""
    runs = [len(run) for run in re.findall("`+", text)]
    fence = "`" * (max(runs, default=0) + 1)
    space = " " if runs else ""
    return f"{fence}{space}{text}{space}{fence}".replace("|", r"\|")


def blocks(objective: Objective, latex: bool = False) -> list[tuple[str, list[str]]]:
    """The equation as (heading, lines): first the loss, without a heading, then what happens before it, and between steps.

    A line for each part that says something, as the part says it.
    """
    if isinstance(objective, Composed):
        return [("", objective.equation(latex))]
    parts, found = objective.parts, []
    for heading, slots in LINES.items():
        chosen = [parts[slot] for slot in slots if not _silent(parts[slot])]
        if "reward" in parts["kl"].kind.traits and heading == ("" if parts["kl"].after_baseline else "rewards"):
            chosen.append(parts["kl"])
        said = [part.latex if latex else part.text for part in chosen]
        said = said if heading else [_loss(parts, latex), *said]
        if said:
            found.append((heading, said))
    return found


def equation(objective: Objective, latex: bool = False) -> list[str]:
    """The composed objective, line by line: text of at most 110 columns, or an ``aligned`` environment of LaTeX."""
    if latex:
        return _aligned(blocks(objective, latex=True))
    return [line for _, lines in statements(objective) for line in lines]


def statements(objective: Objective, width: int = WIDTH) -> list[tuple[str, list[str]]]:
    """What the text of the equation says, one by one: each heading and each part, with its lines of at most ``width``."""
    found: list[tuple[str, list[str]]] = []
    for heading, said in blocks(objective):
        margin = "  " if heading else ""
        found += [(heading, ["", heading])] if heading else []
        found += [(one, [margin + line for line in notation.lines(one, width - len(margin))]) for one in said]
    return found


def _aligned(found: list[tuple[str, list[str]]]) -> list[str]:
    rows: list[str] = []
    for heading, said in found:
        margin = ""
        if heading:
            rows[-1] += "[6pt]"
            rows.append(rf"& \textbf{{{heading}}} \\")
            margin = r"\quad "
        for one in said:
            first, *rest = notation.latex_lines(one)
            rows += [rf"& {margin}{first} \\", *[rf"& {margin}\qquad {line} \\" for line in rest]]
    return [r"\begin{aligned}", *rows[:-1], rows[-1].removesuffix(r" \\"), r"\end{aligned}"]


def _silent(part: Part) -> bool:
    return idle(part) or (part.slot == "ratio" and part.name == "none")


def _loss(parts: Mapping[str, Part], latex: bool) -> str:
    """The aggregation with everything that a token adds to it."""
    plain = r"\ell_{it}" if latex else "l_it"
    factors = [r"\omega_{it}" if latex else "omega_it"] if not idle(parts["weights"]) else []
    factors += [r"w_{it}" if latex else "w_it"] if not idle(parts["correction"]) else []
    terms = [("" if latex else " ").join([*factors, plain])]
    kl, value = parts["kl"], parts["value"]
    if "loss" in kl.kind.traits:
        terms.append(kl.latex if latex else kl.text)
    if not idle(value):
        terms.append(rf"{value.coef:g}\,v_{{it}}" if latex else f"{value.coef:g} v_it")
    inner = " + ".join(terms)
    if len(terms) > 1:
        inner = rf"\big({inner}\big)" if latex else f"({inner})"
    aggregation = parts["aggregation"]
    line = (aggregation.latex if latex else aggregation.text).replace(plain, inner)
    return notation.latex(line) if latex else notation.plain(line)


def presets(objective: Objective) -> Mapping[str, Objective]:
    """The family that an objective belongs to."""
    # Imported here: the presets are made of algorithms, which have cards.
    from surefoot.algorithms.preference_presets import PREFERENCES
    from surefoot.algorithms.presets import PRESETS

    return PRESETS if "trust" in objective.parts else PREFERENCES


def words_of(objective: Objective) -> Objective:
    """The preset for which the words about an objective were written, or the objective itself where they are its own.

    A variant made with ``but`` inherits the words of its preset, which may be wrong for other parts.
    """
    told = (objective.paper, objective.ancestor, objective.changes)
    for preset in presets(objective).values():
        if (
            objective.paper
            and told == (preset.paper, preset.ancestor, preset.changes)
            and preset.parts != objective.parts
        ):
            return preset
    return objective


def origin(objective: Objective) -> tuple[Objective | None, str]:
    """The preset that an objective varies (None: it begins a family), and in words what it changes."""
    written_for = words_of(objective)
    if written_for is not objective:
        return written_for, ""
    return presets(objective).get(objective.ancestor), objective.changes


def lineage(objective: Objective) -> list[Objective]:
    """The ancestors of an objective from the first on, and the objective."""
    chain = [objective]
    while (before := origin(chain[0])[0]) is not None and before not in chain:
        chain.insert(0, before)
    return chain


def compare(one: Objective, other: Objective) -> list[tuple[str, str, str]]:
    """The slots in which two objectives of a family differ, with the part of each: (slot, of one, of the other)."""
    pairs = ((slot, part, other.parts[slot]) for slot, part in one.parts.items())
    return [(slot, repr(mine), repr(theirs)) for slot, mine, theirs in pairs if mine != theirs]


def tree(objectives: Iterable[O]) -> list[tuple[int, O]]:
    """A family as (depth, objective), every one after its ancestor; one whose ancestor is not among them is a root."""
    every = {objective.name: objective for objective in objectives}
    children: dict[str, list[O]] = {}
    for objective in every.values():
        children.setdefault(objective.ancestor if objective.ancestor in every else "", []).append(objective)

    def walk(name: str, depth: int) -> list[tuple[int, O]]:
        return [item for child in children.get(name, []) for item in [(depth, child), *walk(child.name, depth + 1)]]

    return walk("", 0)
