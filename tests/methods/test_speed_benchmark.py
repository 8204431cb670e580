"""The bookkeeping of the speed benchmarks: operations, turns, tables."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.speed.__main__ import settings
from benchmarks.speed.flops import Shape
from benchmarks.speed.peer_vllm import python, variables
from benchmarks.speed.side import ROOT, Side
from benchmarks.speed.table import ratio, tables
from benchmarks.speed.turns import Plan, measure
from benchmarks.speed.works import WORKS, prompts


def test_operations_of_a_model_that_can_be_counted_by_hand(tmp_path: Path) -> None:
    config = {
        "hidden_size": 8,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 16,
        "num_hidden_layers": 3,
        "vocab_size": 10,
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shape = Shape.read(tmp_path)
    layer = 8 * 8 + 8 * 4 + 8 * 4 + 8 * 8 + 3 * 8 * 16  # q, k, v, o and the gated layer
    assert shape == Shape(3, 3 * layer, 80, 8)
    # One prompt of 1 token, one answer of 1 token: the prompt is read, one row of logits is made, and attention is small.
    assert shape.generate(1, 1, 1, 1) == 2 * 3 * layer + 2 * 80 + 4 * 3 * 8 * 0.5
    # A prompt is counted once, whatever the number of samples.
    more = shape.train(1, 2, 100, 1) - shape.train(1, 1, 100, 1)
    assert more == 3 * (2 * 3 * layer + 4 * 3 * 8 * 100.5 + 2 * 80)


@pytest.mark.parametrize("name", [name for name, work in WORKS.items() if work.wording])
def test_prompts_are_the_same_for_every_side(name: str) -> None:
    work = WORKS[name]
    assert prompts(work, 4) == prompts(work, 6)[:4]
    assert len(set(prompts(work, 16))) == 16


def test_options_of_our_side() -> None:
    assert settings(["train.threads=1", "train.layout=packed", "rollout.top_p=0.5"]) == {
        "train": {"threads": 1, "layout": "packed"},
        "rollout": {"top_p": 0.5},
    }


def side_of(seconds: list[float], answers: int, peak: float) -> dict[str, Any]:
    return {
        "turns": [{"seconds": value, "cpu": 2 * value} for value in seconds],
        "seconds": sorted(seconds)[len(seconds) // 2],
        "cpu": 1.0,
        "phases": {"generate": 0.5, "train": 0.25, "other": 0.25},
        "tokens": {"answers": answers, "trained": answers},
        "tokens_per_second": 100.0,
        "operations": {"generate": 5e8, "train": 5e8},
        "peak": peak,
        "device_peak": 0.0,
    }


def test_table_of_steps() -> None:
    result = {
        "work": asdict(WORKS["tiny"]),
        "sides": {
            "product": {"turns": [{"rate": 1e9}, {"rate": 2e9}, {"rate": 4e9}]},
            "surefoot": side_of([1.0, 2.0, 1.0], 1000, 500.0),
            "trl": side_of([3.0, 4.0, 4.0], 1100, 1000.0),
        },
    }
    assert ratio(result, "trl") == 3.0  # of the turns' ratios 3, 2 and 4
    text = tables([result])
    assert "| **3.00** | 2.73 | 3.00 | 1100 (unequal) | 100 | 1,000 MB | 2.00 |" in text
    assert "| tiny | surefoot | 0.50 | 0.25 | 0.25 | 50 % | 100 % | 1.00 |" in text


def test_a_side_does_its_turns_and_tells_its_memory(tmp_path: Path) -> None:
    spec = {"side": "product", "work": asdict(WORKS["tiny"]), "device": "cpu"}
    side = Side("product", spec, checkout=ROOT, threads=1, log=tmp_path / "log")
    try:
        side.ready()
        assert side.about["threads"] == 1
        assert side.turn(counts=False)["rate"] > 0
        assert side.turn()["seconds"] > 0
        side.stop()
    finally:
        side.kill()
    assert len(side.turns) == 1 and side.about["peak"] > 10


def test_a_side_that_fails_says_why(tmp_path: Path) -> None:
    spec = {"side": "surefoot", "work": asdict(WORKS["tiny"]), "device": "cpu", "model": str(tmp_path / "nowhere")}
    side = Side("ours", spec, checkout=ROOT, threads=1, log=tmp_path / "log")
    try:
        with pytest.raises(RuntimeError, match=r"ours has ended: .*nowhere"):
            side.ready()
            side.turn()
    finally:
        side.kill()


def test_a_side_in_another_environment_runs_by_its_interpreter(tmp_path: Path) -> None:
    """The interpreter is the one that was given, and the side's code runs without importing Surefoot."""
    told = tmp_path / "told"
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\nprintf "%s" "$2" > {told}\nexec {sys.executable} "$@"\n', encoding="utf-8")
    interpreter.chmod(0o755)
    spec = {"side": "product", "work": asdict(WORKS["tiny"]), "device": "cpu"}
    side = Side("product", spec, checkout=ROOT, threads=1, log=tmp_path / "log", python=interpreter)
    try:
        side.ready()
        side.stop()
    finally:
        side.kill()
    assert "benchmarks.speed.sides" in told.read_text() and "surefoot;" not in told.read_text()


def test_vllm_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match=r"vLLM is not installed .*make bench-vllm"):
        python(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    with pytest.raises(RuntimeError, match="not installed"):  # an installation that broke off has no stamp
        python(tmp_path)
    (tmp_path / ".done").touch()
    assert python(tmp_path) == tmp_path / "bin" / "python"
    # It is looked for before any side is started.
    monkeypatch.setattr("benchmarks.speed.peer_vllm.FOLDER", tmp_path / "nowhere")
    plan = Plan(tmp_path, tmp_path, peers=("vllm",), threads=1)
    with pytest.raises(RuntimeError, match="make bench-vllm"):
        measure(WORKS["decode"], plan, lambda line: None)
    assert not list(tmp_path.glob("*.log"))


def test_threads_of_vllm() -> None:
    here = Path("vllm")
    assert variables(1, here)["OMP_NUM_THREADS"] == "1" and variables(2, here)["OMP_NUM_THREADS"] == "2"
    assert variables(0, here)["OMP_NUM_THREADS"] == str(len(os.sched_getaffinity(0)))
    assert Path(variables(1, here)["LD_PRELOAD"]).name == "libiomp5.so"
