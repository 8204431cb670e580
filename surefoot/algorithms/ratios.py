"""Importance ratios, their levels and their anchors. All [M]; a row's value is broadcast over its tokens."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from surefoot.algorithms.part import part
from surefoot.algorithms.tokens import Tokens

# exp(20) is about 5e8. Beyond it the ratio carries no information and its gradient would only destroy the step, so the
# clamp (which has no gradient outside) is wanted.
LOG_RATIO_LIMIT = 20.0


def bounded_exp(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def anchor_of(tokens: Tokens, anchor: str) -> Tensor:
    return tokens.logp_old if anchor == "old" else tokens.logp_behaviour


@part("ratio", "(no importance ratio)", r"\text{{(no importance ratio)}}")
def none(tokens: Tokens) -> Tensor | None:
    """No ratio: the score-function form. Exact for one update per batch."""
    return None


@part(
    "ratio",
    "x_it = pi(y_it) / pi_{anchor}(y_it)",
    r"x_{{it}} = \frac{{\pi_\theta(y_{{it}})}}{{\pi_{{\text{{{anchor}}}}}(y_{{it}})}}",
)
def token(tokens: Tokens, *, anchor: Literal["old", "behaviour"] = "old") -> Tensor:
    """The ratio of each token (PPO, arXiv 1707.06347)."""
    return bounded_exp(tokens.logp - anchor_of(tokens, anchor))


@part(
    "ratio",
    "x_it = s_i = exp(mean_t log(pi(y_it) / pi_{anchor}(y_it)))",
    r"x_{{it}} = s_i = "
    r"\exp\Big(\tfrac{{1}}{{L_i}}\sum_t\log\frac{{\pi_\theta(y_{{it}})}}{{\pi_{{\text{{{anchor}}}}}(y_{{it}})}}\Big)",
    "row",
)
def sequence(tokens: Tokens, *, anchor: Literal["old", "behaviour"] = "old") -> Tensor:
    """The geometric mean of a row's token ratios (GSPO, arXiv 2507.18071); clipping keeps or drops whole rows."""
    return bounded_exp(tokens.row_mean(tokens.logp - anchor_of(tokens, anchor)))[tokens.row]


@part(
    "ratio",
    "x_it = sg(s_i) pi(y_it) / sg(pi(y_it)),  s_i = exp(mean_t log(pi / pi_{anchor}))",
    r"x_{{it}} = \operatorname{{sg}}(s_i)\frac{{\pi_\theta(y_{{it}})}}{{\operatorname{{sg}}(\pi_\theta(y_{{it}}))}},\;"
    r"s_i = \exp\Big(\tfrac{{1}}{{L_i}}\sum_t\log\frac{{\pi_\theta}}{{\pi_{{\text{{{anchor}}}}}}}\Big)",
    "row",
    "tokens",
)
def sequence_token(tokens: Tokens, *, anchor: Literal["old", "behaviour"] = "old") -> Tensor:
    """The value of the row's ratio with a gradient for each token (GSPO-token): what advantages per token need."""
    value = bounded_exp(tokens.row_mean((tokens.logp - anchor_of(tokens, anchor)).detach()))[tokens.row]
    return value * (tokens.logp - tokens.logp.detach()).exp()


@part(
    "ratio",
    "x_it = exp(sum_t log(pi(y_it) / pi_{anchor}(y_it)))",
    r"x_{{it}} = \exp\Big(\sum_t\log\frac{{\pi_\theta(y_{{it}})}}{{\pi_{{\text{{{anchor}}}}}(y_{{it}})}}\Big)",
    "row",
)
def sequence_sum(tokens: Tokens, *, anchor: Literal["old", "behaviour"] = "old") -> Tensor:
    """The exact importance ratio of a whole row. Its spread grows exponentially with the length: for short rows only."""
    return bounded_exp(tokens.row_sum(tokens.logp - anchor_of(tokens, anchor)))[tokens.row]


def _log_text(anchor: str, length_normalise: bool) -> str:
    return f"x_it = x_i = {'mean' if length_normalise else 'sum'}_t log(pi(y_it) / pi_{anchor}(y_it))"


def _log_latex(anchor: str, length_normalise: bool) -> str:
    over = r"\tfrac{1}{L_i}" if length_normalise else ""
    return rf"x_{{it}} = x_i = {over}\sum_t\log\frac{{\pi_\theta(y_{{it}})}}{{\pi_{{\text{{{anchor}}}}}(y_{{it}})}}"


@part("ratio", _log_text, _log_latex, "row", "log")
def sequence_log(
    tokens: Tokens, *, anchor: Literal["old", "behaviour"] = "old", length_normalise: bool = False
) -> Tensor:
    """The log-ratio of a whole row, without an exponential: what a quadratic surrogate takes (Kimi k1.5, arXiv 2501.12599).

    The sum over the row, as in the paper, or with ``length_normalise`` its mean, since a penalty on the square of the sum
    grows with the square of the length. The value is kept within [-20, 20], without a gradient outside: a row that has
    drifted further would outweigh all others.
    """
    log_ratio = tokens.logp - anchor_of(tokens, anchor)
    value = tokens.row_mean(log_ratio) if length_normalise else tokens.row_sum(log_ratio)
    return value.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)[tokens.row]
