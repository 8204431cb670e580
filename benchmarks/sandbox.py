"""What the sandbox costs: start-up, the self-test, and programs per second at each level.

``python -m benchmarks.sandbox`` prints a table. Levels take turns within a round, so that what else the machine does
falls on all of them alike.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

from surefoot.rewards.base import Completion
from surefoot.rewards.code import CodeTests
from surefoot.rewards.sandbox import Job, Sandbox, SandboxConfig
from surefoot.rewards.sandbox.backends import AUTOMATIC
from surefoot.rewards.sandbox.levels import _self_test, broken, self_test
from surefoot.types import Prompt

PROGRAM = "a, b = map(int, input().split())\nprint(a + b)\n"
GOLD = {"inputs": ["1 2\n"], "outputs": ["3\n"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=100, help="tiny programs per measurement")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    levels = [name for name in AUTOMATIC if broken(self_test(name)) is None] + ["rlimits"]
    print(
        f"{options.programs} tiny programs, {len(os.sched_getaffinity(0))} cores, median of {options.rounds} rounds\n"
    )
    rows: dict[str, dict[str, list[float]]] = {name: {} for name in [*levels, "python, no sandbox"]}
    for _ in range(options.rounds):
        for name in levels:
            for what, seconds in measured(name, options.programs).items():
                rows[name].setdefault(what, []).append(seconds)
        rows["python, no sandbox"].setdefault("programs", []).append(bare(options.programs))
    columns = ("self-test", "first program", "programs", "graded")
    print("| level | " + " | ".join(f"{column}, s" for column in columns) + " | programs per second |")
    print("|---" * (len(columns) + 2) + "|")
    for name, found in rows.items():
        cells = [f"{statistics.median(found[column]):.2f}" if column in found else "–" for column in columns]
        rate = options.programs / statistics.median(found["programs"])
        print(f"| {name} | " + " | ".join(cells) + f" | {rate:.0f} |")


def measured(name: str, programs: int) -> dict[str, float]:
    """Seconds of each thing at one level."""
    times: dict[str, float] = {}

    def clock(what: str, began: float) -> None:
        times[what] = time.perf_counter() - began

    _self_test.cache_clear()
    began = time.perf_counter()
    self_test(name)
    clock("self-test", began)
    with Sandbox(SandboxConfig.model_validate({"isolation": name})) as sandbox:
        began = time.perf_counter()
        sandbox.run(PROGRAM, "1 2")
        clock("first program", began)
        sandbox.run_many([Job(PROGRAM, "1 2")] * sandbox.workers)
        began = time.perf_counter()
        results = sandbox.run_many([Job(PROGRAM, f"{n} {n}") for n in range(programs)])
        clock("programs", began)
        assert [result.stdout for result in results] == [f"{2 * n}\n" for n in range(programs)]
        completions = [Completion(Prompt(str(n), "?", GOLD), f"```python\n{PROGRAM}```") for n in range(programs)]
        began = time.perf_counter()
        scores = CodeTests(pool=sandbox).score(completions)
        clock("graded", began)
        assert all(score.total == 1.0 for score in scores)
    return times


def bare(programs: int) -> float:
    """The same programs, each in a new interpreter, one after another on each core."""
    command = [sys.executable, "-I", "-S", "-c", PROGRAM]
    began = time.perf_counter()
    waiting: list[subprocess.Popen[str]] = []
    for n in range(programs):
        if len(waiting) == len(os.sched_getaffinity(0)):
            waiting.pop(0).communicate()
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None
        process.stdin.write(f"{n} {n}\n")
        process.stdin.flush()
        waiting.append(process)
    for process in waiting:
        process.communicate()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
