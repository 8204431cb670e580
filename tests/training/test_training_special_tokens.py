"""Tags that are special tokens, through evaluation and training: what is graded and kept is what the policy wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from surefoot.config import validate
from surefoot.rewards.functions import as_reward
from surefoot.rollout.engine import Request
from surefoot.rollout.local import LocalEngine
from surefoot.tasks.base import Task
from surefoot.training.assemble import assemble
from surefoot.training.config import RunConfig
from surefoot.training.loop import train
from surefoot.training.regenerate import regenerate
from surefoot.types import Finish, Prompt, Sample
from tests.tasks.families import family
from tests.training.tiny import tiny

TAGGED = "<think>It is near 3</think><answer>5</answer>"
# Verifier, its options, what the policy writes, and whether a person calls it right by the verifier's rules (docs/rewards.md).
CASES: list[tuple[str, dict[str, Any], str, bool]] = [
    ("tag", {}, TAGGED, True),
    ("tag", {}, "<think><answer>5</answer></think>I do not know.", False),
    ("tag", {}, "<answer>4</answer>", False),
    ("number", {}, TAGGED, True),
    ("number", {}, "<think>It is near 3</think>5", True),
    ("number", {}, "<think>It is 5</think>I do not know.", False),
    ("boxed", {}, "<think>maybe \\boxed{5}</think>I do not know.", False),
    ("boxed", {}, "<think>maybe \\boxed{7}</think>It is \\boxed{5}.", True),
    ("exact", {}, "<think>3</think>5", True),
    ("json", {"equal": True}, "<think>{}</think>5", True),
    ("regex", {"pattern": "<answer>(.*)</answer>"}, TAGGED, True),
    ("math", {}, "<think>\\boxed{7}</think>$\\boxed{5}$", True),
]


def model(folder: Path, name: str, **over: Any) -> str:
    tokenizer = family(name, **over)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=256,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def speak(monkeypatch: pytest.MonkeyPatch, texts: Sequence[str], tokenizer: Any) -> None:
    """The engine writes these texts in turn, each with the end of a turn, instead of sampling."""
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")

    def generate(self: LocalEngine, requests: Sequence[Request], **_: Any) -> list[tuple[Sample, ...]]:
        def made(request: Request, number: int) -> Sample:
            text = texts[(request.first_sample_id + number) % len(texts)]
            ids = np.array([*tokenizer(text, add_special_tokens=False)["input_ids"], end])
            return Sample.of(
                request.prompt_ids,
                ids,
                prompt_id=request.prompt_id,
                finish=Finish.STOP,
                logp=np.full(len(ids), -5.0, dtype=np.float32),
                sample_id=request.first_sample_id + number,
                seed=request.seeds[number],
                version=self.version,
            )

        return [tuple(made(request, number) for number in range(len(request.seeds))) for request in requests]

    monkeypatch.setattr(LocalEngine, "generate", generate)


def task() -> Task:
    prompts = [Prompt(f"p{i}", f"{i} + {5 - i} =", "5") for i in range(5)]
    return Task("sums", prompts[:3], prompts[3:])


@pytest.mark.parametrize("special", [True, False], ids=["special", "added"])
@pytest.mark.parametrize("name", ["byte-level", "metaspace", "unigram", "llama-2", "wordpiece"])
def test_evaluation_grades_what_the_policy_wrote(
    name: str, special: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model(tmp_path / "model", name, special=special)
    for verifier, options, text, right in CASES:
        if name == "wordpiece" and verifier not in ("tag", "number", "exact"):
            continue  # its text has spaces between all words and signs
        config = validate(
            RunConfig,
            {
                "model": {"path": path},
                "reward": {"verifier": verifier, "options": options},
                "evaluation": {"problems": 2},
            },
        )
        parts = assemble(config, task=task())
        speak(monkeypatch, [text], parts.policy.tokenizer)
        assert parts.evaluate(config).accuracy == float(right), (verifier, text)


@pytest.mark.parametrize("name", ["byte-level", "metaspace"])
def test_a_run_rewards_and_records_what_the_policy_wrote(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model(tmp_path / "model", name)
    texts = [TAGGED, "<think>maybe <answer>5</answer></think>I do not know."]
    over = {
        "model": {"path": path},
        "task": {"name": "file", "options": {}, "template": "auto"},
        "reward": {"verifier": "tag"},
        "rollout": {"max_new_tokens": 100},
        "train": {"steps": 1},
        "health": {"mismatch_above": 1e9},
    }
    config = tiny(tmp_path, **over)
    speak(monkeypatch, texts, family(name))
    folder = train(config, task=task()).folder
    for kind in ("step-000001", "heldout-000001"):
        records = [json.loads(line) for line in (folder / "samples" / f"{kind}.jsonl").open()]
        assert {record["completion"] for record in records} <= set(texts)
        for record in records:
            assert record["reward"] == float(record["completion"] == TAGGED)
            assert "".join(record.get("tokens", {"text": [record["completion"]]})["text"]).startswith(
                record["completion"]
            )
    assert json.loads((folder / "result.json").read_text())["after"]["accuracy"] == 1.0
    (metrics,) = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    assert metrics["reward/mean"] == 0.5


def test_a_reward_function_sees_the_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()

    def reward(prompt: str, completion: str, answer: object) -> float:
        seen.add(completion)
        return float(completion.count("<answer>"))

    path = model(tmp_path / "model", "byte-level")
    speak(monkeypatch, [TAGGED, "<tool_call>{}</tool_call>"], family("byte-level"))
    config = tiny(
        tmp_path, model={"path": path}, task={"template": "auto"}, train={"steps": 1}, health={"mismatch_above": 1e9}
    )
    train(config, task=task(), reward=as_reward(reward))
    assert seen == {TAGGED, "<tool_call>{}</tool_call>"}


def test_a_sample_made_again_has_the_text_that_was_graded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model(tmp_path / "model", "byte-level")
    speak(monkeypatch, [TAGGED], family("byte-level"))
    over = {"model": {"path": path}, "task": {"template": "auto"}, "reward": {"verifier": "number"}}
    config = tiny(tmp_path, **over, rollout={"max_new_tokens": 100}, train={"steps": 1}, health={"mismatch_above": 1e9})
    folder = train(config).folder
    record = json.loads((folder / "samples" / "step-000001.jsonl").read_text().splitlines()[0])
    again = regenerate(folder, 1, record["prompt_id"], record["sample_id"])
    assert again.same and again.text == record["completion"] == TAGGED


def test_steps_are_placed_where_a_part_reads_them_and_nowhere_else(tmp_path: Path) -> None:
    def parts(preset: str) -> Any:
        return assemble(
            validate(
                RunConfig,
                {"task": {"name": "chain_mod", "train_size": 8, "heldout_size": 4}, "algorithm": {"preset": preset}},
            )
        )

    for preset, places in (("grpo_process", True), ("dr_grpo", False)):
        made = parts(preset)
        prompt = made.task.train[0]
        completion = made.renderer.completion_ids(made.task.demonstrate(prompt, 0, 0.0))
        sample = Sample.of(made.renderer.ids(prompt), completion, prompt_id="p")
        (score,) = made.grade([(prompt, sample)])
        assert score.steps and all((step.token is not None) == places for step in score.steps)
        (judged,) = made.grade([(prompt, sample)], by=made.judge)  # an evaluation reads none
        assert all(step.token is None for step in judged.steps)
