"""The verifier 'json': data that follows a schema, and that may have to equal the gold answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from surefoot.errors import RewardError
from surefoot.extras import require
from surefoot.rewards.base import Completion
from surefoot.rewards.verifiers.base import Verifier, judged, no_answer
from surefoot.tasks.extraction import after_thought
from surefoot.types import Prompt, Score

_FENCED = re.compile(r"^[ \t]*```[ \t]*(?:json|JSON)?[ \t]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
_MISSING = object()


@dataclass(frozen=True)
class Json(Verifier):
    """The completion is JSON, whole or in its last fenced block, that follows a JSON schema (draft 2020-12).

    Keys that come twice and NaN or Infinity, which JSON does not have, are wrong. A text that holds no JSON is
    ``Status.NO_ANSWER``. A schema's references to other addresses are never fetched.

    Attributes:
        schema: the schema; empty takes the problem's metadata ``schema`` where there is one, and else any JSON.
        equal: whether the data must also equal the gold answer (numbers by value, objects without order).
    """

    name: ClassVar[str] = "json"
    about: ClassVar[str] = "the completion is JSON that follows a schema, and equals the gold answer if that is asked"

    schema: dict[str, Any] = field(default_factory=dict)
    equal: bool = False

    def __post_init__(self) -> None:
        if self.schema and (why := _trouble(self.schema)):
            raise RewardError(f"the option schema of the verifier 'json' {why}")

    def verdict(self, completion: Completion) -> Score:
        text = after_thought(completion.text).strip()
        blocks = _FENCED.findall(text)
        if not blocks and not text.startswith(("{", "[")) and _read(text) is _MISSING:
            return no_answer()
        text = blocks[-1].strip() if blocks else text
        data = _read(text)
        schema = self._schema(completion.prompt)
        right = data is not _MISSING and (not schema or _follows(data, schema))
        if right and self.equal:
            right = _same(data, _gold(completion.prompt.answer))
        return judged(right, text[:1000])

    def wants_gold(self) -> bool:
        return self.equal

    def refuses(self, prompt: Prompt) -> str:
        schema = self._schema(prompt)
        if why := _trouble(schema) if schema else "":
            return f"comes with a schema that {why}"
        if self.equal and schema and not _follows(_gold(prompt.answer), schema):
            return "does not follow the schema"
        return ""

    def _schema(self, prompt: Prompt) -> Mapping[str, Any]:
        return self.schema or prompt.metadata.get("schema") or {}


def _gold(answer: Any) -> Any:
    """A gold answer as data: a text that is JSON is read, everything else is data already."""
    if not isinstance(answer, str):
        return json.loads(json.dumps(answer))
    data = _read(answer)
    return answer if data is _MISSING else data


def _read(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _MISSING


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key comes twice")
    return made


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _validator(schema: Mapping[str, Any]) -> Any:
    jsonschema = require("jsonschema", "json", "a schema of the verifier 'json'")
    referencing = require("referencing", "json", "a schema of the verifier 'json'")
    return jsonschema.Draft202012Validator(schema, registry=referencing.Registry())


def _trouble(schema: Mapping[str, Any]) -> str:
    validator = _validator(schema)
    try:
        validator.check_schema(schema)
    except Exception as error:
        return f"is no JSON schema: {str(error).splitlines()[0]}"
    return ""


def _follows(data: Any, schema: Mapping[str, Any]) -> bool:
    try:
        return bool(_validator(schema).is_valid(data))
    except RecursionError:
        return False


def _same(left: Any, right: Any) -> bool:
    """Equal as JSON is: true is not 1, 1 is 1.0."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right, strict=True))
    return bool(left == right)
