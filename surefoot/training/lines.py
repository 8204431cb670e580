"""Lines of JSON logs with a schema: each is checked when it is read, and what is wrong is said with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from surefoot.errors import RunFolderError
from surefoot.files import numbered_lines

Count = Annotated[int, Field(ge=0)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Line(BaseModel):
    """A record of a log, as far as its readers need it; it may hold more."""

    model_config = ConfigDict(strict=True, extra="allow")


class Evaluated(Line):
    """Of ``evaluations.jsonl``. A run of an earlier version may lack what only comparisons need."""

    step: Count
    accuracy: Number
    samples: Annotated[int, Field(ge=1)] | None = None
    right: Annotated[list[Count], Field(min_length=1)] | None = None
    set: str = ""


class Metrics(Line):
    """Of ``metrics.jsonl``."""

    step: Annotated[int, Field(ge=1)]
    flops: Amount = Field(0.0, alias="compute/flops")


class Timing(Line):
    """Of ``timings.jsonl``: seconds of each phase, and tokens."""

    __pydantic_extra__: dict[str, Amount]
    step: Annotated[int, Field(ge=1)]


class Warned(Line):
    """Of ``warnings.jsonl``."""

    name: str
    text: str


def checked_lines(path: Path, kind: type[Line], remedy: str) -> list[dict[str, Any]]:
    """The records of a JSON-lines file as they are written, each of which is of a kind; none where there is no file.

    Args:
        path: of the file.
        kind: what a record must be.
        remedy: what to do about a line that is not, for the message.

    Raises:
        RunFolderError: a line is damaged; with its number.
    """
    records = []
    try:
        for number, record in numbered_lines(path):
            _check(record, kind, f"{path}, line {number}")
            records.append(record)
    except RunFolderError as error:
        raise RunFolderError(f"{error}: {remedy}") from None
    return records


def _check(record: dict[str, Any], kind: type[Line], place: str) -> None:
    try:
        kind.model_validate(record)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = ".".join(map(str, problem["loc"]))
        if problem["type"] == "missing":
            raise RunFolderError(f"{place} is damaged: it has no '{name}'") from None
        given, message = repr(problem["input"]), problem["msg"].removeprefix("Value error, ")
        what = f"'{name}' is {given[:40]}{'...' if len(given) > 40 else ''}" if name else "it cannot be read"
        message = message.replace("Input should be", "expected", 1)
        raise RunFolderError(f"{place} is damaged: {what}, {message[:1].lower()}{message[1:]}") from None


def by_step(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records in the order of their steps."""
    return sorted(records, key=lambda record: record["step"])
