"""Configuration: merge order, dotted options, what an unknown key or a bad value says, and TOML there and back."""

from __future__ import annotations

import math
import string
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from surefoot.config import Section, dump_toml, keys, load, merge, nearest, nested, read_value, validate
from surefoot.errors import ConfigError, SurefootError
from surefoot.training.config import RunConfig, SftConfig


class Inner(Section):
    lr: float = Field(1e-3, ge=0)
    names: tuple[str, ...] = ()
    table: dict[str, int] = Field(default_factory=dict)


class Outer(Section):
    steps: int = 3
    on: bool = False
    label: str | None = None
    inner: Inner = Inner()
    other: Inner | None = None


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_later_files_win_table_by_table_and_options_win_over_all(tmp_path: Path) -> None:
    first = write(tmp_path, "a.toml", "steps = 1\n[inner]\nlr = 0.1\nnames = ['a', 'b']\n")
    second = write(tmp_path, "b.toml", "[inner]\nlr = 0.2\n")
    assert load(Outer, [first, second]).inner == Inner(lr=0.2, names=("a", "b"))
    assert load(Outer, [second, first]).inner.lr == 0.1
    config = load(Outer, [first, second], {"inner.lr": "0.3", "on": "true"})
    assert (config.inner.lr, config.on, config.steps) == (0.3, True, 1)


