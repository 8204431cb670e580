"""A run of thousands of long samples with all their tokens, written quickly: a few dozen samples over and over."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.report.conftest import build_run

WORDS = [
    *("the", "of", "and", "to", "in", "we", "is", "that", "so", "then", "sum", "=", "+", "1", "2"),
    *("3", "7", "therefore", "answer", "carry", "digit"),
]
DIFFERENT = 64


def build_large(folder: Path, samples: int, tokens: int, per_file: int = 50) -> Path:
    """A run with ``samples`` samples of ``tokens`` tokens each, ``per_file`` to a step."""
    build_run(folder, steps=2, samples=1)
    for file in (folder / "samples").iterdir():
        file.unlink()
    rng = np.random.default_rng(0)
    bodies = [_body(rng, tokens) for _ in range(DIFFERENT)]
    for step in range(samples // per_file):
        lines = []
        for number in range(per_file):
            head = {
                "step": step + 1,
                "prompt_id": f"{step % 20:08d}{number // 10}",
                "sample_id": number % 10,
                "prompt": f"Problem {step % 20}, {number // 10}: what is the sum?",
                "answer": str(step),
                "reward": float(rng.random()),
                "components": {"right": float(number % 3 == 0), "format": float(number % 5 == 0)},
                "correct": number % 3 == 0,
                "status": "ok",
                "finish": "length" if number % 7 == 0 else "stop",
                "length": tokens,
                "advantage": float(rng.normal()),
                "seed": int(rng.integers(2**62, 2**63 - 1)),
                "version": step,
                "note": "",
            }
            lines.append(json.dumps(head)[:-1] + "," + bodies[(step * per_file + number) % DIFFERENT] + "\n")
        (folder / "samples" / f"step-{step + 1:06d}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def _body(rng: np.random.Generator, tokens: int) -> str:
    pieces = [" " + WORDS[i] for i in rng.integers(0, len(WORDS), tokens)]
    entropy = rng.gamma(0.4, 0.8, tokens)
    logp = -rng.gamma(0.4, 0.8, tokens)
    values = {
        "text": pieces,
        "logp": np.round(logp, 3).tolist(),
        "logp_start": np.round(logp + rng.normal(0, 2e-3, tokens), 3).tolist(),
        "ratio": [float(f"{x:.4g}") for x in np.exp(rng.normal(0, 0.1, tokens))],
        "entropy": np.round(entropy, 3).tolist(),
        "bounds": {"clip_high": np.flatnonzero(rng.random(tokens) < 0.02).tolist()},
    }
    return json.dumps({"completion": "".join(pieces), "tokens": values})[1:]
