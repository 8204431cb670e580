"""Aggregation: from per-token losses to the loss of the optimiser step.

Every aggregation is a weight per row, ``L = sum_it C_i l_it``, and its denominators are :class:`~surefoot.batches.Totals`
of the whole optimiser step: no function here counts, so no split into micro-batches or ranks can change the loss.
A mean of means is not expressible.
"""

from __future__ import annotations

import torch
from torch import Tensor

from surefoot.algorithms.part import part
from surefoot.algorithms.tokens import Tokens
from surefoot.batches import Totals


def _one_over(value: float) -> float:
    return 1.0 / value if value > 0 else 0.0


def _per_row(tokens: Tokens, weight: float) -> Tensor:
    return torch.full_like(tokens.loss_tokens, weight)


@part("aggregation", "L = (1/N_tokens) sum_it l_it", r"L = \frac{{1}}{{\sum_i L_i}}\sum_{{i,t}}\ell_{{it}}")
def token_mean(tokens: Tokens, totals: Totals) -> Tensor:
    """Mean over the tokens of the step (DAPO as implemented): long rows weigh more."""
    return _per_row(tokens, _one_over(totals.tokens))


@part(
    "aggregation",
    "L = (1/N_rows) sum_i (1/L_i) sum_t l_it",
    r"L = \frac{{1}}{{N}}\sum_i\frac{{1}}{{L_i}}\sum_t\ell_{{it}}",
    "rows",
)
def seq_mean_token_mean(tokens: Tokens, totals: Totals) -> Tensor:
    """Mean over rows of the mean over tokens (GRPO as printed): a long wrong answer is punished less per token."""
    return _one_over(totals.sequences) / tokens.loss_tokens.clamp(min=1)


@part("aggregation", "L = (1/N_rows) sum_i sum_t l_it", r"L = \frac{{1}}{{N}}\sum_i\sum_t\ell_{{it}}")
def seq_mean_token_sum(tokens: Tokens, totals: Totals) -> Tensor:
    """Mean over rows of the sum over tokens: the score-function estimator of the expected reward."""
    return _per_row(tokens, _one_over(totals.sequences))


@part(
    "aggregation",
    "L = 1/(N_rows L_max) sum_it l_it,  L_max = the generation budget",
    r"L = \frac{{1}}{{N L_{{\max}}}}\sum_{{i,t}}\ell_{{it}}",
)
def seq_mean_token_sum_norm(tokens: Tokens, totals: Totals) -> Tensor:
    """As ``seq_mean_token_sum``, over a constant length (Dr. GRPO, arXiv 2503.20783): the budget, never the padded width."""
    return _per_row(tokens, _one_over(totals.sequences * totals.constant))


@part(
    "aggregation",
    "L = (1/N_prompts) sum_g (1/N_tokens(g)) sum_it l_it",
    r"L = \frac{{1}}{{P}}\sum_g\frac{{1}}{{\sum_{{i\in g}}L_i}}\sum_{{i\in g,t}}\ell_{{it}}",
)
def prompt_mean(tokens: Tokens, totals: Totals) -> Tensor:
    """Mean over prompts of the mean over the tokens of the prompt's group (ScaleRL, arXiv 2510.13786)."""
    return _one_over(totals.groups) / tokens.group_tokens.clamp(min=1)


@part("aggregation", "L = sum_it l_it", r"L = \sum_{{i,t}}\ell_{{it}}")
def token_sum(tokens: Tokens, totals: Totals) -> Tensor:
    """The plain sum; for diagnostics and for normalisation by hand."""
    return _per_row(tokens, 1.0)
