"""From samples to micro-batches: rows of similar length together, or those that share a prompt where that saves more; and
the denominators of the whole step beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch

from surefoot.batches import Packed, Totals
from surefoot.policy.layout import GAIN, Layout
from surefoot.types import Sample


def loss_mask(sample: Sample) -> np.ndarray:
    """[T] bool, the tokens that the policy wrote; a token at position 0 has no predecessor that could predict it."""
    mask = sample.mask.copy()
    mask[:1] = False
    return mask


def count(samples: Sequence[Sample], group: Sequence[int], constant: float) -> Totals:
    """Denominators of an optimiser step over ``samples``.

    Args:
        samples: all samples of the optimiser step.
        group: for each sample, the number of its group.
        constant: the constant length that ``seq_mean_token_sum_norm`` divides by.

    Raises:
        ValueError: when ``group`` and ``samples`` differ in length.
    """
    same_length(samples, group=group)
    tokens = np.array([loss_mask(sample).sum() for sample in samples], dtype=np.int64)
    groups = {number for number, n in zip(group, tokens, strict=True) if n > 0}
    return Totals(float(tokens.sum()), float((tokens > 0).sum()), float(len(groups)), float(constant))


def pack(
    samples: Sequence[Sample],
    advantage: Sequence[float] | Sequence[np.ndarray],
    group: Sequence[int],
    totals: Totals,
    *,
    max_tokens: int,
    order: Literal["length", "given"] = "length",
    layout: Layout = "right",
    skip: Sequence[bool] | None = None,
    weight: Sequence[float] | Sequence[np.ndarray] | None = None,
) -> list[Packed]:
    """Split the samples of an optimiser step into micro-batches.

    A sample without loss tokens (an empty completion) is in none of them. The same samples give the same micro-batches.
    What the engine reports is carried as it is: a log-probability that is not finite is for the loss to leave out.

    Args:
        samples: the samples of the optimiser step.
        advantage: for each sample a number, or an array [T] with one for each of its tokens.
        group: for each sample, the number of its group.
        totals: of the optimiser step, from :func:`count`.
        max_tokens: limit of rows x longest row in a micro-batch; a longer row is a micro-batch of its own. Where prompts
            are shared, of prompts x longest prompt + rows x longest rest.
        order: ``"length"`` starts with the longest rows, and so needs the most memory first; ``"given"`` keeps the
            order of the samples.
        layout: of the forward pass; ``"shared"``, and ``"auto"`` where it saves tokens, put the samples of a prompt
            together.
        skip: for each sample, whether to leave it out of the micro-batches (it has no gradient); it still counts in
            ``group_tokens``.
        weight: for each sample the weight of its tokens, a number or an array [T]; 1 where it is left out.

    Raises:
        ValueError: an advantage or a weight that is not finite or not of its sample's length, a greedy (temperature 0)
            loss token, more loss tokens than ``totals`` has, samples that differ in K, or of which only some have the
            likeliest tokens.
    """
    optional = {name: values for name, values in {"skip": skip, "weight": weight}.items() if values is not None}
    same_length(samples, advantage=advantage, group=group, **optional)
    masks = [loss_mask(sample) for sample in samples]
    tokens = np.array([mask.sum() for mask in masks], dtype=np.float64)
    if tokens.sum() > totals.tokens:
        raise ValueError(f"{tokens.sum():.0f} loss tokens to pack, but totals.tokens = {totals.tokens:.0f}")
    _, member = np.unique(np.asarray(group, dtype=np.int64), return_inverse=True)
    group_tokens = np.bincount(member, weights=tokens)[member] if len(samples) else tokens
    rows = [
        Row(
            index=i,
            sample=sample,
            mask=masks[i],
            advantage=spread("advantage", advantage[i], masks[i], sample),
            weight=spread("weight", 1.0 if weight is None else weight[i], masks[i], sample, outside=1.0),
            tokens=tokens[i],
            group_tokens=group_tokens[i],
        )
        for i, sample in enumerate(samples)
        if tokens[i] > 0 and not (skip is not None and skip[i])
    ]
    refuse_greedy(rows)
    refuse_mixed_tops(rows)
    share = layout == "shared" or (layout == "auto" and sharing_pays(rows))
    if order == "length":
        longest_first(rows, together=share)
    return [join(rows_of_batch) for rows_of_batch in split(rows, max_tokens, share=share)]


def longest_first(rows: list[Row], *, together: bool) -> None:
    """Sort rows by length, equal lengths in the order given; ``together`` moves those of a prompt up to its longest."""
    rows.sort(key=lambda row: -len(row.sample))
    if together:
        first: dict[bytes, int] = {}
        for place, row in enumerate(rows):
            first.setdefault(row.prompt, place)
        rows.sort(key=lambda row: first[row.prompt])


@dataclass(frozen=True)
class Row:
    """A sample on its way into a micro-batch: ``mask``, ``advantage`` and ``weight`` are [T]."""

    index: int
    sample: Sample
    mask: np.ndarray
    advantage: np.ndarray
    weight: np.ndarray
    tokens: float
    group_tokens: float

    @cached_property
    def start(self) -> int:
        """Tokens before the first loss token."""
        return int(self.mask.argmax())

    @cached_property
    def prompt(self) -> bytes:
        """These tokens, for comparison."""
        return self.sample.ids[: self.start].tobytes()


@dataclass(frozen=True, slots=True)
class Extent:
    """Places that a micro-batch takes: prompts x longest prompt + rows x longest rest. ``prompt`` is the last one's."""

    prompts: int = 0
    longest_prompt: int = 0
    rows: int = 0
    longest_rest: int = 0
    prompt: bytes | None = None

    @property
    def places(self) -> int:
        return self.prompts * self.longest_prompt + self.rows * self.longest_rest

    def plus(self, row: Row, *, share: bool) -> Extent:
        start = row.start if share else 0
        rest = max(self.longest_rest, len(row.sample) - start)
        if not share or row.prompt == self.prompt:
            return Extent(self.prompts, self.longest_prompt, self.rows + 1, rest, self.prompt)
        return Extent(self.prompts + 1, max(self.longest_prompt, start), self.rows + 1, rest, row.prompt)


