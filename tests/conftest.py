"""Settings of every test: one thread, no network, no colours, the repository's examples at hand."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
for name in ("FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE"):
    os.environ.pop(name, None)

import hypothesis  # noqa: E402 - the settings above must come first
import pytest  # noqa: E402

hypothesis.settings.register_profile(
    "suite",
    deadline=None,  # the first example of a property pays for imports
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY
