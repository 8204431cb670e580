"""What an update computes of single tokens, kept for the few samples that are written down with theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.tokens import Tokens


@dataclass(frozen=True)
class RowDetails:
    """The loss tokens of one sample when they last went through the update.

    Attributes:
        logp_start: [L] float32, the trainer's log-probabilities before the update; None where they are unknown
            (``train.old = "behaviour"`` takes the engine's for them).
        ratio: [L] float32, the importance ratio of the objective in the last pass; None where it has none.
        bounds: by the name of a bound of the surrogate, [n] int64, the tokens on which it acted in the last pass; None for
            a surrogate without bounds.
        entropy: [L] float32, of the next-token distributions in the last pass, in nats; None where it was not computed.
    """

    logp_start: np.ndarray | None
    ratio: np.ndarray | None
    bounds: dict[str, np.ndarray] | None
    entropy: np.ndarray | None


@dataclass
class Details:
    """Collects the details of the first rows of a batch while an update goes through them; the last pass stays.

    Reads tensors and changes none, so that a run with details is the run without, bit for bit.

    Args:
        algorithm: whose ratio and bounds they are.
        limit: rows of the batch that are wanted, from the first.
        old_is_trainers: whether the log-probabilities at the start of the update come from the trainer.
    """

    algorithm: Algorithm
    limit: int = 0
    old_is_trainers: bool = True
    rows: dict[int, RowDetails] = field(default_factory=dict)

    @torch.no_grad()
    def see(self, tokens: Tokens, index: Sequence[int]) -> None:
        """Take note of a micro-batch.

        Args:
            tokens: its loss tokens.
            index: for each of its rows, the row of the batch.
        """
        if not any(row < self.limit for row in index):
            return
        trusted = tokens.logp_behaviour.isfinite()
        anchored = tokens.logp_behaviour.where(trusted, tokens.logp_old)
        seen = Tokens(**{**vars(tokens), "logp": tokens.logp.detach(), "logp_behaviour": anchored})
        ratio = self.algorithm.ratio(seen)
        shares = None
        if ratio is not None and self.algorithm.trust.kind.shares is not None:
            shares = self.algorithm.trust.kind.shares(seen, ratio, **self.algorithm.trust.numbers)
        if "log" in self.algorithm.ratio.kind.traits:
            ratio = None
        stop = np.cumsum(tokens.loss_tokens.long().cpu().numpy())
        for row, first, last in zip(index, [0, *stop[:-1]], stop, strict=True):
            if row >= self.limit:
                continue
            part = slice(int(first), int(last))
            self.rows[row] = RowDetails(
                _numbers(seen.logp_old, part) if self.old_is_trainers else None,
                _numbers(ratio, part),
                None
                if shares is None
                else {name: np.flatnonzero(mask[part].cpu().numpy()) for name, mask in shares.items()},
                _numbers(tokens.entropy, part),
            )


def _numbers(value: torch.Tensor | None, part: slice) -> np.ndarray | None:
    return None if value is None else value[part].float().cpu().numpy()
