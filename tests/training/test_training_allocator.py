"""Freed memory stays with the process, so that a pass that follows another gets no new pages."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from surefoot.training.allocator import GIVEN

# As a pass does: blocks that are alive together, freed together, again and again.
PASSES = """
import resource, torch
from surefoot.training.allocator import keep_freed_memory
kept = keep_freed_memory() if {keep} else None
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


def passes(*, keep: bool, **variables: str) -> tuple[str, int]:
    """What was set, and the page faults of ten passes in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name not in GIVEN} | variables
    done = subprocess.run(
        [sys.executable, "-c", PASSES.format(keep=keep)], capture_output=True, text=True, check=True, env=environment
    )
    kept, faults = done.stdout.split()
    return kept, int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator of glibc")
def test_a_pass_gets_the_pages_of_the_one_before() -> None:
    kept, faults = passes(keep=True)
    _, otherwise = passes(keep=False)
    assert kept == "True"
    assert faults < 1000  # ten passes touch 160,000 pages
    assert otherwise > 100_000


def test_the_environment_has_the_last_word() -> None:
    kept, _ = passes(keep=True, MALLOC_TRIM_THRESHOLD_="1000000")
    assert kept == "False"
