"""How often the verifier 'math' judges wrongly: ``python benchmarks/verdicts.py [--file ...] [--alone] [--misses]``.

The pairs are those of ``tests/rewards/data/verdicts/math.jsonl``, labelled by the rules of ``docs/verdicts.md``. Printed are, for
each kind, how many of the right answers are refused and how many of the wrong ones taken; with ``--alone`` also by
math-verify's own parsing and comparison; with ``--misses`` each pair that the verifier judges wrongly.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from surefoot.extras import require
from surefoot.rewards.base import Completion
from surefoot.rewards.verifiers import make_verifier
from surefoot.types import Prompt

PAIRS = Path(__file__).parent.parent / "tests/rewards/data/verdicts/math.jsonl"


def ours(rows: list[dict[str, Any]]) -> list[bool]:
    completions = [Completion(Prompt("p", "?", row["gold"]), rf"\boxed{{{row['given']}}}") for row in rows]
    return [bool(score.correct) for score in make_verifier("math").score(completions)]


def alone(rows: list[dict[str, Any]]) -> list[bool]:
    logging.disable(logging.CRITICAL)
    library = require("math_verify", "math", "this benchmark")

    def verdict(row: dict[str, Any]) -> bool:
        gold, given = (library.parse(rf"\boxed{{{row[name]}}}") for name in ("gold", "given"))
        return bool(library.verify(gold, given))

    return [verdict(row) for row in rows]


def table(rows: list[dict[str, Any]], verdicts: list[bool]) -> dict[str, tuple[int, int, int, int]]:
    """By kind: right ones, those refused, wrong ones, those taken; "all" last."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for row, found in zip(rows, verdicts, strict=True):
        for kind in (row["kind"], "all"):
            place = 0 if row["right"] else 2
            counts[kind][place] += 1
            counts[kind][place + 1] += found != row["right"]
    return {kind: tuple(counts[kind]) for kind in (*sorted(set(counts) - {"all"}), "all")}  # type: ignore[misc]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, default=PAIRS)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--misses", action="store_true")
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.file.read_text(encoding="utf-8").splitlines()]
    for name, judge in (("math", ours), *((("math-verify", alone),) if arguments.alone else ())):
        begun = time.perf_counter()
        verdicts = judge(rows)
        print(f"{name}: {time.perf_counter() - begun:.1f} s")
        for kind, (right, refused, wrong, taken) in table(rows, verdicts).items():
            print(f"{kind:14} refused {refused:3}/{right:4}  taken {taken:3}/{wrong:4}")
        if arguments.misses:
            for row, found in zip(rows, verdicts, strict=True):
                if found != row["right"]:
                    print("TAKEN" if found else "REFUSED", row["kind"], row["gold"], row["given"], sep=" | ")


if __name__ == "__main__":
    main()
