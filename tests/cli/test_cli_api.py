"""The Python interface: every way to give a configuration, a reward and a task means the same run."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import presets
from surefoot.api import configure
from surefoot.errors import ConfigError, DataError, RewardError
from surefoot.files import read_lines
from surefoot.tasks.base import Task
from surefoot.training.config import RunConfig, SftConfig
from surefoot.types import Prompt


def test_every_way_to_say_it_is_the_same_configuration(workplace: Path) -> None:
    tiny = Path("tiny.toml")
    expected = configure(RunConfig, tiny, {"train__steps": 5, "algorithm__preset": "rloo", "model__path": "m"})
    values = tomllib.loads(tiny.read_text())
    (workplace / "over.toml").write_text('[train]\nsteps = 5\n[algorithm]\npreset = "rloo"\n[model]\npath = "m"\n')
    ways: list[RunConfig] = [
        configure(RunConfig, str(tiny), {"train": {"steps": 5}, "algorithm": "rloo", "model": Path("m")}),
        configure(RunConfig, [tiny, "over.toml"]),
        configure(RunConfig, {**values, "algorithm": "rloo", "model": "m"}, {"train__steps": 5}),
        configure(RunConfig, configure(RunConfig, tiny), {"train__steps": 5, "algorithm": "rloo", "model": "m"}),
    ]
    assert all(way == expected for way in ways)
    assert expected.train.group_size == 2 and expected.task.options == {"digits": 2}


def test_an_algorithm_is_a_value() -> None:
    mine = presets.grpo.but(trust={"high": 0.28}, aggregation="token_mean", name="mine")
    config = configure(RunConfig, None, {"algorithm": mine})
    built = config.algorithm.build()
    assert (built.trust, built.aggregation, built.advantage) == (mine.trust, mine.aggregation, mine.advantage)
    assert configure(RunConfig, None, {"algorithm": presets.dr_grpo}).algorithm.build() == presets.dr_grpo
    file = {"algorithm": {"preset": "grpo", "kl": {"target": 3.0}, "trust": {"high": 0.4}}}
    assert configure(RunConfig, file, {"algorithm": presets.ppo}).algorithm.build() == presets.ppo
    varied = configure(RunConfig, {"algorithm": presets.ppo}, {"algorithm__trust__high": 0.3}).algorithm.build()
    assert varied.parts == presets.ppo.but(trust={"high": 0.3}).parts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train__step": 3}, "unknown key 'train.step'. Did you mean 'train.steps'?"),
        ({"stepz": 3}, "unknown key 'stepz'"),
        ({"train": {"steps": 0}}, "train.steps = 0"),
        ({"train__steps": "many"}, "train.steps = 'many'"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        surefoot.train(**options)
    assert message in str(caught.value)


def test_a_configuration_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="is a SftConfig: give a RunConfig"):
        surefoot.train(SftConfig())


def test_text_stays_text(workplace: Path) -> None:
    """A Python string is not read as TOML, unlike a word of the command line."""
    assert configure(RunConfig, None, {"task__system": "3"}).task.system == "3"
    assert (
        configure(RunConfig, None, {"task": "data.jsonl"}).task
        == configure(RunConfig, None, {"task": {"name": "file", "path": "data.jsonl"}}).task
    )


def test_a_reward_in_a_few_lines(workplace: Path) -> None:
    seen = []

    def reward(prompt, completion, answer):  # type: ignore[no-untyped-def]
        seen.append((prompt, completion, answer))
        return len(completion) / 10

    result = surefoot.train("tiny.toml", reward=reward, train__steps=1, rollout__temperature=1.5)
    records = [r for file in sorted((result.folder / "samples").glob("step-*.jsonl")) for r in read_lines(file)]
    assert [r["reward"] for r in records] == [len(r["completion"]) / 10 for r in records]
    assert len(records) == 4 and {(r["prompt"], r["completion"]) for r in records} <= {(p, c) for p, c, _ in seen}
    assert (result.model / "config.json").is_file() and (result.folder / "report.html").is_file()
    assert result.summary["steps"] == 1


def test_a_reward_of_another_form_is_refused_before_anything_is_written(workplace: Path) -> None:
    with pytest.raises(RewardError, match="takes"):
        surefoot.train("tiny.toml", reward=lambda completion: 1.0)
    assert not (workplace / "runs").exists()


def test_own_task_and_prompts(workplace: Path) -> None:
    prompts = tuple(surefoot.Prompt(f"p{i}", f"{i}+1=", str(i + 1)) for i in range(8))
    task = surefoot.Task("mine", prompts[:6], prompts[6:])
    result = surefoot.train("tiny.toml", task=task, reward=lambda p, c, a: c.strip() == a, train__steps=1)
    assert result.summary["after"]["problems"] == 2


def test_evaluate_gives_intervals_and_samples_at_temperature_1(workplace: Path) -> None:
    one = surefoot.evaluate(config="tiny.toml")
    four = surefoot.evaluate("embedded", "tiny.toml", samples=4, reward=lambda p, c, a: len(c) % 2 == 0)
    assert (one.samples_per_problem, four.samples_per_problem) == (1, 4)
    assert {float(t) for s in one.samples for t in s[0].temperature[s[0].mask]} == {0.0}
    assert {float(t) for s in four.samples for t in s[0].temperature[s[0].mask]} == {1.0}
    assert 0 <= four.low <= four.accuracy <= four.high <= 1 and set(four.pass_at) == {1, 2, 4}
    cool = surefoot.evaluate("embedded", "tiny.toml", samples=2, evaluation__temperature=0.5)
    assert {float(t) for s in cool.samples for t in s[0].temperature[s[0].mask]} == {0.5}


def test_the_same_call_gives_the_same_run(workplace: Path) -> None:
    """Bit for bit: metrics hold no times."""
    first = surefoot.train("tiny.toml", name="a")
    second = surefoot.train("tiny.toml", name="b")
    assert (first.folder / "metrics.jsonl").read_bytes() == (second.folder / "metrics.jsonl").read_bytes()
    weights = [(run.model / "model.safetensors").read_bytes() for run in (first, second)]
    assert weights[0] == weights[1]


def test_watch_is_told_of_every_step(workplace: Path) -> None:
    events: list[Any] = []
    surefoot.train("tiny.toml", watch=events.append)
    assert [event.step for event in events if event.phase == "train"] == [1, 2]
    assert events[-1].step == events[-1].steps == 2 and events[-1].accuracy is not None


PROMPTS = [Prompt(str(i), f"{i}+1=", str(i + 1)) for i in range(8)]


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ([1], "task is a list: give a Task"),
        (3, "task is a int: give a Task"),
        (Task, "task is the class Task: give a Task"),
        (len, "task is a builtin_function_or_method: give a Task"),
        (Task("mine", [], []), "has no training prompts"),
        (Task("mine", ["1+1"], []), "number 1 of train is a str; expected a Prompt"),  # type: ignore[list-item]
        (
            Task("mine", PROMPTS, [Prompt("other", "3+1=")]),
            r"the prompt other \('3\+1='\) is held out, and trained on as 3",
        ),
        (Task("mine", [Prompt("half", "a\ud800b")], []), "prompt half.*surrogate"),
    ],
)
def test_a_task_that_is_none_is_refused(task: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        surefoot.train(task=task)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([3], {}, "the configuration is 3: give a RunConfig"),
        ([["tiny.toml", {}]], {}, "give a RunConfig, a mapping, a TOML file or a list of files"),
        ([], {"watch": 3}, "watch = 3: expected a function"),
        ([], {"runs": ""}, "runs = ''"),
        ([], {"name": ".."}, "name = '..'"),
    ],
)
def test_arguments_of_a_wrong_kind_are_refused(arguments: list[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        surefoot.train(*arguments, **options)


def test_a_mapping_may_have_dotted_keys() -> None:
    config = configure(RunConfig, {"train.steps": 2, "train": {"group_size": 4}})
    assert (config.train.steps, config.train.group_size) == (2, 4)
