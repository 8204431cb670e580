"""Generated problems: unique, divided for ever, and honest about how many there are."""

from __future__ import annotations

from typing import Any

import pytest

from surefoot.errors import DataError
from surefoot.tasks.base import content_id, is_heldout
from surefoot.tasks.build import build_task
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.generate import Candidate, generate_unique
from surefoot.types import Prompt

GENERATED = [
    {"name": "addition"},
    {"name": "chain_mod"},
    {"name": "gym:chain_sum"},
    {"name": "gym:gsm_symbolic"},  # draws all its problems at once
]


def build(base: dict[str, Any], **over: Any):
    return build_task(TaskConfig(**{"train_size": 60, "heldout_size": 20, **base, **over}))


@pytest.mark.parametrize("base", GENERATED, ids=lambda base: base["name"])
class TestEveryGenerator:
    def test_sizes_are_met_by_different_problems(self, base: dict[str, Any]):
        task = build(base)
        ids = [prompt.prompt_id for prompt in (*task.train, *task.heldout)]
        assert (len(task.train), len(task.heldout)) == (60, 20)
        assert len(set(ids)) == 80
        assert len({str(prompt.content) for prompt in (*task.train, *task.heldout)}) == 80

    def test_growing_appends(self, base: dict[str, Any]):
        small = build(base)
        for over in ({"train_size": 150}, {"heldout_size": 50}, {"train_size": 700, "heldout_size": 70}):
            large = build(base, **over)
            assert large.train[:60] == small.train
            assert large.heldout[:20] == small.heldout

    def test_no_seed_moves_a_problem_to_the_other_part(self, base: dict[str, Any]):
        first, second = (
            build(base, train_size=400, heldout_size=50),
            build(base, seed=1, train_size=400, heldout_size=50),
        )
        assert [p.prompt_id for p in first.train] != [p.prompt_id for p in second.train]
        assert not {p.prompt_id for p in first.train} & {p.prompt_id for p in second.heldout}
        assert not {p.prompt_id for p in first.heldout} & {p.prompt_id for p in second.train}

    def test_the_same_configuration_gives_the_same_problems(self, base: dict[str, Any]):
        first, second = build(base), build(base)
        assert first.train == second.train and first.heldout == second.heldout
        assert first.fingerprint == second.fingerprint

    def test_what_changes_the_problems_changes_the_fingerprint(self, base: dict[str, Any]):
        task = build(base)
        for over in ({"seed": 5}, {"train_size": 61}, {"heldout_size": 21}, {"heldout_share": 0.2}):
            assert build(base, **over).fingerprint != task.fingerprint, over

    def test_right_answers_are_worth_one(self, base: dict[str, Any]):
        task = build(base)
        assert task.verify is not None
        for prompt in task.train[:20]:
            text = task.demonstrate(prompt, 0, 0.0) if task.demonstrate else str(prompt.answer)
            assert task.verify(prompt, text).total == 1.0

    def test_a_problem_without_held_out_ones(self, base: dict[str, Any]):
        task = build(base, heldout_size=0)
        assert not task.heldout
        assert task.train == build(base).train  # the held-out share stays out of training all the same


def test_problems_are_the_same_for_ever():
    assert [p.content for p in build({"name": "addition"}).train[:3]] == ["911+494=", "681+856=", "404+759="]
    assert [p.content for p in build({"name": "chain_mod"}).train[:2]] == ["1*7+6-1-6=", "1+9-2-8-6="]
    assert build({"name": "addition"}).train[0].prompt_id == "ea86ee1900e53f53"


@pytest.mark.parametrize(
    ("base", "count"),
    [({"name": "addition", "options": {"digits": 1}}, 100), ({"name": "chain_mod", "options": {"steps": 1}}, 243)],
)
def test_too_few_problems_are_counted(base: dict[str, Any], count: int):
    with pytest.raises(DataError, match=f"only {count} different problems.*task.train_size = 4096"):
        build(base, train_size=4096)


def test_every_problem_of_a_small_space_can_be_used():
    with pytest.raises(DataError) as error:
        build({"name": "addition", "options": {"digits": 1}}, train_size=100, heldout_size=100)
    words = str(error.value).replace(",", "").split()
    train, heldout = int(words[words.index("training") - 2]), int(words[words.index("out") - 2])
    assert train + heldout == 100
    task = build({"name": "addition", "options": {"digits": 1}}, train_size=train, heldout_size=heldout)
    assert len({p.content for p in (*task.train, *task.heldout)}) == 100


def test_a_generator_without_usable_problems_ends():
    with pytest.raises(DataError, match="only 0 different problems"):
        generate_unique(TaskConfig(), lambda counter: None)


def test_the_key_decides_the_part():
    def candidate(counter: int) -> Candidate:
        content = f"problem {counter}"
        return Candidate(Prompt(content_id("t", content), content), key=2 + counter % 2)

    config = TaskConfig(name="t", train_size=20, heldout_size=20, heldout_share=0.5)
    assert [is_heldout(content_id("t", key), 0.5) for key in (2, 3)] == [True, False]
    train, heldout = generate_unique(config, candidate)
    assert all(int(prompt.text.split()[1]) % 2 == 1 for prompt in train)
    assert all(int(prompt.text.split()[1]) % 2 == 0 for prompt in heldout)


def test_about_the_share_is_held_out():
    ids = [content_id("t", n) for n in range(20_000)]
    assert 0.09 < sum(is_heldout(name, 0.1) for name in ids) / len(ids) < 0.11
    assert all(is_heldout(name, 0.2) for name in ids if is_heldout(name, 0.1))
