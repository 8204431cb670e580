"""Samples as records for ``samples/*.jsonl``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

import numpy as np

from surefoot.evaluation.evaluate import Evaluation
from surefoot.policy.packing import loss_mask
from surefoot.tasks.gold import shown
from surefoot.tasks.pieces import Pieces
from surefoot.tasks.render import Renderer
from surefoot.training.batch import Batch
from surefoot.training.details import Details, RowDetails
from surefoot.types import Group, Origin, PartScore, Prompt, Sample, Score


def sample_record(step: int, prompt: Prompt, sample: Sample, score: Score, renderer: Renderer) -> dict[str, Any]:
    """One sample as a person reads it; with the parts of its reward, where that is a sum of several."""
    record = {
        "step": step,
        "prompt_id": sample.prompt_id,
        "sample_id": sample.sample_id,
        "prompt": prompt.text,
        "completion": renderer.decode(sample),
        "answer": prompt.answer if isinstance(prompt.answer, (str, int, float, NoneType)) else shown(prompt.answer),
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
    step: int, groups: Sequence[Group], batch: Batch, limit: int, renderer: Renderer, details: Details | None = None
) -> list[dict[str, Any]]:
    """The first groups of a batch, whole, as far as ``limit`` samples reach; the first of them with their tokens.

    The very first record also has the text that the model read (``rendered``), with template and worked examples.

    Args:
        step, groups, batch: what was trained on.
        limit: samples at most.
        renderer: knows the tokenizer.
        details: what the update computed of single tokens, and of how many samples they are kept; None: of none.
    """
    records: list[dict[str, Any]] = []
    row = 0
    for group in groups:
        if len(records) + len(group.samples) > limit:
            break
        for sample, score in zip(group.samples, group.scores, strict=True):
            record = sample_record(step, group.prompt, sample, score, renderer)
            record["advantage"] = float(batch.advantage[row])
            if details is not None and row < details.limit:
                advantage = None if batch.token_advantage is None else batch.token_advantage[row]
                record["tokens"] = token_record(sample, renderer.pieces, advantage, details.rows.get(row))
            records.append(record)
            row += 1
    if records:
        records[0]["rendered"] = renderer.text(groups[0].prompt)
    return records


def heldout_records(
    step: int, evaluation: Evaluation, renderer: Renderer, limit: int, token_details: int = 0
) -> list[dict[str, Any]]:
    """The first ``limit`` samples of an evaluation, the first ``token_details`` of them with their tokens."""
    graded = [
        (prompt, sample, score)
        for prompt, samples, scores in zip(evaluation.prompts, evaluation.samples, evaluation.scores, strict=True)
        for sample, score in zip(samples, scores, strict=True)
    ]
    records = [sample_record(step, prompt, sample, score, renderer) for prompt, sample, score in graded[:limit]]
    if records:
        records[0]["rendered"] = renderer.text(graded[0][0])
    for record, (_, sample, _) in list(zip(records, graded, strict=False))[:token_details]:
        record["tokens"] = token_record(sample, renderer.pieces)
    return records


def token_record(
    sample: Sample, pieces: Pieces, advantage: np.ndarray | None = None, details: RowDetails | None = None
) -> dict[str, Any]:
    """The tokens after the prompt, one by one: lists of equal length, null where a token has no such value.

    Numbers are rounded (three decimals in nats, four digits of a ratio), and what is the same for all tokens is said once.

    Args:
        sample: whose tokens they are.
        pieces: makes their texts.
        advantage: [L] of the loss tokens, where advantages differ within the row.
        details: what the update computed; None where the sample did not go through it.
    """
    tail = slice(sample.prompt_length, None)
    trained = loss_mask(sample)[tail]
    wrote = sample.mask[tail]
    record: dict[str, Any] = {
        "text": pieces(sample.ids[tail].tolist()),
        "logp": _spread(wrote, sample.logp_behaviour[tail][wrote]),
    }
    origins = [Origin(value).name.lower() for value in sample.origin[tail].tolist()]
    if not wrote.all():
        record["origin"] = origins
    versions = sample.version[tail][wrote]
    if len(np.unique(versions)) > 1:
        record["version"] = _spread(wrote, versions)
    if advantage is not None:
        record["advantage"] = _spread(trained, advantage)
    if details is None:
        return record
    for name, values, digits in (
        ("logp_start", details.logp_start, None),
        ("ratio", details.ratio, 4),
        ("entropy", details.entropy, None),
    ):
        if values is not None:
            record[name] = _spread(trained, values, digits)
    if details.bounds is not None:
        places = np.flatnonzero(trained)
        record["bounds"] = {name: places[found].tolist() for name, found in details.bounds.items() if len(found)}
    return record


def _spread(mask: np.ndarray, values: np.ndarray, digits: int | None = None) -> list[float | int | None]:
    """Values of the tokens in ``mask``, [n] -> [T], rounded to three decimals or to a number of digits."""
    spread: list[float | int | None] = [None] * len(mask)
    for place, value in zip(np.flatnonzero(mask).tolist(), values.tolist(), strict=True):
        if isinstance(value, int):
            spread[place] = value
        elif math.isfinite(value):
            spread[place] = float(f"{value:.{digits}g}") if digits else round(value, 3)
    return spread
