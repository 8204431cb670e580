"""The same gradings in another process with another order of Python's sets: what an audit asks of a reward that is resumed.

Run as a program, this module grades what it is told to and prints the verdicts.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from surefoot.rewards.audit_findings import Finding, counted, examples
from surefoot.rewards.audit_grading import Case, Grader
from surefoot.rewards.audit_stability import COMPARED, verdict
from surefoot.rewards.base import Reward
from surefoot.rewards.build import build_reward
from surefoot.rewards.config import RewardConfig
from surefoot.tasks.build import build_task
from surefoot.tasks.config import TaskConfig
from surefoot.types import Score

SECONDS = 300
Recipe = tuple[RewardConfig, TaskConfig]


def elsewhere(reward: Reward, seen: Sequence[tuple[Case, Score]], recipe: Recipe | None) -> Finding:
    """Grade some completions again in a fresh process with another ``PYTHONHASHSEED``.

    Args:
        reward: taken along where it can be pickled.
        seen: completions and their scores here.
        recipe: what the reward is built from, where it comes from a configuration.
    """
    chosen = list(seen[:: max(1, len(seen) // COMPARED)])
    packed = _packed(reward, [case for case, _ in chosen], recipe)
    if packed is None:
        text = "not tried in another process: the reward can be neither pickled nor built from a configuration"
        return Finding("other process", "info", text)
    with tempfile.TemporaryDirectory(prefix="surefoot-audit-") as folder:
        file = Path(folder) / "work"
        file.write_bytes(packed)
        seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
        done = subprocess.run(
            [sys.executable, "-m", "surefoot.rewards.audit_process", str(file)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=SECONDS,
            check=False,
        )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        return Finding("other process", "warn", f"the reward cannot grade in another process: {last}")
    there = [tuple(one) for one in json.loads(done.stdout.splitlines()[-1])]
    here = [json.loads(json.dumps(verdict(score))) for _, score in chosen]
    differ = [pair for pair, a, b in zip(chosen, here, there, strict=True) if tuple(a) != b]
    if differ:
        text = f"{counted(len(differ), chosen, 'completions')} got another score in another process: a run could not be resumed"
        shown = examples((case.prompt, case.text, score) for case, score in differ)
        return Finding("other process", "fail", text, shown, {"different": len(differ)})
    text = f"{len(chosen)} completions got the same scores in another process"
    return Finding("other process", "ok", text, (), {"compared": len(chosen)})


def _packed(reward: Reward, cases: list[Case], recipe: Recipe | None) -> bytes | None:
    for what in ((reward, None), (None, recipe)):
        if what == (None, None):
            continue
        try:
            packed = pickle.dumps((*what, cases))
            pickle.loads(packed)  # some things can be packed and not unpacked
        except Exception:  # pickle raises whatever an object's own methods do
            continue
        if b"__main__" not in packed:  # a script is not there under this name in another process
            return packed
    return None


def main(arguments: Sequence[str]) -> None:
    """Grade what lies in a file of :func:`elsewhere`, and print the verdicts as JSON."""
    reward: Any
    reward, recipe, cases = pickle.loads(Path(arguments[0]).read_bytes())
    if reward is None:
        reward = build_reward(recipe[0], build_task(recipe[1]))
    print(json.dumps([verdict(score) for score in Grader(reward).grade(cases)]))


if __name__ == "__main__":
    main(sys.argv[1:])
