"""An experiment's folder as ``surefoot compare`` leaves it, without the runs having been run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from tests.report.conftest import build_run


def comparison(
    arms: tuple[str, ...] = ("grpo", "dapo", "rloo"), tasks: tuple[str, ...] = ("addition",)
) -> dict[str, Any]:
    """The content of a ``comparison.json``."""
    return {
        "name": "objectives",
        "baseline": arms[0],
        "arms": list(arms),
        "controls": {},
        "tasks": list(tasks),
        "seeds": [0, 1, 2],
        "seeds_planned": [0, 1, 2, 3],
        "level": 0.05,
        "results": {task: {arm: _result(number) for number, arm in enumerate(arms)} for task in tasks},
        "interquartile_mean": {arm: [0.5, 0.4, 0.6] for arm in arms},
        "pairs": {arm: _pair(number) for number, arm in enumerate(arms) if number},
        "pairs_by_task": {task: {arm: _pair(i) for i, arm in enumerate(arms) if i} for task in tasks}
        if len(tasks) > 1
        else {},
    }


def _pair(number: int) -> dict[str, Any]:
    shown = number == 1
    value = 0.08 if shown else 0.01
    return {
        "difference": [value, value - 0.05, value + 0.05],
        "p_value": 0.004,
        "adjusted": 0.012 if shown else 0.6,
        "verdict": "better" if shown else "no difference shown",
        "seeds_needed": 12,
        "improvement": 0.8,
    }


def _result(number: int) -> dict[str, Any]:
    steps = np.arange(0.0, 41.0, 10.0)
    accuracy = 0.3 + (0.3 + 0.05 * number) * steps / 40
    course = {"step": list(range(1, 41)), "mean": np.linspace(1, 0.4 + 0.1 * number, 40).tolist()}
    course |= {"low": [v - 0.05 for v in course["mean"]], "high": [v + 0.05 for v in course["mean"]]}
    names = (
        "rollout/entropy",
        "groups/no_signal",
        "length/right",
        "length/wrong",
        "length/truncated",
        "optimiser/grad_norm",
    )
    end = float(accuracy[-1])
    return {
        "accuracy": [end, end - 0.05, end + 0.05],
        "before": [0.3, 0.25, 0.35],
        "pass": {
            "1": [end, end - 0.05, end + 0.05],
            "2": [end + 0.1, end, end + 0.2],
            "4": [end + 0.15, end, end + 0.2],
        },
        "by_seed": [end - 0.02, end, end + 0.02],
        "samples": 4,
        "problems": 64,
        "curve": {
            "step": steps.tolist(),
            "accuracy": accuracy.tolist(),
            "low": (accuracy - 0.05).tolist(),
            "high": (accuracy + 0.05).tolist(),
            "tokens": (steps * 3000).tolist(),
            "flops": (steps * 2e10).tolist(),
            "seconds": (steps * 1.5).tolist(),
        },
        "courses": {name: course for name in names},
        "spent": {
            "steps": 40.0,
            "tokens": 120000.0,
            "trained": 110000.0,
            "flops": 8e11,
            "seconds": 60.0,
            "cpu_seconds": 60.0,
        },
    }


def build_experiment(folder: Path, **options: Any) -> Path:
    """The folder with its comparison and a run for each arm and task, the last of them under way."""
    found = comparison(**options)
    folder.mkdir(parents=True)
    (folder / "comparison.json").write_text(json.dumps(found), encoding="utf-8")
    lines = []
    places = [(task, arm) for task in found["tasks"] for arm in found["arms"]]
    template = build_run(folder / ".template", steps=3, samples=2)
    for number, (task, arm) in enumerate(places):
        run = folder / "arms" / task / arm / "seed-0"
        shutil.copytree(template, run)
        config = (run / "config.toml").read_text().replace('preset = "dr_grpo"', f'preset = "{arm}"')
        (run / "config.toml").write_text(config)
        if number < len(places) - 1:
            lines.append(json.dumps({"task": task, "arm": arm, "seed": 0}) + "\n")
    shutil.rmtree(template)
    (folder / "finished.jsonl").write_text("".join(lines))
    return folder
