"""The declarations are complete and the page is theirs. Needs no library but Surefoot."""

from __future__ import annotations

from pathlib import Path

from surefoot.algorithms.part import REGISTRY as PARTS
from surefoot.algorithms.preference_presets import PREFERENCES
from surefoot.algorithms.presets import PRESETS
from tests.parity.absent import ABSENT, COVERED, ELSEWHERE
from tests.parity.declarations import DECLARED
from tests.parity.page import page
from tests.parity.peers import LIBRARIES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "parity.md"


def test_the_page_is_the_one_that_the_declarations_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.parity.page > docs/parity.md"


def test_every_preset_is_compared_with_every_library_or_said_to_be_absent() -> None:
    compared = {(entry.library, name) for entry in DECLARED for name in entry.presets}
    wanted = {(library, name) for library in LIBRARIES for name in (*PRESETS, *PREFERENCES)}
    assert wanted - compared - set(ABSENT) == set(), "declare a comparison, or the reason in tests/parity/absent.py"


def test_the_declarations_name_presets_and_parts_that_exist() -> None:
    for name in {name for entry in DECLARED for name in entry.presets} | {name for _, name in ABSENT}:
        slot, _, part = name.rpartition(".")
        assert name in PRESETS or name in PREFERENCES or part in PARTS.get(slot, {}), name


def test_covered_and_elsewhere_do_not_overlap() -> None:
    assert COVERED.keys() == ELSEWHERE.keys()
    assert all(not COVERED[kind] & ELSEWHERE[kind] for kind in COVERED)
