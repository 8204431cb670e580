"""Grading beside sampling: never in the way, and nothing that a run writes depends on what was ready when."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from surefoot.config import load
from surefoot.errors import RewardError
from surefoot.policy.config import ModelConfig
from surefoot.policy.loading import load_policy
from surefoot.rewards.base import BrokenRewardError, Completion
from surefoot.rewards.compose import Part, compose
from surefoot.rewards.functions import as_reward
from surefoot.rollout.engine import Interruption, Request, Sampling
from surefoot.rollout.local import LocalEngine
from surefoot.seeds import derive
from surefoot.training.config import RunConfig
from surefoot.training.grading import Grading, grading_threads
from surefoot.training.loop import train
from surefoot.types import Prompt, Sample, Score, Status
from tests.rewards.judge_server import Server
from tests.training.tiny import share_of_digits, tiny


class Watched:
    """A reward for other threads: writes down who calls it with how many; slow, and by chance slower."""

    name = "watched"

    def __init__(self, threads: int = 3, seconds: float = 0.0) -> None:
        self.threads, self.seconds = threads, seconds
        self.calls: list[tuple[str, int]] = []

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        self.calls.append((threading.current_thread().name.split("_")[0], len(completions)))
        time.sleep(self.seconds * random.random())
        return [Score(share_of_digits("", completion.text, None)) for completion in completions]


def run(path: Path, grader: Any, resume: bool = False, **over: Any) -> Path:
    return train(tiny(path, **over), reward=grader, resume=resume).folder


def files(run: Path) -> dict[str, bytes]:
    """Everything that must be the same: all logs but those of the clock, the samples, the weights."""
    names = ["metrics.jsonl", "evaluations.jsonl", "model/model.safetensors"]
    found = {name: (run / name).read_bytes() for name in names}
    return found | {file.name: file.read_bytes() for file in (run / "samples").iterdir()}


class TestEngine:
    """The engine hands on what is finished, and what it hands on is what it returns."""

    @pytest.fixture(scope="class")
    def policy(self) -> Any:
        return load_policy(ModelConfig())

    @pytest.mark.parametrize("own_steps", [True, False])
    @pytest.mark.parametrize("tokens", [90, 4000])
    def test_every_request_is_handed_on_once_and_early(self, policy: Any, own_steps: bool, tokens: int):
        interrupt = Interruption(8, (5, 6), ())
        sampling = [
            Sampling(max_new_tokens=16, stop_ids=(3, 9, 20, 33), interrupt=i, top_logprobs=2) for i in (None, interrupt)
        ]
        requests = [
            Request(np.arange(3, 5 + k % 4), f"p{k}", tuple(derive(0, k, i) for i in range(1 + k % 5)), sampling[k % 2])
            for k in range(8)
        ]
        engine = LocalEngine(policy.model, max_batch_tokens=tokens, own_steps=own_steps)
        handed: dict[int, tuple[Sample, ...]] = {}
        made = engine.generate(requests, finished=lambda i, samples: handed.update({i: samples}))
        assert sorted(handed) == list(range(8))
        plain = engine.generate(requests)
        for number, group in enumerate(made):
            assert len(group) == len(handed[number]) == len(requests[number].seeds)
            for sample, early, alone in zip(group, handed[number], plain[number], strict=True):
                assert sample is early
                for name in ("ids", "origin", "logp_behaviour", "kept_logmass", "top_ids", "top_logp"):
                    assert np.array_equal(getattr(sample, name), getattr(alone, name))
                assert (sample.finish, sample.seed) == (alone.finish, alone.seed)

    def test_some_are_handed_on_while_others_are_still_running(self, policy: Any):
        sampling = Sampling(max_new_tokens=40, stop_ids=(3, 9, 20, 33, 40, 41))
        requests = [Request(np.arange(3, 6), f"p{k}", (derive(1, k),), sampling) for k in range(24)]
        engine = LocalEngine(policy.model, max_batch_tokens=4000)
        lengths: list[int] = []
        engine.generate(requests, finished=lambda _, samples: lengths.append(samples[0].length))
        assert lengths != sorted(lengths, reverse=True) and lengths[0] < max(lengths) == lengths[-1]


class TestGrading:
    PAIRS: ClassVar[Any] = [[(Prompt(f"p{g}", "x"), object())] * 2 for g in range(6)]

    def grade(self, pairs: Any) -> list[Score]:
        number = int(pairs[0][0].prompt_id[1:])
        time.sleep(0.01 * (6 - number))  # the first is the last to be graded
        return [Score(float(number)) for _ in pairs]

    @pytest.mark.parametrize("threads", [1, 3])
    def test_the_order_is_that_of_the_groups(self, threads: int):
        with Grading(self.grade, threads) as grading:
            for number in (3, 0, 5):
                grading.begin(number, self.PAIRS[number])
            scores = grading.scores(self.PAIRS)
        assert [[s.total for s in group] for group in scores] == [[float(g)] * 2 for g in range(6)]

    def test_without_threads_there_is_one_call(self):
        calls: list[int] = []

        def grade(pairs: Any) -> list[Score]:
            calls.append(len(pairs))
            return [Score(float(k)) for k in range(len(pairs))]

        with Grading(grade, 0) as grading:
            assert not grading.ahead
            scores = grading.scores(self.PAIRS)
        assert calls == [12] and [s.total for group in scores for s in group] == [float(k) for k in range(12)]

    def test_a_group_that_cannot_be_graded_is_counted_and_all_of_them_are_an_error(self):
        def grade(pairs: Any, bad: range) -> list[Score]:
            if int(pairs[0][0].prompt_id[1:]) in bad:
                raise BrokenRewardError("no", [Score.failed(Status.ERROR, "no")] * len(pairs))
            return [Score(1.0)] * len(pairs)

        with Grading(lambda pairs: grade(pairs, range(5)), 2) as grading:
            scores = grading.scores(self.PAIRS)
        assert [s.valid for group in scores for s in group] == [False] * 10 + [True] * 2
        with Grading(lambda pairs: grade(pairs, range(6)), 2) as grading, pytest.raises(BrokenRewardError):
            grading.scores(self.PAIRS)

    def test_who_grades(self):
        plain, able = as_reward(share_of_digits), Watched(3)
        assert [grading_threads(r, how) for r in (plain, able) for how in ("auto", "always", "never")] == [
            0,
            1,
            0,
            3,
            3,
            0,
        ]


class TestRun:
    def test_a_plain_function_stays_in_the_thread_that_trains(self, tmp_path: Path):
        reward = Watched(threads=0)
        run(tmp_path, reward, train={"steps": 1}, evaluation={"every": 0}, task={"heldout_size": 0})
        assert reward.calls == [("MainThread", 12)]

    def test_one_that_may_is_called_group_by_group_in_the_background(self, tmp_path: Path):
        reward = Watched()
        options: dict[str, Any] = {"train": {"steps": 1}, "evaluation": {"every": 0}, "task": {"heldout_size": 0}}
        run(tmp_path / "a", reward, **options)
        assert reward.calls == [("surefoot-grading", 4)] * 3
        reward.calls.clear()
        run(tmp_path / "b", reward, reward={"overlap": "never"}, **options)
        assert reward.calls == [("MainThread", 12)]

    def test_nothing_that_is_written_depends_on_the_timing(self, tmp_path: Path):
        plain = files(run(tmp_path / "a", Watched(threads=0)))
        assert files(run(tmp_path / "b", Watched(threads=1, seconds=0.05))) == plain
        assert files(run(tmp_path / "c", Watched(threads=3, seconds=0.05))) == plain
        assert files(run(tmp_path / "d", Watched(threads=0), reward={"overlap": "always"})) == plain

    def test_nor_with_greedy_baselines_and_refills(self, tmp_path: Path):
        for name, algorithm in (
            ("remax", {"preset": "remax"}),
            ("dapo", {"preset": "dapo", "selection": {"rounds": 2}}),
        ):
            over = {"algorithm": algorithm, "train": {"steps": 1}, "evaluation": {"every": 0, "problems": 1}}
            plain = files(run(tmp_path / f"{name}-a", Watched(threads=0), **over))
            assert files(run(tmp_path / f"{name}-b", Watched(threads=3, seconds=0.05), **over)) == plain

    def test_a_run_that_was_stopped_ends_as_one_that_was_not(self, tmp_path: Path):
        whole = run(tmp_path / "whole", Watched(seconds=0.03))
        run(tmp_path / "halves", Watched(seconds=0.03), train={"steps": 2})
        halves = run(tmp_path / "halves", Watched(seconds=0.03), resume=True)
        assert files(halves) == files(whole)

    def test_one_sample_that_hangs_or_raises_is_counted_and_the_run_goes_on(self, tmp_path: Path):
        async def fragile(prompt: str, completion: str, answer: object) -> float:
            if completion[:1].isdigit():
                raise ValueError("no digits")
            if completion[:1].isupper():
                await asyncio.sleep(3600)
            return share_of_digits(prompt, completion, answer)

        from surefoot import api

        folder = api.train(tiny(tmp_path, reward={"deadline": 0.1}), reward=fragile).folder
        records = [
            json.loads(line) for file in (folder / "samples").glob("step-*") for line in file.read_text().splitlines()
        ]
        statuses = {record["status"] for record in records}
        assert statuses == {"ok", "error", "timeout"}
        for record in records:
            first = record["completion"][:1]
            expected = "error" if first.isdigit() else "timeout" if first.isupper() else "ok"
            assert record["status"] == expected and (record["reward"] is None) == (expected != "ok")
            assert expected == "ok" or record["advantage"] == 0.0
        ungraded = [json.loads(line)["reward/ungraded"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert len(ungraded) == 4 and all(0 < share < 1 for share in ungraded)

    def test_a_broken_reward_stops_the_run_wherever_it_is_called(self, tmp_path: Path):
        async def broken(prompt: str, completion: str, answer: object) -> float:
            raise OSError("no server")

        with pytest.raises(RewardError, match=r"'broken' failed on all .* no server"):
            run(tmp_path, as_reward(broken), evaluation={"every": 0}, task={"heldout_size": 0})


class TestParts:
    TOML = """
    name = "parts"
    [task]
    name = "addition"
    options = { digits = 2 }
    train_size = 24
    heldout_size = 4
    template = "plain"
    [rollout]
    max_new_tokens = 10
    [train]
    steps = 2
    prompts_per_step = 3
    group_size = 4
    [algorithm]
    preset = "gdpo"
    [reward.parts.accuracy]
    verifier = "number"
    [reward.parts.exactly]
    verifier = "exact"
    weight = 0.5
    when = "accuracy"
    """

    def test_gdpo_reads_weights_and_conditions_from_a_file_and_the_run_shows_them(self, tmp_path: Path):
        (tmp_path / "run.toml").write_text(self.TOML)
        config = load(RunConfig, [tmp_path / "run.toml"], {"runs": str(tmp_path)})
        advantage = config.algorithm.build().advantage
        assert advantage.weights == {"accuracy": 1.0, "exactly": 0.5}
        assert advantage.conditions == {"exactly": "accuracy"} and advantage.threshold == 1.0
        folder = train(config).folder
        card = (folder / "card.md").read_text()
        assert "exactly: 0.5" in card and "exactly counts where accuracy >= 1" in card
        assert load(RunConfig, [folder / "config.toml"]).algorithm.build() == config.algorithm.build()
        for file in (folder / "samples").glob("step-*"):
            for line in file.read_text().splitlines():
                parts = json.loads(line)["parts"]
                assert parts["exactly"]["weight"] == 0.5
                assert parts["exactly"]["counts"] == (parts["accuracy"]["value"] >= 1)
        metrics = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
        assert {
            "component/accuracy",
            "component/exactly",
            "part_counts/exactly",
            "part_failed/exactly",
        } <= metrics.keys()

    def test_a_change_of_a_weight_changes_the_objective_and_one_of_its_own_stays(self, tmp_path: Path):
        (tmp_path / "run.toml").write_text(self.TOML)
        changed = load(RunConfig, [tmp_path / "run.toml"], {"reward.parts.exactly.weight": "0.25"})
        assert changed.algorithm.build().advantage.weights["exactly"] == 0.25
        own = load(RunConfig, [tmp_path / "run.toml"], {"algorithm.advantage": {"weights": {"accuracy": 2.0}}})
        assert own.algorithm.build().advantage.weights == {"accuracy": 2.0}

    def test_thresholds_that_differ_and_parts_made_in_python(self, tmp_path: Path):
        reward = compose(
            [
                Part("digits", share_of_digits),
                Part("short", lambda p, c, a: -len(c) / 10, 0.5, when="digits", at_least=0.2),
                Part("first", lambda p, c, a: float(c[:1].isdigit()), 0.25, when="digits", at_least=0.4),
            ]
        )
        folder = run(tmp_path, reward, algorithm={"preset": "gdpo"})
        card = (folder / "card.md").read_text()
        assert "short counts where digits >= 0.2" in card and "first counts where digits >= 0.4" in card
        summed = run(tmp_path / "sum", reward, algorithm={"preset": "dr_grpo"})
        assert files(folder)["model/model.safetensors"] != files(summed)["model/model.safetensors"]

    def test_gdpo_on_parts_is_the_formula(self, tmp_path: Path):
        """The advantages of a step against NumPy: each part standardised in its group, added, standardised in the batch."""
        reward = compose(
            [
                Part("digits", share_of_digits),
                Part("first", lambda p, c, a: float(c[:1].isalpha()), 0.5, when="digits", at_least=0.1),
            ]
        )
        over = {"algorithm": {"preset": "gdpo"}, "train": {"steps": 1}, "track": {"samples_per_step": 12}}
        file = run(tmp_path, reward, **over) / "samples" / "step-000001.jsonl"
        records = [json.loads(line) for line in file.read_text().splitlines()]
        digits = np.array([record["parts"]["digits"]["value"] for record in records]).reshape(3, 4)
        first = np.array([record["parts"]["first"]["value"] for record in records]).reshape(3, 4)
        first = np.where(digits >= 0.1, first, 0.0)
        assert (first != 0).any() and (digits < 0.1).any()

        def standard(x: np.ndarray) -> np.ndarray:
            return (x - x.mean(1, keepdims=True)) / (x.std(1, ddof=1, keepdims=True) + 1e-6)

        total = (standard(digits) + 0.5 * standard(first)).ravel()
        expected = (total - total.mean()) / (total.std(ddof=1) + 1e-6)
        assert np.array([record["advantage"] for record in records]) == pytest.approx(expected, abs=1e-4)


class TestFromOutside:
    """Rewards that a configuration names and that live elsewhere: a judge behind a server, a model in a folder."""

    OPTIONS: ClassVar[dict[str, Any]] = {"train": {"steps": 2}, "evaluation": {"problems": 2, "every": 0}}

    def test_a_judge_is_asked_counted_and_its_key_is_in_no_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("JUDGE_KEY", "sk-very-secret")
        server = Server()
        options = {
            "base_url": server.url,
            "model": "m",
            "rubric": "Is it right?",
            "key_env": "JUDGE_KEY",
            "price_in": 1.0,
        }
        over = self.OPTIONS | {"reward": {"parts": {"style": {"verifier": "judge", "options": options}}}}
        folder = train(tiny(tmp_path, **over)).folder
        server.http.shutdown()
        server.http.server_close()
        assert all(headers["authorization"] == "Bearer sk-very-secret" for headers in server.headers)
        metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        before = json.loads((folder / "evaluations.jsonl").read_text().splitlines()[0])["reward"]
        assert metrics[0]["component/style"] == pytest.approx(0.7)
        for step in metrics:
            assert step["judge/requests"] + step.get("judge/cached", 0.0) == 12  # 3 prompts with 4 samples
            assert step["judge/cost"] == pytest.approx(step["judge/requests"] * 100 / 1e6)
        assert before["judge/requests"] == 2
        assert not [file for file in folder.rglob("*") if file.is_file() and b"very-secret" in file.read_bytes()]

    def test_a_reward_model_from_a_folder(self, tmp_path: Path):
        from transformers import LlamaConfig, LlamaForSequenceClassification

        tokenizer = load_policy(ModelConfig()).tokenizer
        sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
        LlamaForSequenceClassification(LlamaConfig(vocab_size=len(tokenizer), num_labels=1, **sizes)).save_pretrained(
            tmp_path / "rm"
        )
        tokenizer.save_pretrained(tmp_path / "rm")
        part = {"verifier": "model", "options": {"path": str(tmp_path / "rm")}, "weight": 0.5}
        folder = train(tiny(tmp_path / "runs", **self.OPTIONS, reward={"parts": {"liked": part}})).folder
        records = (folder / "samples" / "step-000001.jsonl").read_text().splitlines()
        values = [(json.loads(line)["reward"], json.loads(line)["parts"]["liked"]["value"]) for line in records]
        assert len({value for _, value in values}) > 1
        assert all(reward == pytest.approx(0.5 * value) for reward, value in values)
