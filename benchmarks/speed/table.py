"""From measurements to the tables of docs/performance.md."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Result = Mapping[str, Any]
EQUAL_TOKENS = 0.05  # share by which the tokens of two sides may differ before the table says so


def tables(results: Sequence[Result]) -> str:
    """All results in Markdown; pieces of work of one kind share a table."""
    parts = []
    steps = [r for r in results if r["work"]["kind"] == "step" and r["work"]["name"] != "scaling"]
    if steps:
        parts += [step_table(steps), phase_table(steps)]
    alone = [r for r in results if r["work"]["kind"] in ("train", "decode")]
    if alone:
        parts.append(part_table(alone))
    for result in results:
        if result["work"]["name"] == "scaling":
            parts.append(scaling_table(result))
        if result["work"]["kind"] == "memory":
            parts.append(memory_table(result))
        if result["work"]["kind"] == "threads":
            parts.append(threads_table(result))
    return "\n\n".join(parts) + "\n"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def rate(result: Result) -> float:
    """Operations per second of the plain product: the median over the turns of its best."""
    return statistics.median(turn["rate"] for turn in result["sides"]["product"]["turns"])


def peers(result: Result) -> list[str]:
    return [label for label in result["sides"] if label not in ("product", "surefoot")]


def ratio(result: Result, label: str, key: str = "seconds") -> float:
    """How many times faster we are than a side: the median over the turns of its seconds over ours.

    With ``key="cpu"`` the same for the CPU seconds of all threads, which other work on the machine changes less.
    """
    ours, other = (result["sides"][name]["turns"] for name in ("surefoot", label))
    return statistics.median(b[key] / a[key] for a, b in zip(ours, other, strict=True))


def tokens_ratio(result: Result, label: str) -> float:
    """Tokens of the answers of a side over ours, all turns together."""
    ours, other = (result["sides"][name]["tokens"] for name in ("surefoot", label))
    key = "answers" if ours["answers"] else "trained"
    return float(other[key] / ours[key])


def step_table(results: Sequence[Result]) -> str:
    head = (
        "work",
        "side",
        "seconds a step",
        "times faster",
        "per token",
        "in CPU seconds",
        "tokens of answers",
        "tokens/s",
    )
    head = (*head, "peak memory", "memory ratio", "target")
    rows = []
    for result in results:
        ours = result["sides"]["surefoot"]
        for label in ("surefoot", *peers(result)):
            side, first = result["sides"][label], label == "surefoot"
            faster, tokens = ratio(result, label), tokens_ratio(result, label)
            compared = (f"**{faster:.2f}**", f"{faster / tokens:.2f}", f"{ratio(result, label, 'cpu'):.2f}")
            note = "" if abs(tokens - 1) <= EQUAL_TOKENS else " (unequal)"
            rows.append(
                (
                    result["work"]["name"] if first else "",
                    named(label, side),
                    f"{side['seconds']:.2f}",
                    *(("", "", "") if first else compared),
                    f"{side['tokens']['answers']:.0f}{note}",
                    f"{side['tokens_per_second']:.0f}",
                    megabytes(memory(side)),
                    "" if first else f"{memory(side) / memory(ours):.2f}",
                    result["work"]["target"] if first else "",
                )
            )
    return markdown(head, rows)


def phase_table(results: Sequence[Result]) -> str:
    """Seconds by phase, and the share of the matrix-product rate that generation and training reach."""
    head = ("work", "side", "generate", "train", "rest", "share of the product rate: generate", "train", "CPU seconds")
    rows = []
    for result in results:
        for label in ("surefoot", *peers(result)):
            side = result["sides"][label]
            phases = side["phases"]
            rest = sum(value for name, value in phases.items() if name not in ("generate", "train"))
            shares = [share(result, side, name) for name in ("generate", "train")]
            work = result["work"]["name"] if label == "surefoot" else ""
            spent = (f"{phases['generate']:.2f}", f"{phases['train']:.2f}", f"{rest:.2f}")
            rows.append((work, label, *spent, *shares, f"{side['cpu']:.2f}"))
    return markdown(head, rows)


def share(result: Result, side: Mapping[str, Any], phase: str) -> str:
    took = side["phases"].get(phase) or side["seconds"]
    return f"{side['operations'][phase] / took / rate(result):.0%}".replace("%", " %")


def part_table(results: Sequence[Result]) -> str:
    head = ("work", "side", "seconds", "tokens/s", "share of the product rate", "times faster", "peak memory", "target")
    rows = []
    for result in results:
        (phase,) = result["sides"]["surefoot"]["operations"]
        for label in ("surefoot", *peers(result)):
            side, first = result["sides"][label], label == "surefoot"
            took = share(result, {**side, "phases": {}}, phase)
            rows.append(
                (
                    result["work"]["name"] if first else "",
                    label,
                    f"{side['seconds']:.2f}",
                    f"{side['tokens_per_second']:.0f}",
                    took,
                    "" if first else f"**{ratio(result, label):.2f}**",
                    megabytes(memory(side)),
                    result["work"]["target"] if first else "",
                )
            )
    rates = ", ".join(f"{result['work']['name']}: {rate(result) / 1e9:.0f} GFLOPS" for result in results)
    return markdown(head, rows) + f"\n\nThe plain product in the same turns: {rates}."


def scaling_table(result: Result) -> str:
    head = ("generated tokens a step", "seconds", "seconds per 1,000 tokens", "peak memory")
    rows = []
    for label, side in result["sides"].items():
        if label != "product":
            tokens = side["tokens"]["answers"]
            per = 1000 * side["seconds"] / tokens
            rows.append((f"{tokens:.0f}", f"{side['seconds']:.2f}", f"{per:.3f}", megabytes(memory(side))))
    return markdown(head, rows)


def memory_table(result: Result) -> str:
    head = ["tokens"]
    columns: list[list[str]] = []
    for label, side in result["sides"].items():
        head += [f"{label}: above the model", "per token", "in hidden states"]
        if not columns:
            columns.append([f"{turn['tokens']}" for turn in side["turns"]])
        first = side["turns"][0]
        grown = [
            (turn["above"] - first["above"]) * 2**20 / max(1, turn["tokens"] - first["tokens"])
            for turn in side["turns"]
        ]
        columns.append([megabytes(turn["above"]) for turn in side["turns"]])
        columns.append(["" if not i else f"{grew:.0f} bytes" for i, grew in enumerate(grown)])
        columns.append(["" if not i else f"{grew / 4 / side['hidden']:.1f}" for i, grew in enumerate(grown)])
    return markdown(head, list(zip(*columns, strict=True)))


def threads_table(result: Result) -> str:
    sides = result["sides"]
    loads = list(next(iter(sides.values())))
    rows = [(label, *(f"{found[load]:.2f} s" for load in loads)) for label, found in sides.items()]
    return markdown(("", *(f"{load.split()[0]} busy processes beside it" for load in loads)), rows)


def memory(side: Mapping[str, Any]) -> float:
    """Peak of the GPU where there is one, else of the process."""
    return float(side["device_peak"] or side["peak"])


def megabytes(value: float) -> str:
    return f"{value:,.0f} MB"


def named(label: str, side: Mapping[str, Any]) -> str:
    return f"{label} {side['version']}" if side.get("version") else label
