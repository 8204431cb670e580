"""Numbers that must be finite. One that is not stops the step under its name, before a bound or a mask can hide it.

``clamp``, ``where`` and comparisons turn NaN and infinities into ordinary numbers, or give them a gradient of 0, so a loss
or a gradient that is finite proves nothing about what went into it: the inputs are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from surefoot.errors import NonFiniteError


def require_finite(values: Mapping[str, Tensor | None], row: Tensor | None = None, *, unit: str = "row") -> None:
    """Refuse tensors with a number that is not finite. On an accelerator all of them cost one synchronisation.

    Args:
        values: by what they are called in the message; None is passed over.
        row: [M], the row of each entry, where the entries are tokens.
        unit: what an entry is where they are not.

    Raises:
        NonFiniteError: naming the first such tensor and the place in it.
    """
    held = {name: value.detach() for name, value in values.items() if value is not None}
    if not held or bool(torch.stack([value.isfinite().all() for value in held.values()]).all()):
        return
    name, value = next((name, value) for name, value in held.items() if not bool(value.isfinite().all()))
    where = int((~value.isfinite()).nonzero()[0, 0]) if value.dim() else 0
    number = float(value[where] if value.dim() else value)
    place = "" if not value.dim() else f" at {unit} {where}"
    if row is not None and value.dim():
        of = int(row[where])
        place = f" at loss token {where - int((row < of).sum())} of row {of}"
    raise NonFiniteError(f"{name} is {number}{place}; no step was taken: {REMEDY}")


REMEDY = "look for non-finite weights (a too high optimiser.lr) and for what gave this number"
