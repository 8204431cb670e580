"""Supervised training on demonstrations: the warm start of everything else.

The loss is the mean negative log-probability of the demonstrations' tokens: the score function with every advantage 1,
averaged over tokens, so it runs through the same composition as every other objective.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.algorithms import aggregation, trust
from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.loss import policy_loss
from surefoot.algorithms.tokens import Tokens
from surefoot.errors import DataError
from surefoot.evaluation.evaluate import Evaluation
from surefoot.files import write_atomic
from surefoot.policy.allocator import keep_freed_memory
from surefoot.policy.layout import usable
from surefoot.policy.logprob import token_logprobs
from surefoot.policy.packing import count, pack
from surefoot.rewards.base import Reward
from surefoot.seeds import derive
from surefoot.tasks.base import Task
from surefoot.tasks.check import check_trainable
from surefoot.tasks.cursor import make_cursor
from surefoot.training.assemble import Parts, assemble
from surefoot.training.config import SftConfig
from surefoot.training.folder import RunFolder, environment, run_path
from surefoot.training.optimiser import learning_rate, make_optimiser, take_step
from surefoot.training.progress import Progress
from surefoot.training.threads import set_threads
from surefoot.types import Sample

SUPERVISED = Algorithm(
    name="supervised",
    trust=trust.score(),
    aggregation=aggregation.token_mean(),
    note="Maximum likelihood of demonstrations: every token has advantage 1.",
)


@dataclass(frozen=True)
class SftResult:
    """What supervised training came to.

    Attributes:
        folder: the run folder; the model is in ``folder / "model"``.
        summary: the content of ``result.json``.
    """

    folder: Path
    summary: dict[str, Any]

    @property
    def model(self) -> Path:
        return self.folder / "model"


def sft(
    config: SftConfig,
    *,
    task: Task | None = None,
    reward: Reward | None = None,
    watch: Callable[[Progress], None] | None = None,
) -> SftResult:
    """Train on the task's demonstrations until ``steps`` or until held-out accuracy reaches ``target_accuracy``.

    Raises:
        DataError: the task has no demonstrations.
        SurefootError: any other mistake in the configuration, the data or the model.
    """
    keep_freed_memory()
    set_threads(config.threads)
    config.evaluation.check()
    parts = assemble(config, task=task, reward=reward)
    check_trainable(parts.task)
    if parts.task.demonstrate is None:
        raise DataError(
            f"the task '{parts.task.name}' has no demonstrations to learn from: give a file with a 'completion' in each row"
        )
    _check_demonstrations(parts, config)
    with RunFolder(run_path(config), config.model_dump(), resume=None) as folder:
        write_atomic(folder.path / "card.md", SUPERVISED.explain())
        write_atomic(folder.path / "environment.json", json.dumps(environment(), indent=1) + "\n")
        return SftResult(folder.path, _run(config, parts, folder, watch))


def _run(
    config: SftConfig, parts: Parts, folder: RunFolder, watch: Callable[[Progress], None] | None
) -> dict[str, Any]:
    begin = time.perf_counter()
    optimiser = make_optimiser(parts.policy.model, config.optimiser)
    cursor = make_cursor(parts.task.train, parts.task.weights, config.seed)
    evaluations = [_check(parts, config, folder, 0)] if parts.heldout else []
    step = 0
    while step < config.steps and not (evaluations and evaluations[-1].accuracy >= config.target_accuracy):
        step += 1
        samples = [_demonstration(parts, i, config, step) for i in cursor.take(config.batch)]
        loss = supervised_gradient(parts, samples, config.micro_batch_tokens)
        lr = learning_rate(config.optimiser, step, config.steps)
        norm = take_step(optimiser, parts.policy.model, lr=lr, max_grad_norm=config.optimiser.max_grad_norm)
        folder.log(
            "metrics", {"step": step, "loss/nll_per_token": loss, "optimiser/grad_norm": norm, "optimiser/lr": lr}
        )
        if parts.heldout and (step % config.check_every == 0 or step == config.steps):
            parts.engine.load(step)
            evaluations.append(_check(parts, config, folder, step))
        if watch is not None:
            left = (time.perf_counter() - begin) / step * (config.steps - step)
            accuracy = evaluations[-1].accuracy if evaluations else None
            watch(Progress(step, config.steps, None, accuracy, left, "warm-up"))
    parts.save(folder.path / "model")
    summary = {
        "before": evaluations[0].record(0) if evaluations else None,
        "after": evaluations[-1].record(step) if evaluations else None,
        "steps": step,
        "seconds": {"train": time.perf_counter() - begin},
    }
    write_atomic(folder.path / "result.json", json.dumps(summary, indent=1) + "\n")
    return summary


def supervised_gradient(parts: Parts, samples: list[Sample], micro_batch_tokens: int) -> float:
    """Add the gradient of the mean negative log-probability of the samples' loss tokens; returns its value in nats."""
    group = list(range(len(samples)))
    totals = count(samples, group, 1.0)
    loss = 0.0
    layout = usable(parts.policy.model, "auto")
    for packed in pack(samples, [1.0] * len(samples), group, totals, max_tokens=micro_batch_tokens, layout=layout):
        packed = packed.to(parts.policy.device)
        logp = token_logprobs(parts.policy, packed, layout=layout, entropy=False).logp
        value, _ = policy_loss(
            SUPERVISED,
            Tokens.on_policy(packed, logp),
            totals,
        )
        value.backward()
        loss += float(value.detach())
    return loss


def _check_demonstrations(parts: Parts, config: SftConfig) -> None:
    """Refuse what does not fit before anything is written. Text whose bytes fit needs no tokenizer to be sure of it."""
    for index, prompt in enumerate(parts.task.train):
        assert parts.task.demonstrate is not None
        text = parts.task.demonstrate(prompt, 0, config.error_rate)
        if len(text.encode("utf-8", "surrogatepass")) + len(
            parts.renderer.text(prompt).encode("utf-8", "surrogatepass")
        ) + 2 > (parts.policy.context):
            _fit(parts, len(_demonstration(parts, index, config, 0)), prompt.prompt_id)


def _fit(parts: Parts, length: int, prompt_id: str) -> None:
    if length > parts.policy.context:
        raise DataError(
            f"prompt {prompt_id} and its demonstration have {length} tokens, more than the model's context of "
            f"{parts.policy.context}: shorten them or leave the row out"
        )


def _demonstration(parts: Parts, index: int, config: SftConfig, step: int) -> Sample:
    prompt = parts.task.train[index]
    assert parts.task.demonstrate is not None
    text = parts.task.demonstrate(
        prompt, derive(config.seed, "demonstration", step, prompt.prompt_id), config.error_rate
    )
    sample = Sample.of(parts.renderer.ids(prompt), parts.renderer.completion_ids(text), prompt_id=prompt.prompt_id)
    _fit(parts, len(sample), prompt.prompt_id)
    return sample


def _check(parts: Parts, config: SftConfig, folder: RunFolder, step: int) -> Evaluation:
    evaluation = parts.evaluate(config)
    folder.log("evaluations", evaluation.record(step))
    return evaluation
