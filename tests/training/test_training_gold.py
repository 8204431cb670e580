"""Gold answers of every kind through a whole evaluation and a whole run, with a model that always answers 5."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot
from surefoot.config import validate
from surefoot.errors import RewardError
from surefoot.methods.doctor import answers_as_tokens, gold_answers
from surefoot.rewards.audit import audit_reward
from surefoot.rewards.functions import as_reward
from surefoot.rollout.engine import Request
from surefoot.rollout.local import LocalEngine
from surefoot.tasks.render import Renderer
from surefoot.training.assemble import Parts, assemble
from surefoot.training.audit_tokens import as_tokens
from surefoot.training.config import RunConfig
from surefoot.types import Sample

FIVES = 10
SHAPE: dict[str, Any] = {
    "rollout": {"max_new_tokens": 24},
    "train": {"steps": 1, "prompts_per_step": 2, "group_size": 2},
    "evaluation": {"every": 0, "problems": 4, "samples": 1},
    "checkpoint": {"every": 0},
    "health": {"truncated_above": 1.0},
}


def says(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every model write one text, whatever it is asked."""

    def generate(self: LocalEngine, requests: list[Request], *_: Any, **__: Any) -> list[tuple[Sample, ...]]:
        tokenizer = surefoot_tokenizer()
        ids = np.asarray([*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id])
        return [
            tuple(
                Sample.of(
                    request.prompt_ids,
                    ids,
                    prompt_id=request.prompt_id,
                    sample_id=k,
                    seed=seed,
                    logp=np.full(len(ids), -1.0),
                )
                for k, seed in enumerate(request.seeds)
            )
            for request in requests
        ]

    monkeypatch.setattr(LocalEngine, "generate", generate)


def surefoot_tokenizer() -> Any:
    from surefoot.policy.embedded import fresh_model

    return fresh_model(0)[1]