def sharing_pays(rows: Sequence[Row]) -> bool:
    """Whether putting the samples of a prompt together leaves clearly fewer tokens to compute."""
    whole = sum(len(row.sample) for row in rows)
    prompts = {row.prompt: row.start for row in rows}
    return sum(prompts.values()) + sum(len(row.sample) - row.start for row in rows) <= GAIN * whole


def spread(
    name: str, given: float | np.ndarray, mask: np.ndarray, sample: Sample, *, outside: float = 0.0
) -> np.ndarray:
    """[T] float32, what is given for each loss token, and ``outside`` elsewhere."""
    values = np.asarray(given, dtype=np.float32)
    if values.ndim and values.shape != mask.shape:
        raise ValueError(f"{named(sample)}: {name} of shape {values.shape} for {len(mask)} tokens")
    finite = np.isfinite(values).all() if values.ndim == 0 else np.isfinite(values[mask]).all()
    values = np.where(mask, values, np.float32(outside))
    if not finite:
        raise ValueError(f"{named(sample)}: its {name} is not finite; leave invalid samples out")
    return values


def refuse_greedy(rows: Sequence[Row]) -> None:
    for row in rows:
        if row.sample.temperature.min() <= 0 and not (row.sample.temperature[row.mask] > 0).all():
            raise ValueError(
                f"{named(row.sample)}: sampled greedily (temperature 0), which has no log-probability to train on"
            )


def refuse_mixed_tops(rows: Sequence[Row]) -> None:
    """Either every sample has its K likeliest tokens, with one K, or none has."""
    held = {None if row.sample.top_ids is None else row.sample.top_ids.shape[1]: row.sample for row in rows}
    if len(held) > 1:
        told = ", ".join(f"{named(sample)} has {'none' if k is None else k}" for k, sample in held.items())
        raise ValueError(
            f"the likeliest tokens of the samples cannot be packed together: {told}; sample all of them with one "
            f"Sampling.top_logprobs"
        )


def named(sample: Sample) -> str:
    return f"sample {sample.prompt_id}/{sample.sample_id}"


def split(rows: Sequence[Row], max_tokens: int, *, share: bool = False) -> list[list[Row]]:
    """Cut the rows, in their order, wherever one more would take more than ``max_tokens`` places."""
    batches: list[list[Row]] = []
    extent = Extent()
    for row in rows:
        extent = extent.plus(row, share=share)
        if not batches or extent.places > max_tokens:
            batches.append([])
            extent = Extent().plus(row, share=share)
        batches[-1].append(row)
    return batches


def join(rows: Sequence[Row]) -> Packed:
    """Put rows behind one another."""
    lengths = np.array([len(row.sample) for row in rows], dtype=np.int64)
    start = np.concatenate([[0], np.cumsum(lengths)])

    def stream(parts: list[np.ndarray], dtype: type) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(parts).astype(dtype, copy=False))

    top_ids = [row.sample.top_ids for row in rows if row.sample.top_ids is not None]
    top_logp = [row.sample.top_logp for row in rows if row.sample.top_logp is not None]

    return Packed(
        ids=stream([row.sample.ids for row in rows], np.int64),
        positions=torch.from_numpy(np.arange(start[-1]) - np.repeat(start[:-1], lengths)),
        seq_start=torch.from_numpy(start),
        seq_index=torch.from_numpy(np.repeat(np.arange(len(rows)), lengths)),
        mask=stream([row.mask for row in rows], np.bool_),
        advantage=stream([row.advantage for row in rows], np.float32),
        logp_behaviour=stream([row.sample.logp_behaviour for row in rows], np.float32),
        temperature=stream([row.sample.temperature for row in rows], np.float32),
        kept_logmass=stream([row.sample.kept_logmass for row in rows], np.float32),
        loss_tokens=torch.tensor([row.tokens for row in rows], dtype=torch.float64),
        group_tokens=torch.tensor([row.group_tokens for row in rows], dtype=torch.float64),
        sample_index=torch.tensor([row.index for row in rows], dtype=torch.int64),
        weight=stream([row.weight for row in rows], np.float32),
        top_ids=stream(top_ids, np.int64) if top_ids else None,
        top_logp_behaviour=stream(top_logp, np.float32) if top_logp else None,
    )


def same_length(samples: Sequence[Sample], **others: Sequence[object]) -> None:
    for name, values in others.items():
        if len(values) != len(samples):
            raise ValueError(f"{len(samples)} samples, but {name} has {len(values)} entries")
