"""What is known of every loss token before the update: log-probabilities under other policies, entropies, values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.tokens import Tokens
from surefoot.batches import Packed, Totals
from surefoot.errors import NonFiniteError
from surefoot.policy.layout import Layout
from surefoot.policy.logprob import token_logprobs
from surefoot.policy.packing import loss_mask, pack
from surefoot.policy.policy import Policy
from surefoot.types import Sample

RowValues = list[Tensor]
TRAINER, REFERENCE = "the trainer's", "the reference's"


@dataclass(frozen=True)
class Streams:
    """Per-token values of the samples of a batch, a tensor [L_i] for each sample's loss tokens; None where not needed.

    Attributes:
        old: log-probabilities under the policy that starts the update.
        entropy: of that policy's next-token distributions, in nats.
        reference: log-probabilities under the reference policy.
        values: the critic's predictions.
    """

    old: RowValues | None = None
    entropy: RowValues | None = None
    reference: RowValues | None = None
    values: RowValues | None = None


def row_logprobs(
    policy: Policy,
    samples: Sequence[Sample],
    *,
    max_tokens: int,
    layout: Layout,
    entropy: bool = False,
    whose: str = TRAINER,
) -> tuple[RowValues, RowValues | None]:
    """Log-probabilities of each sample's loss tokens without a gradient, [L_i] each, and on demand the entropies.

    ``whose`` they are called in a message.

    Raises:
        NonFiniteError: a log-probability or an entropy is not finite.
    """
    empty = torch.zeros(0, device=policy.device)
    logps, entropies = [empty] * len(samples), [empty] * len(samples)
    totals = Totals(float("inf"), 1, 1)
    with torch.no_grad():
        numbers = list(range(len(samples)))
        for packed in pack(samples, [0.0] * len(samples), numbers, totals, max_tokens=max_tokens, layout=layout):
            packed = packed.to(policy.device)
            found = token_logprobs(policy, packed, layout=layout, entropy=entropy)
            refuse_non_finite(found.logp, packed, policy, f"{whose} log-probability")
            split_rows(found.logp, packed, logps)
            if found.entropy is not None:
                refuse_non_finite(found.entropy, packed, policy, f"{whose} entropy")
                split_rows(found.entropy, packed, entropies)
    return logps, entropies if entropy else None


def behaviour_logprobs(samples: Sequence[Sample], device: torch.device) -> RowValues | None:
    """The log-probabilities that the engine sampled with, [L_i] each; None where one of them is not finite."""
    rows = [torch.from_numpy(sample.logp_behaviour[loss_mask(sample)]).to(device) for sample in samples]
    return rows if all(bool(row.isfinite().all()) for row in rows) else None


def split_rows(value: Tensor, packed: Packed, rows: RowValues) -> None:
    """Put the values [M] of a micro-batch's loss tokens where their samples stand in the batch."""
    parts = value.split(packed.loss_tokens.long().tolist())
    for i, part in zip(packed.sample_index.tolist(), parts, strict=True):
        rows[i] = part


def on_tokens(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[L] values of the loss tokens, spread over all T tokens of a sample with 0 elsewhere. ``mask`` is [T] bool."""
    spread = np.zeros(len(mask))
    spread[mask] = values
    return spread


def token_weights(
    algorithm: Algorithm, streams: Streams, rows: np.ndarray, masks: Sequence[np.ndarray]
) -> list[np.ndarray] | None:
    """Token weights of a mini-batch, spread over the tokens of each sample; None where all count alike.

    Args:
        algorithm: whose weights they are.
        streams: of the whole batch.
        rows: the rows of the mini-batch in it.
        masks: their loss tokens, [T] bool each.
    """
    if "idle" in algorithm.weights.kind.traits or streams.old is None:
        return None
    lengths = [int(mask.sum()) for mask in masks]
    logp = torch.cat([streams.old[i] for i in rows])
    row = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor(lengths)).to(logp.device)
    tokens = Tokens(
        logp=logp,
        logp_old=logp,
        logp_behaviour=logp,
        advantage=torch.zeros_like(logp),
        row=row,
        loss_tokens=torch.tensor(lengths, dtype=torch.float64, device=logp.device),
        group_tokens=torch.zeros(len(rows), dtype=torch.float64, device=logp.device),
        entropy=None if streams.entropy is None else torch.cat([streams.entropy[i] for i in rows]),
    )
    found = algorithm.weights(tokens).cpu().numpy()
    return [on_tokens(mask, part) for mask, part in zip(masks, np.split(found, np.cumsum(lengths)[:-1]), strict=True)]


def refuse_non_finite(value: Tensor, packed: Packed, policy: Policy, what: str = f"{TRAINER} log-probability") -> None:
    """Raise NonFiniteError, naming the sample and the token, where a number [M] of loss tokens is not finite.

    A log-probability is made from the temperature and the kept mass that the engine reported: if one of those is to blame,
    it is named instead.
    """
    finite = torch.isfinite(value.detach())
    if bool(finite.all()):
        return
    where = int((~finite).nonzero()[0])
    at = int(packed.mask.nonzero()[where])
    row = int(packed.seq_index[at])
    token = policy.tokenizer.convert_ids_to_tokens(int(packed.ids[at]))
    number, remedy = float(value.detach()[where]), "look for non-finite weights (a too high optimiser.lr)"
    for name, given in (("kept_logmass", packed.kept_logmass), ("temperature", packed.temperature)):
        reported = float(given[at])
        if not math.isfinite(reported) or (name == "temperature" and reported <= 0):
            what, number, remedy = (
                f"the engine's {name}",
                reported,
                "the engine that sampled must report a finite number",
            )
            break
    raise NonFiniteError(
        f"{what} is {number} at token {int(packed.positions[at])} ({token!r}) of row {int(packed.sample_index[row])} of the "
        f"batch; no step was taken: {remedy}"
    )
