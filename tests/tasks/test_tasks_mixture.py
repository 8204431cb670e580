"""Mixtures: weights hold in every stretch of prompts, a position is the whole state, every prompt keeps its verifier."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.errors import DataError
from surefoot.rewards.base import Completion
from surefoot.rewards.build import build_reward
from surefoot.rewards.config import RewardConfig
from surefoot.tasks.base import Task
from surefoot.tasks.build import build_task
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.cursor import MixtureCursor, make_cursor
from surefoot.training.loop import train
from surefoot.training.prompts import PromptSource
from surefoot.training.state import RunState
from tests.training.tiny import digits_reward, tiny

PARTS = [
    {"name": "addition", "options": {"digits": 2}, "train_size": 30, "heldout_size": 6, "weight": 3.0},
    {"name": "chain_mod", "train_size": 50, "heldout_size": 6},
]


def mixture(parts: Any = PARTS, **over: Any) -> Task:
    return build_task(TaskConfig(name="mixture", parts=parts, **over))


def labels(task: Task, indices: list[int]) -> list[str]:
    return [task.train[index].metadata["task"] for index in indices]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 7), st.floats(0.1, 5)), min_size=1, max_size=4),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_a_position_is_the_whole_state(parts: list[tuple[int, float]], before: int, after: int) -> None:
    sizes, weights = zip(*parts, strict=True)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    members = [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    whole = MixtureCursor(members, weights, 3).take(before + after)
    first = MixtureCursor(members, weights, 3)
    assert first.take(before) + MixtureCursor(members, weights, 3, first.position).take(after) == whole
    shares = [weight / sum(weights) for weight in weights]
    for member, share in zip(members, shares, strict=True):
        mine = [index for index in whole if index in member]
        assert abs(len(mine) - share * len(whole)) <= len(parts), "each part has its share of every beginning"
        for epoch in range(0, len(mine) - len(member) + 1, len(member)):
            assert sorted(mine[epoch : epoch + len(member)]) == list(member), "each prompt once per epoch of its part"


def test_bad_weights_are_refused() -> None:
    for weights in ([1.0], [1.0, 0.0], [1.0, -1.0]):
        with pytest.raises(ValueError, match="expected a positive one for each of 2 parts"):
            MixtureCursor([[0], [1]], weights, 0)
    with pytest.raises(ValueError, match="cannot be negative"):
        MixtureCursor([[0]], [1.0], 0, -1)


def test_prompts_know_their_part_and_held_out_ones_stand_in_turn() -> None:
    task = mixture()
    assert Counter(p.metadata["task"] for p in task.train) == {"addition": 30, "chain_mod": 50}
    assert task.weights == {"addition": 0.75, "chain_mod": 0.25}
    assert Counter(p.metadata["task"] for p in task.heldout[:4]) == {"addition": 3, "chain_mod": 1}
    assert len(task.heldout) == 12 and len({p.prompt_id for p in task.heldout}) == 12
    assert mixture().fingerprint == task.fingerprint
    assert task.of(task.train[0]) is task.parts["addition"]
    cursor = make_cursor(task.train, task.weights, 0)
    assert Counter(labels(task, cursor.take(40))) == {"addition": 30, "chain_mod": 10}


def test_every_prompt_keeps_its_verifier(tmp_path: Path) -> None:
    rows = [{"prompt": f"Say {k} words", "answer": f"word {k}"} for k in range(20)]
    (tmp_path / "words.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = {"name": "file", "path": str(tmp_path / "words.jsonl"), "options": {"verifier": "tag"}, "heldout_size": 0}
    task = mixture([*PARTS, file])
    assert task.verify is None, "a part leaves it to the reward section"
    reward = build_reward(RewardConfig(), task)
    right = {
        "addition": lambda p: f">{p.answer}",
        "chain_mod": lambda p: task.parts["chain_mod"].gold(p),  # type: ignore[misc]
        "words": lambda p: f"<answer>{p.answer}</answer>",
    }
    completions = [Completion(p, right[p.metadata["task"]](p)) for p in task.train]
    swapped = [Completion(p, right["words" if p.metadata["task"] != "words" else "addition"](p)) for p in task.train]
    assert all(score.correct for score in reward.score(completions))
    assert not any(score.correct for score in reward.score(swapped))
    assert [s.text for s in reward.score(completions)[-3:]] == [p.answer for p in task.train[-3:]], "in order"
    both = mixture()
    assert both.verify is not None and both.verify(both.train[0], f">{both.train[0].answer}").correct
    assert both.demonstrate is not None and both.demonstrate(both.train[-1], 0, 0.0).endswith(both.train[-1].answer)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([], "needs task.parts"),
        ([{"name": "addition"}, {"name": "addition"}], "part 2 of the mixture is called 'addition', as one before it"),
        ([{"name": "addition", "system": "x"}], "part 1: 'system' holds for the whole mixture: set task.system"),
        ([{"name": "addition", "weight": 0}], "part 1: weight = 0: input should be greater than 0"),
        ([{"nam": "addition"}], "part 1: unknown key 'nam'"),
        ([{"name": "mixture", "parts": []}], "part 1: 'parts' holds for the whole"),
        ([{"name": "additon"}], "unknown task 'additon'"),
    ],
)
def test_what_makes_no_mixture_is_one_line(parts: list[Any], words: str) -> None:
    with pytest.raises(DataError) as error:
        mixture(parts)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_parts_belong_to_mixtures_only() -> None:
    with pytest.raises(DataError, match=r"task\.parts is read by 'mixture' only"):
        build_task(TaskConfig(name="addition", parts=PARTS))


def test_two_parts_of_one_kind_have_labels(tmp_path: Path) -> None:
    parts = [{"name": "addition", "options": {"digits": d}, "label": f"{d} digits", "train_size": 9} for d in (2, 3)]
    task = mixture(parts)
    assert set(task.parts) == {"2 digits", "3 digits"}
    assert {p.metadata["digits"] for p in task.train if p.metadata["task"] == "3 digits"} == {3}


def test_a_problem_in_two_parts_is_taken_once() -> None:
    parts = [{**PARTS[0], "label": "a"}, {**PARTS[0], "label": "b", "train_size": 40}]
    task = mixture(parts)
    assert Counter(p.metadata["task"] for p in task.train) == {"a": 30, "b": 10}
    assert any("30 problems of the part 'b' stand in a part before it" in note for note in task.notes)


@pytest.mark.parametrize("kind", ["prioritised", "no_positive_resampling"])
def test_parts_keep_their_shares_whatever_is_chosen_in_them(kind: str, tmp_path: Path) -> None:
    parts = [{**PARTS[0], "train_size": 300}, {**PARTS[1], "train_size": 600}]
    task = mixture(parts)
    algorithm = tiny(tmp_path, algorithm={"prompts": kind}).algorithm.build()
    source = PromptSource(algorithm.prompts, task.train, 0, RunState(), task.weights)
    taken = [label for step in range(60) for label in labels(task, source.take(4, step, 1))]
    assert 0.65 < taken.count("addition") / len(taken) < 0.85


def test_a_run_gives_numbers_for_each_part_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    def run(name: str, steps: int, resume: bool = False) -> None:
        config = tiny(tmp_path / name, train={"steps": steps}, evaluation={"every": 2, "problems": 6})
        task = TaskConfig(name="mixture", parts=PARTS, template="plain")
        train(config.model_copy(update={"task": task}), reward=digits_reward(), resume=resume)

    run("whole", 4)
    run("cut", 2)
    run("cut", 4, resume=True)
    files = [tmp_path / run / "tiny" for run in ("whole", "cut")]
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        assert (files[0] / name).read_text() == (files[1] / name).read_text()
    metrics = [json.loads(line) for line in (files[0] / "metrics.jsonl").read_text().splitlines()]
    assert all("task/addition/reward" in record for record in metrics)
    assert any("task/chain_mod/correct" in record for record in metrics)
    last = json.loads((files[0] / "evaluations.jsonl").read_text().splitlines()[-1])
    assert {label: part["problems"] for label, part in last["tasks"].items()} == {"addition": 5, "chain_mod": 1}
    total = sum(part["accuracy"] * part["problems"] for part in last["tasks"].values())
    assert total / last["problems"] == pytest.approx(last["accuracy"])


def test_other_tasks_have_no_numbers_by_part(tmp_path: Path) -> None:
    train(tiny(tmp_path, train={"steps": 1}), reward=digits_reward())
    text = (tmp_path / "tiny" / "metrics.jsonl").read_text() + (tmp_path / "tiny" / "evaluations.jsonl").read_text()
    assert '"task' not in text


def test_a_part_for_evaluation_only_is_evaluated_and_never_sampled(tmp_path: Path) -> None:
    rows = [{"problem": f"Case {k}?", "answer": str(k)} for k in range(6)]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    hub = {"name": "hub:math500", "path": str(tmp_path / "test.jsonl"), "label": "math"}
    task = mixture([PARTS[0], hub])
    assert Counter(p.metadata["task"] for p in task.heldout) == {"addition": 6, "math": 6}
    taken = make_cursor(task.train, task.weights, 0).take(20)
    assert set(labels(task, taken)) == {"addition"}
