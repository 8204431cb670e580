"""Memory and objects that outlive a step are left alone during the steps.

Memory that a step has freed stays with the process for the next step.

The allocator of glibc gives the end of its heap back to the system whenever more than twice the largest block lately freed
is free there. A backward pass frees all activations, so they go back after every micro-batch, and the next one gets
pages that the kernel has to clear, one page fault for every 4 kB: 5 per cent of a step of a small model.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # numbers of the parameters in malloc.h
KEPT = 2**29  # bytes that may lie free at the end of the heap
# Larger blocks come from the system and go back to it when they are freed. This is as high as glibc itself would set it.
OWN_PAGES = 2**25
GIVEN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")  # whoever sets one of these has chosen


def keep_freed_memory() -> bool:
    """Let the allocator keep up to half a gigabyte of freed memory, unless the environment has chosen.

    What is kept has been in use, so that the peak of a process hardly changes. Returns whether the allocator has this setting.
    """
    if any(os.environ.get(name) for name in GIVEN):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return False
    return bool(set_option(TRIM_THRESHOLD, KEPT)) and bool(set_option(MMAP_THRESHOLD, OWN_PAGES))


def give_back_freed_memory() -> None:
    """Give freed memory to the system at once: what the next pass needs is much less than what was freed."""
    with suppress(AttributeError, OSError, TypeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def objects_at_rest() -> Iterator[None]:
    """A context in which the garbage collector passes over all objects that were there before.

    A full collection looks at the hundred thousands of objects of PyTorch and Transformers, 0.2 seconds every 20 steps.
    """
    before = gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not before:  # what the caller had frozen cannot be told apart, and stays so with the rest
            gc.unfreeze()
