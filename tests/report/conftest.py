"""Run folders as training writes them, for the reports to read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.config import dump_toml

HOSTILE = (
    "</script><script>window.hacked = true</script><!-- <img src=x onerror=alert(1)> ]]>\n"
    "\u202eright to left\u202c שלום עולם \u2028\u2029 {{ 7 * 7 }} {% raw %} &lt;b&gt; \ud800 \u0000 \\u003c/script>"
)
CARD = """# dr_grpo

```text
L = 1/(N_rows L_max) sum_it l_it
```

$$
\\frac{1}{N}
$$

| part | choice |
|---|---|
| kl | `none()` |
"""


def build_run(
    folder: Path,
    steps: int = 30,
    samples: int = 16,
    every: int = 10,
    text: str = "",
    finished: bool = True,
    tokens: int = 0,
) -> Path:
    """A run folder with all its files.

    Args:
        folder: where.
        steps: steps of the run; held-out accuracy is measured before the first, every ``every`` steps and at the end.
        samples: samples kept of each step.
        text: added to everything that a model or a person may have written.
        finished: whether there is a result.json.
        tokens: how many samples of each file have their tokens one by one.
    """
    rng = np.random.default_rng(0)
    skill = [0.25 + 0.55 / (1 + math.exp(-8 * (i / max(steps, 2) - 0.4))) for i in range(steps + 1)]
    timings = [_timing(rng, step, every) for step in range(1, steps + 1)]
    evaluations = [_evaluation(step, skill[step]) for step in sorted({*range(0, steps, every), steps})]
    write_lines(folder / "metrics.jsonl", [_metrics(rng, step, skill[step]) for step in range(1, steps + 1)])
    write_lines(folder / "timings.jsonl", timings)
    write_lines(folder / "evaluations.jsonl", evaluations)
    write_lines(
        folder / "warnings.jsonl",
        [
            {"step": 4, "name": "truncated", "text": f"31 % of the completions were cut{text}"},
            {"step": 9, "name": "truncated", "text": f"33 % of the completions were cut{text}"},
            {"step": 9, "name": "entropy", "text": "the entropy fell to 8 % of its first value"},
        ],
    )
    for step in range(1, steps + 1):
        made = [_sample(rng, step, index, skill[step], text) for index in range(samples)]
        for record in made[:tokens]:
            record["tokens"] = token_lists(record["completion"] + "<eos>")
        write_lines(folder / "samples" / f"step-{step:06d}.jsonl", made)
    for record in evaluations:
        made = [_sample(rng, record["step"], index, record["accuracy"], text) for index in range(samples)]
        write_lines(folder / "samples" / f"heldout-{record['step']:06d}.jsonl", made)
    _write_texts(folder, steps, text)
    if finished:
        seconds = {name: sum(timing[name] for timing in timings) for name in timings[0] if name in _PHASES}
        result = {"before": evaluations[0], "after": evaluations[-1], "steps": steps, "seconds": seconds}
        tokens = {name: sum(timing[name] for timing in timings) for name in ("tokens_generated", "tokens_trained")}
        (folder / "result.json").write_text(json.dumps(result | tokens), encoding="utf-8")
    return folder


_PHASES = ("generate", "score", "logprob", "train", "evaluate", "save", "write")


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def _metrics(rng: np.random.Generator, step: int, skill: float) -> dict[str, Any]:
    correct = float(np.clip(skill + rng.normal(0, 0.05), 0, 1))
    return {
        "step": step,
        "reward/mean": correct * 1.1,
        "reward/correct": correct,
        "policy/entropy": 0.6 * 0.99**step,
        "policy/kl_behaviour": abs(rng.normal(0, 2e-4)),
        "policy/clip_high": abs(rng.normal(0, 0.01)),
        "rollout/entropy": 0.6 * 0.99**step + rng.normal(0, 0.01),
        "optimiser/grad_norm": abs(rng.normal(0.4, 0.1)),
        "groups/no_signal": float(rng.random() * 0.3),
        "length/mean": 40 + rng.normal(0, 2),
        "length/truncated": float(rng.random() * 0.1),
    }


def _timing(rng: np.random.Generator, step: int, every: int) -> dict[str, Any]:
    return {
        "step": step,
        "generate": 0.5 + rng.random() * 0.1,
        "score": 0.01,
        "logprob": 0.1,
        "train": 0.4 + rng.random() * 0.05,
        "evaluate": 0.6 if step % every == 1 else 0.0,
        "save": 0.1 if step % every == 0 else 0.0,
        "write": 0.02,
        "tokens_generated": 10240,
        "tokens_trained": 10000,
    }


def _evaluation(step: int, skill: float) -> dict[str, Any]:
    return {
        "step": step,
        "problems": 256,
        "samples": 4,
        "accuracy": skill,
        "low": skill - 0.055,
        "high": skill + 0.055,
        "pass": {"1": skill, "4": min(1.0, skill + 0.12)},
        "length": 41.5,
        "truncated": 0.02,
        "no_answer": 0.03,
    }


def _sample(rng: np.random.Generator, step: int, index: int, skill: float, text: str) -> dict[str, Any]:
    group, member = divmod(index, 8)
    a, b = (int(x) for x in np.random.default_rng([step, group]).integers(100, 999, 2))
    right = bool(rng.random() < skill)
    truncated = not right and bool(rng.random() < 0.15)
    total = a + b if right else a + b + int(rng.integers(1, 90))
    work = f"{a} + {b}\nones: {a % 10} + {b % 10} = {a % 10 + b % 10}\ntens: {a // 10 % 10} + {b // 10 % 10}\n"
    return {
        "step": step,
        "prompt_id": f"{step:04d}{group:012x}",
        "sample_id": member,
        "prompt": f"Add {a} and {b}. Show your work and end with 'answer: <number>'.{text}",
        "completion": work + ("" if truncated else f"answer: {total}") + text,
        "answer": str(a + b),
        "reward": float(right),
        "components": {"right": float(right), "format": 0.0 if truncated else 0.1},
        "correct": right,
        "status": "no_answer" if truncated else "ok",
        "finish": "length" if truncated else "stop",
        "length": int(rng.integers(20, 64)),
        "advantage": float(rng.normal()),
        "seed": int(rng.integers(2**62, 2**63 - 1)),
        "version": step,
        "note": "" if truncated else str(total),
    }


def token_lists(text: str) -> dict[str, Any]:
    """A token for every one to four characters, with values that follow from its place."""
    pieces, at = [], 0
    while at < len(text):
        pieces.append(text[at : at + 1 + len(pieces) % 4])
        at += len(pieces[-1])
    places = range(len(pieces))
    return {
        "text": pieces,
        "logp": [-0.05 * (i % 40) for i in places],
        "logp_start": [-0.05 * (i % 40) + 0.001 for i in places],
        "ratio": [float(f"{1 + 0.3 * math.sin(i):.4g}") for i in places],
        "entropy": [0.1 * (i % 30) for i in places],
        "bounds": {"clip_high": [i for i in places if math.sin(i) > 2 / 3]},
    }


def _write_texts(folder: Path, steps: int, text: str) -> None:
    text = text.replace("\ud800", "?")
    config = {
        "name": folder.name,
        "seed": 0,
        "model": {"path": "embedded"},
        "task": {"name": "addition", "prompt": "{prompt}" + text},
        "algorithm": {"preset": "dr_grpo"},
        "train": {"steps": steps, "prompts_per_step": 32, "group_size": 8},
        "evaluation": {"confidence": 0.95},
    }
    (folder / "config.toml").write_text(dump_toml(config), encoding="utf-8")
    (folder / "card.md").write_text(CARD + text, encoding="utf-8")
    environment = {"versions": {"torch": "2.13.0"}, "git": "a" * 40, "command": ["surefoot", "train", f"x{text}"]}
    (folder / "environment.json").write_text(json.dumps(environment), encoding="utf-8")


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """``make_run(name, steps=..., text=...)``: a run folder under the test's own temporary folder."""

    def make(name: str = "demo", **options: Any) -> Path:
        return build_run(tmp_path / name, **options)

    return make


@pytest.fixture
def hostile() -> str:
    """Text that tries to leave its place: tags, a comment, a template, direction overrides, half a surrogate pair."""
    return HOSTILE
