"""Every declared comparison, on several seeds. Run with ``make parity``."""

from __future__ import annotations

import inspect
import re
import sys
from types import FrameType
from typing import Any

import pytest

from tests.parity import peers
from tests.parity.absent import COVERED, ELSEWHERE
from tests.parity.declarations import DECLARED
from tests.parity.registry import SEEDS, Comparison, check

pytestmark = pytest.mark.parity

CASES = [pytest.param(entry, name, id=f"{entry.name}-{name}") for entry in DECLARED for name in entry.presets]


@pytest.fixture(scope="module", autouse=True)
def libraries() -> None:
    peers.load()


@pytest.mark.parametrize(("entry", "preset"), CASES)
def test_a_declared_comparison_holds(entry: Comparison, preset: str) -> None:
    for seed in SEEDS:
        check(entry, preset, seed)


@pytest.mark.parametrize("entry", DECLARED, ids=lambda entry: entry.name)
def test_the_functions_that_a_declaration_names_are_the_ones_that_run(entry: Comparison) -> None:
    """Each name is that of a function of the library, or of a class that has one, that was called."""
    ran: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(peers.FOLDER / entry.library)):
            ran.add(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        entry.run(entry.presets[0], 0)
    finally:
        sys.setprofile(None)
    called = {name.rsplit(".", depth)[0] for name in ran for depth in (0, 1)}
    assert [name for name in entry.functions if name not in called] == []


def loss_types(trainer: str) -> set[str]:
    """The names that a trainer's loss compares ``loss_type`` with."""
    import trl

    source = inspect.getsource(getattr(trl, trainer)._compute_loss)
    tests = re.findall(r"loss_type (?:==|in) (\[[^]]*\]|\"\w+\")", source)
    return {name for test in tests for name in re.findall(r"\w+", test)}


def test_everything_that_the_libraries_name_is_accounted_for() -> None:
    from verl.trainer.ppo import core_algos

    named = {
        "verl policy losses": set(core_algos.POLICY_LOSS_REGISTRY),
        "verl advantages": set(core_algos.ADV_ESTIMATOR_REGISTRY),
        "TRL loss types of GRPOTrainer": loss_types("GRPOTrainer"),
        "TRL loss types of DPOTrainer": loss_types("DPOTrainer"),
    }
    assert named == {kind: COVERED[kind] | ELSEWHERE[kind] for kind in COVERED}
