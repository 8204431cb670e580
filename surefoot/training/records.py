"""Samples as records for ``samples/*.jsonl``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.evaluation.evaluate import Evaluation
from surefoot.tasks.render import Renderer
from surefoot.training.batch import Batch
from surefoot.types import Group, PartScore, Prompt, Sample, Score


def sample_record(step: int, prompt: Prompt, sample: Sample, score: Score, renderer: Renderer) -> dict[str, Any]:
    """One sample as a person reads it; with the parts of its reward, where that is a sum of several."""
    record = {
        "step": step,
        "prompt_id": sample.prompt_id,
        "sample_id": sample.sample_id,
        "prompt": prompt.text,
        "completion": renderer.decode(sample),
        "answer": prompt.answer
        if isinstance(prompt.answer, (str, int, float, bool, type(None)))
        else str(prompt.answer),
        "reward": score.total if score.valid else None,
        "components": _numbers(score.components),
        "correct": score.correct,
        "status": str(score.status),
        "finish": str(sample.finish),
        "length": sample.length,
        "seed": sample.seed,
        "version": int(sample.version.max()) if len(sample) else -1,
        "note": score.text,
    }
    return record | ({"parts": {name: _part(part) for name, part in score.parts.items()}} if score.parts else {})


def _part(part: PartScore) -> dict[str, Any]:
    """What a part of a reward said: its value, its weight, whether its condition held, and how its grading went."""
    told = {"value": part.value if math.isfinite(part.value) else None, "weight": part.weight, "counts": part.counts}
    behind = {"components": _numbers(part.components)} if part.components else {}
    return told | {"status": str(part.status)} | behind


def _numbers(components: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in components.items()}


def batch_records(
    step: int, groups: Sequence[Group], batch: Batch, limit: int, renderer: Renderer
) -> list[dict[str, Any]]:
    """The first groups of a batch, whole, as far as ``limit`` samples reach."""
    records: list[dict[str, Any]] = []
    row = 0
    for group in groups:
        if len(records) + len(group.samples) > limit:
            break
        for sample, score in zip(group.samples, group.scores, strict=True):
            record = sample_record(step, group.prompt, sample, score, renderer)
            records.append(record | {"advantage": float(batch.advantage[row])})
            row += 1
    return records


def heldout_records(step: int, evaluation: Evaluation, renderer: Renderer, limit: int) -> list[dict[str, Any]]:
    """The first samples of an evaluation."""
    graded = [
        (prompt, sample, score)
        for prompt, samples, scores in zip(evaluation.prompts, evaluation.samples, evaluation.scores, strict=True)
        for sample, score in zip(samples, scores, strict=True)
    ]
    return [sample_record(step, prompt, sample, score, renderer) for prompt, sample, score in graded[:limit]]
