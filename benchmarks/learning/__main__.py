"""``python -m benchmarks.learning``: run what is not finished, then write the tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.learning.page import write_page
from benchmarks.learning.runs import Plan, run_all
from benchmarks.learning.settings import CONTROL
from surefoot.algorithms.presets import PRESETS
from surefoot.config import read_word
from surefoot.errors import SurefootError
from surefoot.training.config import RunConfig


def _positive(word: str) -> int:
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {number}")
    return number


def _setting(word: str) -> tuple[str, str]:
    key, sign, value = word.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, for instance train.steps=10, got {word!r}")
    return key, value


def main(words: Sequence[str] | None = None) -> int:
    """Returns 1 where a run failed or a mistake was made, else 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("runs/learning"), help="folder of the runs and of the finished lines"
    )
    parser.add_argument("--page", type=Path, help="write the tables into this page")
    parser.add_argument("--seeds", type=_positive, default=3, help="seeds of each preset")
    parser.add_argument("--jobs", type=_positive, default=1, help="runs at a time, one thread each")
    parser.add_argument(
        "--presets", nargs="+", default=[*PRESETS, CONTROL], choices=[*PRESETS, CONTROL], metavar="PRESET"
    )
    parser.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting over those of every run",
    )
    given = parser.parse_args(words)
    try:
        plan = Plan(
            given.out,
            tuple(given.presets),
            tuple(range(given.seeds)),
            {key: read_word(RunConfig, key, value) for key, value in given.set},
        )
        failed = run_all(plan, given.jobs)
        if given.page:
            # Whatever was asked for this time, the page shows all that is finished.
            write_page(given.page, replace(plan, presets=(*PRESETS, CONTROL)).finished(), plan.seeds)
    except SurefootError as error:
        print(error, file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
