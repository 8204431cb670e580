"""``python -m benchmarks.speed``: measure, keep the numbers as JSON, print the tables.

    python -m benchmarks.speed                              # everything (an hour on two cores)
    python -m benchmarks.speed tiny small --peer trl        # some of it
    python -m benchmarks.speed decode --peer vllm           # after `make bench-vllm`, which installs it
    python -m benchmarks.speed smollm2 --checkout before=../surefoot-before

Figures differ by 10 to 20 per cent from run to run; ratios of one run do so less. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed.table import tables
from benchmarks.speed.turns import PEERS, Plan, measure
from benchmarks.speed.works import WORKS


def main(words: Sequence[str] | None = None) -> int:
    """Returns 1 where a piece of work failed, else 0."""
    given = parse(words)
    plan = Plan(
        models=given.out / "models",
        logs=given.out / "logs",
        checkouts={name: Path(path) for name, path in (word.split("=", 1) for word in given.checkout)},
        peers=given.peer,
        threads=given.threads,
        rounds=given.rounds,
        device=given.device,
        peer_rows=given.peer_rows,
        settings=settings(given.set),
    )
    names, failed = given.work or list(WORKS), False
    for name in [] if given.show else names:
        try:
            result = measure(WORKS[name], plan, lambda line: print(line, file=sys.stderr, flush=True))
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
            continue
        (given.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    files = [given.out / f"{name}.json" for name in names]
    text = tables([json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()])
    print(text, end="")
    if given.page:
        from benchmarks.learning.page import between
        from surefoot.files import write_atomic

        write_atomic(given.page, between(given.page.read_text(encoding="utf-8"), "results", text))
    return int(failed)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", nargs="*", choices=[*WORKS, []], metavar="WORK", help=", ".join(WORKS))
    parser.add_argument("--peer", action="append", default=[], choices=PEERS)
    parser.add_argument(
        "--checkout", action="append", default=[], metavar="NAME=FOLDER", help="another checkout to measure as well"
    )
    parser.add_argument("--rounds", type=int, default=0, help="turns (0: as many as the work has)")
    parser.add_argument("--threads", type=int, default=0, help="threads of every side (0: its own choice)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--peer-rows", type=int, default=0, help="rows of TRL's forward pass in training")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=JSON",
        help="a key of our configuration, such as train.threads=1",
    )
    parser.add_argument("--out", type=Path, default=Path("runs/speed"), help="folder of the models, logs and numbers")
    parser.add_argument("--show", action="store_true", help="measure nothing, show what the folder has")
    parser.add_argument("--page", type=Path, help="write the tables into this page as well")
    return parser.parse_args(words)


def settings(words: Sequence[str]) -> dict[str, object]:
    """``["train.threads=1"]`` -> ``{"train": {"threads": 1}}``"""
    found: dict[str, object] = {}
    for word in words:
        key, _, value = word.partition("=")
        inner = found
        *path, last = key.split(".")
        for part in path:
            inner = inner.setdefault(part, {})  # type: ignore[assignment]
        try:
            inner[last] = json.loads(value)
        except json.JSONDecodeError:
            inner[last] = value
    return found


if __name__ == "__main__":
    sys.exit(main())
