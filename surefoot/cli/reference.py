"""The reference of the configuration, made from the sections themselves: ``make docs`` writes docs/configuration.md."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from surefoot.methods.compare.experiment import ExperimentConfig
from surefoot.training.config import RunConfig, SftConfig

HEAD = """# Configuration

Every key, made from the code by `make docs`. A run is described by TOML files, merged left to right; every key is also an
option of the command line, with its dotted name, and comes over the files:

```bash
surefoot train examples/addition.toml --optimiser.lr 1e-4 --train.steps 50 --dry-run
```

A key that nothing reads is an error that names the nearest one. `--dry-run` prints the whole configuration as it will be
used; a run keeps it in `config.toml`.
"""


EXPERIMENT = (
    "What is compared, see [compare](compare.md). `[base]` holds the keys of a run, `[arms.NAME]` those in which an arm differs,",
    "`[tasks.NAME]` the keys of `[task]`, and `[warm_up]` those of supervised training. Their keys are options too, from the",
    "table on: `--base.train.steps 20`, `--arms.grpo.optimiser.lr 1e-4`.",
    "",
)


def reference() -> str:
    """The page, in Markdown."""
    lines = [HEAD, "## A run (`surefoot train`)", "", *_table(RunConfig, "")]
    lines += ["## Supervised training (`surefoot sft`)", ""]
    lines += [
        "The sections model, task, reward, rollout, optimiser and evaluation are those of a run. Beside them:",
        "",
    ]
    lines += _rows(SftConfig, "")
    lines += ["## An experiment (`surefoot compare`)", "", *EXPERIMENT]
    lines += _rows(ExperimentConfig, "")
    return "\n".join(lines).rstrip() + "\n"


def _table(schema: type[BaseModel], prefix: str) -> Iterator[str]:
    yield from _rows(schema, prefix)
    for name, field in schema.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            yield f"### `[{prefix}{name}]`"
            yield ""
            yield (section.__doc__ or "").strip().split("\n")[0]
            yield ""
            yield from _table(section, f"{prefix}{name}.")
        elif (
            get_origin(section) is dict
            and isinstance(inner := get_args(section)[1], type)
            and issubclass(inner, BaseModel)
        ):
            yield f"### `[{prefix}{name}.NAME]`"
            yield ""
            yield (inner.__doc__ or "").strip().split("\n")[0]
            yield ""
            yield from _table(inner, "")


def _rows(schema: type[BaseModel], prefix: str) -> Iterator[str]:
    yield "| key | type | default | what it does |"
    yield "|---|---|---|---|"
    for name, field in schema.model_fields.items():
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            yield f"| `{prefix}{name}` | {_kind(field.annotation)} | `{_default(field)}` | {_cell(field.description or '')} |"
    yield ""


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(_kind(part) for part in get_args(annotation) if part is not type(None))
    names = {str: "text", int: "integer", float: "number", bool: "true or false", dict: "table", tuple: "list"}
    return names.get(get_origin(annotation) or annotation, str(annotation))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value).replace("()", "[]")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    print(reference(), end="")
