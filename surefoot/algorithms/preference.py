"""Direct alignment: losses of preference pairs, [P], that need no reward model and no sampling.

With the log-ratios r = log pi(y) - log pi_ref(y) of the chosen (w) and the rejected (l) completion, and s the sigmoid. Every
loss is minimised. ``beta`` is not the same thing everywhere: it scales the reward of some losses and sets the target of
others, so a comparison at equal beta says nothing (arXiv 2502.01237). The losses in odds are in
``preference_odds``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import logsigmoid

from surefoot.algorithms.part import part
from surefoot.algorithms.preference_pairs import Labelled, Pairs

# An infinite number would make the loss infinite, or infinity minus infinity.
Beta = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Margin = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Smoothing = Annotated[float, Field(ge=0, lt=0.5, allow_inf_nan=False)]
Decay = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]

SHIFT = "bco_shift"


def _margin(pairs: Pairs, length_normalise: bool = False) -> Tensor:
    """[P], r_w - r_l, each per token where asked."""
    chosen, rejected = pairs.log_ratios()
    if length_normalise:
        length_chosen, length_rejected = pairs.lengths()
        chosen, rejected = chosen / length_chosen, rejected / length_rejected
    return chosen - rejected


def _margin_text(length_normalise: bool) -> str:
    return "r_w/|y_w| - r_l/|y_l|" if length_normalise else "r_w - r_l"


def _margin_latex(length_normalise: bool) -> str:
    return r"\tfrac{r_w}{|y_w|}-\tfrac{r_l}{|y_l|}" if length_normalise else "r_w-r_l"


def _dpo_text(beta: float, label_smoothing: float, length_normalise: bool) -> str:
    z = f"{beta:g} ({_margin_text(length_normalise)})"
    if label_smoothing == 0:
        return f"l_p = -log s({z})"
    return f"l_p = -{1 - label_smoothing:g} log s(z_p) - {label_smoothing:g} log s(-z_p),  z_p = {z}"


def _dpo_latex(beta: float, label_smoothing: float, length_normalise: bool) -> str:
    z = rf"{beta:g}\big({_margin_latex(length_normalise)}\big)"
    if label_smoothing == 0:
        return rf"\ell_p = -\log\sigma\Big({z}\Big)"
    return rf"\ell_p = -{1 - label_smoothing:g}\log\sigma(z_p) - {label_smoothing:g}\log\sigma(-z_p),\; z_p = {z}"


@part("preference", _dpo_text, _dpo_latex, "reference")
def dpo(
    pairs: Pairs,
    *,
    beta: Beta = 0.1,
    label_smoothing: Smoothing = 0.0,
    length_normalise: bool = False,
) -> Tensor:
    """A logistic regression on the margin r_w - r_l (DPO, arXiv 2305.18290).

    ``label_smoothing`` is the share of labels that are taken to be wrong (cDPO). Nothing holds the chosen log-probability up:
    both may fall while the margin grows.
    """
    z = beta * _margin(pairs, length_normalise)
    return -(1 - label_smoothing) * logsigmoid(z) - label_smoothing * logsigmoid(-z)


@part(
    "preference",
    lambda beta, length_normalise: f"l_p = ({_margin_text(length_normalise)} - 1/(2 * {beta:g}))^2",
    lambda beta, length_normalise: (
        rf"\ell_p = \Big({_margin_latex(length_normalise)} - \tfrac{{1}}{{2\cdot{beta:g}}}\Big)^2"
    ),
    "reference",
)
def ipo(pairs: Pairs, *, beta: Beta = 0.1, length_normalise: bool = False) -> Tensor:
    """Pulls the margin to 1/(2 beta) instead of pushing it on for ever (IPO, arXiv 2310.12036).

    The log-ratios are sums over the completion, as in the paper; libraries that normalise them by length compute something
    else under this name.
    """
    return (_margin(pairs, length_normalise) - 1 / (2 * beta)).square()


@part(
    "preference",
    "l_p = max(0, 1 - {beta:g} (r_w - r_l))",
    r"\ell_p = \max\big(0,\,1-{beta:g}(r_w-r_l)\big)",
    "reference",
)
def hinge(pairs: Pairs, *, beta: Beta = 0.1) -> Tensor:
    """No loss once the margin is 1/beta (SLiC-HF, arXiv 2305.10425; with a reference as in RSO, arXiv 2309.06657)."""
    return (1 - beta * _margin(pairs)).clamp(min=0)


@part(
    "preference",
    "l_p = -log s({beta:g} (log pi(y_w)/|y_w| - log pi(y_l)/|y_l|) - {gamma:g})",
    r"\ell_p = -\log\sigma\Big({beta:g}\big(\tfrac{{\log\pi_\theta(y_w)}}{{|y_w|}}-\tfrac{{\log\pi_\theta(y_l)}}{{|y_l|}}\big)"
    r"-{gamma:g}\Big)",
)
def simpo(pairs: Pairs, *, beta: Beta = 2.0, gamma: Margin = 1.0) -> Tensor:
    """Mean log-probabilities instead of log-ratios, and a target margin (SimPO, arXiv 2405.14734). No reference policy.

    ``gamma`` is subtracted after scaling, as in the paper; where a library asks for the ratio gamma / beta, multiply.
    """
    chosen, rejected = pairs.mean_logps()
    return -logsigmoid(beta * (chosen - rejected) - gamma)


@part(
    "preference",
    "l_p = -log s({beta:g} r_w) - 1/2 log s(-{beta:g} r_w) - 1/2 log s(-{beta:g} r_l)",
    r"\ell_p = -\log\sigma({beta:g}r_w)-\tfrac12\log\sigma(-{beta:g}r_w)-\tfrac12\log\sigma(-{beta:g}r_l)",
    "reference",
)
def nca(pairs: Pairs, *, beta: Beta = 0.1) -> Tensor:
    """Absolute likelihoods instead of a margin (NCA, arXiv 2402.05369): the chosen reward is pulled to log 2."""
    chosen, rejected = (beta * ratio for ratio in pairs.log_ratios())
    return -logsigmoid(chosen) - 0.5 * logsigmoid(-chosen) - 0.5 * logsigmoid(-rejected)


@part(
    "preference",
    "l_p = (r_w - 1/(2 * {beta:g}))^2 + (r_l + 1/(2 * {beta:g}))^2",
    r"\ell_p = \big(r_w-\tfrac{{1}}{{2\cdot{beta:g}}}\big)^2+\big(r_l+\tfrac{{1}}{{2\cdot{beta:g}}}\big)^2",
    "reference",
)
def sppo_hard(pairs: Pairs, *, beta: Beta = 0.1) -> Tensor:
    """A target for each log-ratio, +- 1/(2 beta) (SPPO, arXiv 2405.00675, with 1 and 0 as the chances to win)."""
    chosen, rejected = pairs.log_ratios()
    target = 1 / (2 * beta)
    return (chosen - target).square() + (rejected + target).square()


@part(
    "preference",
    "l_p = -log s(r_w - r_l) + (r_w - 1/(2 * {beta:g}))^2 + (r_l + 1/(2 * {beta:g}))^2",
    r"\ell_p = -\log\sigma(r_w-r_l)+\big(r_w-\tfrac{{1}}{{2\cdot{beta:g}}}\big)^2"
    r"+\big(r_l+\tfrac{{1}}{{2\cdot{beta:g}}}\big)^2",
    "reference",
)
def cal_dpo(pairs: Pairs, *, beta: Beta = 0.1) -> Tensor:
    """DPO with the log-ratios calibrated to +- 1/(2 beta) (Cal-DPO, arXiv 2412.14516). The DPO term has a beta of 1."""
    return -logsigmoid(_margin(pairs)) + sppo_hard.fn(pairs, beta=beta)


@part(
    "preference",
    "l_p = -s({beta:g} r_w) + s({beta:g} r_l)",
    r"\ell_p = -\sigma({beta:g}r_w)+\sigma({beta:g}r_l)",
    "reference",
)
def apo_zero(pairs: Pairs, *, beta: Beta = 0.1) -> Tensor:
    """Chosen up, rejected down (APO-zero, arXiv 2408.06266): for chosen completions better than what the policy writes.

    Its value is 0 at the reference; libraries that add 1 print another number with the same gradient.
    """
    chosen, rejected = pairs.log_ratios()
    return torch.sigmoid(beta * rejected) - torch.sigmoid(beta * chosen)


@part(
    "preference",
    "l_p = s({beta:g} r_w) - s({beta:g} (r_w - r_l))",
    r"\ell_p = \sigma({beta:g}r_w)-\sigma\big({beta:g}(r_w-r_l)\big)",
    "reference",
)
def apo_down(pairs: Pairs, *, beta: Beta = 0.1) -> Tensor:
    """Both down, the rejected more (APO-down, arXiv 2408.06266): for a policy that writes better than the chosen completions."""
    chosen, rejected = pairs.log_ratios()
    return torch.sigmoid(beta * chosen) - torch.sigmoid(beta * (chosen - rejected))


def _bco_text(beta: float, decay: float) -> str:
    if decay == 1:
        return f"l_p = -log s({beta:g} r_w) - log s(-{beta:g} r_l)"
    return (
        f"l_p = -log s({beta:g} r_w - d) - log s(d - {beta:g} r_l),  "
        f"d <- {decay:g} d + {1 - decay:g} mean({beta:g} (r_w + r_l)/2) after each step"
    )


def _bco_latex(beta: float, decay: float) -> str:
    if decay == 1:
        return rf"\ell_p = -\log\sigma({beta:g}r_w)-\log\sigma(-{beta:g}r_l)"
    return (
        rf"\ell_p = -\log\sigma({beta:g}r_w-\delta)-\log\sigma(\delta-{beta:g}r_l),\;"
        rf"\delta\leftarrow {decay:g}\delta+{1 - decay:g}\,\overline{{{beta:g}\tfrac{{r_w+r_l}}{{2}}}}"
    )


@part("preference", _bco_text, _bco_latex, "reference", "memory")
def bco(pairs: Pairs, *, beta: Beta = 0.1, decay: Decay = 1.0) -> Tensor:
    """A classifier of chosen against rejected whose logit is the reward beta r (BCO, arXiv 2404.04656).

    With ``decay`` below 1 the reward is shifted by its running mean over both kinds, which brings the loss nearer to that of
    DPO. The shift has no gradient, starts at 0 (exact at the reference), is that *before* the step, and is moved after it by
    :func:`surefoot.algorithms.preference_objective.remember`: no split into micro-batches changes it. 1 is no shift.
    """
    chosen, rejected = pairs.log_ratios()
    shift = 0.0 if decay == 1 else pairs.memory.get(SHIFT, 0.0)
    return -logsigmoid(beta * chosen - shift) - logsigmoid(shift - beta * rejected)


def moved_shift(memory: Mapping[str, float], mean_reward: float, decay: float) -> float:
    """The running mean of BCO after a step whose rewards beta r, of chosen and rejected alike, had this mean."""
    return decay * memory.get(SHIFT, 0.0) + (1 - decay) * mean_reward


@part(
    "preference",
    "l_i = {weight_desirable:g} (1 - s({beta:g} (r_i - z0))) if desirable, else {weight_undesirable:g} "
    "(1 - s({beta:g} (z0 - r_i))),  z0 = sg(max(0, mean of r over mismatched (x_i, y_j)))",
    r"\ell_i = \begin{{cases}}{weight_desirable:g}\big(1-\sigma({beta:g}(r_i-z_0))\big)&\text{{desirable}}\\"
    r"{weight_undesirable:g}\big(1-\sigma({beta:g}(z_0-r_i))\big)&\text{{undesirable}}\end{{cases}},\;"
    r"z_0 = \operatorname{{sg}}\max\big(0,\,\overline{{r(x_i,y_j)}}\big)",
    "reference",
    "unpaired",
)
def kto(
    completions: Labelled,
    *,
    beta: Beta = 0.1,
    weight_desirable: Weight = 1.0,
    weight_undesirable: Weight = 1.0,
) -> Tensor:
    """Completions that are desirable or not, against a reference point instead of a partner (KTO, arXiv 2402.01306).

    Returns [N]. The reference point z0 estimates the divergence of the policy from the reference; it is biased and noisy in
    small batches, and has no gradient. The weights make up for unequal numbers of the two kinds.
    """
    point = completions.mismatched.mean().clamp(min=0).detach().to(completions.logp.dtype)
    z = beta * (completions.log_ratio() - point)
    # 1 - s(z) = s(-z), without the cancellation at large z.
    return torch.where(
        completions.desirable, weight_desirable * torch.sigmoid(-z), weight_undesirable * torch.sigmoid(z)
    )
