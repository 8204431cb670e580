"""The words that Surefoot answers are those that the libraries have."""

from __future__ import annotations

from dataclasses import fields

import pytest
import yaml

from surefoot.terms import terms
from tests.parity import peers

pytestmark = pytest.mark.parity
# Names that are not in the settings of the release: those of the trainer before, or of the reward function's own section.
OLD = {"reward_model.reward_manager", "custom_reward_function.path", "trainer.max_actor_ckpt_to_keep"}


def test_the_names_of_trl_are_its_own() -> None:
    peers.load()
    from trl import GRPOConfig, SFTConfig

    known = {field.name for config in (GRPOConfig, SFTConfig) for field in fields(config)}
    assert {name for term in terms() for name in term.trl} - known == set()


def test_the_names_of_verl_are_its_own() -> None:
    path = peers.FOLDER / "verl" / "trainer" / "config" / "_generated_ppo_trainer.yaml"
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    missing = set()
    for name in {name for term in terms() for name in term.verl}:
        table = settings
        for part in name.split("."):
            table = table.get(part) if isinstance(table, dict) and part in table else missing.add(name)
    assert missing - OLD == set()
