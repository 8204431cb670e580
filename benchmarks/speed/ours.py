"""Our side: steps of the real training loop, which waits after each."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

from benchmarks.speed.side import Gate
from benchmarks.speed.works import Work, prompts

MANY = 1_000_000


def dense(text: str) -> float:
    """A number between 0 and 1 that differs from text to text."""
    return crc32(text.encode("utf-8", "replace")) % 1000 / 1000


def steps(work: Work, spec: Mapping[str, Any], gate: Gate) -> None:
    """Turn after turn of ``surefoot.training.loop.train``."""
    import torch

    from surefoot.config import merge, validate
    from surefoot.rewards.functions import as_reward
    from surefoot.tasks import addition
    from surefoot.tasks.base import Task
    from surefoot.training.config import RunConfig
    from surefoot.training.loop import train
    from surefoot.training.progress import Progress
    from surefoot.types import Prompt

    gate.libraries_loaded()
    pairs = prompts(work, work.prompts * 16)
    made = [Prompt(str(i), text, answer) for i, (text, answer) in enumerate(pairs)]
    task = Task("speed", made, [], verify=addition.verify if work.reward == "demo" else None)
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {
            "name": "run",
            "runs": folder,
            "model": {"path": spec["model"], "device": spec["device"]},
            "task": {"template": "plain"},
            "rollout": {"max_new_tokens": work.new},
            "algorithm": {"preset": "trl_grpo"},
            "train": {
                "steps": MANY,
                "prompts_per_step": work.prompts,
                "group_size": work.samples,
                "micro_batch_tokens": work.micro_batch_tokens,
            },
            "optimiser": {"lr": 1e-6},
            "evaluation": {"every": 0},
            "checkpoint": {"every": 0},
            "track": {"samples_per_step": 0, "policy_grad_norm": 0},
            "health": {"truncated_above": 1.0, "entropy_below": 0.0, "mismatch_above": 1e9},
        }
        config = validate(RunConfig, merge(settings, spec.get("settings", {})))
        times = Path(folder) / "run" / "timings.jsonl"
        if torch.cuda.is_available():
            gate.synchronise = torch.cuda.synchronize

        def watch(progress: Progress) -> None:
            if progress.phase != "train":
                return
            record = json.loads(times.read_text(encoding="utf-8").splitlines()[-1])
            phases = {key: value for key, value in record.items() if key != "step" and not key.startswith("tokens_")}
            gate.tell(phases=phases, answers=record["tokens_generated"], trained=record["tokens_trained"])
            gate.wait()

        gate.say(prompt=_prompt_tokens(spec["model"], pairs), threads=torch.get_num_threads())
        gate.wait()  # the first turn, which does not count, loads the model as well
        train(config, task=task, reward=None if task.verify else as_reward(_reward(work)), watch=watch)


def _reward(work: Work) -> Any:
    if work.reward == "answer":
        return lambda prompt, completion, answer: float(completion.rstrip().endswith(str(answer)))
    return lambda prompt, completion, answer: dense(completion)


def _prompt_tokens(model: str, pairs: list[tuple[str, str]]) -> float:
    """Mean length of a prompt in tokens."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    return sum(len(ids) for ids in tokenizer([text for text, _ in pairs])["input_ids"]) / len(pairs)
