"""Worked examples and reasoning tags: the same examples for all prompts, none of them held out or trained on, one opened tag."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.errors import DataError
from surefoot.rewards.base import Completion
from surefoot.rewards.build import build_reward
from surefoot.rewards.config import RewardConfig
from surefoot.tasks.base import Task
from surefoot.tasks.build import build_task
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.render import Renderer
from surefoot.training.loop import train
from surefoot.types import Prompt, Score, Status, StepScore
from tests.tasks.test_tasks_render import CHAT, CHATML, QUESTION, THINKING, tokenizer, tokens
from tests.training.tiny import tiny

CLOSED = CHATML.replace("'<|im_start|>assistant\n' }}", "'<|im_start|>assistant\n<think>\n\n</think>\n\n' }}")
SWITCH = CHATML.replace(
    "{{ '<|im_start|>assistant\n' }}",
    "{{ '<|im_start|>assistant\n' }}{% if not (enable_thinking | default(true)) %}{{ '<think>\n\n</think>\n\n' }}{% endif %}",
)


def build(**over: Any) -> Task:
    return build_task(TaskConfig(**{"name": "addition", "train_size": 50, "heldout_size": 20, **over}))


def file(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_examples_are_fixed_by_the_seed_and_leave_training() -> None:
    plain, task = build(), build(shots=3)
    assert len(task.shots) == 3 and len(task.train) == 47 and task.heldout == plain.heldout
    shown = {prompt.prompt_id for prompt, _ in task.shots}
    assert shown.isdisjoint(p.prompt_id for p in task.train) and shown <= {p.prompt_id for p in plain.train}
    assert shown.isdisjoint(p.prompt_id for p in task.heldout)
    assert build(shots=3).shots == task.shots != build(shots=3, seed=1).shots
    assert build(shots=3).fingerprint == task.fingerprint != plain.fingerprint
    assert any("3 training problems are worked examples" in note for note in task.notes)
    assert task.verify is not None
    for prompt, solution in task.shots:
        assert task.verify(prompt, solution).correct


def test_examples_are_turns_of_the_chat_after_the_system_message() -> None:
    task = build(shots=2)
    config = TaskConfig(system="Add.", prompt="Q: {prompt}")
    renderer = Renderer(tokenizer(), config, task.shots)
    (one, first), (two, second) = task.shots
    wanted = (
        "<|im_start|>system\nAdd.<|im_end|>\n"
        f"<|im_start|>user\nQ: {one.text}<|im_end|>\n<|im_start|>assistant\n{first}<|im_end|>\n"
        f"<|im_start|>user\nQ: {two.text}<|im_end|>\n<|im_start|>assistant\n{second}<|im_end|>\n"
        "<|im_start|>user\nQ: 1 + 1 =<|im_end|>\n<|im_start|>assistant\n"
    )
    assert renderer.text(QUESTION) == wanted
    assert renderer.text(CHAT).count("<|im_start|>") == 1 + 4 + 4


def test_all_prompts_begin_alike_so_that_an_engine_reads_it_once() -> None:
    task = build(shots=4)
    for template in ("plain", "chat"):
        renderer = Renderer(tokenizer(), TaskConfig(template=template), task.shots)
        ids = [renderer.ids(prompt) for prompt in (*task.train, *task.heldout)]
        bare = Renderer(tokenizer(), TaskConfig(template=template)).ids(task.train[0])
        shared = next(n for n in range(10**6) if len({tuple(row[: n + 1]) for row in ids}) > 1)
        assert shared >= len(ids[0]) - len(bare)


def test_examples_without_a_template_are_text() -> None:
    shots = [(Prompt("a", "1+2="), "3"), (Prompt("b", "2+2="), "4")]
    renderer = Renderer(tokenizer(None), TaskConfig(prompt="{prompt} "), shots)
    assert renderer.text(QUESTION) == "1+2= 3\n\n2+2= 4\n\n1 + 1 = "


def test_examples_of_a_file(tmp_path: Path) -> None:
    rows = [{"prompt": f"{k}+1?", "answer": k + 1} for k in range(30)]
    data = file(tmp_path / "a.jsonl", rows)
    shots = file(tmp_path / "s.jsonl", [{"prompt": "7+7?", "completion": "It is 14."}, {"prompt": "3+1?", "answer": 4}])
    config: dict[str, Any] = {"name": "file", "path": data, "heldout_size": 0, "heldout_share": 1e-9}
    task = build(**config, shots=2, shots_path=shots)
    assert {text for _, text in task.shots} == {"It is 14.", "4"}
    assert len(task.train) == 29 and "3+1?" not in {p.text for p in task.train}
    answered = build(**config, shots=1)
    ((prompt, solution),) = answered.shots
    assert solution == str(prompt.answer)
    held = file(tmp_path / "h.jsonl", [{"prompt": "what is 3+1", "answer": 4}])
    leak = file(tmp_path / "leak.jsonl", [{"prompt": "What is 3 + 1?", "answer": 4}])
    with pytest.raises(DataError, match="is a held-out problem, whose solution must not be shown"):
        build(name="file", path=data, heldout_path=held, shots=1, shots_path=leak)


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"shots": 51}, "task.shots = 51, but there are 50 examples"),
        ({"shots": 50}, "leaves no problem to train on"),
        ({"shots_path": "x.jsonl"}, "task.shots_path is given, but task.shots = 0"),
        ({"shots": 1, "shots_path": "x.jsonl"}, r"task.shots_path = 'x.jsonl' does not exist"),
    ],
)
def test_examples_that_cannot_be(over: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        build(**over)


# Reasoning tags.


@pytest.mark.parametrize("template", [CHATML, THINKING])
def test_the_tag_is_opened_once_whoever_opens_it(template: str) -> None:
    made = tokenizer(template)
    renderer = Renderer(made, TaskConfig(think="<think>\n"))
    assert renderer.text(QUESTION).endswith("<|im_start|>assistant\n<think>\n")
    assert renderer.text(QUESTION).count("<think>") == 1
    assert renderer.opens_thought
    assert Renderer(made, TaskConfig()).opens_thought == (template == THINKING)
    assert tokens(made, renderer.ids(QUESTION)) == renderer.text(QUESTION)


def test_the_tag_without_a_template() -> None:
    renderer = Renderer(tokenizer(None), TaskConfig(think=" <think>"))
    assert renderer.text(QUESTION) == "1 + 1 = <think>" and renderer.opens_thought


def test_a_template_that_closes_the_thought_is_refused() -> None:
    renderer = Renderer(tokenizer(CLOSED), TaskConfig(think="<think>\n"))
    with pytest.raises(DataError, match="the chat template has closed one"):
        renderer.ids(QUESTION)
    assert not Renderer(tokenizer(CLOSED), TaskConfig()).opens_thought


def test_the_template_gets_its_options() -> None:
    off = Renderer(tokenizer(SWITCH), TaskConfig(template_options={"enable_thinking": False}))
    assert off.text(QUESTION).endswith("<think>\n\n</think>\n\n")
    assert Renderer(tokenizer(SWITCH), TaskConfig()).text(QUESTION).endswith("assistant\n")
    with pytest.raises(DataError, match="without a chat template"):
        Renderer(tokenizer(None), TaskConfig(template_options={"enable_thinking": False}))


def test_a_thought_that_the_prompt_opened_is_no_answer() -> None:
    task = Task("mine", [Prompt("p", "1+1?", "2")], [], verifier="number")
    reward = build_reward(RewardConfig(), task)
    (prompt,) = task.train
    texts = ("one and one, 2", "one and one, 3</think>2", "2</think>")
    inside = reward.score([Completion(prompt, text, opens="<think>") for text in texts])
    assert [score.status for score in inside] == [Status.NO_ANSWER, Status.OK, Status.NO_ANSWER]
    assert [score.correct for score in inside] == [False, True, False]
    assert reward.score([Completion(prompt, texts[0])])[0].correct

    steps = build_task(TaskConfig(name="chain_mod", train_size=3, heldout_size=0))
    chain = build_reward(
        RewardConfig(), replace(steps, verify=lambda p, text: Score(1.0, steps=(StepScore(len(text), 1.0),)))
    )
    (score,) = chain.score([Completion(steps.train[0], "1,2", opens="<think>")])
    assert score.steps == (StepScore(3, 1.0),), "a step ends where it does in what the policy wrote"


def test_a_run_tells_its_verifier_of_the_tag(tmp_path: Path) -> None:
    texts: list[str] = []

    def verify(prompt: Prompt, text: str) -> Score:
        texts.append(text)
        return Score(float("1" in text), correct=True)

    rows = [Prompt(f"p{k}", f"{k}+1=", str(k + 1)) for k in range(8)]
    task = Task("mine", rows[:6], rows[6:], verify=verify)
    config = tiny(tmp_path, task={"think": "<think>"}, train={"steps": 1})
    train(config, task=task)
    assert texts and all(text.startswith("<think>") for text in texts)
    record = json.loads((tmp_path / "tiny" / "samples" / "step-000001.jsonl").read_text().splitlines()[0])
    assert not record["completion"].startswith("<think>"), "what the policy wrote is kept as it is"


def test_a_demonstration_does_not_open_the_tag_again() -> None:
    made = tokenizer()
    text = "<think>\none and one</think>2"
    opened = Renderer(made, TaskConfig(think="<think>\n"))
    assert tokens(made, opened.completion_ids(text)) == "one and one</think>2<|im_end|>"
    assert tokens(made, Renderer(made, TaskConfig()).completion_ids(text)) == text + "<|im_end|>"
    joined = np.concatenate([opened.ids(QUESTION), opened.completion_ids(text)])
    assert tokens(made, joined).count("<think>") == 1


def test_the_first_record_of_samples_has_the_whole_prompt(tmp_path: Path) -> None:
    config = tiny(tmp_path, task={"name": "addition", "train_size": 20, "heldout_size": 4, "shots": 2})
    folder = train(config).folder
    for name in ("step-000001", "heldout-000000"):
        first, *others = [json.loads(line) for line in (folder / "samples" / f"{name}.jsonl").open()]
        examples = first["rendered"].removesuffix(first["prompt"])
        assert examples.count("\n\n") == 2 and first["rendered"].endswith("\n\n" + first["prompt"])
        assert others and not any("rendered" in record for record in others)
