"""The verifier 'json': data that follows a schema, and that may have to equal the gold answer."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np

from surefoot.errors import RewardError, SurefootError
from surefoot.rewards.base import Completion
from surefoot.rewards.matching import validator
from surefoot.rewards.values import one_line
from surefoot.rewards.verifiers.base import Verifier, judged, no_answer, outside
from surefoot.rewards.workers import Outcome, shared_pool
from surefoot.tasks.extraction import after_thought, fenced
from surefoot.tasks.gold import accepted
from surefoot.types import Prompt, Score, Status

_WORK = "surefoot.rewards.matching"
_MISSING = object()


@dataclass(frozen=True)
class Json(Verifier):
    """The completion is JSON, whole or in its last fenced block, that follows a JSON schema (draft 2020-12).

    Keys that come twice, NaN or Infinity, which JSON does not have, and numbers beyond every double are wrong. A text that
    holds no JSON is ``Status.NO_ANSWER``. A schema's references to other addresses are never fetched.

    Whether data follow a schema is found out in a worker process: a ``pattern`` can backtrack for ever, and ``uniqueItems``
    takes the square of the time, on a text that a policy wrote for it. One that takes longer than ``deadline`` is
    ``Status.TIMEOUT``.

    Attributes:
        schema: the schema; empty takes the problem's metadata ``schema`` where there is one, and else any JSON.
        equal: whether the data must also equal the gold answer (numbers by value, objects without order).
        deadline: seconds for one comparison with a schema.
    """

    name: ClassVar[str] = "json"
    about: ClassVar[str] = "the completion is JSON that follows a schema, and equals the gold answer if that is asked"

    schema: dict[str, Any] = field(default_factory=dict)
    equal: bool = False
    deadline: float = 5.0

    def __post_init__(self) -> None:
        if self.deadline <= 0:
            raise outside("json", f"deadline = {self.deadline}", "seconds above 0")
        if self.schema and (why := _trouble(self.schema)):
            raise RewardError(f"the option schema of the verifier 'json' {why}")

    def verdict(self, completion: Completion) -> Score:
        text = after_thought(completion.text).strip()
        blocks = [body for language, body in fenced(text) if language.lower() in ("", "json")]
        if not blocks and not text.startswith(("{", "[")) and _read(text) is _MISSING:
            return no_answer()
        text = blocks[-1].strip() if blocks else text
        data = _read(text)
        schema = self._schema(completion.prompt)
        right = data is not _MISSING and (not self.equal or _same(data, _gold(completion.prompt.answer)))
        if right and schema:
            outcome = _followed(text, schema, self.deadline)
            if outcome.status != "ok":
                return Score.failed(Status.TIMEOUT if outcome.status == "timeout" else Status.ERROR, outcome.text)
            right = bool(outcome.value)
        return judged(right, text[:1000])

    def golds(self, prompt: Prompt) -> tuple[Any, ...]:
        """The answer as it is: a list is data here, and not accepted answers."""
        return (prompt.answer,)

    def wants_gold(self) -> bool:
        return self.equal

    def refuses(self, prompt: Prompt) -> str:
        schema = self._schema(prompt)
        if why := _trouble(schema) if schema else "":
            return f"comes with a schema that {why}"
        try:
            gold = _gold(prompt.answer) if self.equal else None
        except (TypeError, ValueError) as error:
            return f"is no JSON ({one_line(error)})"
        if self.equal and schema:
            outcome = _followed(json.dumps(gold), schema, self.deadline)
            if not outcome.value:
                return f"does not follow the schema {outcome.text}".rstrip()
        return ""

    def _schema(self, prompt: Prompt) -> Mapping[str, Any]:
        return self.schema or prompt.metadata.get("schema") or {}


def _gold(answer: Any) -> Any:
    """A gold answer as data: a text that is JSON is read, everything else is data already.

    Raises:
        TypeError, ValueError: data that JSON cannot hold.
    """
    if not isinstance(answer, str):
        return json.loads(json.dumps(answer, default=_plain, allow_nan=False))
    data = _read(answer)
    return answer if data is _MISSING else data


def _plain(value: Any) -> Any:
    """What JSON has for a value of a table: decimals are numbers, arrays are lists, dates and bytes are texts."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Decimal) and value.is_finite():
        return int(value) if value == value.to_integral_value() else float(value)
    return accepted(value)[0]


def _read(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_number)
    except (ValueError, RecursionError):
        return _MISSING


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key comes twice")
    return made


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is beyond every double")
    return number


def _trouble(schema: Mapping[str, Any]) -> str:
    try:
        validator(schema).check_schema(schema)
    except SurefootError:
        raise
    except Exception as error:
        return f"is no JSON schema: {str(error).splitlines()[0]}"
    return ""


def _followed(text: str, schema: Mapping[str, Any], deadline: float) -> Outcome:
    (outcome,) = shared_pool((_WORK,)).run(f"{_WORK}:follows", [(text, dict(schema))], deadline)
    return outcome


def _same(left: Any, right: Any) -> bool:
    """Equal as JSON is: true is not 1, 1 is 1.0."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right, strict=True))
    return bool(left == right)
