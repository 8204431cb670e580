"""What a side does, by its name."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from benchmarks.speed.side import Gate, Stop
from benchmarks.speed.works import Work


def main() -> None:
    """Run the side that the first argument describes, and leave without the interpreter's farewell."""
    spec: dict[str, Any] = json.loads(sys.argv[1])
    gate = Gate()
    threads = os.environ.get("OMP_NUM_THREADS")
    if threads:
        import torch

        torch.set_num_threads(int(threads))
    with suppress(Stop):
        run(str(spec["side"]))(Work(**spec["work"]), spec, gate)
    if spec["side"] != "make":
        gate.last()
    os._exit(0)


def run(name: str) -> Callable[[Work, Mapping[str, Any], Gate], None]:
    """The function of a side; imported here, so that no side loads the libraries of another."""
    if name == "trl":
        from benchmarks.speed.peer import steps

        return steps
    if name == "surefoot":
        from benchmarks.speed.ours import steps as own

        return own
    if name == "vllm":
        from benchmarks.speed.peer_vllm import decode

        return decode
    if name == "make":
        return _make
    from benchmarks.speed import parts

    return {
        "product": parts.product,
        "train": parts.train,
        "plain train": parts.plain_train,
        "decode": parts.decode,
        "plain decode": parts.plain_decode,
        "memory": parts.memory,
    }[name]


def _make(work: Work, spec: Mapping[str, Any], gate: Gate) -> None:
    from pathlib import Path

    from benchmarks.speed.models import make

    gate.say(folder=str(make(work.model, Path(spec["models"]))))
