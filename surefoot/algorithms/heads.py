"""Heads: in which precision hidden states become logits, in the engine and in the trainer alike."""

from __future__ import annotations

from surefoot.algorithms.part import part


@part("head", "", "", "idle")
def as_model() -> bool:
    """The language-model head computes in the numbers of the model."""
    return False


@part("head", "logits = W h in float32, engine and trainer", r"z = W h \text{{ in float32, engine and trainer}}")
def float32() -> bool:
    """The head multiplies in float32 on both sides (MiniMax-M1, arXiv 2506.13585; ScaleRL, arXiv 2510.13786).

    The logits of a bfloat16 product differ between engine and trainer by more than their weights do; the ratio between
    the two then says what rounding did. It costs nothing where the model is in float32 already.
    """
    return True
