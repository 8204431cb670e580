"""All declarations: importing this module fills the registry. No library but Surefoot is needed to read it."""

from __future__ import annotations

from tests.parity import (
    trl_policy,
    trl_preference,
    trl_recipes,
    verl_advantages,
    verl_corrections,
    verl_losses,
    verl_tokens,
)
from tests.parity.registry import REGISTRY

MODULES = (
    trl_policy,
    trl_recipes,
    trl_preference,
    verl_advantages,
    verl_tokens,
    verl_losses,
    verl_corrections,
)
_PLACE = {module.__name__: place for place, module in enumerate(MODULES)}
DECLARED = tuple(sorted(REGISTRY, key=lambda entry: _PLACE[entry.run.__module__]))
