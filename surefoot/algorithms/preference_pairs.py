"""What the losses of direct alignment see: pairs of a chosen and a rejected completion, or labelled completions.

P pairs, N labelled completions. Log-probabilities are sums over the tokens of the completion, in nats; the tensors are
flat, so no function below pads or masks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from surefoot.errors import AlgorithmError

# A mean token probability above exp(-1e-7), about 1 - 1e-7, counts as that in log(1 - p), which is -inf at p = 1.
_LARGEST_LOG_P = -1e-7


@dataclass(frozen=True)
class Pairs:
    """P preference pairs.

    Attributes:
        logp_chosen, logp_rejected: [P], log pi(y) summed over the completion; the only fields with a gradient.
        reference_chosen, reference_rejected: [P], the same under the frozen reference policy, without a gradient; None
            for losses without a reference.
        length_chosen, length_rejected: [P], tokens of each completion, at least 1.
        memory: numbers that outlive a step (the running mean of BCO); part of the run state.

    Raises:
        AlgorithmError: tensors of different shapes, a completion without tokens, half a reference, or a reference with a
            gradient.
    """

    logp_chosen: Tensor
    logp_rejected: Tensor
    reference_chosen: Tensor | None
    reference_rejected: Tensor | None
    length_chosen: Tensor
    length_rejected: Tensor
    memory: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.reference_chosen is None) != (self.reference_rejected is None):
            raise AlgorithmError(
                "a reference was given for one completion of the pairs only: give both, or None for both"
            )
        references = {"reference_chosen": self.reference_chosen, "reference_rejected": self.reference_rejected}
        lengths = {"length_chosen": self.length_chosen, "length_rejected": self.length_rejected}
        _same_shape("pairs", self.logp_chosen, logp_rejected=self.logp_rejected, **references, **lengths)
        _without_gradient(**references)
        for name, length in lengths.items():
            empty = torch.nonzero(length < 1).flatten().tolist()
            if empty:
                raise AlgorithmError(
                    f"{name} is {float(length[empty[0]]):g} in pair {empty[0]} ({len(empty)} such pairs): a completion "
                    "needs at least one token, its end-of-sequence token counts; leave these pairs out"
                )

    def log_ratios(self) -> tuple[Tensor, Tensor]:
        """r_w and r_l, [P]: log pi(y) - log pi_ref(y)."""
        if self.reference_chosen is None or self.reference_rejected is None:
            raise AlgorithmError(
                "this loss compares with a reference policy, and the pairs have no reference log-probabilities: "
                "give reference_chosen and reference_rejected, or take a loss without a reference (simpo, orpo, asft)"
            )
        return self.logp_chosen - self.reference_chosen, self.logp_rejected - self.reference_rejected

    def lengths(self) -> tuple[Tensor, Tensor]:
        """[P], |y_w| and |y_l| in the type of the log-probabilities."""
        return self.length_chosen.to(self.logp_chosen.dtype), self.length_rejected.to(self.logp_chosen.dtype)

    def mean_logps(self) -> tuple[Tensor, Tensor]:
        """[P], log pi(y) / |y| of the chosen and of the rejected completion."""
        length_chosen, length_rejected = self.lengths()
        return self.logp_chosen / length_chosen, self.logp_rejected / length_rejected

    def log_odds(self) -> tuple[Tensor, Tensor]:
        """o_w and o_l, [P]: log(p / (1 - p)) of the mean token probability p = pi(y)^(1/|y|).

        ``p`` is held below 1 - 1e-7 in ``log(1 - p)`` alone, so a completion that is nearly certain keeps the gradient of
        its log-probability.
        """
        chosen, rejected = self.mean_logps()
        return chosen - _log_complement(chosen), rejected - _log_complement(rejected)


@dataclass(frozen=True)
class Labelled:
    """N completions, each labelled desirable or not, without partners.

    Attributes:
        logp: [N], log pi(y) summed over the completion; the only field with a gradient.
        reference: [N], the same under the frozen reference policy, without a gradient.
        desirable: [N] bool.
        mismatched: [Q], log pi(y_j | x_i) - log pi_ref(y_j | x_i) of completions under *other* prompts of the batch, without
            a gradient. Give those of the whole optimiser step to each micro-batch, or the loss depends on the split.

    Raises:
        AlgorithmError: tensors of different shapes, nothing mismatched, or a gradient where none belongs.
    """

    logp: Tensor
    reference: Tensor
    desirable: Tensor
    mismatched: Tensor

    def __post_init__(self) -> None:
        _same_shape("completions", self.logp, reference=self.reference, desirable=self.desirable)
        _without_gradient(reference=self.reference, mismatched=self.mismatched)
        if self.desirable.dtype != torch.bool:
            raise AlgorithmError(f"desirable must hold booleans, got {self.desirable.dtype}")
        if self.mismatched.numel() == 0:
            raise AlgorithmError(
                "the mean log-ratio of mismatched completions is the reference point of unpaired losses, and none was given: "
                "pair completions with other prompts of the batch (torch.zeros(1) sets the reference point to 0)"
            )

    def log_ratio(self) -> Tensor:
        """[N], log pi(y) - log pi_ref(y)."""
        return self.logp - self.reference


def _log_complement(log_p: Tensor) -> Tensor:
    """log(1 - p) from log p, exact for small p and near 1."""
    return (-torch.expm1(log_p.clamp(max=_LARGEST_LOG_P))).log()


def _same_shape(what: str, first: Tensor, **others: Tensor | None) -> None:
    if first.dim() != 1:
        raise AlgorithmError(f"{what} are flat tensors of one number each, got the shape {tuple(first.shape)}")
    for name, tensor in others.items():
        if tensor is not None and tensor.shape != first.shape:
            raise AlgorithmError(
                f"{name} has the shape {tuple(tensor.shape)} and there are {len(first)} {what}: expected ({len(first)},)"
            )


def _without_gradient(**tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.requires_grad:
            raise AlgorithmError(f"{name} carries a gradient and would train the reference policy: detach it")


def long2short_pairs(
    lengths: Sequence[int], correct: Sequence[bool], factor: float = 1.5
) -> tuple[int, tuple[int, ...]] | None:
    """Which completions of one prompt teach a model to be brief (long2short DPO of Kimi k1.5, arXiv 2501.12599).

    The shortest correct completion is preferred to every longer wrong one, and to every correct one that is at least
    ``factor`` times as long. Shorter wrong completions teach nothing about length and are left out.

    Args:
        lengths: tokens of each completion, at least 1.
        correct: whether each is right.
        factor: above 1.

    Returns:
        Index of the preferred completion (the first of several) and the indices of those that it is preferred to, which may be
        none; or None where no completion is right.

    Raises:
        AlgorithmError: a factor of 1 or less, another number of lengths than of labels, or a length below 1.
    """
    if len(lengths) != len(correct):
        raise AlgorithmError(f"{len(lengths)} lengths and {len(correct)} labels: expected one of each per completion")
    if not factor > 1:
        raise AlgorithmError(
            f"factor = {factor:g} would set equally long right answers against each other: give more than 1"
        )
    for i, length in enumerate(lengths):
        if not 1 <= length < math.inf:
            raise AlgorithmError(
                f"completion {i} has {length} tokens: a completion needs at least one, its end-of-sequence token counts; "
                "leave it out"
            )
    right = [i for i, is_right in enumerate(correct) if is_right]
    if not right:
        return None
    positive = min(right, key=lambda i: lengths[i])
    shortest = lengths[positive]
    negatives = tuple(
        i for i, length in enumerate(lengths) if (length >= factor * shortest if correct[i] else length > shortest)
    )
    return positive, negatives
