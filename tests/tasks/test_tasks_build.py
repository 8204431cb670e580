"""From the configuration to a task: names, options, and a fingerprint of what came out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from surefoot.config import validate
from surefoot.errors import ConfigError, DataError
from surefoot.tasks.build import BUILDERS, build_task, fingerprint
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.fingerprint import task_fingerprint
from surefoot.types import Prompt


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("additon", "unknown task 'additon'. Did you mean 'addition'?"),
        ("nothing at all", "Known: addition, chain_mod, file, mixture."),
        ("chain_sum", "Data sets of reasoning-gym are named 'gym:<name>'."),
        ("", "unknown task ''"),
    ],
)
def test_an_unknown_task_names_the_nearest(name: str, words: str):
    with pytest.raises(DataError) as error:
        build_task(TaskConfig(name=name))
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("addition", {"digit": 3}, "unknown option 'digit'. Did you mean 'digits'?"),
        ("addition", {"digits": 0}, "digits = 0: input should be greater than 0"),
        ("addition", {"digits": "three"}, "digits = 'three': input should be a valid integer"),
        ("addition", {"digits": 2.5}, "digits = 2.5: input should be a valid integer"),
        ("chain_mod", {"stepps": 3}, "unknown option 'stepps'. Did you mean 'steps'?"),
        ("chain_mod", {"steps": 0}, "steps = 0"),
        ("chain_mod", {"modulus": 1}, "modulus = 1: input should be greater than 1"),
    ],
)
def test_a_bad_option_is_one_clear_line(name: str, options: dict[str, object], words: str):
    with pytest.raises(DataError) as error:
        build_task(TaskConfig(name=name, options=options))
    assert words in str(error.value) and f"task '{name}'" in str(error.value) and "\n" not in str(error.value)


def test_the_wording_must_hold_the_problem():
    with pytest.raises(ConfigError, match=r"the wording must hold \{prompt\}"):
        validate(TaskConfig, {"prompt": "Solve this."})


def test_the_fingerprint_sees_every_prompt_answer_and_part():
    a, b = Prompt("a", "1?", "1"), Prompt("b", "2?", "2")
    base = fingerprint([a], [b])
    others = [
        fingerprint([b], [a]),
        fingerprint([a, b], []),
        fingerprint([], [a, b]),
        fingerprint([a], []),
        fingerprint([replace(a, answer="3")], [b]),
        fingerprint([replace(a, answer=1)], [b]),
        fingerprint([replace(a, content="3?")], [b]),
        fingerprint([a], [replace(b, answer=None)]),
    ]
    assert base == fingerprint([a], [b])
    assert base not in others and len(set(others)) == len(others)


@pytest.mark.parametrize("name", [name for name in BUILDERS if name not in ("file", "mixture")])
def test_a_task_knows_its_fingerprint(name: str):
    task = build_task(TaskConfig(name=name, train_size=5, heldout_size=2))
    assert task.name == name and task.fingerprint == task_fingerprint(task)


def test_options_change_the_problems():
    def contents(name: str, **options: int) -> list[object]:
        return [p.content for p in build_task(TaskConfig(name=name, options=options, train_size=5)).train]

    assert contents("addition") == contents("addition", digits=3) != contents("addition", digits=4)
    assert contents("chain_mod") == contents("chain_mod", steps=4, modulus=10) != contents("chain_mod", steps=5)


@pytest.mark.parametrize("name", ["addition", "chain_mod"])
def test_the_texts_for_the_audit_are_right_and_wrong(name: str):
    task = build_task(TaskConfig(name=name, train_size=40, heldout_size=0))
    assert task.verify is not None and task.gold is not None and task.paraphrases is not None and task.wrong is not None
    for prompt in task.train:
        for text in (task.gold(prompt), *task.paraphrases(prompt)):
            assert task.verify(prompt, text).correct, text
        for text in task.wrong(prompt):
            assert not task.verify(prompt, text).correct, text
