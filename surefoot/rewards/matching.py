"""Matching a regular expression or a JSON schema, as a job of a worker process: both may take for ever."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from surefoot.extras import require


def full_match(pattern: str, text: str, case: bool) -> bool:
    """Whether the expression matches the whole text."""
    return compiled(pattern, case).fullmatch(text) is not None


@functools.lru_cache(maxsize=1024)
def compiled(pattern: str, case: bool) -> re.Pattern[str]:
    return re.compile(pattern, re.NOFLAG if case else re.IGNORECASE)


def follows(text: str, schema: Mapping[str, Any]) -> bool:
    """Whether a text that is JSON follows a schema; numbers and nesting that cannot be compared with it do not."""
    try:
        return bool(validator(schema).is_valid(json.loads(text)))
    except (RecursionError, OverflowError):
        return False


def validator(schema: Mapping[str, Any]) -> Any:
    """What compares with a JSON schema (draft 2020-12); references to other addresses are not fetched.

    Raises:
        MissingExtraError: the extra 'json' is not installed.
    """
    jsonschema = require("jsonschema", "json", "a schema of the verifier 'json'")
    referencing = require("referencing", "json", "a schema of the verifier 'json'")
    return jsonschema.Draft202012Validator(schema, registry=referencing.Registry())
