"""Words of other libraries: each leads to a key that exists, and to the one that means the same."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import transformers

from surefoot import api
from surefoot.algorithms.part import REGISTRY
from surefoot.algorithms.preference_presets import PREFERENCES
from surefoot.algorithms.presets import PRESETS
from surefoot.cli import options
from surefoot.config import keys, load, nested, validate
from surefoot.errors import AlgorithmError, ConfigError
from surefoot.tasks.columns import Columns
from surefoot.terms import nearly, presets, terms
from surefoot.training.config import RunConfig, SftConfig

RUN, SFT = set(keys(RunConfig)), set(keys(SftConfig))
NAMES = sorted({(name, term.keys) for term in terms() for _, name in term.names()})


def exists(key: str) -> bool:
    """A key of a configuration, a number of a part in its slot, a column, or the option that resumes."""
    if key in RUN | SFT or key == "--resume":
        return True
    *tables, name = key.split(".")
    if tables == ["task", "options"]:
        return name in Columns.model_fields
    slot = tables[-1]
    return tables[0] == "algorithm" and any(name in kind.schema.model_fields for kind in REGISTRY[slot].values())


def test_every_key_that_a_term_names_exists() -> None:
    assert [key for term in terms() for key in term.keys if not exists(key)] == []


def message(schema: type, key: str) -> str:
    with pytest.raises(ConfigError) as error:
        validate(schema, nested(key, 1))
    return str(error.value)


OURS = {key.rsplit(".", 1)[-1] for key in RUN}
TABLES = {key.split(".")[0] for key in RUN}


def test_every_word_of_another_library_is_answered_with_the_key_here() -> None:
    """But for names that are keys here too, or stand under a table of ours: those people type are in the next test."""
    strangers = [
        (name, keys) for name, keys in NAMES if name.split(".")[0] not in TABLES and name.rsplit(".", 1)[-1] not in OURS
    ]
    assert len(strangers) > 150
    for name, wanted in strangers:
        said = message(RunConfig, name)
        expected = [f"'{key}' " in f"{said} " for key in wanted]
        assert any(expected) if wanted else "has no counterpart here: " in said, (name, said)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("gradient_accumulation_steps", "train.micro_batch_tokens"),
        ("num_generations", "train.group_size"),
        ("train.num_generations", "train.group_size"),
        ("batch_size", "train.prompts_per_step"),
        ("per_device_train_batch_size", "train.prompts_per_step"),
        ("resume_from_checkpoint", "--resume"),
        ("learning_rate", "optimiser.lr"),
        ("optimizer.learning_rate", "optimiser.lr"),
        ("output_dir", "runs"),
        ("max_completion_length", "rollout.max_new_tokens"),
        ("num_train_epochs", "train.steps"),
        ("beta", "algorithm.kl.coef"),
        ("actor_rollout_ref.rollout.n", "train.group_size"),
        ("actor_rollout_ref.actor.ppo_mini_batch_size", "train.updates_per_step"),
        ("data.train_batch_size", "train.prompts_per_step"),
        ("trainer.test_freq", "evaluation.every"),
        ("rollout.n_samples_per_prompt", "train.group_size"),
        ("init_kl_coef", "algorithm.kl.coef"),
        ("num_generation", "train.group_size"),  # misspelt there too
        ("max_lenght", "task.max_prompt_tokens"),
    ],
)
def test_what_people_type_first(given: str, key: str) -> None:
    assert f"'{key}'" in message(RunConfig, given)
    with pytest.raises(ConfigError) as error:
        options.read([f"{given.replace('_', '-')}=1"], RunConfig, ["--resume"])
    assert f"'--{key.removeprefix('--')}'" in str(error.value)


def test_supervised_training_is_answered_with_its_own_keys() -> None:
    assert "'batch'" in message(SftConfig, "per_device_train_batch_size")
    assert "'steps'" in message(SftConfig, "max_steps")
    assert "train." not in message(SftConfig, "num_generations")


def test_a_key_of_ours_that_is_misspelt_is_not_taken_for_a_word_of_another_library() -> None:
    assert "'train.group_size'" in message(RunConfig, "train.group_sise")
    assert "'rollout.max_new_tokens'" in message(RunConfig, "rollout.max_new_tokns")
    assert nearly("stepz") == ("", 0.0)


class TestSpelling:
    """``optimizer`` is read as ``optimiser``, wherever a configuration comes from."""

    def test_in_files_and_options_the_later_wins(self, tmp_path: Path) -> None:
        (tmp_path / "a.toml").write_text("[optimizer]\nlr = 0.1\neps = 0.5\n")
        (tmp_path / "b.toml").write_text("[optimiser]\nlr = 0.2\n")
        files = [tmp_path / "a.toml", tmp_path / "b.toml"]
        assert load(RunConfig, files).optimiser.lr == 0.2
        assert load(RunConfig, files).optimiser.eps == 0.5
        assert load(RunConfig, files[::-1]).optimiser.lr == 0.1
        assert load(RunConfig, files, options.read(["optimizer.lr=0.3"], RunConfig)).optimiser.lr == 0.3

    def test_in_python(self) -> None:
        assert api.configure(RunConfig, {"optimiser.lr": 0.1}, {"optimizer__lr": 0.2}).optimiser.lr == 0.2
        assert api.configure(SftConfig, None, {"optimizer": {"lr": 0.2}}).optimiser.lr == 0.2

    def test_a_column_may_be_called_so(self) -> None:
        read = options.read(["task.options.optimizer=x"], RunConfig)
        assert load(RunConfig, [], read).task.options == {"optimizer": "x"}


@pytest.mark.parametrize("name", sorted(presets()))
def test_a_name_of_an_objective_elsewhere_leads_to_a_preset(name: str) -> None:
    assert name not in PRESETS
    with pytest.raises(AlgorithmError, match=f"Did you mean '{presets()[name]}'"):
        validate(RunConfig, {"algorithm": {"preset": name}}).algorithm.build()
    assert presets()[name] in PRESETS


@pytest.mark.parametrize("name", sorted(set(PREFERENCES) - set(PRESETS)))
def test_a_preference_loss_is_no_misspelt_preset(name: str) -> None:
    with pytest.raises(AlgorithmError, match=r"preference pairs.*no command trains with it yet") as error:
        validate(RunConfig, {"algorithm": {"preset": name}}).algorithm.build()
    assert "Did you mean" not in str(error.value)


def test_the_names_of_transformers_are_its_own() -> None:
    known = {field.name for field in fields(transformers.TrainingArguments)}
    elsewhere = {"evaluation_strategy", "no_cuda"}
    assert {name for term in terms() for name in term.hf} - known - elsewhere == set()