def json_lines(path: Path, answer: Any) -> Path:
    rows = [{"prompt": f"Write the number five, case {k}.", "answer": answer} for k in range(FIVES)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def table(path: Path, answer: Any) -> Path:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    prompts = [f"Write the number five, case {k}." for k in range(FIVES)]
    parquet.write_table(arrow.table({"prompt": prompts, "answer": arrow.array([answer] * FIVES)}), path)
    return path


KINDS: dict[str, tuple[Callable[[Path, Any], Path], str, Any, list[str]]] = {
    "list": (json_lines, "rows.jsonl", ["5"], ["auto", "exact", "number", "math"]),
    "two": (json_lines, "rows.jsonl", ["five", "5"], ["auto", "exact"]),
    "float": (json_lines, "rows.jsonl", 5.0, ["auto", "exact", "number", "math"]),
    "decimal": (table, "rows.parquet", Decimal("5.00"), ["auto", "exact", "number", "math"]),
    "decimals": (table, "rows.parquet", [Decimal("5.00"), Decimal("6.00")], ["auto", "exact"]),
    "bytes": (table, "rows.parquet", b"5", ["auto", "exact"]),
}
CASES = [(kind, verifier) for kind, (*_, verifiers) in KINDS.items() for verifier in verifiers]


@pytest.mark.parametrize(("kind", "verifier"), CASES)
def test_a_model_that_always_answers_5_is_right(
    kind: str, verifier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write, name, answer, _ = KINDS[kind]
    says(r"\boxed{5}" if verifier == "math" else "5", monkeypatch)
    task = {"name": "file", "path": str(write(tmp_path / name, answer)), "heldout_share": 0.4}
    assert surefoot.evaluate(None, SHAPE, task=task, reward={"verifier": verifier}).accuracy == 1.0


@pytest.mark.parametrize("kind", ["list", "decimal"])
def test_a_run_rewards_it_and_its_records_show_the_answers(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write, name, answer, _ = KINDS[kind]
    says("5", monkeypatch)
    task = {"name": "file", "path": str(write(tmp_path / name, answer)), "heldout_share": 0.4}
    result = surefoot.train({**SHAPE, "runs": str(tmp_path)}, name="five", task=task)
    metrics = json.loads((result.folder / "metrics.jsonl").read_text().splitlines()[0])
    assert metrics["reward/mean"] == 1.0 and result.summary["after"]["accuracy"] == 1.0
    assert json.loads((result.folder / "audit.json").read_text())["failed"] is False
    records = [json.loads(line) for file in (result.folder / "samples").iterdir() for line in file.open()]
    assert {record["answer"] for record in records} == {"5"}


def test_reward_functions_get_the_row_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    says("5", monkeypatch)
    seen: list[Any] = []

    def trl(completions: list[str], answer: list[Any], **columns: Any) -> list[float]:
        seen.extend(answer)
        return [1.0] * len(completions)

    task = {
        "name": "file",
        "path": str(table(tmp_path / "rows.parquet", [{"value": Decimal("5.00")}])),
        "heldout_share": 0.4,
    }
    surefoot.train({**SHAPE, "runs": str(tmp_path)}, name="raw", task=task, reward=trl, audit={"before": "off"})
    assert seen and all(answer == [{"value": Decimal("5.00")}] for answer in seen)


def test_a_run_refuses_a_row_without_an_answer_by_its_place(tmp_path: Path):
    path = json_lines(tmp_path / "rows.jsonl", ["5"])
    path.write_text(path.read_text() + json.dumps({"prompt": "Nothing?", "answer": []}) + "\n")
    with pytest.raises(RewardError, match=r"rows\.jsonl, line 11: the gold answer \[\]"):
        surefoot.train(
            {**SHAPE, "runs": str(tmp_path)},
            name="none",
            task={"name": "file", "path": str(path), "heldout_share": 0.4},
        )


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    path = json_lines(tmp_path_factory.mktemp("rows") / "rows.jsonl", ["5", "five"])
    task = {"name": "file", "path": str(path), "heldout_share": 0.4}
    return assemble(
        validate(RunConfig, {"task": task, "reward": {"verifier": "tag"}, "rollout": {"max_new_tokens": 24}})
    )


class Dropping(Renderer):
    """Decodes as with ``skip_special_tokens``, where tags are special tokens: they are gone, and nothing stands for them."""

    def decode(self, sample: Sample) -> str:
        text = super().decode(sample)
        for tag in ("<think>", "</think>", "<answer>", "</answer>"):
            text = text.replace(tag, "")
        return text


def test_tags_that_decoding_drops_are_a_fault_of_audit_and_doctor(parts: Parts):
    config = validate(RunConfig, {"reward": {"verifier": "tag"}})
    assert answers_as_tokens(parts)[0] == "ok" and gold_answers(config, parts)[0] == "ok"
    broken = replace(parts, renderer=Dropping(parts.policy.tokenizer, config.task))
    outcome, evidence = answers_as_tokens(broken)
    assert outcome == "fail" and "</answer>" in evidence
    checks = {"also": [lambda grader: as_tokens(grader, broken.renderer)]}
    report = audit_reward(parts.task, parts.reward, **checks)
    assert report["tokens"].severity == "fail" and report.failed
    whole = audit_reward(parts.task, parts.reward, also=[lambda grader: as_tokens(grader, parts.renderer)])
    assert whole["tokens"].severity == "ok" and not whole.failed


def test_a_number_that_decoding_joins_with_its_thought_is_a_fault(parts: Parts):
    def last(prompt: str, completion: str, answer: list[str]) -> bool:
        words = completion.replace("</answer>", " ").replace(">", " ").split()
        return bool(words) and words[-1] in answer

    config = validate(RunConfig, {})
    broken = Dropping(parts.policy.tokenizer, config.task)
    report = audit_reward(parts.task, as_reward(last), also=[lambda grader: as_tokens(grader, broken)])
    assert report["tokens"].severity == "fail"
    assert any("It is near 35" in example.completion for example in report["tokens"].examples)


def test_the_doctor_grades_every_accepted_answer(parts: Parts):
    def the_first(prompt: str, completion: str, answer: list[str]) -> bool:
        return completion.strip() == answer[0]

    outcome, evidence = gold_answers(validate(RunConfig, {}), replace(parts, reward=as_reward(the_first)))
    assert outcome == "fail" and "five" in evidence
