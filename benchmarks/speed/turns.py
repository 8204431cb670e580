"""The sides of a piece of work, and their turns."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.speed import peer_vllm
from benchmarks.speed.flops import Shape
from benchmarks.speed.side import ROOT, Side
from benchmarks.speed.works import MEMORY_TOKENS, SCALES, Work

Told = Callable[[str], None]
# threads and how they wait; the number of iterations of the last is what libgomp takes where threads are more than cores
WAITING: dict[str, tuple[int, dict[str, str]]] = {
    "1 thread": (1, {}),
    "2 threads, as they come": (2, {}),
    "2 threads, passive": (2, {"OMP_WAIT_POLICY": "PASSIVE"}),
    "2 threads, 1,000 spins": (2, {"GOMP_SPINCOUNT": "1000"}),
}
PEERS = ("trl", "transformers", "vllm")
OTHERS = (0, 1, 2)  # busy processes beside it


@dataclass(frozen=True)
class Plan:
    """What is measured and how.

    Attributes:
        models: folder of the models that are made for it.
        logs: folder of what the sides print.
        checkouts: further checkouts of Surefoot that take turns with this one, by name.
        peers: the other libraries, of :data:`PEERS`; each takes part in the kinds of work it has.
        threads: of every side; 0 leaves it to them.
        rounds: turns, over the number of the work (0: that).
        device: ``cpu`` or ``cuda``.
        peer_rows: rows of TRL's forward pass, over the number of the work (0: that).
        settings: of our side's configuration, over those of the work.
    """

    models: Path
    logs: Path
    checkouts: Mapping[str, Path] = field(default_factory=dict)
    peers: Sequence[str] = ()
    threads: int = 0
    rounds: int = 0
    device: str = "cpu"
    peer_rows: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)


def measure(work: Work, plan: Plan, told: Told) -> dict[str, Any]:
    """All turns of a piece of work.

    Raises:
        RuntimeError: a side ended by itself; the message is the last line that it printed. Or a peer is not installed.
    """
    if _with_vllm(work, plan):
        peer_vllm.python(peer_vllm.FOLDER)  # before any side is started
    model = _model(work, plan)
    if work.kind == "threads":
        return measure_threads(work, plan, model, told)
    sides = _sides(work, plan, model)
    rounds = len(MEMORY_TOKENS) if work.kind == "memory" else plan.rounds or work.rounds
    try:
        for side in sides:
            side.ready()
        if work.warm and work.kind != "memory":
            for side in sides:
                side.turn(counts=False)
        for number in range(rounds):
            for side in sides:
                record = side.turn()
                told(f"{work.name}, turn {number + 1} of {rounds}: {side.label} {record['seconds']:.2f} s")
        for side in sides:
            side.stop()
    finally:
        for side in sides:
            side.kill()
    shape = Shape.read(model)
    found = {side.label: summary(work, shape, side) for side in sides}
    return {"work": asdict(work), "device": plan.device, "machine": machine(), "sides": found}


def measure_threads(work: Work, plan: Plan, model: Path, told: Told) -> dict[str, Any]:
    """One thread against two that wait in different ways, on a free machine and then with other processes on it."""
    sides = [
        _side(label, "surefoot", work, replace(plan, threads=threads), model, variables=variables)
        for label, (threads, variables) in WAITING.items()
    ]
    found: dict[str, Any] = {side.label: {} for side in sides}
    try:
        for side in sides:
            side.ready()
            side.turn(counts=False)
        for others in OTHERS:
            busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(others)]
            try:
                turns = [(side, side.turn()["seconds"]) for _ in range(plan.rounds or work.rounds) for side in sides]
            finally:
                for process in busy:
                    process.kill()
                    process.wait()
            for side in sides:
                seconds = statistics.median(took for which, took in turns if which is side)
                found[side.label][f"{others} busy"] = seconds
                told(f"{work.name}, {others} busy processes beside it: {side.label} {seconds:.2f} s")
    finally:
        for side in sides:
            side.kill()
    return {"work": asdict(work), "device": plan.device, "machine": machine(), "sides": found}


def _model(work: Work, plan: Plan) -> Path:
    side = _side("make", "make", work, plan, None)
    try:
        side.ready()
    finally:
        side.kill()
    return Path(side.about["folder"])


def _sides(work: Work, plan: Plan, model: Path) -> list[Side]:
    sides = [_side("product", "product", work, plan, model)]
    if work.kind == "memory":
        return [_side(label, "memory", work, plan, model, path) for label, path in _checkouts(plan).items()]
    if work.name == "scaling":
        scaled = [work.but(prompts=number) for number in SCALES]
        return [*sides, *(_side(f"{w.prompts} prompts", "surefoot", w, plan, model) for w in scaled)]
    kind = "surefoot" if work.kind == "step" else work.kind
    sides += [_side(label, kind, work, plan, model, path) for label, path in _checkouts(plan).items()]
    if work.kind == "step" and "trl" in plan.peers:
        sides.append(_side("trl", "trl", work, plan, model))
    if work.kind in ("train", "decode") and "transformers" in plan.peers:
        sides.append(_side("transformers", f"plain {work.kind}", work, plan, model))
    if _with_vllm(work, plan):
        folder = peer_vllm.FOLDER
        variables = peer_vllm.variables(plan.threads, folder)
        sides.append(_side("vllm", "vllm", work, plan, model, variables=variables, python=peer_vllm.python(folder)))
    return sides


def _with_vllm(work: Work, plan: Plan) -> bool:
    return work.kind == "decode" and plan.device == "cpu" and "vllm" in plan.peers


def _checkouts(plan: Plan) -> dict[str, Path]:
    return {"surefoot": ROOT, **plan.checkouts}


def _side(
    label: str,
    kind: str,
    work: Work,
    plan: Plan,
    model: Path | None,
    checkout: Path = ROOT,
    variables: Mapping[str, str] | None = None,
    python: Path | None = None,
) -> Side:
    spec = {
        "side": kind,
        "work": asdict(work),
        "model": str(model),
        "models": str(plan.models.resolve()),
        "device": plan.device,
        "rows": plan.peer_rows,
        "settings": dict(plan.settings),
    }
    log = plan.logs / f"{work.name}-{label.replace(' ', '-').replace(',', '')}.log"
    return Side(label, spec, checkout=checkout, threads=plan.threads, log=log, variables=variables, python=python)


def summary(work: Work, shape: Shape, side: Side) -> dict[str, Any]:
    """What a side came to: medians over its turns, rates, and the share of its time in each phase."""
    if work.kind == "memory" or side.label == "product":
        return {"turns": side.turns, **side.about}
    seconds = [turn["seconds"] for turn in side.turns]
    answers, trained = (sum(turn[key] for turn in side.turns) for key in ("answers", "trained"))
    whole = sum(seconds)
    phases: dict[str, float] = {}
    for turn in side.turns:
        for name, value in turn["phases"].items():
            phases[name] = phases.get(name, 0.0) + value / len(side.turns)
    phases["other"] = whole / len(seconds) - sum(phases.values())
    return {
        **side.about,
        "turns": side.turns,
        "seconds": statistics.median(seconds),
        "cpu": statistics.median(turn["cpu"] for turn in side.turns),
        "phases": phases,
        "tokens": {"answers": answers / len(seconds), "trained": trained / len(seconds)},
        "tokens_per_second": (answers or trained) / whole,
        "operations": _operations(work, shape, side, answers / len(seconds)),
    }


def _operations(work: Work, shape: Shape, side: Side, answers: float) -> dict[str, float]:
    """Necessary operations of one turn, by phase."""
    if work.kind == "train":
        return {"train": shape.train(work.prompts, 1, 1.0, work.length - 1.0)}
    prompts = int(side.label.split()[0]) if work.name == "scaling" else work.prompts
    given = (prompts, work.samples, float(side.about["prompt"]), answers / (prompts * work.samples))
    if work.kind == "decode":
        return {"generate": shape.generate(*given)}
    return {"generate": shape.generate(*given), "train": shape.train(*given)}


def machine() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = (line for line in info.read_text(encoding="utf-8").splitlines() if line.startswith("model name"))
        name = next(lines, f": {name}").partition(":")[2].strip()
    return {
        "cpu": name,
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "threads": os.environ.get("OMP_NUM_THREADS", ""),
        "command": ["python", "-m", "benchmarks.speed", *sys.argv[1:]],
    }
