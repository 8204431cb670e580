"""The verifiers by name, and from a name and options to a verifier."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from surefoot.config import nearest
from surefoot.errors import RewardError
from surefoot.rewards.values import short
from surefoot.rewards.verifiers.base import Verifier
from surefoot.rewards.verifiers.choice import Choice
from surefoot.rewards.verifiers.data import Json
from surefoot.rewards.verifiers.final import Boxed, Exact, Number, Tag
from surefoot.rewards.verifiers.language import Language
from surefoot.rewards.verifiers.manner import Format, Length, Repetition
from surefoot.rewards.verifiers.mathematics import Mathematics
from surefoot.rewards.verifiers.pattern import Pattern
from surefoot.rewards.verifiers.process import Steps

VERIFIERS: dict[str, type[Verifier]] = {
    verifier.name: verifier
    for verifier in (
        Exact,
        Number,
        Boxed,
        Tag,
        Mathematics,
        Choice,
        Pattern,
        Json,
        Steps,
        Format,
        Length,
        Repetition,
        Language,
    )
}
"""Every verifier that a configuration can name."""

_NONE: Mapping[str, Any] = MappingProxyType({})


def make_verifier(name: str, options: Mapping[str, Any] = _NONE) -> Verifier:
    """The verifier of this name with these options.

    Raises:
        RewardError: an unknown verifier or option (with the nearest one), or a value that the option does not take.
        MissingExtraError: a package that the verifier needs is not installed.
    """
    if name not in VERIFIERS:
        raise RewardError(f"unknown verifier '{name}'." + nearest(name, VERIFIERS))
    made = VERIFIERS[name]
    known = [option.name for option in fields(made)]
    hints = get_type_hints(made)
    values = {}
    for option, value in options.items():
        if option not in known:
            hint = nearest(option, known) or " It has no options."
            raise RewardError(f"the verifier '{name}' has no option '{option}'." + hint)
        values[option] = _read(name, option, value, hints[option])
    return made(**values)


def _read(name: str, option: str, value: Any, hint: Any) -> Any:
    """The value of an option, as its type wants it: JSON's lists become tuples, nothing else is converted."""
    try:
        return TypeAdapter(hint).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"]
        why = message[0].lower() + message[1:]
    except (TypeError, ValueError) as error:
        why = str(error)
    raise RewardError(f"the option {option} = {short(value)} of the verifier '{name}': {why}")
