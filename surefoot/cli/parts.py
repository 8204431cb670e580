"""What `surefoot cards` says about a single part: its equation, what its numbers do, and the option that sets each."""

from __future__ import annotations

from surefoot.algorithms.part import REGISTRY, Kind
from surefoot.algorithms.presets import PRESETS


def kinds(name: str) -> list[Kind]:
    """The parts of that name, in any slot."""
    return [found[name] for found in REGISTRY.values() if name in found]


def described(kind: Kind) -> str:
    """A part in Markdown, with its default numbers."""
    lines = [f"# {kind.name} ({kind.slot})", "", f"    --algorithm.{kind.slot} {kind.name}", ""]
    if kind().text:
        lines += ["```text", kind().text, "```", ""]
    lines += [kind.doc, ""]
    if kind.schema.model_fields:
        lines += ["| option | default |", "|---|---|"]
        lines += [
            f"| `algorithm.{kind.slot}.{name}` | `{field.default!r}` |"
            for name, field in kind.schema.model_fields.items()
        ]
        lines += [""]
    users = [preset.name for preset in PRESETS.values() if any(part.kind is kind for part in preset.parts.values())]
    return "\n".join([*lines, f"Used by: {', '.join(users) or 'no preset'}", ""])
