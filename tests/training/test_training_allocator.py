"""Freed memory stays with the process, so that a pass that follows another gets no new pages."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys

import pytest

from surefoot.training.allocator import GIVEN, objects_at_rest

# As a pass does: blocks that are alive together, freed together, again and again.
PASSES = """
import resource, torch
from surefoot.training.allocator import keep_freed_memory
kept = keep_freed_memory()
def one():
    blocks = [torch.ones(2**16 * (1 + i % 8)) for i in range(64)]  # 72 MB
    while blocks:
        blocks.pop()
for _ in range(3):
    one()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    one()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def passes(**variables: str) -> tuple[str, int]:
    """What was set, and the page faults of ten passes in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name not in GIVEN} | variables
    done = subprocess.run([sys.executable, "-c", PASSES], capture_output=True, text=True, check=True, env=environment)
    kept, faults = done.stdout.split()
    return kept, int(faults)


glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator of glibc")


@glibc
def test_a_pass_gets_the_pages_of_the_one_before() -> None:
    kept, faults = passes()
    assert kept == "True"
    assert faults < 1000  # ten passes touch 180,000 pages


@glibc
def test_the_environment_has_the_last_word() -> None:
    kept, faults = passes(MALLOC_MMAP_THRESHOLD_="65536")
    assert kept == "False"
    assert faults > 100_000


def test_objects_are_at_rest_during_the_steps_only() -> None:
    before = gc.get_freeze_count()
    with objects_at_rest():
        assert gc.get_freeze_count() > before + 10_000
    assert gc.get_freeze_count() == 0
