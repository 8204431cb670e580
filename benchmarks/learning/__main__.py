"""``python -m benchmarks.learning``: run what is not finished, then write the tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.learning.page import write_page
from benchmarks.learning.runs import Plan, run_all
from benchmarks.learning.settings import CONTROL
from surefoot.algorithms.presets import PRESETS
from surefoot.config import read_word
from surefoot.errors import SurefootError
from surefoot.training.config import RunConfig


def main(words: Sequence[str] | None = None) -> int:
    """Returns 1 where a run failed or a mistake was made, else 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("runs/learning"), help="folder of the runs and of the finished lines"
    )
    parser.add_argument("--page", type=Path, help="write the tables into this page")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each preset")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, one thread each")
    parser.add_argument(
        "--presets", nargs="+", default=[*PRESETS, CONTROL], choices=[*PRESETS, CONTROL], metavar="PRESET"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting over those of every run"
    )
    given = parser.parse_args(words)
    try:
        overrides = dict(word.split("=", 1) for word in given.set)
        plan = Plan(
            given.out,
            tuple(given.presets),
            tuple(range(given.seeds)),
            {key: read_word(RunConfig, key, value) for key, value in overrides.items()},
        )
        failed = run_all(plan, given.jobs)
        if given.page:
            write_page(given.page, plan.finished(), plan.presets, plan.seeds)
    except SurefootError as error:
        print(error, file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