def test_a_list_replaces_the_list_and_a_table_extends_the_table(tmp_path: Path) -> None:
    first = write(tmp_path, "a.toml", "[inner]\nnames = ['a', 'b']\ntable = { x = 1, y = 2 }\n")
    second = write(tmp_path, "b.toml", "[inner]\nnames = ['c']\ntable = { y = 3 }\n")
    inner = load(Outer, [first, second]).inner
    assert inner.names == ("c",)
    assert inner.table == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e-4", 1e-4),
        ("-1", -1),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("{ a = 1 }", {"a": 1}),
        ('"3"', "3"),
        ("grpo", "grpo"),
        ("gym:chain_sum", "gym:chain_sum"),
        ("a/b c", "a/b c"),
        ("", ""),
        ("True", "True"),
        ("1\nother = 2", "1\nother = 2"),
    ],
)
def test_words_of_the_command_line_are_toml_values_or_text(text: str, value: object) -> None:
    assert read_value(text) == value
    assert type(read_value(text)) is type(value)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"stepz": 1}, "unknown key 'stepz'. Did you mean 'steps'?"),
        ({"inner": {"lrr": 1}}, "unknown key 'inner.lrr'. Did you mean 'inner.lr'?"),
        ({"lr": 1}, "unknown key 'lr'. Did you mean 'inner.lr' or 'other.lr'?"),
        ({"other": {"nams": []}}, "unknown key 'other.nams'. Did you mean 'other.names'?"),
        ({"steps": "many"}, "steps = 'many': input should be a valid integer"),
        ({"inner": {"lr": -1}}, "inner.lr = -1: input should be greater than or equal to 0"),
        ({"inner": {"lr": math.nan}}, "inner.lr = nan: input should be a finite number"),
        ({"inner": {"lr": math.inf}}, "inner.lr = inf: input should be a finite number"),
        ({"steps": True}, "steps = True: input should be a valid integer"),
        ({"steps": 1.5}, "steps = 1.5: input should be a valid integer"),
        ({"inner": {"lr": True}}, "inner.lr = True: input should be a valid number"),
        ({"inner": 3}, "inner = 3: input should be a table: write [inner] lr = ..."),
        ({"inner.lr": 3}, "unknown key 'inner.lr' in quotes: write it as lr = ... in the table [inner]"),
        ({"inner": {"steps": 3}}, "unknown key 'inner.steps'. Did you mean 'steps'?"),
    ],
)
def test_a_bad_key_or_value_is_one_line_that_names_the_way_out(values: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(Outer, values)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("missing.toml", None, "does not exist"),
        ("broken.toml", "steps = \n", "is not valid TOML"),
        ("bytes.toml", b"\xff\xfe\x00", "is not valid TOML"),
        ("twice.toml", "steps = 1\nsteps = 2\n", "is not valid TOML"),
        ("deep.toml", "steps = " + "[" * 5000, "is nested too deeply"),
        ("digits.toml", "steps = " + "1" * 5000, "is not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_read_says_which(
    tmp_path: Path, name: str, text: str | bytes | None, expected: str
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=expected) as caught:
        load(Outer, [path])
    assert name in str(caught.value)


def test_a_folder_is_not_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        load(Outer, [tmp_path])


@pytest.mark.parametrize("schema", [RunConfig, SftConfig])
def test_every_misspelt_key_of_a_run_is_refused_and_its_neighbour_named(schema: type[Section]) -> None:
    for key in keys(schema):
        wrong = key + "x"
        with pytest.raises(ConfigError, match="unknown key") as caught:
            load(schema, [], {wrong: 1})
        assert f"Did you mean '{key}'?" in str(caught.value)


@pytest.mark.parametrize("path", ["a\0b.toml", "x" * 300 + ".toml"])
def test_a_path_that_no_file_can_have_is_one_line(path: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(Outer, [path])


@pytest.mark.parametrize("text", ["42", "nan", "true", "2026-11-30", "[1]", "1e5"])
def test_a_word_for_a_key_of_text_is_kept_as_typed(text: str) -> None:
    assert load(Outer, [], {"label": text}).label == text
    assert load(Outer, [], {"label": f'"{text}"'}).label == text
    assert load(RunConfig, [], {"runs": text, "task.system": text}).task.system == text


def test_a_part_takes_a_name_or_a_table() -> None:
    config = load(RunConfig, [], {"algorithm.trust": "{ kind = 'clip', high = 0.3 }"})
    assert config.algorithm.trust == {"kind": "clip", "high": 0.3}


def test_a_word_that_is_nested_too_deeply_is_one_line() -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        load(Outer, [], {"steps": "[" * 5000})


def test_every_number_of_a_run_is_finite_and_no_switch() -> None:
    for schema in (RunConfig, SftConfig):
        known = load(schema).model_dump()
        for key in keys(schema):
            default: object = known
            for part in key.split("."):
                default = default[part]  # type: ignore[index]
            if isinstance(default, bool) or not isinstance(default, (int, float)):
                continue
            for bad in (math.nan, math.inf, -math.inf, True):
                with pytest.raises(ConfigError, match=f"^{key} = "):
                    load(schema, [], {key: bad})


def test_the_numbers_of_a_part_may_be_infinite() -> None:
    part = {"kind": "token_truncate", "cap": math.inf}
    assert load(RunConfig, [], {"algorithm.correction": part}).algorithm.build().correction.cap == math.inf


def test_a_part_whose_name_is_a_number_and_a_rate_in_the_wrong_table() -> None:
    with pytest.raises(SurefootError, match=r"algorithm.trust.kind = 3: expected the name of a part"):
        load(RunConfig, [], {"algorithm.trust": {"kind": 3}})
    with pytest.raises(ConfigError, match=r"'train.lr'. Did you mean 'critic.lr' or 'optimiser.lr'\?"):
        load(RunConfig, [], {"train.lr": 1})
    with pytest.raises(ConfigError, match=r"model = 'gpt2': input should be a table: write \[model\] path = 'gpt2'"):
        validate(RunConfig, {"model": "gpt2"})


def test_keys_are_all_leaves_in_order() -> None:
    inner = ["lr", "names", "table"]
    assert keys(Outer) == ["steps", "on", "label", *(f"inner.{k}" for k in inner), *(f"other.{k}" for k in inner)]


def test_merge_leaves_its_arguments_alone() -> None:
    base, over = {"a": {"b": 1}}, {"a": {"c": 2}}
    assert merge(base, over) == {"a": {"b": 1, "c": 2}}
    assert (base, over) == ({"a": {"b": 1}}, {"a": {"c": 2}})


def test_nested_and_nearest() -> None:
    assert nested("a.b.c", 1) == {"a": {"b": {"c": 1}}}
    assert nearest("grop", ["grpo", "rloo"]) == " Did you mean 'grpo'?"
    assert nearest("zzz", ["grpo", "rloo"]) == " Known: grpo, rloo."
    assert nearest("zzz", []) == ""


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
)
inline = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3))
tables = st.recursive(
    st.dictionaries(names, scalars | st.lists(inline, max_size=3), max_size=4),
    lambda inner: st.dictionaries(names, inner | scalars, max_size=3),
    max_leaves=12,
)


@given(tables)
def test_dump_toml_is_read_back_as_it_was(values: dict[str, object]) -> None:
    assert tomllib.loads(dump_toml(values)) == values


def test_dump_toml_keeps_types_and_leaves_none_out() -> None:
    text = dump_toml({"a": 1.0, "b": True, "c": None, "t": {"u": {"v": float("inf")}}, "n": math.nan, "e": {}})
    read = tomllib.loads(text)
    assert isinstance(read["a"], float) and read["b"] is True and "c" not in read
    assert read["t"] == {"u": {"v": math.inf}} and math.isnan(read["n"]) and read["e"] == {}


@pytest.mark.parametrize("schema", [RunConfig, SftConfig])
def test_a_dumped_configuration_is_the_same_configuration(schema: type[Section]) -> None:
    config = load(
        schema, [], {"seed": "7", "task.system": "Be brief.", "task.options.digits": "3", "rollout.stop": '["#"]'}
    )
    assert validate(schema, tomllib.loads(dump_toml(config.model_dump()))) == config


def test_a_section_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Outer().steps = 4  # type: ignore[misc]


def test_printable_text_survives() -> None:
    text = string.printable + "日本語 \x7f \u2028"
    assert tomllib.loads(dump_toml({"t": text})) == {"t": text}
